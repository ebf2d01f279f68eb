"""Copies between the host's pageable memory and the device, by way of a few blocks of pinned memory."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

import numpy as np

from quernel_cuda._driver import call

__all__ = ["Staging"]

_NUM_BLOCKS: Final = 4
_BLOCK_BYTES: Final = 2 << 20
_UNTIMED: Final = 2
"""The flag of an event that needs no time, which makes waiting for it cheaper."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class _Block:
    """Pinned memory, and the event behind the last copy that used it."""

    def __init__(self) -> None:
        self.address = int(call("cuMemHostAlloc", _BLOCK_BYTES, 0, doing="allocating pinned memory"))
        memory = memoryview((ctypes.c_char * _BLOCK_BYTES).from_address(self.address)).cast("B")
        self.bytes: Bytes = np.frombuffer(memory, np.uint8)
        self.event = call("cuEventCreate", _UNTIMED)
        self.is_used = False

    def wait(self) -> None:
        if self.is_used:
            call("cuEventSynchronize", self.event, doing="waiting for a copy")
            self.is_used = False

    def record(self, stream: Any) -> None:
        call("cuEventRecord", self.event, stream)
        self.is_used = True


class Staging:
    """The blocks of one device, made at the first copy. The device's context is current in every call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: list[_Block] = []
        self._next = 0

    def write(self, address: int, source: Bytes, stream: Any) -> None:
        """Copies to the device, in the stream's order; the source may be reused at once."""
        with self._lock:
            for start in range(0, source.nbytes, _BLOCK_BYTES):
                part = source[start : start + _BLOCK_BYTES]
                block = self._free_block()
                block.bytes[: part.nbytes] = part
                call(
                    "cuMemcpyHtoDAsync",
                    address + start,
                    block.address,
                    part.nbytes,
                    stream,
                    doing="copying to the device",
                )
                block.record(stream)

    def read(self, target: Bytes, address: int, stream: Any) -> None:
        """Copies from the device, after the stream's earlier work; waits. One part arrives while another is taken."""
        call("cuStreamSynchronize", stream, doing="waiting for the device")
        with self._lock:
            taken: tuple[_Block, Bytes] | None = None
            for start in range(0, target.nbytes, _BLOCK_BYTES):
                part = target[start : start + _BLOCK_BYTES]
                block = self._free_block()
                call(
                    "cuMemcpyDtoHAsync",
                    block.address,
                    address + start,
                    part.nbytes,
                    stream,
                    doing="copying to the host",
                )
                block.record(stream)
                if taken is not None:
                    self._take(*taken)
                taken = (block, part)
            if taken is not None:
                self._take(*taken)

    def close(self) -> None:
        """Gives the blocks back."""
        with self._lock:
            for block in self._blocks:
                block.wait()
                call("cuEventDestroy", block.event)
                call("cuMemFreeHost", block.address)
            self._blocks = []

    def _free_block(self) -> _Block:
        """The block that was used longest ago, once its copy is done."""
        if len(self._blocks) < _NUM_BLOCKS:
            self._blocks.append(_Block())
            return self._blocks[-1]
        block = self._blocks[self._next]
        self._next = (self._next + 1) % _NUM_BLOCKS
        block.wait()
        return block

    def _take(self, block: _Block, part: Bytes) -> None:
        block.wait()
        part[:] = block.bytes[: part.nbytes]
