"""The two ways to have memory: that of this process, by its addresses, or the driver's buffers.

Buffers have no addresses that the host knows. They get numbers that behave like addresses: the upper bits count the
buffers, the lower ones are an offset, so that views, alignment and comparisons work as with real addresses.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Any, Final, Protocol

import numpy as np

from quernel.errors import DeviceError
from quernel.runtime.host_memory import host_bytes
from quernel.runtime.operations import Memory
from quernel_opencl import _driver
from quernel_opencl._toolchain import DeviceKey

__all__ = ["AddressMemory", "BufferMemory", "MemoryKind"]

_OFFSET_BITS: Final = 44
_OFFSETS: Final = (1 << _OFFSET_BITS) - 1
_NUMBERS: Final = 1 << 19
"""Buffers at a time; numbers stay below two to the power of 63."""
_KEPT_ARGUMENTS: Final = 4096
_PATTERN_BYTES: Final = 16
"""The width of the patterns that drivers fill with. They take up to 128 bytes, but NVIDIA's (580.159) fills eight times
as fast with 16 as with one, 13 times as fast as with 128, and never returns from a fill of 2**31 or more patterns."""
_FILLED_UNTIL: Final = 1 << 31
"""Drivers fill up to this offset: NVIDIA's (580.159) loses the queue, and the whole context, on one behind it."""
_WRITTEN_BYTES: Final = 1 << 20
"""So much of a pattern that the driver does not fill is written by the host."""


class MemoryKind(Protocol):
    """What a device does with memory."""

    is_shared: bool
    num_freed: int
    """Grows when memory that kernel objects may still name goes away."""

    def allocate(self, nbytes: int) -> Memory: ...  # noqa: D102
    def free(self, memory: Memory) -> None: ...  # noqa: D102
    def set_pointer(self, kernel: Any, number: int, address: int) -> None: ...  # noqa: D102
    def set_pointer_alone(self, kernel: Any, number: int, address: int) -> None: ...  # noqa: D102
    def write(self, queue: Any, target: Memory, offset: int, source: np.ndarray[Any, Any]) -> None: ...  # noqa: D102
    def read(self, queue: Any, target: np.ndarray[Any, Any], source: Memory, offset: int) -> None: ...  # noqa: D102
    def copy(  # noqa: D102
        self, queue: Any, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int
    ) -> None: ...
    def fill(self, queue: Any, target: Memory, offset: int, pattern: bytes, count: int) -> None: ...  # noqa: D102
    def host_view(self, memory: Memory) -> memoryview | None: ...  # noqa: D102


class AddressMemory:
    """The memory of this process, which kernels reach by its own addresses; copies wait for the queue first."""

    is_shared = True
    num_freed = 0  # An address says all that a kernel object needs to know of it.

    def __init__(self) -> None:
        self._arguments: dict[int, Any] = {}
        self._nowhere = np.empty(1, np.uint8)
        """What stands in for memory of no bytes, as drivers refuse a null pointer."""

    def allocate(self, nbytes: int) -> Memory:
        """Host memory.

        Raises:
            DeviceError: there is not enough.
        """
        held = host_bytes(nbytes)
        return Memory(held.ctypes.data if nbytes else self._nowhere.ctypes.data, nbytes, held)

    def free(self, memory: Memory) -> None:
        """Gives the memory back."""
        memory.handle = None

    def set_pointer(self, kernel: Any, number: int, address: int) -> None:
        """Makes an address an argument of a kernel object. On the launch path."""
        argument = self._arguments.get(address)
        if argument is None:
            if len(self._arguments) >= _KEPT_ARGUMENTS:
                self._arguments.clear()
            argument = _driver.address_argument(address or self._nowhere.ctypes.data)
            self._arguments[address] = argument
        kernel.set_arg(number, argument)

    set_pointer_alone = set_pointer

    def write(self, queue: Any, target: Memory, offset: int, source: np.ndarray[Any, Any]) -> None:
        """Copies bytes of the host."""
        _driver.finish(queue)
        ctypes.memmove(target.address + offset, source.ctypes.data, source.nbytes)

    def read(self, queue: Any, target: np.ndarray[Any, Any], source: Memory, offset: int) -> None:
        """Copies bytes to the host."""
        _driver.finish(queue)
        ctypes.memmove(target.ctypes.data, source.address + offset, target.nbytes)

    def copy(
        self, queue: Any, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int
    ) -> None:
        """Copies; the ranges may overlap."""
        _driver.finish(queue)
        ctypes.memmove(target.address + target_offset, source.address + source_offset, nbytes)

    def fill(self, queue: Any, target: Memory, offset: int, pattern: bytes, count: int) -> None:
        """Writes copies of a pattern."""
        _driver.finish(queue)
        nbytes = len(pattern) * count
        part: Any = (ctypes.c_char * nbytes).from_address(target.address + offset)
        np.frombuffer(part, np.uint8).reshape(count, len(pattern))[:] = np.frombuffer(pattern, np.uint8)

    def host_view(self, memory: Memory) -> memoryview | None:
        """The memory's bytes."""
        return memoryview(memory.handle)


