"""The operations on the host's processor: memory of the process, and launches on its cores. All are synchronous."""

from __future__ import annotations

import ctypes
import math
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from quernel.compiler.artifacts import ArtifactHeader
from quernel.geometry import MAX_NDIM, Geometry, LaunchForm
from quernel.runtime.host_memory import HostMemoryOperations
from quernel.runtime.operations import DeviceInfo, Operand, PreparedLaunch, ReadingLaunch, RepeatedLaunch, ShapedLaunch
from quernel_cpu.caches import streams
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.pool import run_pieces, threads_of_launch
from quernel_cpu.scratch import packed_scratch, with_scratch
from quernel_cpu.target import CpuTarget
from quernel_cpu.types import Loaded
from quernel_cpu.workers import native_workers

__all__ = ["CpuDevice", "pack_geometry"]

_GEOMETRY = struct.Struct(f"<{3 * MAX_NDIM + 1}q")

_WORTH_SHARING_NS = 200_000
"""A launch that takes less on one core runs there: waking threads costs about 55 µs, and up to twice that when idle."""
_WORTH_TELLING_NS = 6_000
"""The same where workers are native: telling them and waiting costs about 2 µs, and none that sleeps is waited for."""
_WORTH_RELEASING_NS = 50_000
"""A launch that takes less on one core may keep the GIL: other threads get it no later than from other Python code."""
_TIMED = (0, 0, 0, 0, 0, 0)
_UNTIMED = 7
"""After a launch that is not worth sharing, so many in the same shape are not timed: looking twice takes 0.1 µs."""
_SHARING_NS = 1_500
"""What of a shared launch's time is not the kernel's."""
_NATIVE_PIECE_NS = 20_000
_PIECE_NS = 100_000
"""Pieces are not cut smaller than this: taking one costs a worker the GIL, some microseconds."""
_PIECES_PER_THREAD = 8
_SAMPLES = 64
"""The first launch of a kernel runs one part in so many here, to learn what the rest will cost."""
_ROWS_TOGETHER = 8
"""As many rows of points may run together; a piece with fewer is slower."""
_POINT_STEP = 64
"""Pieces of points start at multiples of this, so that threads share no cache line of a contiguous array."""


