"""Runs the threads of a launch: blocks in order, threads of a block in order, and together where they wait."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Final

from quernel.errors import KernelAssertionError, LaunchError, OutOfBoundsError
from quernel.geometry import Geometry
from quernel.ir.nodes import IndexKind
from quernel.locations import Location, call_line
from quernel.reference.prints import Printer
from quernel.reference.subgroups import Meeting, answers
from quernel.reference.views import ElementView
from quernel.runtime.launch_sites import calls_in_kernel

__all__ = ["BLOCK_MEMORY", "PRINTER", "Thread", "global_id_of", "index_position", "run_threads"]

BLOCK_MEMORY: Final = 0
"""Where a thread's tuple holds the shared memory of its block, by name."""

PRINTER: Final = 1
"""Where it holds what takes the launch's prints."""

_FIRST_INDEX: Final = 2
"""Where its indices start, its global id first."""

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
"""What a thread knows of itself: memory of its block, printer, then its indices, as `index_position` numbers them."""

Place = int | Meeting | None
"""Where a thread waits: at a barrier, by its number, or for its subgroup; `None` where it has ended."""


def index_position(kind: IndexKind, axis: int, ndim: int) -> int:
    """Where a thread's tuple holds an index of a launch of rank `ndim`."""
    if kind in _OF_SUBGROUP:
        return _FIRST_INDEX + len(_BY_AXIS) * ndim + _OF_SUBGROUP.index(kind)
    return _FIRST_INDEX + _BY_AXIS.index(kind) * ndim + axis


def global_id_of(thread: Thread) -> tuple[int, ...]:
    """A thread's global id."""
    ndim = (len(thread) - _FIRST_INDEX - len(_OF_SUBGROUP)) // len(_BY_AXIS)
    return thread[_FIRST_INDEX : _FIRST_INDEX + ndim]


def run_threads(
    kernel: Callable[..., Any],
    waits: bool,
    geometry: Geometry,
    arguments: tuple[Any, ...],
    sites: tuple[Location, ...],
    subgroup_size: int,
) -> None:
    """Calls `kernel` for every thread of a launch. What one thread raises ends the launch.

    `waits`: calling the kernel makes a generator, which yields wherever its thread waits for others: the number of a
    barrier, or a `Meeting`, whose answer is sent back.
    """
    printer = Printer(is_in_order=not waits)
    try:
        for block_id in _ids(geometry.grid):
            threads = _threads_of_block(geometry, block_id, printer, subgroup_size)
            if waits:
                _Block(kernel, list(threads), arguments, sites, geometry.ndim).run()
                continue
            for thread in threads:
                with _InThread(thread):
                    kernel(thread, *arguments)
    finally:
        printer.close()


def _ids(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every index of a grid, the last axis fastest; `itertools.product` would hold each axis in memory first."""
    if not counts:
        yield ()
        return
    for index in range(counts[0]):
        for rest in _ids(counts[1:]):
            yield (index, *rest)


def _threads_of_block(
    geometry: Geometry, block_id: tuple[int, ...], printer: Printer, subgroup_size: int
) -> Iterator[Thread]:
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
        subgroup, lane = divmod(sum(map(operator.mul, local_id, strides)), subgroup_size)
        yield (memory, printer, *global_id, *local_id, *block_id, *dims, lane, subgroup, subgroup_size)


class _InThread:
    """Says of a violation in which thread it happened, and how it got there.

    A class, as a generator's frames would stand in tracebacks.
    """

    __slots__ = ("_thread",)

    def __init__(self, thread: Thread) -> None:
        self._thread = thread

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, OutOfBoundsError | KernelAssertionError):
            error.chain = (*error.chain, *map(call_line, calls_in_kernel(trace)))
            ids = global_id_of(self._thread)
            error.what = f"{error.what} (in thread {ids[0] if len(ids) == 1 else ids})"
            error.args = (error.what,)


class _Block:
    """The threads of one block, which wait for each other."""

    def __init__(
        self,
        kernel: Callable[..., Any],
        threads: Sequence[Thread],
        arguments: tuple[Any, ...],
        sites: tuple[Location, ...],
        ndim: int,
    ) -> None:
        self._threads = threads
        self._running: list[Generator[Place, Any, None]] = [kernel(thread, *arguments) for thread in threads]
        self._places: list[Place] = [None] * len(threads)
        self._sites = sites
        subgroups: dict[int, list[int]] = {}
        for number, thread in enumerate(threads):
            subgroups.setdefault(thread[index_position(IndexKind.SUBGROUP_ID, 0, ndim)], []).append(number)
        self._subgroups = list(subgroups.values())

    def run(self) -> None:
        """Lets every thread run to where it waits, answers subgroups, then barriers, until all threads have ended.

        Raises:
            LaunchError: threads that should meet are not all there.
        """
        try:
            answered: list[tuple[int, Any]] = [(number, None) for number in range(len(self._threads))]
            while answered:
                for number, answer in answered:
                    self._places[number] = self._go_on(number, answer)
                answered = [pair for subgroup in self._subgroups for pair in self._met(subgroup)] or self._passed()
        finally:
            for running in self._running:
                running.close()

    def _go_on(self, number: int, answer: Any) -> Place:
        with _InThread(self._threads[number]):
            try:
                return self._running[number].send(answer)
            except StopIteration:
                return None

    def _met(self, subgroup: list[int]) -> list[tuple[int, Any]]:
        """The answers for a subgroup whose threads wait for each other."""
        places = [self._places[number] for number in subgroup]
        meetings = [place for place in places if isinstance(place, Meeting)]
        if not meetings:
            return []
        if len(meetings) < len(places) or len({meeting.site for meeting in meetings}) > 1:
            numbers = {place.site if isinstance(place, Meeting) else place for place in places}
            raise self._parted(numbers, meetings[0].site, "subgroup", "this operation")
        return list(zip(subgroup, answers(meetings), strict=True))

    def _passed(self) -> list[tuple[int, Any]]:
        """Every thread, if all wait at one barrier; none, if all have ended."""
        places = {place for place in self._places if not isinstance(place, Meeting)}
        if places == {None} or not places:
            return []
        if len(places) > 1:
            first = min(place for place in places if place is not None)
            raise self._parted(places, first, "block", "this barrier")
        return [(number, None) for number in range(len(self._threads))]

    def _parted(self, numbers: set[int | None], here: int, group: str, what: str) -> LaunchError:
        waiting = sorted(number for number in numbers if number is not None and number != here)
        others = [f"others wait at {self._sites[number]}" for number in waiting]
        if None in numbers:
            others.append("others have ended")
        return LaunchError(
            f"some threads of a {group} wait at {what}, others never come",
            where=self._sites[here],
            fix=f"let every thread of a {group} reach {what}, or none",
            chain=tuple(others),
        )
