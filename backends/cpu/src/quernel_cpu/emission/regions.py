"""One block of a kernel with barriers: its control once for the block, its segments for all threads in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

import attrs

from quernel.dtypes import ArrayType
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
from quernel_cpu.emission.leaves import leaves
from quernel_cpu.emission.loops import LoopLabels, emit_for
from quernel_cpu.emission.segments import Segment, SegmentEmitter, block_indices
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import register_type

__all__ = ["RegionEmitter"]

_MOST_SEGMENTS = 32
"""Where there are more, each is a function of its own: LLVM's time grows with the square of a function's loops."""


class RegionEmitter:
    """Writes the code of one block."""

    def __init__(
        self,
        unit: Unit,
        code: Code,
        segments: Callable[[Code], SegmentEmitter],
        segmented: SegmentedKernel,
        segment: Segment,
    ) -> None:
        """`segment`: what all segments have in common, the cells and shared arrays among it."""
        self._unit = unit
        self._code = code
        self._segments = segments
        self._segmented = segmented
        self._segment = segment
        self._loops: list[LoopLabels] = []
        self._is_apart = _num_segments(segmented.regions) > _MOST_SEGMENTS

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
        emit_for(control.arithmetic, start, stop, step, body)

    def _run(self, run: Run, block_id: tuple[str, ...]) -> None:
        """A segment. What its atomics change may be changed by several of its threads, so nothing is said of that."""
        changed = {stmt.place.root.name for stmt in walk_statements(run.body) if isinstance(stmt, Atomic)}
        arrays = {
            name: attrs.evolve(array, metadata="") if name in changed else array
            for name, array in self._segment.arrays.items()
        }
        segment = attrs.evolve(self._segment, body=run.body, arrays=arrays, loads=run.loads, stores=run.stores)
        if not self._is_apart:
            self._segments(self._code).emit_block(segment, block_id)
            return
        code = self._code.apart()
        self._segments(code).emit_block(segment, block_id)
        code.end("ret void")
        mentioned = code.mentions()
        operands = dict.fromkeys((llvm, name) for llvm, name in _operands(segment, block_id) if name in mentioned)
        listed = ", ".join(f"{llvm} {name}" for llvm, name in operands)
        symbol = self._unit.fresh("q.segment")
        self._unit.add_function(code.function(f"internal void {symbol}({listed}) noinline nounwind alignstack(64)"))
        self._code.do(f"call void {symbol}({listed})")


def _num_segments(regions: tuple[Region, ...]) -> int:
    """How many loops over the threads there will be."""
    count = 0
    for region in regions:
        match region:
            case Run():
                count += 1
            case BlockIf():
                count += _num_segments(region.then) + _num_segments(region.otherwise)
            case BlockFor() | BlockLoop():
                count += _num_segments(region.body)
            case BlockBreak() | BlockContinue() | BlockReturn():
                continue
            case _:
                assert_never(region)
    return count


def _operands(segment: Segment, block_id: Operands) -> Iterator[tuple[str, str]]:
    """Types and names of everything that the code of a segment may mention."""
    for param in segment.kernel.params:
        if not isinstance(param.type, ArrayType):
            types = (register_type(leaf.dtype) for leaf in leaves(param.type.dtype))
            yield from zip(types, segment.scalars.get(param.name, ()), strict=False)
    for array in segment.arrays.values():
        yield "ptr", array.pointer
        yield from (("i64", operand) for operand in (*array.shape.values(), *array.strides.values()))
        if array.streaming is not None:
            yield "i1", array.streaming.condition
    launch, cells = segment.launch, segment.cells
    yield from (("i64", operand) for operand in (*launch.grid, *launch.extent, *launch.start, *block_id))
    yield from (("ptr", slot) for slots in (*cells.uniform.values(), *cells.carried.values()) for slot in slots)
    yield from (("ptr", first) for first in (*(first for _, first in cells.arrays), *segment.spread.values()))
    yield "ptr", segment.diagnostics


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