class CpuDevice(HostMemoryOperations[Loaded]):
    """The cores that this process may run on. Every method may be called from any thread, also several at once."""

    survives_fork = True

    def __init__(self, info: DeviceInfo, compiler: CpuCompiler) -> None:
        self.info = info
        self._target = CpuTarget(compiler)

    @property
    def target(self) -> CpuTarget:
        """The half that stays with this device."""
        return self._target

    def launch(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any) -> None:
        """Runs the kernel and returns when it is done. On the launch path."""
        packed = pack_geometry(geometry, streams=_streams(loaded, geometry))
        _run(loaded, packed, _num_items(geometry), _unit(geometry), arguments)

    def prepare(self, loaded: Loaded, header: ArtifactHeader) -> PreparedLaunch:
        """A function for repeated launches, which keeps the bytes of the last geometry."""
        kept: tuple[Geometry | None, bytes, int, int] = (None, b"", 0, 1)

        def prepared(geometry: Geometry, arguments: bytes, stream: Any) -> None:
            nonlocal kept
            last, packed, num_items, unit = kept
            if geometry is not last:
                packed = pack_geometry(geometry, streams=_streams(loaded, geometry))
                num_items, unit = _num_items(geometry), _unit(geometry)
                kept = (geometry, packed, num_items, unit)
            _run(loaded, packed, num_items, unit, arguments)

        return prepared

    def prepare_shape(
        self, prepared: PreparedLaunch, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, stream: Any
    ) -> ShapedLaunch:
        """A function for repeated launches in one shape; of those too short to share, only some are timed."""
        packed = pack_geometry(geometry, streams=_streams(loaded, geometry))
        num_items, unit = _num_items(geometry), _unit(geometry)
        entry, untimed = loaded.entry, 0

        def shaped(arguments: bytes) -> None:
            nonlocal untimed
            if untimed > 0:  # Threads may count one launch twice, or not at all.
                untimed -= 1
                entry(arguments, packed, 0, num_items)
                return
            _run(loaded, packed, num_items, unit, arguments)
            if _may_go_untimed(loaded, num_items):
                untimed = _UNTIMED

        return shaped

    def prepare_reading(
        self,
        loaded: Loaded,
        header: ArtifactHeader,
        geometry: Geometry,
        stream: Any,
        operands: tuple[Operand, ...],
        *,
        aligned16: bool,
    ) -> tuple[ReadingLaunch, ShapedLaunch] | None:
        """The same with the arguments read by native code, which also makes the launches that are not timed.

        Those keep the GIL, as they take less than it does to get it back from a thread that is busy.
        """
        from quernel_cpu.native_launch import STATE
        from quernel_cpu.native_launching import native_launch

        packed = pack_geometry(geometry, streams=_streams(loaded, geometry))
        num_items, unit = _num_items(geometry), _unit(geometry)
        state = ctypes.create_string_buffer(STATE.size)
        reading = native_launch(
            operands, header.params, header.slots, aligned16, loaded.address, packed, num_items, state, loaded
        )
        if reading is None:
            return None

        def shaped(arguments: bytes) -> None:
            _run(loaded, packed, num_items, unit, arguments)
            STATE.pack_into(state, 0, *_untimed(loaded, num_items, unit))

        return reading, shaped

    def prepare_bound(
        self,
        prepared: PreparedLaunch,
        loaded: Loaded,
        header: ArtifactHeader,
        geometry: Geometry,
        arguments: bytes,
        stream: Any,
    ) -> RepeatedLaunch:
        """A function that repeats one launch, made by native code where it is not timed."""
        from quernel_cpu.native_launch import STATE
        from quernel_cpu.native_launching import native_repeat

        packed = pack_geometry(geometry, streams=_streams(loaded, geometry))
        num_items, unit = _num_items(geometry), _unit(geometry)
        state = ctypes.create_string_buffer(STATE.size)
        repeat = native_repeat(arguments, loaded.address, packed, num_items, state, loaded)
        if repeat is None:
            return super().prepare_bound(prepared, loaded, header, geometry, arguments, stream)

        def bound() -> None:
            if repeat() is not True:
                _run(loaded, packed, num_items, unit, arguments)
                STATE.pack_into(state, 0, *_untimed(loaded, num_items, unit))

        return bound


def _may_go_untimed(loaded: Loaded, num_items: int) -> bool:
    """Whether the next launches in a shape are as short as the last one: no argument makes them longer."""
    return loaded.is_steady and not loaded.scratch_bytes and loaded.ns_per_item * num_items < _WORTH_TELLING_NS


def pack_geometry(geometry: Geometry, *, streams: bool = False) -> bytes:
    """The geometry as entry points read it; `streams`: stores go past the caches."""
    unused = (0,) * (MAX_NDIM - geometry.ndim)
    return _GEOMETRY.pack(*geometry.grid, *unused, *geometry.extent, *unused, *geometry.start, *unused, streams)


def _streams(loaded: Loaded, geometry: Geometry) -> bool:
    return bool(loaded.streaming_bytes) and streams(loaded.streaming_bytes * math.prod(geometry.extent))


def _num_items(geometry: Geometry) -> int:
    """Points of an `over` launch, or blocks of a grid: what an entry point counts."""
    if geometry.form is LaunchForm.OVER:
        return geometry.num_points
    num_blocks = 1
    for count in geometry.grid:
        num_blocks *= count
    return num_blocks


def _unit(geometry: Geometry) -> int:
    """Pieces hold a multiple of this many items: whole groups of rows, which run together, where there are enough."""
    if geometry.form is not LaunchForm.OVER:
        return 1
    row = geometry.extent[-1]
    if geometry.ndim > 1 and row * _ROWS_TOGETHER * _PIECES_PER_THREAD <= geometry.num_points:
        return row * _ROWS_TOGETHER
    return _POINT_STEP


