"""The loader of a device, wired to the records and to whoever observes compilations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from quernel.compiler import KernelLoader, Kernels
    from quernel.runtime.devices import Device

__all__ = ["CompilationObserver", "observe_compilations", "open_kernels", "open_loader"]


class CompilationObserver(Protocol):
    """Is told of every compilation and batch, after its records were written. MUST NOT raise."""

    def compiled(self, record: object) -> None:
        """One compilation is over."""
        ...

    def batch_closed(self, record: object) -> None:
        """One batch is over."""
        ...


_observer: Callable[[], CompilationObserver] | None = None


def observe_compilations(observer: Callable[[], CompilationObserver] | None) -> None:
    """Tells what `observer()` gives of every compilation from now on, on all devices."""
    global _observer
    _observer = observer


def open_loader(device: Device) -> KernelLoader[Any, Any, Any]:
    """A loader for the device's target, whose batches are recorded and observed."""
    from quernel.compiler.loader import KernelLoader

    return KernelLoader(device.operations.target, records=_record_and_observe, name=device.name)


def open_kernels(loader: KernelLoader[Any, Any, Any]) -> Kernels[Any, Any, Any]:
    """The view of a loader that users hold."""
    from quernel.compiler.kernels import Kernels

    return Kernels(loader)


def _record_and_observe(environment: Any, records: Sequence[Any], batch: Any, level: Any) -> None:
    from quernel.compiler.records import append_records

    append_records(environment, records, batch, level)
    if _observer is not None:
        observer = _observer()
        for record in records:
            observer.compiled(record)
        observer.batch_closed(batch)
