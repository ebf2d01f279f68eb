"""Faults in the halves of a real backend: what failed, what its siblings got, what is kept, what comes next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

import quernel as qn
from quernel.errors import CompilationError, DeviceError, StoreError, ValidationError
from quernel.runtime.devices import Device


@qn.kernel
def before(x: qn.Array1[qn.f32]):  # type: ignore[no-untyped-def, valid-type]
    x[qn.global_id()] = 1.0


@qn.kernel
def bad(x: qn.Array1[qn.f32]):  # type: ignore[no-untyped-def, valid-type]
    x[qn.global_id()] = 2.0


@qn.kernel
def after(x: qn.Array1[qn.f32]):  # type: ignore[no-untyped-def, valid-type]
    x[qn.global_id()] = 3.0


KERNELS = {"before": before, "bad": bad, "after": after}


@attrs.frozen
class Fault:
    """A method of a half that raises for the kernel `bad`; `expected` is what the kernel fails with, if it does."""

    half: str
    method: str
    error: Exception
    expected: type[Exception] | None = None
    match: str = ""

    @property
    def name(self) -> str:
        return f"{self.half}-{self.method}-{type(self.error).__name__}"


FAULTS = [
    Fault("compiler", "lower", ValidationError("too wide"), ValidationError, "too wide"),
    Fault("compiler", "lower", RecursionError("too deep"), CompilationError, "bad failed with RecursionError"),
    Fault("compiler", "finalize", CompilationError("the toolchain says no"), CompilationError, "the toolchain says no"),
    Fault("compiler", "finalize", MemoryError(), CompilationError, "bad failed with MemoryError"),
    Fault("target", "load", DeviceError("out of memory"), DeviceError, "out of memory"),
    Fault("target", "stored", StoreError("the store is locked")),
    Fault("target", "stored_meanwhile", StoreError("the store is locked")),
    Fault("target", "stored_for_ir", StoreError("the store is locked")),
    Fault("target", "stored_for_source", StoreError("the store is locked")),
    Fault("target", "store", StoreError("the disk is full")),
    Fault("target", "store", ZeroDivisionError("a bug")),
    Fault("target", "why_missed", ZeroDivisionError("a bug")),
    Fault("target", "lock_name", ZeroDivisionError("a bug")),
]


@contextlib.contextmanager
def injected(device: Device, fault: Fault) -> Iterator[None]:
    target = device.operations.target
    half = type(target.compiler if fault.half == "compiler" else target)
    sound = getattr(half, fault.method)

    def faulty(self: Any, *arguments: Any, **named: Any) -> Any:
        if fault.method.startswith("stored_for"):  # which are not told of which kernel
            raise fault.error
        if any(getattr(getattr(given, "kernel", None), "name", "") == "bad" for given in arguments):
            raise fault.error
        if any(getattr(given, "name", "") == "bad" for given in arguments):  # a definition
            raise fault.error
        return sound(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(half, fault.method, faulty)
        if fault.method == "finalize":
            from quernel.compiler import ArtifactCompiler

            patch.setattr(half, "finalize_group", ArtifactCompiler.finalize_group)
        yield


def compile_all(device: Device) -> None:
    """One batch on threads, where this process's patches hold."""
    with ThreadPoolExecutor(2) as executor:
        device.compile(list(KERNELS.values()), executor=executor)


def loads(device: Device, *names: str) -> int:
    """Loads the kernels where nothing may be compiled; how many there are."""
    with qn.no_compiling():
        return len(device.compile([KERNELS[name] for name in names]))


def hold_fault_against(device: Device, fault: Fault, folder: Path) -> None:
    """Compiles with the fault: `bad` alone is touched, nothing of it is kept if it failed, and the next try works."""
    with qn.environment(folder):
        with injected(device, fault):
            num_before = device.loader.counts().compiled
            if fault.expected is None:
                compile_all(device)
            else:
                with pytest.raises(fault.expected, match=fault.match):
                    compile_all(device)
            num_loaded = 3 if fault.expected is None else 2
            assert device.loader.counts().compiled - num_before == num_loaded
            assert loads(device, "before", "after") == 2
        compile_all(device)
        assert device.loader.counts().compiled - num_before == 3
    is_kept = fault.expected is not None or fault.method != "store"  # it was compiled soundly the second time
    with qn.environment(folder):  # opened anew: what is loaded now was kept
        assert loads(device, "before", "after") == 2
        if is_kept:
            assert loads(device, "bad") == 1
        else:
            with pytest.raises(qn.errors.LaunchError, match="kernel bad is not compiled"):
                loads(device, "bad")
    assert device.loader.counts().building == 0


def hold_tellers_against(device: Device, folder: Path) -> None:
    """Compiles while reporter, progress, hooks and records fail: every kernel is loaded and kept."""

    def failing(*arguments: object) -> Any:
        raise ZeroDivisionError("who is told")

    from quernel.runtime import loading

    kernels = device.kernels.reporting(failing)
    with qn.environment(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "_observer", failing)
        patch.setattr("quernel.compiler.records.append_records", failing)
        pending = [kernels.request(kernel.specialize()) for kernel in KERNELS.values()]
        kernels.build(progress=failing)
        assert [one.result().id.kernel.name for one in pending] == list(KERNELS)
    with qn.environment(folder), qn.no_compiling():
        assert [kernels.get(kernel.specialize()).id.kernel.name for kernel in KERNELS.values()] == list(KERNELS)
