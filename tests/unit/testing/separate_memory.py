"""The interpreter as a device with memory of its own, which works once somebody waits for it; and one without f64.

Its addresses mean nothing to the host, and a launch refuses any other. It stands for a GPU where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import numpy as np

from quernel.capabilities import TargetInfo
from quernel.compiler.artifacts import ArtifactHeader, SlotKind
from quernel.compiler.definition import KernelDefinition
from quernel.dtypes import f64
from quernel.errors import CompilationError, DeviceError
from quernel.geometry import Geometry
from quernel.ir.passes import fold
from quernel.reference.compiler import ReferenceCompiler
from quernel.reference.device import ReferenceDevice
from quernel.reference.plugin import ReferenceBackend
from quernel.reference.types import Loaded, Lowered
from quernel.runtime.operations import Backend, DeviceInfo, Memory

QUERNEL_PLUGIN_API: Final = 1
_BIAS: Final = 1 << 60
_CELL_BYTES: Final = 8


class SeparateDevice(ReferenceDevice):
    """The interpreter behind a queue and another address space."""

    host_accessible = False

    def __init__(self, info: DeviceInfo, compiler: ReferenceCompiler) -> None:
        super().__init__(info, compiler)
        self._queue: list[Callable[[], None]] = []
        self._live: dict[int, int] = {}

    def allocate(self, nbytes: int) -> Memory:
        memory = super().allocate(nbytes)
        if nbytes:
            memory.address += _BIAS
            self._live[memory.address] = memory.address + nbytes
        return memory

    def free(self, memory: Memory) -> None:
        """Gives the memory back after the work before."""

        def give_back() -> None:
            self._live.pop(memory.address, None)
            memory.handle = None

        if self._queue:
            self._queue.append(give_back)
        else:
            give_back()

    def host_view(self, memory: Memory) -> None:  # type: ignore[override]
        return None

    def copy_from_host(self, target: Memory, offset_bytes: int, source: np.ndarray[Any, Any], stream: Any) -> None:
        self.synchronize(stream)
        super().copy_from_host(target, offset_bytes, source, stream)

    def copy_to_host(self, target: np.ndarray[Any, Any], source: Memory, offset_bytes: int, stream: Any) -> None:
        self.synchronize(stream)
        super().copy_to_host(target, source, offset_bytes, stream)

    def copy(
        self, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int, stream: Any
    ) -> None:
        self._queue.append(
            lambda: super(SeparateDevice, self).copy(target, target_offset, source, source_offset, nbytes, stream)
        )

    def fill(self, target: Memory, offset_bytes: int, pattern: bytes, count: int, stream: Any) -> None:
        self._queue.append(lambda: super(SeparateDevice, self).fill(target, offset_bytes, pattern, count, stream))

    def launch(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any) -> None:
        cells = np.frombuffer(arguments, np.uint64).copy()
        for number, slot in enumerate(header.slots):
            if slot.kind is SlotKind.POINTER and (address := int(cells[number])):
                if not any(low <= address <= high for low, high in self._live.items()):
                    raise DeviceError(f"{address:#x} is no address of this device", fix="pass device arrays")
                cells[number] = address - _BIAS
        here = cells.tobytes()
        self._queue.append(lambda: super(SeparateDevice, self).launch(loaded, header, geometry, here, stream))

    def synchronize(self, stream: Any) -> None:
        """Does all work that was given to the device."""
        while self._queue:
            try:
                self._queue.pop(0)()
            except Exception:
                self._queue = [work for work in self._queue if work.__name__ == "give_back"]
                raise


class SeparateBackend(ReferenceBackend):
    """One device with memory of its own."""

    name = "separate"

    def devices(self) -> tuple[DeviceInfo, ...]:
        return tuple(attrs.evolve(info, backend=self.name, kind="gpu") for info in super().devices())

    def target_info(self, target: str) -> TargetInfo:
        return attrs.evolve(super().target_info(target), backend=self.name)

    def open(self, info: DeviceInfo) -> SeparateDevice:
        return SeparateDevice(info, ReferenceCompiler(self.target_info("")))


class NarrowCompiler(ReferenceCompiler):
    """Refuses every kernel in which an f64 is found."""

    def lower(self, kernel: KernelDefinition, *given: Any) -> Lowered:
        if any(node is f64 for node in _parts_of(fold(kernel.expand()))):
            raise CompilationError("this device has no f64", fix="use f32")
        return super().lower(kernel, *given)


class NarrowBackend(SeparateBackend):
    """The same device without f64."""

    name = "narrow"

    def target_info(self, target: str) -> TargetInfo:
        info = super().target_info(target)
        less = attrs.evolve(info.capabilities, f64=False, exact_f64=False, f64_atomics=False)
        return attrs.evolve(info, capabilities=less)

    def open(self, info: DeviceInfo) -> SeparateDevice:
        return SeparateDevice(info, NarrowCompiler(self.target_info("")))


def _parts_of(node: Any) -> Iterator[Any]:
    """A node of the IR and all that it is made of."""
    yield node
    if isinstance(node, tuple | list):
        parts: list[Any] = list(node)
    else:
        parts = [getattr(node, field.name) for field in attrs.fields(type(node))] if attrs.has(type(node)) else []
    for part in parts:
        yield from _parts_of(part)


def quernel_backend() -> Backend:
    return SeparateBackend()
