"""What runs the threads of one segment, a run of statements without a barrier; the seam where another way may stand.

A thread's accesses to the arguments are marked as free of dependences on its neighbours': what one thread writes while
another one reads or writes it is undefined in the language. So LLVM vectorises the loop over the last axis without
asking at run time whether arrays overlap. What a thread keeps to itself in memory is not marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs

from quernel.ir.analysis import assigned_names, read_names
from quernel.ir.nodes import Alloc, IndexKind, Kernel, Stmt
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.bodies import BodyEmitter, Scope
from quernel_cpu.emission.cells import NO_CELLS, Cells
from quernel_cpu.emission.expressions import Operands
from quernel_cpu.emission.functions import DeviceFunction
from quernel_cpu.emission.loops import count_up
from quernel_cpu.emission.row_walk import walk_rows
from quernel_cpu.emission.text import Code, Unit

__all__ = ["Launch", "LoopSegments", "Segment", "SegmentEmitter", "block_indices", "count_up", "thread_number"]


@attrs.frozen
class Launch:
    """The launch's run-time shape as operands, by axis: blocks, points or threads, and the first `global_id`."""

    grid: tuple[str, ...]
    extent: tuple[str, ...]
    start: tuple[str, ...]


@attrs.frozen
class Segment:
    """Statements to run for many threads, and what their names stand for.

    Attributes:
        kernel: the kernel that they belong to.
        body: the statements.
        launch: the launch's shape.
        scalars: value parameters.
        arrays: array parameters, and the block's arrays.
        functions: the device functions.
        diagnostics: the address of the diagnostics buffer.
        cells: what outlives segments.
        loads: locals that a thread takes over from earlier segments.
        stores: locals that a thread hands on.
        private: private arrays that live in this segment only and that no statement of it allocates.
        spread: the addresses of private arrays too large for the frame, of threads that run together.
    """

    kernel: Kernel
    body: tuple[Stmt, ...]
    launch: Launch
    scalars: dict[str, Operands]
    arrays: dict[str, ArrayOperands]
    functions: dict[str, DeviceFunction]
    diagnostics: str = "null"
    cells: Cells = NO_CELLS
    loads: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    private: tuple[Alloc, ...] = ()
    spread: Mapping[str, str] = attrs.field(factory=dict)


class SegmentEmitter(Protocol):
    """Writes the code that runs a segment's threads."""

    def emit_points(self, segment: Segment, first: str, end: str) -> None:
        """Runs points `first` to `end` of an `over` launch, counted in array order."""
        ...

    def emit_block(self, segment: Segment, block_id: tuple[str, ...]) -> None:
        """Runs the threads of one block of a grid."""
        ...


