"""Threads as lanes: the last axis in steps of several vectors, the axis before it in steps of several rows.

A segment's threads run together, a step at a time, every statement for all of them before the next one. Rows that do not
fill a step run one at a time. The last step along the lanes has a mask, for the lanes beyond the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quernel.ir.nodes import Alloc, Atomic, IndexKind, Space
from quernel.ir.segments import Segment as ThreadSegment
from quernel.ir.walk import Body, walk_statements
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.cells import Cells, ThreadPlace
from quernel_cpu.emission.coarsening import Step
from quernel_cpu.emission.lane_bodies import LaneBody, LaneScope
from quernel_cpu.emission.lane_memory import PrivateArray
from quernel_cpu.emission.lane_values import LaneArithmetic, Value, uniform
from quernel_cpu.emission.loops import count_up
from quernel_cpu.emission.segments import Segment
from quernel_cpu.emission.shapes import Axes, Lanes, Layout, analyse_shapes
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import memory_type, scalar

__all__ = ["SpmdSegments", "block_indices"]

Index = tuple[IndexKind, int]


class SpmdSegments:
    """Writes the code that runs a segment's threads as lanes."""

    def __init__(self, unit: Unit, code: Code, step: Step, *, fast_math: bool, masks_always: bool) -> None:
        """`masks_always`: every step has a mask, instead of the last one of a row in a copy of the code."""
        self._unit = unit
        self._code = code
        self._step = step
        self._fast_math = fast_math
        self._masks_always = masks_always

    # --- points -------------------------------------------------------------------------------------------------------

    def emit_points(self, segment: Segment, first: str, end: str) -> None:
        """Rows of points: several together where whole ones follow each other, else what there is of one."""
        if segment.kernel.ndim == 1:
            self._points(segment, (), first, end, rows=1)
        else:
            self._rows_of_points(segment, first, end)

    def _rows_of_points(self, segment: Segment, first: str, end: str) -> None:
        code, launch, ndim = self._code, segment.launch, segment.kernel.ndim
        width, rows = launch.extent[-1], self._step.rows
        row = code.value(f"udiv i64 {first}, {width}")
        column = code.value(f"sub i64 {first}, {code.value(f'mul i64 {row}, {width}')}")
        outer = [row]
        if ndim == 3:
            plane = code.value(f"udiv i64 {row}, {launch.extent[1]}")
            outer = [plane, code.value(f"sub i64 {row}, {code.value(f'mul i64 {plane}, {launch.extent[1]}')}")]
        slots = [code.allocate("i64") for _ in outer]
        position_slot, column_slot = code.allocate("i64"), code.allocate("i64")
        for slot, value in zip([*slots, position_slot, column_slot], [*outer, first, column], strict=True):
            code.do(f"store i64 {value}, ptr {slot}")
        head, body, done = code.label("row"), code.label("row.body"), code.label("row.end")
        code.place(head)
        position = code.value(f"load i64, ptr {position_slot}")
        code.branch_if(code.value(f"icmp slt i64 {position}, {end}"), body, done)
        code.place(body)
        column = code.value(f"load i64, ptr {column_slot}")
        ids = tuple(code.value(f"load i64, ptr {slot}") for slot in slots)
        left = code.value(f"sub i64 {end}, {position}")

        def finish(count: str, num_rows: int) -> None:
            code.do(f"store i64 {code.value(f'add i64 {position}, {count}')}, ptr {position_slot}")
            code.do(f"store i64 0, ptr {column_slot}")
            self._next_row(segment, slots, ids, num_rows)
            code.branch(head)

        if rows > 1:
            whole = code.value(f"mul i64 {width}, {rows}")
            fits = code.value(f"icmp sge i64 {left}, {whole}")
            fits = code.value(f"and i1 {fits}, {code.value(f'icmp eq i64 {column}, 0')}")
            if ndim == 3:
                last = code.value(f"add i64 {ids[-1]}, {rows}")
                fits = code.value(f"and i1 {fits}, {code.value(f'icmp sle i64 {last}, {launch.extent[1]}')}")
            together, single = code.label("rows"), code.label("single")
            code.branch_if(fits, together, single)
            code.place(together)
            self._points(segment, ids, "0", width, rows=rows)
            finish(whole, rows)
            code.place(single)
        to_edge = code.value(f"sub i64 {width}, {column}")
        smaller = self._unit.declare("i64", "llvm.smin.i64", "i64", "i64")
        count = code.value(f"call i64 {smaller}(i64 {left}, i64 {to_edge})")
        self._points(segment, ids, column, code.value(f"add i64 {column}, {count}"), rows=1)
        finish(count, 1)
        code.place(done)

    def _next_row(self, segment: Segment, slots: list[str], ids: tuple[str, ...], num_rows: int) -> None:
        code = self._code
        following = code.value(f"add i64 {ids[-1]}, {num_rows}")
        if len(ids) == 2:
            is_plane_done = code.value(f"icmp eq i64 {following}, {segment.launch.extent[1]}")
            following = code.value(f"select i1 {is_plane_done}, i64 0, i64 {following}")
            carry = code.value(f"zext i1 {is_plane_done} to i64")
            code.do(f"store i64 {code.value(f'add i64 {ids[0]}, {carry}')}, ptr {slots[0]}")
        code.do(f"store i64 {following}, ptr {slots[-1]}")

    def _points(self, segment: Segment, outer: tuple[str, ...], first: str, end: str, *, rows: int) -> None:
        """Points `first` to `end` of one row, or of several."""
        ndim, launch = segment.kernel.ndim, segment.launch
        axes = _axes(segment.body, (IndexKind.GLOBAL_ID,), ndim - 1, ndim - 2 if rows > 1 else -1)
        lanes = self.lanes(rows)

        def step(column: str, mask: Value | None) -> None:
            indices: dict[Index, Value] = {}
            for axis, point in enumerate((*outer, column)):
                base = self._code.value(f"add i64 {launch.start[axis]}, {point}")
                indices[IndexKind.GLOBAL_ID, axis] = self._index(axes, (IndexKind.GLOBAL_ID, axis), base, rows)
                indices[IndexKind.GLOBAL_DIM, axis] = uniform(launch.extent[axis])
            self._run(segment, segment.body, axes, lanes, indices, mask, None, None)

        self._steps(lanes, first, end, step)

    # --- blocks -------------------------------------------------------------------------------------------------------

    def emit_block(self, segment: Segment, block_id: tuple[str, ...]) -> None:
        """The threads of one block: steps of rows along one axis, of vectors along the last."""
        self.emit_threads(segment, block_id, ThreadSegment(segment.body), None)

    def emit_threads(
        self, segment: Segment, block_id: tuple[str, ...], part: ThreadSegment, cells: Cells | None
    ) -> None:
        """Runs a part of a block's work for every thread. `cells`: what outlives it."""
        code, block, launch = self._code, segment.kernel.block, segment.launch
        origins = [
            code.value(f"add i64 {launch.start[axis]}, {code.value(f'mul i64 {block_id[axis]}, {size}')}")
            for axis, size in enumerate(block)
        ]
        looped = [axis for axis, size in enumerate(block) if size > 1]
        lane_axis = looped.pop() if looped else len(block) - 1
        row_axis = looped.pop() if looped else -1
        kinds = (IndexKind.GLOBAL_ID, IndexKind.LOCAL_ID)

        def steps_at(own: Mapping[int, str], rows: int) -> None:
            axes = _axes(part.body, kinds, lane_axis, row_axis if rows > 1 else -1)
            lanes = self.lanes(rows)

            def step(column: str, mask: Value | None) -> None:
                indices = block_indices(segment, block_id)
                local = [{**own, lane_axis: column}.get(axis, "0") for axis in range(len(block))]
                for axis, operand in enumerate(local):
                    base = code.value(f"add i64 {origins[axis]}, {operand}")
                    indices[IndexKind.LOCAL_ID, axis] = self._index(axes, (IndexKind.LOCAL_ID, axis), operand, rows)
                    indices[IndexKind.GLOBAL_ID, axis] = self._index(axes, (IndexKind.GLOBAL_ID, axis), base, rows)
                place = ThreadPlace(lanes, self._first_thread(block, local), block[lane_axis], mask)
                self._run(segment, part.body, axes, lanes, indices, mask, cells, place, part)

            self._steps(lanes, "0", str(block[lane_axis]), step)

        def loop(outer: list[int], own: Mapping[int, str]) -> None:
            if outer:
                axis = outer[0]
                count_up(code, "0", str(block[axis]), lambda index: loop(outer[1:], {**own, axis: index}))
                return
            if row_axis < 0:
                steps_at(own, 1)
                return
            rows = min(self._step.rows, block[row_axis])
            whole = block[row_axis] // rows * rows
            count_up(code, "0", str(whole), lambda row: steps_at({**own, row_axis: row}, rows), step=rows)
            if whole < block[row_axis]:
                count_up(code, str(whole), str(block[row_axis]), lambda row: steps_at({**own, row_axis: row}, 1))

        loop(looped, {})

    def _first_thread(self, block: tuple[int, ...], local: list[str]) -> str:
        """The number within the block of the first of the threads that run together."""
        number = local[0]
        for axis in range(1, len(block)):
            scaled = self._code.value(f"mul i64 {number}, {block[axis]}")
            number = self._code.value(f"add i64 {scaled}, {local[axis]}")
        return number

    # --- steps --------------------------------------------------------------------------------------------------------

    def scalar(self) -> Arithmetic:
        """Operators on single values."""
        return Arithmetic(self._unit, self._code, fast_math=self._fast_math)

    def lanes(self, rows: int) -> LaneArithmetic:
        """Operators on the values of so many rows."""
        return LaneArithmetic(self._unit, self._code, self._step.width, rows, fast_math=self._fast_math)

    def _index(self, axes: Axes, index: Index, base: str, rows: int) -> Value:
        layout = axes.index(*index)
        if not layout.rows:
            return Value(layout, (base,))
        return Value(layout, tuple(self._code.value(f"add i64 {base}, {row}") for row in range(rows)))

    def _steps(self, lanes: LaneArithmetic, first: str, end: str, step: Callable[[str, Value | None], None]) -> None:
        """Steps along the lanes from `first` up to `end`."""
        code, width = self._code, self._step.width
        if end.isdigit() and first == "0":
            if int(end) == width:
                step("0", None)
                return
            if int(end) < width:
                step("0", self._beyond(lanes, "0", end))
                return
            if int(end) % width == 0:
                count_up(code, first, end, lambda column: step(column, None), step=width)
                return
        if self._masks_always:
            count_up(code, first, end, lambda column: step(column, self._beyond(lanes, column, end)), step=width)
            return
        length = code.value(f"sub i64 {end}, {first}")
        whole = code.value(f"and i64 {length}, {-width}") if not width & (width - 1) else ""
        last = code.value(f"add i64 {first}, {whole}")
        count_up(code, first, last, lambda column: step(column, None), step=width)
        tail, done = code.label("tail"), code.label("tail.end")
        code.branch_if(code.value(f"icmp slt i64 {last}, {end}"), tail, done)
        code.place(tail)
        step(last, self._beyond(lanes, last, end))
        code.place(done)

    def _beyond(self, lanes: LaneArithmetic, column: str, end: str) -> Value:
        """The mask of the lanes before `end`."""
        code, width = self._code, self._step.width
        left = code.value(f"sub i64 {end}, {column}")
        smaller = self._unit.declare("i64", "llvm.smin.i64", "i64", "i64")
        bounded = code.value(f"call i64 {smaller}(i64 {left}, i64 {width})")
        narrow = code.value(f"trunc i64 {bounded} to i32")
        numbers = lanes.steps("i32", 1)
        limit = lanes.broadcast(narrow, "i32")
        mask = code.value(f"icmp ult <{width} x i32> {numbers}, {limit}")
        return Value(Layout(Lanes.VECTOR), (mask,))

    def _run(
        self,
        segment: Segment,
        body: Body,
        axes: Axes,
        lanes: LaneArithmetic,
        indices: Mapping[Index, Value],
        mask: Value | None,
        cells: Cells | None,
        place: ThreadPlace | None,
        part: ThreadSegment | None = None,
    ) -> None:
        """One step: all statements, for the threads that run together."""
        code = self._code
        carried = {} if cells is None or part is None else cells.layouts(part)
        shapes = analyse_shapes(body, axes, carried)
        private = {
            alloc.name: self._private(alloc, lanes)
            for alloc in segment.kernel.body
            if isinstance(alloc, Alloc) and alloc.space is Space.PRIVATE
        }
        if cells is not None and place is not None:
            private |= cells.arrays(place)
        scope = LaneScope(
            scalars=segment.scalars,
            arrays=segment.arrays,
            shared={} if cells is None else cells.shared,
            indices=indices,
            private=private,
            leave=code.label("thread.end"),
        )
        emitter = LaneBody(self._unit, code, scope, segment.kernel.locals, shapes, lanes, mask)
        taken = {} if cells is None or part is None or place is None else cells.take(part, place)
        emitter.start(body, taken)
        emitter.emit(body)
        code.place(scope.leave)
        if cells is not None and part is not None and place is not None:
            cells.give(part, place, emitter)

    def _private(self, alloc: Alloc, lanes: LaneArithmetic) -> PrivateArray:
        element = scalar(alloc.element)
        group = lanes.width * lanes.rows
        num_elements, strides = group, {}
        for axis in reversed(range(len(alloc.shape))):
            strides[axis] = num_elements
            num_elements *= alloc.shape[axis]
        pointer = self._code.allocate(f"[{num_elements} x {memory_type(element)}]", 64)
        own = Value(Layout(rows=True), tuple(str(row * lanes.width) for row in range(lanes.rows)))
        return PrivateArray(element, pointer, strides, own)


def block_indices(segment: Segment, block_id: tuple[str, ...]) -> dict[Index, Value]:
    """The indices that all threads of a block have in common."""
    indices: dict[Index, Value] = {}
    for axis, size in enumerate(segment.kernel.block):
        indices[IndexKind.BLOCK_ID, axis] = uniform(block_id[axis])
        indices[IndexKind.BLOCK_DIM, axis] = uniform(str(size))
        indices[IndexKind.GRID_DIM, axis] = uniform(segment.launch.grid[axis])
        indices[IndexKind.GLOBAL_DIM, axis] = uniform(segment.launch.extent[axis])
    return indices


def _axes(body: Body, kinds: tuple[IndexKind, ...], lane_axis: int, row_axis: int) -> Axes:
    atomics = frozenset(stmt.place.root for stmt in walk_statements(body) if isinstance(stmt, Atomic))
    return Axes(
        lanes=frozenset((kind, lane_axis) for kind in kinds),
        rows=frozenset((kind, row_axis) for kind in kinds if row_axis >= 0),
        atomics=atomics,
    )
