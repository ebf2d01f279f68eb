"""A block with barriers: segments one after the other, under control that the block decides as one."""

from __future__ import annotations

from typing import assert_never

from quernel.ir.nodes import Expr, IndexKind
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
from quernel.ir.segments import Segment as ThreadSegment
from quernel_cpu.emission.cells import Cells
from quernel_cpu.emission.lane_bodies import LaneBody, LaneScope
from quernel_cpu.emission.lane_values import Value, uniform
from quernel_cpu.emission.loops import num_trips
from quernel_cpu.emission.segments import Segment
from quernel_cpu.emission.shapes import Axes, analyse_shapes
from quernel_cpu.emission.spmd import SpmdSegments, block_indices
from quernel_cpu.emission.text import Code, Unit

__all__ = ["BarrierSegments"]


class BarrierSegments:
    """Runs blocks whose threads wait for each other, each segment by all of them before the next."""

    def __init__(self, unit: Unit, code: Code, spmd: SpmdSegments, kernel: SegmentedKernel) -> None:
        self._unit = unit
        self._code = code
        self._spmd = spmd
        self._kernel = kernel
        num_threads = 1
        for size in kernel.module.kernel.block:
            num_threads *= size
        self._cells = Cells(unit, code, kernel, num_threads)
        self._loops: list[tuple[str, str]] = []

    def emit_points(self, segment: Segment, first: str, end: str) -> None:
        """Points have no blocks, so nothing to wait for."""
        self._spmd.emit_points(segment, first, end)

    def emit_block(self, segment: Segment, block_id: tuple[str, ...]) -> None:
        """All regions of one block."""
        self._cells.reset()
        done = self._code.label("block.end")
        self._regions(segment, block_id, self._kernel.regions, done)
        self._code.place(done)

    def _regions(self, segment: Segment, block_id: tuple[str, ...], regions: tuple[Region, ...], done: str) -> None:
        for region in regions:
            if self._code.is_closed:
                return
            self._region(segment, block_id, region, done)

    def _region(self, segment: Segment, block_id: tuple[str, ...], region: Region, done: str) -> None:
        code = self._code
        match region:
            case ThreadSegment():
                self._cells.begin(region)
                self._spmd.emit_threads(segment, block_id, region, self._cells)
                self._cells.end(region)
            case BlockIf():
                then, otherwise, end = code.label("block.then"), code.label("block.else"), code.label("block.endif")
                code.branch_if(self._value(segment, block_id, region.condition), then, otherwise)
                for label, inner in ((then, region.then), (otherwise, region.otherwise)):
                    code.place(label)
                    self._regions(segment, block_id, inner, done)
                    if not code.is_closed:
                        code.branch(end)
                code.place(end)
            case BlockFor():
                self._for(segment, block_id, region, done)
            case BlockLoop():
                head, end = code.label("block.loop"), code.label("block.loop.end")
                code.place(head)
                self._loops.append((head, end))
                self._regions(segment, block_id, region.body, done)
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

    def _for(self, segment: Segment, block_id: tuple[str, ...], region: BlockFor, done: str) -> None:
        code = self._code
        start, stop, step = (
            self._value(segment, block_id, bound) for bound in (region.start, region.stop, region.step)
        )
        trips = num_trips(self._spmd.scalar(), start, stop, step)
        counter = code.allocate("i64")
        head, body, latch, end = (code.label(f"block.for{part}") for part in (".head", ".body", ".next", ".end"))
        code.do(f"store i64 0, ptr {counter}")
        code.place(head)
        current = code.value(f"load i64, ptr {counter}")
        code.branch_if(code.value(f"icmp ult i64 {current}, {trips}"), body, end)
        code.place(body)
        self._cells.write(region.variable, code.value(f"add i64 {start}, {code.value(f'mul i64 {current}, {step}')}"))
        self._loops.append((latch, end))
        self._regions(segment, block_id, region.body, done)
        self._loops.pop()
        code.place(latch)
        code.do(f"store i64 {code.value(f'add nuw i64 {current}, 1')}, ptr {counter}")
        code.branch(head)
        code.place(end)

    def _value(self, segment: Segment, block_id: tuple[str, ...], expr: Expr) -> str:
        """An expression that the block agrees on."""
        indices: dict[tuple[IndexKind, int], Value] = dict(block_indices(segment, block_id))
        for axis in range(len(block_id)):
            # Under a promise of uniformity any thread will do.
            indices[IndexKind.LOCAL_ID, axis] = uniform("0")
            first = self._code.value(f"mul i64 {block_id[axis]}, {segment.kernel.block[axis]}")
            indices[IndexKind.GLOBAL_ID, axis] = uniform(
                self._code.value(f"add i64 {segment.launch.start[axis]}, {first}")
            )
        scope = LaneScope(
            scalars=segment.scalars,
            arrays=segment.arrays,
            shared=self._cells.shared,
            indices=indices,
            private={},
            leave="",
        )
        shapes = analyse_shapes((), Axes(lanes=frozenset()), {})
        lanes = self._spmd.lanes(1)
        body = LaneBody(self._unit, self._code, scope, self._kernel.uniform, shapes, lanes, None)
        body.start((), {local.name: uniform(self._cells.read(local.name)) for local in self._kernel.uniform})
        return body.value(expr).parts[0]
