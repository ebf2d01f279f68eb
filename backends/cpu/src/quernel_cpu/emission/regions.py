"""One block of a kernel with barriers: its control once for the block, its segments for all threads in turn."""

from __future__ import annotations

from typing import assert_never

import attrs

from quernel.ir.nodes import Atomic, Expr
from quernel.ir.segments import (
    BlockBreak,
    BlockContinue,
    BlockFor,
    BlockIf,
    BlockLoop,
    BlockReturn,
    Region,
    SegmentedKernel,
)
from quernel.ir.segments import Segment as Run
from quernel.ir.walk import walk_statements
from quernel_cpu.emission.cells import Cells
from quernel_cpu.emission.expressions import ExpressionEmitter, Operands, Scope
from quernel_cpu.emission.loops import LoopLabels, emit_for
from quernel_cpu.emission.segments import Segment, SegmentEmitter, block_indices
from quernel_cpu.emission.text import Code, Unit

__all__ = ["RegionEmitter"]


class RegionEmitter:
    """Writes the code of one block."""

    def __init__(
        self, unit: Unit, code: Code, segments: SegmentEmitter, segmented: SegmentedKernel, segment: Segment
    ) -> None:
        """`segment`: what all segments have in common, the cells and shared arrays among it."""
        self._unit = unit
        self._code = code
        self._segments = segments
        self._segmented = segmented
        self._segment = segment
        self._loops: list[LoopLabels] = []

    def emit_block(self, block_id: tuple[str, ...]) -> None:
        """Runs one block."""
        code, segment = self._code, self._segment
        done = code.label("block.end")
        scope = Scope(
            scalars=segment.scalars,
            arrays=segment.arrays | segment.cells.thread_arrays(code, "0"),
            functions=segment.functions,
            indices=block_indices(code, segment, block_id),
            leave=lambda _values: code.branch(done),
            diagnostics=segment.diagnostics,
        )
        fast_math = segment.kernel.options.fast_math
        control = _Control(self._unit, code, scope, segment.cells, fast_math=fast_math)
        self._regions(self._segmented.regions, control, block_id, done)
        code.place(done)

    def _regions(self, regions: tuple[Region, ...], control: _Control, block_id: tuple[str, ...], done: str) -> None:
        code = self._code
        for region in regions:
            if code.is_closed:
                return
            match region:
                case Run():
                    self._run(region, block_id)
                case BlockIf():
                    then, otherwise, end = code.label("block.then"), code.label("block.else"), code.label("block.fi")
                    code.branch_if(control.value(region.condition), then, otherwise)
                    is_closed = []
                    for label, side in ((then, region.then), (otherwise, region.otherwise)):
                        code.place(label)
                        self._regions(side, control, block_id, done)
                        is_closed.append(code.is_closed)
                        if not code.is_closed:
                            code.branch(end)
                    if not all(is_closed):
                        code.place(end)
                case BlockFor():
                    self._for(region, control, block_id, done)
                case BlockLoop():
                    head, end = code.label("block.loop"), code.label("block.loop.end")
                    code.place(head)
                    self._loops.append((head, end))
                    self._regions(region.body, control, block_id, done)
                    self._loops.pop()
                    if not code.is_closed:
                        code.branch(head)
                    code.place(end)
                case BlockBreak():
                    code.branch(self._loops[-1][1])
                case BlockContinue():
                    code.branch(self._loops[-1][0])
                case BlockReturn():
                    code.branch(done)
                case _:
                    assert_never(region)

    def _for(self, region: BlockFor, control: _Control, block_id: tuple[str, ...], done: str) -> None:
        def body(index: str, labels: LoopLabels) -> None:
            control.assign(region.variable, (index,))
            self._loops.append(labels)
            self._regions(region.body, control, block_id, done)
            self._loops.pop()

        bounds: tuple[Expr, ...] = (region.start, region.stop, region.step)
        start, stop, step = (control.value(bound) for bound in bounds)
        emit_for(self._code, start, stop, step, body)

    def _run(self, run: Run, block_id: tuple[str, ...]) -> None:
        """A segment. What its atomics change may be changed by several of its threads, so nothing is said of that."""
        changed = {stmt.place.root.name for stmt in walk_statements(run.body) if isinstance(stmt, Atomic)}
        arrays = {
            name: attrs.evolve(array, metadata="") if name in changed else array
            for name, array in self._segment.arrays.items()
        }
        segment = attrs.evolve(self._segment, body=run.body, arrays=arrays, loads=run.loads, stores=run.stores)
        self._segments.emit_block(segment, block_id)


class _Control(ExpressionEmitter):
    """The expressions that decide the way of the whole block, as its first thread sees them."""

    def __init__(self, unit: Unit, code: Code, scope: Scope, cells: Cells, *, fast_math: bool) -> None:
        super().__init__(unit, code, scope, (), fast_math=fast_math)
        self._cells = cells

    def local(self, name: str) -> Operands:
        """The block's value of a local."""
        return self._cells.block_values(self._code, name)

    def assign(self, name: str, operands: Operands) -> None:
        """Gives a local on which the block agrees a value."""
        self._cells.set_block_values(self._code, name, operands)
