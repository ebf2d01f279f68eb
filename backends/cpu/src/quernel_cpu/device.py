"""The operations on the host's processor: memory of the process, and launches on its cores. All are synchronous."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from quernel.compiler.artifacts import ArtifactHeader
from quernel.errors import DeviceError
from quernel.geometry import MAX_NDIM, Geometry, LaunchForm
from quernel.runtime.operations import DeviceInfo, DeviceOperations, Memory, PreparedLaunch
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.pool import available_threads, run_pieces
from quernel_cpu.scratch import packed_scratch
from quernel_cpu.target import CpuTarget
from quernel_cpu.types import Loaded

__all__ = ["CpuDevice", "pack_geometry"]

_ALIGNMENT = 64
_GEOMETRY = struct.Struct(f"<{3 * MAX_NDIM}q")

_WORTH_SHARING_NS = 200_000
"""A launch that takes less on one core runs there: waking threads costs about 55 µs, and up to twice that when idle."""
_PIECE_NS = 100_000
"""Pieces are not cut smaller than this: taking one costs a worker the GIL, some microseconds."""
_PIECES_PER_THREAD = 8
_SAMPLES = 64
"""The first launch of a kernel runs one part in so many here, to learn what the rest will cost."""
_POINT_STEP = 64
"""Pieces of points start at multiples of this, so that threads share no cache line of a contiguous array."""


class CpuDevice(DeviceOperations[Loaded]):
    """The cores that this process may run on. Every method may be called from any thread, also several at once."""

    host_accessible = True
    survives_fork = True

    def __init__(self, info: DeviceInfo, compiler: CpuCompiler) -> None:
        self.info = info
        self._target = CpuTarget(compiler)

    @property
    def target(self) -> CpuTarget:
        """The half that stays with this device."""
        return self._target

    # --- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        """Host memory, aligned to 64 bytes.

        Raises:
            DeviceError: there is not enough.
        """
        if nbytes == 0:
            return Memory(0, 0, np.empty(0, np.uint8))
        try:
            buffer = np.empty(nbytes + _ALIGNMENT, np.uint8)
        except MemoryError:
            raise DeviceError(
                f"there is no host memory for {nbytes} bytes", fix="free arrays, or use smaller ones"
            ) from None
        start = -buffer.ctypes.data % _ALIGNMENT
        held = buffer[start : start + nbytes]
        return Memory(held.ctypes.data, nbytes, held)

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

    # --- launching ----------------------------------------------------------------------------------------------------

    def launch(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any) -> None:
        """Runs the kernel and returns when it is done. On the launch path."""
        _run(loaded, pack_geometry(geometry), _num_items(geometry), geometry.form, arguments)

    def prepare(self, loaded: Loaded, header: ArtifactHeader) -> PreparedLaunch:
        """A function for repeated launches, which keeps the bytes of the last geometry."""
        kept: tuple[Geometry | None, bytes, int] = (None, b"", 0)

        def prepared(geometry: Geometry, arguments: bytes, stream: Any) -> None:
            nonlocal kept
            last, packed, num_items = kept
            if geometry is not last:
                packed, num_items = pack_geometry(geometry), _num_items(geometry)
                kept = (geometry, packed, num_items)
            _run(loaded, packed, num_items, geometry.form, arguments)

        return prepared


def pack_geometry(geometry: Geometry) -> bytes:
    """The geometry as entry points read it."""
    unused = (0,) * (MAX_NDIM - geometry.ndim)
    return _GEOMETRY.pack(*geometry.grid, *unused, *geometry.extent, *unused, *geometry.start, *unused)


def _num_items(geometry: Geometry) -> int:
    """Points of an `over` launch, or blocks of a grid: what an entry point counts."""
    if geometry.form is LaunchForm.OVER:
        return geometry.num_points
    num_blocks = 1
    for count in geometry.grid:
        num_blocks *= count
    return num_blocks


def _run(loaded: Loaded, geometry: bytes, num_items: int, form: LaunchForm, arguments: bytes) -> None:
    """Runs all items: here if that is quick, or else spread over the cores. Each launch is timed for the next one."""
    entry, first = loaded.entry, 0
    if loaded.scratch_bytes:
        entry = partial(_run_with_scratch, entry, loaded.scratch_bytes)
    started_ns = time.perf_counter_ns()
    if not loaded.ns_per_item and num_items > 1:
        first = max(1, num_items // _SAMPLES)
        entry(arguments, geometry, 0, first)
        loaded.ns_per_item = (time.perf_counter_ns() - started_ns) / first
        started_ns = time.perf_counter_ns()
    expected_ns = loaded.ns_per_item * (num_items - first)
    num_threads = available_threads() if expected_ns > _WORTH_SHARING_NS else 1
    if num_threads == 1:
        entry(arguments, geometry, first, num_items)
    else:
        bounds = _pieces(first, num_items, expected_ns, num_threads, _POINT_STEP if form is LaunchForm.OVER else 1)
        num_threads = min(num_threads, len(bounds))
        run_pieces(lambda begin, end: entry(arguments, geometry, begin, end), bounds, num_threads)
    loaded.ns_per_item = (time.perf_counter_ns() - started_ns) * num_threads / (num_items - first)


def _run_with_scratch(
    entry: Callable[[bytes, bytes, int, int], None],
    num_bytes: int,
    arguments: bytes,
    geometry: bytes,
    first: int,
    end: int,
) -> None:
    """Runs a part of a launch with scratch memory of this thread."""
    packed, memory = packed_scratch(num_bytes)
    entry(arguments, geometry + packed, first, end)
    del memory


def _pieces(first: int, end: int, expected_ns: float, num_threads: int, step: int) -> list[tuple[int, int]]:
    """Bounds of about equal pieces, several for each thread, so that a slow one does not keep the others waiting."""
    wanted = min(max(int(expected_ns / _PIECE_NS), num_threads), num_threads * _PIECES_PER_THREAD)
    size = -(-(end - first) // wanted)
    following = first + size
    if size >= step:
        size = -(-size // step) * step
        following = first - first % step + size
    starts = [first, *range(following, end, size)]
    return list(zip(starts, [*starts[1:], end], strict=True))


def _bytes_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)