def _run(loaded: Loaded, geometry: bytes, num_items: int, unit: int, arguments: bytes) -> None:
    """Runs all items: here if that is quick, or else spread over the cores. Each launch is timed for the next one."""
    entry, first = loaded.entry, 0
    if loaded.scratch_bytes:
        entry = partial(_run_with_scratch, entry, loaded.scratch_bytes)
    started_ns = time.perf_counter_ns()
    if not loaded.ns_per_item and num_items > 1:
        first = max(1, num_items // _SAMPLES // unit * unit)
        entry(arguments, geometry, 0, first)
        loaded.ns_per_item = (time.perf_counter_ns() - started_ns) / first
        started_ns = time.perf_counter_ns()
    num_left = num_items - first
    expected_ns = loaded.ns_per_item * num_left
    num_threads = threads_of_launch(started_ns) if expected_ns > _WORTH_TELLING_NS else 1
    if num_threads > 1:
        num_threads = _share(loaded, geometry, first, num_items, unit, arguments, expected_ns, num_threads, started_ns)
    if num_threads == 1:
        entry(arguments, geometry, first, num_items)
    if num_left:
        took_ns = time.perf_counter_ns() - started_ns
        if num_threads > 1:
            took_ns = max(took_ns - _SHARING_NS, 1) * num_threads
        loaded.ns_per_item = took_ns / num_left


def _share(
    loaded: Loaded,
    geometry: bytes,
    first: int,
    end: int,
    unit: int,
    arguments: bytes,
    expected_ns: float,
    num_threads: int,
    now_ns: int,
) -> int:
    """Runs items on several threads, and gives how many; 1 if they are still to be run."""
    workers = native_workers(expected_ns)
    if workers is None:
        if expected_ns < _WORTH_SHARING_NS:
            return 1
        entry: Callable[[bytes, bytes, int, int], None] = loaded.entry
        if loaded.scratch_bytes:
            entry = partial(_run_with_scratch, entry, loaded.scratch_bytes)
        bounds = _pieces(first, end, expected_ns, num_threads, unit)
        if len(bounds) == 1:
            return 1
        num_threads = min(num_threads, len(bounds))
        run_pieces(lambda begin, until: entry(arguments, geometry, begin, until), bounds, num_threads)
        return num_threads
    size, num_threads = _native_pieces(expected_ns, end - first, num_threads, unit)
    if num_threads == 1:
        return 1
    stride, memory = 0, None
    if loaded.scratch_bytes:
        geometry, stride, memory = with_scratch(geometry, loaded.scratch_bytes, num_threads)
    wakes = workers.are_worth_waking(expected_ns, now_ns)
    ran = workers.run(loaded.address, arguments, geometry, stride, first, end, size, num_threads - 1, wakes=wakes)
    del memory
    return num_threads if ran else 1


def _native_pieces(expected_ns: float, num_items: int, num_threads: int, unit: int) -> tuple[int, int]:
    """Items of a piece for native workers, and how many threads find one."""
    wanted = min(max(int(expected_ns / _NATIVE_PIECE_NS), num_threads), num_threads * _PIECES_PER_THREAD)
    size = -(-num_items // wanted)
    size = -(-size // unit) * unit if size >= unit else size
    return size, min(num_threads, -(-num_items // size))


def _untimed(loaded: Loaded, num_items: int, unit: int) -> tuple[int, int, int, int, int, int]:
    """What native code does with the launches after one that was timed: `native_launch.STATE`.

    They are as short as that one: no argument makes them longer.
    """
    expected_ns = loaded.ns_per_item * num_items
    if not loaded.is_steady or loaded.scratch_bytes or expected_ns >= _WORTH_RELEASING_NS:
        return _TIMED
    if expected_ns < _WORTH_TELLING_NS:
        return (_UNTIMED, 0, 0, 0, 0, 0)
    num_threads = threads_of_launch(time.perf_counter_ns())
    workers = native_workers() if num_threads > 1 else None
    if workers is None:
        return _TIMED
    size, num_threads = _native_pieces(expected_ns, num_items, num_threads, unit)
    addresses = workers.addresses(num_threads - 1) if num_threads > 1 else None
    return _TIMED if addresses is None else (_UNTIMED, *addresses, size, num_threads - 1)


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
