"""Scratch memory of the threads that run kernels: shared arrays, and what a block's threads keep between barriers.

A thread runs one block at a time, so one piece of memory serves all the blocks that it runs, of any kernel.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np

__all__ = ["packed_scratch", "scratch_bytes", "scratch_feature", "with_scratch"]

_PREFIX = "scratch="
_ALIGNMENT = 64
_ADDRESS = struct.Struct("<Q")
_KEPT_BYTES = 8 << 20
"""A thread keeps up to this much for its next piece of work."""


def scratch_feature(num_bytes: int) -> str:
    """The header's flag of a kernel that needs so much."""
    return f"{_PREFIX}{num_bytes}"


def scratch_bytes(features: tuple[str, ...]) -> int:
    """How much the kernel with these flags needs."""
    return sum(int(feature.removeprefix(_PREFIX)) for feature in features if feature.startswith(_PREFIX))


class _Memory(threading.local):
    """What this thread has, and its address."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self.buffer: np.ndarray[Any, Any] = np.empty(0, np.uint8)
        self.packed = _ADDRESS.pack(0)


_memory = _Memory()


def packed_scratch(num_bytes: int) -> tuple[bytes, Any]:
    """The address of scratch memory of this thread, as entry points read it, and what keeps it. On the launch path."""
    memory = _memory
    if num_bytes <= memory.num_bytes:
        return memory.packed, memory.buffer
    buffer = np.empty(num_bytes + 2 * _ALIGNMENT, np.uint8)  # The last line is no other thread's either.
    address = buffer.ctypes.data
    packed = _ADDRESS.pack(address + -address % _ALIGNMENT)
    if num_bytes <= _KEPT_BYTES:
        memory.num_bytes, memory.buffer, memory.packed = num_bytes, buffer, packed
    return packed, buffer


def with_scratch(geometry: bytes, num_bytes: int, num_threads: int) -> tuple[bytes, int, Any]:
    """The geometry once for each thread with scratch memory of its own, the distance between two, and what keeps it."""
    each = -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
    packed, memory = packed_scratch(each * num_threads)
    (first,) = _ADDRESS.unpack(packed)
    parts = [geometry + _ADDRESS.pack(first + number * each) for number in range(num_threads)]
    return b"".join(parts), len(parts[0]), memory
