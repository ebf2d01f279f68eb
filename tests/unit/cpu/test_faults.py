"""Faults of the CPU backend's halves: what failed, what its siblings got, what is kept, what the next launch does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit import faulty_halves
from tests.unit.faulty_halves import FAULTS, KERNELS, Fault, bad, compile_all

import quernel as qn
from quernel.compiler import Kernels
from quernel.errors import CompilationError, DeviceError
from quernel.runtime.devices import Device
from quernel.store import CompilationBatchRecord, Environment, read_records


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    with qn.environment(tmp_path) as opened:
        yield opened


@pytest.fixture
def cpu() -> Device:
    return qn.device("cpu")


def launched(name: str) -> float:
    x = np.zeros(8, np.float32)
    KERNELS[name].over(8)(x)
    assert len(set(x.tolist())) == 1
    return float(x[0])


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_fault_of_a_half_costs_its_own_kernel_only(cpu: Device, fault: Fault, tmp_path: Path) -> None:
    faulty_halves.hold_fault_against(cpu, fault, tmp_path)
    with qn.environment(tmp_path):
        assert [launched(name) for name in KERNELS] == [1.0, 2.0, 3.0]


def test_reporters_progress_hooks_and_records_that_fail_cost_no_kernel(cpu: Device, tmp_path: Path) -> None:
    faulty_halves.hold_tellers_against(cpu, tmp_path)


def test_what_failed_is_not_kept_and_its_siblings_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = type(qn.device("cpu").operations.target.compiler)
    sound = compiler.finalize

    def faulty(self: Any, id: Any, lowered: Any) -> Any:  # noqa: A002
        if id.kernel.name == "bad":
            raise CompilationError("LLVM says no")
        return sound(self, id, lowered)

    with qn.environment(tmp_path), monkeypatch.context() as patch:
        patch.setattr(compiler, "finalize", faulty)
        with pytest.raises(CompilationError, match="LLVM says no"):
            compile_all(qn.device("cpu"))
    records = read_records(tmp_path / "records")
    assert sorted(record.kernel for record in records if hasattr(record, "outcome")) == ["after", "before"]
    assert [record.asked for record in records if isinstance(record, CompilationBatchRecord)] == [3]
    with qn.environment(tmp_path):
        with qn.no_compiling():
            assert (launched("before"), launched("after")) == (1.0, 3.0)
        assert launched("bad") == 2.0


def test_reporters_and_hooks_that_fail_cost_no_kernel(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from quernel.runtime import loading

    class Failing:
        def compiled(self, record: object) -> None:
            raise ZeroDivisionError("in the hook")

        batch_closed = compiled

    monkeypatch.setattr(loading, "_observer", Failing)
    cpu = qn.device("cpu")

    def failing(compiled: Any) -> None:
        raise ZeroDivisionError("in the reporter")

    kernels: Kernels[Any, Any, Any] = cpu.kernels.reporting(failing)
    assert kernels.get(bad.specialize()).id.kernel.name == "bad"
    assert launched("before") == 1.0
    assert "a reporter failed when it was told of bad" in caplog.text
    assert "the records of a batch could not be kept" in caplog.text


@qn.kernel
def refused_once(x: qn.Array1[qn.f64]):  # type: ignore[no-untyped-def, valid-type]
    x[qn.global_id()] = 4.0


def test_stored_artifact_that_the_device_refuses_is_compiled_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = qn.device("cpu")
    with qn.environment(tmp_path):
        cpu.compile([refused_once])
    target = type(cpu.operations.target)
    sound, refused = target.load, []

    def refusing(self: Any, id: Any, artifact: Any) -> Any:  # noqa: A002
        if not refused:
            refused.append(id.kernel.name)
            raise DeviceError("made for another processor")
        return sound(self, id, artifact)

    before = cpu.loader.counts().compiled
    with qn.environment(tmp_path), monkeypatch.context() as patch:
        patch.setattr(target, "load", refusing)
        cpu.compile([refused_once])
    assert refused == ["refused_once"]
    assert cpu.loader.counts().compiled - before == 1
    with qn.environment(tmp_path), qn.no_compiling():
        cpu.compile([refused_once])
