"""Faults of the OpenCL backend's halves and of its driver, on every device there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit import faulty_halves
from tests.unit.faulty_halves import FAULTS, Fault
from tests.unit.opencl.harness import infos

import quernel as qn
from quernel.errors import CompilationError
from quernel.runtime.devices import Device
from quernel_opencl import _driver


@pytest.fixture
def opencl() -> Device:
    if not infos():
        pytest.skip("needs an OpenCL device, for example pip install quernel-opencl[pocl]")
    return qn.device("opencl:0")


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_fault_of_a_half_costs_its_own_kernel_only(opencl: Device, fault: Fault, tmp_path: Path) -> None:
    faulty_halves.hold_fault_against(opencl, fault, tmp_path)


def test_reporters_progress_hooks_and_records_that_fail_cost_no_kernel(opencl: Device, tmp_path: Path) -> None:
    faulty_halves.hold_tellers_against(opencl, tmp_path)


@qn.kernel
def refused_once(x: qn.Array1[qn.f32]):  # type: ignore[no-untyped-def, valid-type]
    x[qn.global_id()] = 4.0


def test_stored_binary_that_the_driver_refuses_is_built_once_more(
    opencl: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with qn.environment(tmp_path):
        opencl.compile([refused_once])
    sound, num_refused = _driver.program, []

    def refusing(device: object, binary: bytes) -> object:
        if not num_refused:
            num_refused.append(1)
            raise CompilationError("the driver refuses the binary")
        return sound(device, binary)

    num_before = opencl.loader.counts().compiled
    with qn.environment(tmp_path), monkeypatch.context() as patch:
        patch.setattr(_driver, "program", refusing)
        opencl.compile([refused_once])
    assert opencl.loader.counts().compiled - num_before == len(num_refused) == 1
    with qn.environment(tmp_path), qn.no_compiling():
        opencl.compile([refused_once])
