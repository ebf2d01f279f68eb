"""Runs the threads of a launch: blocks in order, threads of a block in order, and together where they wait."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from quernel.errors import LaunchError
from quernel.geometry import Geometry
from quernel.ir.nodes import IndexKind
from quernel.locations import Location
from quernel.reference.views import ElementView

__all__ = ["BLOCK_MEMORY", "SUBGROUP_SIZE", "index_position", "run_threads"]

SUBGROUP_SIZE: Final = 32
"""Consecutive threads of a row-major block that make one subgroup."""

BLOCK_MEMORY: Final = 0
"""Where a thread's tuple holds the shared memory of its block, by name."""

_BY_AXIS: Final = (
    IndexKind.GLOBAL_ID,
    IndexKind.LOCAL_ID,
    IndexKind.BLOCK_ID,
    IndexKind.GLOBAL_DIM,
    IndexKind.BLOCK_DIM,
    IndexKind.GRID_DIM,
)
_OF_SUBGROUP: Final = (IndexKind.SUBGROUP_LANE, IndexKind.SUBGROUP_ID, IndexKind.SUBGROUP_SIZE)

Thread = tuple[Any, ...]
"""What a thread knows of itself: its block's shared memory, then its indices, as `index_position` numbers them."""


def index_position(kind: IndexKind, axis: int, ndim: int) -> int:
    """Where a thread's tuple holds an index of a launch of rank `ndim`."""
    if kind in _OF_SUBGROUP:
        return 1 + len(_BY_AXIS) * ndim + _OF_SUBGROUP.index(kind)
    return 1 + _BY_AXIS.index(kind) * ndim + axis


def run_threads(
    kernel: Callable[..., Any], waits: bool, geometry: Geometry, arguments: tuple[Any, ...], sites: tuple[Location, ...]
) -> None:
    """Calls `kernel` for every thread of a launch. What one thread raises ends the launch.

    `waits`: calling the kernel makes a generator, which yields the number of the barrier that its thread came to.
    """
    for block_id in itertools.product(*map(range, geometry.grid)):
        threads = _threads_of_block(geometry, block_id)
        if waits:
            _run_together([kernel(thread, *arguments) for thread in threads], sites)
        else:
            for thread in threads:
                kernel(thread, *arguments)


def _threads_of_block(geometry: Geometry, block_id: tuple[int, ...]) -> Iterator[Thread]:
    memory: dict[str, ElementView] = {}
    firsts = [index * size for index, size in zip(block_id, geometry.block, strict=True)]
    lengths = [
        min(size, extent - first) for size, extent, first in zip(geometry.block, geometry.extent, firsts, strict=True)
    ]
    origin = [start + first for start, first in zip(geometry.start, firsts, strict=True)]
    strides = [math.prod(geometry.block[axis + 1 :]) for axis in range(geometry.ndim)]
    dims = (*geometry.extent, *geometry.block, *geometry.grid)
    for local_id in itertools.product(*map(range, lengths)):
        global_id = map(sum, zip(origin, local_id, strict=True))
        subgroup, lane = divmod(sum(map(operator.mul, local_id, strides)), SUBGROUP_SIZE)
        yield (memory, *global_id, *local_id, *block_id, *dims, lane, subgroup, SUBGROUP_SIZE)


def _run_together(threads: list[Generator[int, None, None]], sites: tuple[Location, ...]) -> None:
    """Lets every thread run to its next barrier, then goes on, until all have ended.

    Raises:
        LaunchError: the threads of the block do not all come to the same barrier.
    """
    try:
        while True:
            arrived = [next(thread, None) for thread in threads]
            places = set(arrived)
            if places == {None}:
                return
            if len(places) > 1:
                raise _parted(places, sites)
    finally:
        for thread in threads:
            thread.close()


def _parted(places: set[int | None], sites: tuple[Location, ...]) -> LaunchError:
    waiting = sorted(place for place in places if place is not None)
    others = [f"others wait at {sites[place]}" for place in waiting[1:]]
    if None in places:
        others.append("others have ended")
    return LaunchError(
        "some threads of a block wait at this barrier, others never come",
        where=sites[waiting[0]],
        fix="let every thread of a block reach the barrier, or none",
        chain=tuple(others),
    )
