"""The memory operations of a device whose memory is the host's: plain NumPy, all of it done on return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from quernel.errors import DeviceError
from quernel.runtime.operations import DeviceInfo, DeviceOperations, Memory

if TYPE_CHECKING:
    from quernel.compiler.halves import CompilationTarget

__all__ = ["HostMemoryOperations", "host_bytes"]

LoadedT = TypeVar("LoadedT")

_LINE_BYTES: Final = 64
_HUGE_PAGE: Final = 1 << 21
"""Large arrays start at a huge page, of which NumPy asks for large blocks to be made where the system has them."""
_LARGE_BYTES: Final = 2 * _HUGE_PAGE


class HostMemoryOperations(DeviceOperations[LoadedT]):
    """A device that works in host memory and launches synchronously: a backend adds `launch`.

    Every method may be called from any thread, also several at once.
    """

    host_accessible = True

    def __init__(self, info: DeviceInfo, target: CompilationTarget[Any, Any, LoadedT]) -> None:
        self.info = info
        self._host_target = target

    @property
    def target(self) -> CompilationTarget[Any, Any, LoadedT]:
        """The half that stays with this device."""
        return self._host_target

    def allocate(self, nbytes: int) -> Memory:
        """Host memory, aligned to 64 bytes, or to a huge page if it spans several; no cache line of it is another's.

        Raises:
            DeviceError: there is not enough.
        """
        held = host_bytes(nbytes)
        return Memory(held.ctypes.data if nbytes else 0, nbytes, held)

    def free(self, memory: Memory) -> None:
        """Gives the memory back; nothing runs on it any more, since launches are synchronous."""
        memory.handle = None

    def copy_from_host(self, target: Memory, offset_bytes: int, source: np.ndarray[Any, Any], stream: Any) -> None:
        """Copies `source` (C-contiguous) to the memory."""
        target.handle[offset_bytes : offset_bytes + source.nbytes] = _bytes_of(source)

    def copy_to_host(self, target: np.ndarray[Any, Any], source: Memory, offset_bytes: int, stream: Any) -> None:
        """Copies from the memory into `target` (C-contiguous)."""
        _bytes_of(target)[:] = source.handle[offset_bytes : offset_bytes + target.nbytes]

    def copy(
        self, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int, stream: Any
    ) -> None:
        """Copies within host memory; the ranges may overlap."""
        target.handle[target_offset : target_offset + nbytes] = source.handle[source_offset : source_offset + nbytes]

    def fill(self, target: Memory, offset_bytes: int, pattern: bytes, count: int, stream: Any) -> None:
        """Writes `count` copies of `pattern`, one after the other."""
        part = target.handle[offset_bytes : offset_bytes + len(pattern) * count]
        part.reshape(count, len(pattern))[:] = np.frombuffer(pattern, np.uint8)

    def host_view(self, memory: Memory) -> memoryview:
        """The memory's bytes."""
        return memoryview(memory.handle)


def _bytes_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)


def host_bytes(nbytes: int) -> np.ndarray[Any, Any]:
    """Uninitialised bytes of the host, aligned to 64, or to a huge page if they span several; no line is another's.

    Raises:
        DeviceError: there is not enough memory.
    """
    if nbytes == 0:
        return np.empty(0, np.uint8)
    alignment = _HUGE_PAGE if nbytes >= _LARGE_BYTES else _LINE_BYTES
    try:
        buffer = np.empty(-(-nbytes // _LINE_BYTES) * _LINE_BYTES + alignment, np.uint8)
    except (MemoryError, ValueError, OverflowError):  # NumPy has one for each way of being too large
        raise DeviceError(
            f"there is no host memory for {nbytes} bytes", fix="free arrays, or use smaller ones"
        ) from None
    start = -buffer.ctypes.data % alignment
    return buffer[start : start + nbytes]