class BufferMemory:
    """The driver's buffers."""

    is_shared = False

    def __init__(self, device: DeviceKey, *, most_bytes: int, maps_host_memory: bool) -> None:
        self._device = device
        self._most_bytes = most_bytes
        self._maps_host_memory = maps_host_memory
        self._lock = threading.RLock()  # The collector may free arrays in the midst of any method.
        self._numbers = itertools.cycle(range(1, _NUMBERS))
        self._buffers: dict[int, Any] = {}
        self._rests: dict[int, dict[int, Any]] = {}
        """Ends of buffers, by a buffer's number and the offset: kernel objects keep none of their arguments alive."""
        self.num_freed = 0

    def allocate(self, nbytes: int) -> Memory:
        """A buffer under a number of its own.

        Raises:
            DeviceError: there is not enough. Drivers may find that out only when the buffer is used.
        """
        if nbytes > self._most_bytes:
            raise DeviceError(
                f"allocating {nbytes} bytes failed: the device has {self._most_bytes}", fix="use smaller arrays"
            )
        buffer = _driver.allocate(self._device, max(nbytes, 1), is_host_memory=self._maps_host_memory)
        with self._lock:
            if len(self._buffers) >= _NUMBERS - 1:
                raise DeviceError(f"{_NUMBERS - 1} buffers are allocated", fix="free arrays, or use fewer, larger ones")
            number = next(number for number in self._numbers if number not in self._buffers)
            self._buffers[number] = buffer
        return Memory(number << _OFFSET_BITS, nbytes, buffer)

    def free(self, memory: Memory) -> None:
        """Gives the buffer back; the driver keeps it until the work that uses it is done."""
        with self._lock:
            self.num_freed += 1
            self._buffers.pop(memory.address >> _OFFSET_BITS, None)
            self._rests.pop(memory.address >> _OFFSET_BITS, None)
        memory.handle = None

    def set_pointer(self, kernel: Any, number: int, address: int) -> None:
        """Makes a buffer, and behind it the offset in it, arguments of a kernel object. On the launch path."""
        kernel.set_arg(number, self._buffers[address >> _OFFSET_BITS])
        _driver.set_value(kernel, number + 1, (address & _OFFSETS).to_bytes(8, "little"))

    def set_pointer_alone(self, kernel: Any, number: int, address: int) -> None:
        """Makes a buffer, or its rest from an offset on, an argument of a kernel object.

        Raises:
            LaunchError: the device has no buffers that start there.
        """
        place, offset = address >> _OFFSET_BITS, address & _OFFSETS
        buffer = self._buffers[place]
        if offset:
            with self._lock:
                rests = self._rests.setdefault(place, {})
                if offset not in rests:
                    rests[offset] = _driver.rest_of(buffer, offset)
                buffer = rests[offset]
        kernel.set_arg(number, buffer)

    def write(self, queue: Any, target: Memory, offset: int, source: np.ndarray[Any, Any]) -> None:
        """Copies bytes of the host."""
        _driver.write(queue, target.handle, offset, source)

    def read(self, queue: Any, target: np.ndarray[Any, Any], source: Memory, offset: int) -> None:
        """Copies bytes to the host."""
        _driver.read(queue, source.handle, offset, target)

    def copy(
        self, queue: Any, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int
    ) -> None:
        """Copies between buffers; the ranges may overlap."""
        if not nbytes:
            return
        overlap = target.handle is source.handle and abs(target_offset - source_offset) < nbytes
        if not overlap:
            _driver.copy(queue, target.handle, target_offset, source.handle, source_offset, nbytes)
        elif target_offset != source_offset:
            between = _driver.allocate(self._device, nbytes, is_host_memory=False)
            _driver.copy(queue, between, 0, source.handle, source_offset, nbytes)
            _driver.copy(queue, target.handle, target_offset, between, 0, nbytes)

    def fill(self, queue: Any, target: Memory, offset: int, pattern: bytes, count: int) -> None:
        """Fills a part of a buffer: by the driver, where it is good at a pattern of that size at that place.

        What lies beyond is copied from what is filled, each copy as long as all before it.
        """
        size, total = len(pattern), len(pattern) * count
        if not total:
            return
        if size <= _PATTERN_BYTES and size.bit_count() == 1 and offset % size == 0 and offset + size <= _FILLED_UNTIL:
            filled = min(total, (_FILLED_UNTIL - offset) // size * size)
            self._fill_on_device(queue, target.handle, offset, pattern, filled)
        else:
            filled = min(count, max(_WRITTEN_BYTES // size, 1)) * size
            _driver.write(queue, target.handle, offset, np.frombuffer(pattern * (filled // size), np.uint8))
        while filled < total:
            part = min(filled, total - filled)
            _driver.copy(queue, target.handle, offset + filled, target.handle, offset, part)
            filled += part

    def _fill_on_device(self, queue: Any, buffer: Any, offset: int, pattern: bytes, nbytes: int) -> None:
        """Fills with a wide pattern from its first multiple to its last, and with the given one before and behind."""
        wide = pattern * (_PATTERN_BYTES // len(pattern))
        start = min(-offset % len(wide), nbytes)
        end = nbytes - (nbytes - start) % len(wide)
        for first, behind, given in ((0, start, pattern), (start, end, wide), (end, nbytes, pattern)):
            if first < behind:
                _driver.fill(queue, buffer, offset + first, given, (behind - first) // len(given))

    def host_view(self, memory: Memory) -> memoryview | None:
        """The host does not see the bytes."""
        return None
