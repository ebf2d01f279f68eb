"""Faults of the CUDA backend's halves, of NVRTC and of the driver, for which a stand-in stands in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit import faulty_halves
from tests.unit.cuda.fake_driver import FakeDriver
from tests.unit.faulty_halves import FAULTS, Fault, compile_all, loads

import quernel as qn
from quernel.errors import CompilationError, DeviceError, LaunchError
from quernel.runtime.devices import Device
from quernel_cuda import _driver, _toolchain
from quernel_cuda.plugin import CudaBackend


@pytest.fixture
def cuda(fake: FakeDriver) -> Device:
    backend = CudaBackend()
    infos = backend.devices()
    assert isinstance(infos, tuple)
    return Device(backend.open(infos[0]), backend=backend)


def status(name: str) -> Any:
    return getattr(_driver.driver().CUresult, name)


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_fault_of_a_half_costs_its_own_kernel_only(cuda: Device, fault: Fault, tmp_path: Path) -> None:
    faulty_halves.hold_fault_against(cuda, fault, tmp_path)


def test_reporters_progress_hooks_and_records_that_fail_cost_no_kernel(cuda: Device, tmp_path: Path) -> None:
    faulty_halves.hold_tellers_against(cuda, tmp_path)


def test_unit_that_the_toolchain_refuses_is_compiled_kernel_by_kernel(
    cuda: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str, options: tuple[str, ...], entries: tuple[str, ...]) -> Any:
        raise CompilationError("NVRTC: out of memory")

    monkeypatch.setattr(_toolchain, "compile_unit", refuse)
    with qn.environment(tmp_path):
        compile_all(cuda)
    assert cuda.loader.counts().compiled == 3


@pytest.mark.parametrize(
    ("call", "reported", "expected"),
    [
        ("cuModuleLoadData", "CUDA_ERROR_OUT_OF_MEMORY", DeviceError),
        ("cuModuleLoadData", "CUDA_ERROR_INVALID_IMAGE", CompilationError),
        ("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND", CompilationError),
        ("cuCtxPushCurrent", "CUDA_ERROR_INVALID_CONTEXT", DeviceError),
    ],
)
def test_driver_that_loads_nothing_leaves_nothing_kept_and_no_context_current(
    cuda: Device, fake: FakeDriver, tmp_path: Path, call: str, reported: str, expected: type[Exception]
) -> None:
    with qn.environment(tmp_path):
        fake.failing[call] = status(reported)
        with pytest.raises(CompilationError, match="3 of 3 kernels failed: before, bad, after") as caught:
            compile_all(cuda)
        assert isinstance(caught.value.__cause__, expected)
        assert fake.current == []
        with pytest.raises(LaunchError, match="must not be within no_compiling"):
            loads(cuda, "before")
        fake.failing.clear()
        compile_all(cuda)
        assert (cuda.loader.counts().compiled, cuda.loader.counts().failed) == (3, 3)


def test_driver_without_memory_costs_no_kernel_that_is_kept(cuda: Device, fake: FakeDriver, tmp_path: Path) -> None:
    with qn.environment(tmp_path):
        compile_all(cuda)
    fake.failing["cuModuleLoadData"] = status("CUDA_ERROR_OUT_OF_MEMORY")
    cuda.operations.target.unload()
    with qn.environment(tmp_path), pytest.raises(CompilationError, match="3 of 3 kernels failed"):
        compile_all(cuda)
    fake.failing.clear()
    with qn.environment(tmp_path):
        assert loads(cuda, "before", "bad", "after") == 3
