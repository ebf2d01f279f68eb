"""Arrays of other devices brought to one: each piece of memory is copied once, so that views of it go on sharing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from quernel.runtime.arrays import Allocation, DeviceArray
from quernel.runtime.devices import Device
from quernel.runtime.operations import Memory

__all__ = ["Borrowed"]


@final
class Borrowed:
    """Arguments of a launch as the device `to` takes them, which reads and writes the host's memory.

    Memory that the host sees is lent as it is. Other memory is copied in as far as the arrays reach; `give_back` copies
    back what was written.

    Attributes:
        values: the arguments, arrays of other devices replaced.
    """

    def __init__(self, given: Sequence[Any], to: Device) -> None:
        self._given = given
        self._to = to
        self._copies: dict[int, tuple[int, Allocation]] = {}
        self.values = tuple(self._brought(value) for value in given)

    def give_back(self, written: Sequence[bool]) -> None:
        """Copies the arrays at the places marked as written back to where they came from."""
        for value, is_written in zip(self._given, written, strict=True):
            if is_written and isinstance(value, DeviceArray) and id(value.allocation) in self._copies:
                start, copied = self._copies[id(value.allocation)]
                low, high = value.bounds
                assert copied.host is not None
                if high > low:
                    source = np.ascontiguousarray(copied.host[low - start : high - start])
                    value.device.operations.copy_from_host(value.allocation.memory, low, source, None)

    def _brought(self, value: Any) -> Any:
        if not isinstance(value, DeviceArray) or value.device is self._to:
            return value
        value.device.synchronize()
        start, allocation = self._here(value)
        return DeviceArray(allocation, value.dtype, value.shape, value.strides, value.offset_bytes - start)

    def _here(self, value: DeviceArray) -> tuple[int, Allocation]:
        """Memory on this side that stands for the array's, and the byte of the array's with which it starts."""
        theirs = value.allocation
        if theirs.host is not None:
            memory = Memory(theirs.memory.address, theirs.memory.nbytes, theirs)
            return 0, Allocation(self._to, memory, theirs.host, theirs.host, is_read_only=theirs.is_read_only)
        known = self._copies.get(id(theirs))
        if known is None:
            same = [other for other in self._given if isinstance(other, DeviceArray) and other.allocation is theirs]
            reaches = [other.bounds for other in same if other.size]
            start = min((low for low, _ in reaches), default=0)
            end = max((high for _, high in reaches), default=start)
            memory = self._to.operations.allocate(end - start)
            view = self._to.operations.host_view(memory)
            assert view is not None
            host = np.frombuffer(view, np.uint8)[: end - start] if end > start else np.empty(0, np.uint8)
            if end > start:
                theirs.device.operations.copy_to_host(host, theirs.memory, start, None)
            known = self._copies[id(theirs)] = (
                start,
                Allocation(self._to, memory, host, is_read_only=theirs.is_read_only),
            )
        return known