class LoopSegments:
    """Threads as loops in array order, the last axis innermost, where LLVM's vectoriser makes lanes of it."""

    def __init__(self, unit: Unit, code: Code, access_group: str) -> None:
        """`access_group`: the metadata node that accesses without dependences between threads carry."""
        self._unit = unit
        self._code = code
        self._access_group = access_group

    def emit_points(self, segment: Segment, first: str, end: str) -> None:
        """Rows of points: whole ones, but for the first and the last, so that no point needs a guard."""
        if segment.kernel.ndim == 1:
            self._row(segment, (), first, end)
            return

        def row(outer: tuple[str, ...], first: str, end: str, _: int) -> None:
            self._row(segment, outer, first, end)

        walk_rows(self._unit, self._code, segment.launch.extent, first, end, row)

    def _row(self, segment: Segment, outer: tuple[str, ...], first: str, end: str) -> None:
        """A part of a row. The loop counts the last axis's `global_id` itself, which keeps addresses simple."""
        code, start = self._code, segment.launch.start
        fixed = {(IndexKind.GLOBAL_DIM, axis): extent for axis, extent in enumerate(segment.launch.extent)}
        fixed |= {
            (IndexKind.GLOBAL_ID, axis): code.value(f"add nsw i64 {start[axis]}, {point}")
            for axis, point in enumerate(outer)
        }
        first, end = (code.value(f"add nsw i64 {start[-1]}, {column}") for column in (first, end))

        def thread(index: str, done: str) -> None:
            self._thread(segment, fixed | {(IndexKind.GLOBAL_ID, len(outer)): index}, done)

        self._threads(first, end, thread)

    def emit_block(self, segment: Segment, block_id: tuple[str, ...]) -> None:
        """One loop for each axis that has more than one thread, the last of them as the vectorised one."""
        code, block = self._code, segment.kernel.block
        fixed = block_indices(code, segment, block_id)
        origins = [fixed[IndexKind.GLOBAL_ID, axis] for axis in range(len(block))]
        starts = {
            name: segment.cells.block_values(code, name) for name in segment.loads if name in segment.cells.uniform
        }
        looped = [axis for axis, size in enumerate(block) if size > 1]
        innermost = looped.pop() if looped else len(block) - 1

        def loop(axes: list[int], local: dict[int, str]) -> None:
            if axes:
                count_up(code, "0", str(block[axes[0]]), lambda index: loop(axes[1:], local | {axes[0]: index}))
                return

            def thread(index: str, done: str) -> None:
                own = {axis: (local | {innermost: index}).get(axis, "0") for axis in range(len(block))}
                indices = {(IndexKind.LOCAL_ID, axis): operand for axis, operand in own.items()}
                indices |= {
                    (IndexKind.GLOBAL_ID, axis): code.value(f"add i64 {origins[axis]}, {operand}")
                    for axis, operand in own.items()
                }
                self._thread(segment, fixed | indices, done, starts)

            self._threads("0", str(block[innermost]), thread)

        loop(looped, {})

    def _threads(self, first: str, end: str, thread: ThreadCode) -> None:
        code = self._code
        loop = self._unit.metadata(f'self, !{{!"llvm.loop.parallel_accesses", {self._access_group}}}')
        done = code.label("thread.end")

        count_up(code, first, end, lambda index: thread(index, done), f", !llvm.loop {loop}")

    def _thread(
        self,
        segment: Segment,
        indices: dict[tuple[IndexKind, int], str],
        done: str,
        starts: dict[str, Operands] | None = None,
    ) -> None:
        code, kernel, cells = self._code, segment.kernel, segment.cells
        number = thread_number(code, kernel.block, indices) if cells.carried or cells.arrays else "0"
        scope = Scope(
            scalars=segment.scalars,
            arrays=segment.arrays | cells.thread_arrays(code, number),
            functions=segment.functions,
            indices=indices,
            leave=lambda _values: code.branch(done),
            diagnostics=segment.diagnostics,
        )
        names = {*assigned_names(segment.body), *read_names(segment.body), *segment.loads, *segment.stores}
        variables = tuple(variable for variable in kernel.locals if variable.name in names)
        body = BodyEmitter(self._unit, code, scope, variables, fast_math=kernel.options.fast_math)
        for alloc in segment.private:
            body.allocate(alloc)
        carried = {name: cells.thread_values(code, name, number) for name in segment.loads if name in cells.carried}
        body.emit(segment.body, (starts or {}) | carried)
        code.place(done)
        for name in segment.stores:
            if name in cells.uniform:
                cells.set_block_values(code, name, body.local(name))
            else:
                cells.set_thread_values(code, name, number, body.local(name))


def block_indices(code: Code, segment: Segment, block_id: tuple[str, ...]) -> dict[tuple[IndexKind, int], str]:
    """The indices of a block's first thread, and the dimensions."""
    block, launch = segment.kernel.block, segment.launch
    indices = {}
    for axis, size in enumerate(block):
        indices[IndexKind.BLOCK_ID, axis] = block_id[axis]
        indices[IndexKind.BLOCK_DIM, axis] = str(size)
        indices[IndexKind.GRID_DIM, axis] = launch.grid[axis]
        indices[IndexKind.GLOBAL_DIM, axis] = launch.extent[axis]
        indices[IndexKind.LOCAL_ID, axis] = "0"
        first = code.value(f"mul nsw i64 {block_id[axis]}, {size}")
        indices[IndexKind.GLOBAL_ID, axis] = code.value(f"add i64 {launch.start[axis]}, {first}")
    return indices


def thread_number(code: Code, block: tuple[int, ...], indices: dict[tuple[IndexKind, int], str]) -> str:
    """Which thread of its block a thread is, in array order."""
    number = indices[IndexKind.LOCAL_ID, 0]
    for axis, size in enumerate(block[1:], 1):
        row = code.value(f"mul nuw nsw i64 {number}, {size}")
        number = code.value(f"add nuw nsw i64 {row}, {indices[IndexKind.LOCAL_ID, axis]}")
    return number


class ThreadCode(Protocol):
    """Writes the code of one thread, given its index and the label at which it ends."""

    def __call__(self, index: str, done: str, /) -> None:
        """Writes the code."""
        ...
