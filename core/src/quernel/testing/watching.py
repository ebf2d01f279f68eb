"""Targets and compilers that note what is called, to see in which order a loader and a backend work together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import attrs

import quernel as qn
from quernel.compiler import KernelLoader
from quernel.runtime.devices import Device
from quernel.store import CompilationRecord, Environment

__all__ = ["Bench", "Watched", "opened_again"]


@contextmanager
def opened_again(device: qn.Device) -> Iterator[Device]:
    """The same device opened a second time: nothing is loaded there, and it closes at the end."""
    assert device.backend is not None
    with Device(device.backend.open(device.info), backend=device.backend) as opened:
        yield opened


@final
class Watched:
    """Passes everything on to a half of a backend and notes the names of its methods that are called."""

    def __init__(self, half: Any, calls: list[str], first: dict[str, Any] | None = None, **instead: Any) -> None:
        """`first` is called before the methods that it names, with their arguments; `instead` are other attributes."""
        self._half = half
        self._calls = calls
        self._first = first or {}
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        if name in self._instead:
            return self._instead[name]
        found = getattr(self._half, name)
        if not callable(found) or isinstance(found, type) or name in ("variant", "header", "digest"):
            return found

        def noted(*args: Any, **kwargs: Any) -> Any:
            self._calls.append(name)
            if name in self._first:
                self._first[name](*args)
            return found(*args, **kwargs)

        return noted


@final
@attrs.define(eq=False)
class Bench:
    """A loader over a device that was opened for it, in an environment, and what it called.

    Attributes:
        device: where kernels are loaded.
        environment: what they are kept in.
        first: what is called before a method of the target, by its name.
        calls: names of the methods of both halves, in order.
        records: one per kernel.
    """

    device: Device
    environment: Environment | None
    first: dict[str, Any] = attrs.field(factory=dict)
    calls: list[str] = attrs.field(factory=list)
    records: list[CompilationRecord] = attrs.field(factory=list)
    loader: KernelLoader[Any, Any, Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        target = self.device.operations.target
        compiler = Watched(target.compiler, self.calls)
        watched: Any = Watched(target, self.calls, self.first, compiler=compiler)
        self.loader = KernelLoader(
            watched,
            environment=lambda: self.environment,
            records=lambda environment, records, batch, level: self.records.extend(records),
        )

    def load(self, definition: Any, variant: Any = None) -> Any:
        """The loaded kernel of a definition, in the likely variant."""
        from quernel.testing.compiling import id_of

        return self.loader.load(definition, id_of(self.device, definition, variant))

    def outcomes(self) -> list[tuple[str, str | None]]:
        """How each kernel came to be loaded, and by which key if by another."""
        return [(record.outcome.value, record.rekeyed_by) for record in self.records]
