"""Faults of the CPU backend's halves: what failed, what its siblings got, what is kept, what the next launch does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import quernel as qn
from quernel.compiler import Kernels
from quernel.errors import CompilationError, DeviceError, StoreError
from quernel.runtime.devices import Device
from quernel.store import CompilationBatchRecord, Environment, read_records


@qn.kernel
def before(x: qn.Array1[qn.f64]):  # type: ignore[no-untyped-def, valid-type]
    x[qn.global_id()] = 1.0


@qn.kernel
def bad(x: qn.Array1[qn.f64]):  # type: ignore[no-untyped-def, valid-type]
    x[qn.global_id()] = 2.0


@qn.kernel
def after(x: qn.Array1[qn.f64]):  # type: ignore[no-untyped-def, valid-type]
    x[qn.global_id()] = 3.0


KERNELS = {"before": (before, 1.0), "bad": (bad, 2.0), "after": (after, 3.0)}


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    with qn.environment(tmp_path) as opened:
        yield opened


def launched(name: str) -> float:
    kernel, _ = KERNELS[name]
    x = np.zeros(8)
    kernel.over(8)(x)
    assert len(set(x.tolist())) == 1
    return float(x[0])


def compile_all(cpu: Device) -> None:
    """Queues what the launches need, and compiles it as one batch on threads, where this process's patches hold."""
    with ThreadPoolExecutor(2) as executor, cpu.compiling(executor=executor):
        for name in KERNELS:
            launched(name)


@attrs.frozen
class Fault:
    """A method of a half that raises for the kernel `bad`."""

    half: str
    method: str
    error: Exception
    expected: type[Exception] | None
    match: str = ""


FAULTS = [
    Fault("compiler", "lower", CompilationError("LLVM says no"), CompilationError, "LLVM says no"),
    Fault("compiler", "lower", RecursionError("too deep"), CompilationError, "bad failed with RecursionError"),
    Fault("compiler", "finalize", MemoryError(), CompilationError, "bad failed with MemoryError"),
    Fault("target", "load", DeviceError("cannot be mapped"), DeviceError, "cannot be mapped"),
    Fault("target", "store", StoreError("the disk is full"), None),
    Fault("target", "stored", StoreError("the store is locked"), None),
    Fault("target", "stored_meanwhile", StoreError("the store is locked"), None),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.half}-{fault.method}" for fault in FAULTS])
def test_fault_of_a_half_costs_its_own_kernel_only(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    cpu = qn.device("cpu")
    target = cpu.operations.target
    half: Any = target.compiler if fault.half == "compiler" else target
    sound = getattr(type(half), fault.method)

    def faulty(self: Any, *arguments: Any, **named: Any) -> Any:
        if any(getattr(getattr(given, "kernel", None), "name", "") == "bad" for given in arguments):
            raise fault.error
        return sound(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(type(half), fault.method, faulty)
        if fault.expected is None:
            compile_all(cpu)
            assert launched("bad") == 2.0
        else:
            with pytest.raises(fault.expected, match=fault.match):
                compile_all(cpu)
            with pytest.raises(fault.expected, match=fault.match):
                launched("bad")
        num_compiled = cpu.loader.counts().compiled
        assert (launched("before"), launched("after")) == (1.0, 3.0)
        assert cpu.loader.counts().compiled == num_compiled
    assert launched("bad") == 2.0
    assert cpu.loader.counts().compiled - num_compiled == (fault.expected is not None)


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
