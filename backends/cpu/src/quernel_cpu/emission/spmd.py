"""Threads as lanes: the last axis in steps of several vectors, the axis before it in steps of several rows.

A segment's threads run together, a step at a time, every statement for all of them before the next one. Rows that do
not fill a step run one at a time. The last step along the lanes has a mask, for the lanes beyond the edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import attrs

from quernel.dtypes import DType, f32, i64
from quernel.ir.analysis import assigned_names, read_names
from quernel.ir.nodes import Alloc, ArrayRef, Assert, Atomic, BinaryOp, Call, IndexKind, LocalVariable, Root, Space
from quernel.ir.walk import Body, walk_statements
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.bodies import own_array
from quernel_cpu.emission.cells import Cells
from quernel_cpu.emission.coarsening import Step, uses_subgroups
from quernel_cpu.emission.inner_steps import InnerStep, inner_step
from quernel_cpu.emission.lane_bodies import LaneBody
from quernel_cpu.emission.lane_checks import all_within
from quernel_cpu.emission.lane_expressions import LaneExpressions
from quernel_cpu.emission.lane_functions import LaneFunctions
from quernel_cpu.emission.lane_memory import LaneMemory, Offset, PrivateArray
from quernel_cpu.emission.lane_scope import LaneScope
from quernel_cpu.emission.lane_values import LaneArithmetic, Value, index_sum, uniform
from quernel_cpu.emission.loops import count_up
from quernel_cpu.emission.reports import FirstViolation
from quernel_cpu.emission.row_walk import walk_rows
from quernel_cpu.emission.segments import Segment, block_indices, thread_number
from quernel_cpu.emission.shapes import UNIFORM, VECTOR, Axes, Lanes, Layout, Shapes, analyse_shapes
from quernel_cpu.emission.streaming import LINE_BYTES
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import is_narrow, memory_type, register_type, scalar, wide

__all__ = ["SpmdSegments"]

Index = tuple[IndexKind, int]


class SpmdSegments:
    """Writes the code that runs a segment's threads as lanes."""

    def __init__(
        self, unit: Unit, code: Code, step: Step, functions: LaneFunctions, *, fast_math: bool, masks_always: bool
    ) -> None:
        """`masks_always`: every step has a mask, instead of the last one of a row in a copy of the code."""
        self._functions = functions
        self._unit = unit
        self._code = code
        self._step = step
        self._fast_math = fast_math
        self._masks_always = masks_always

    # --- points -------------------------------------------------------------------------------------------------------

    def emit_points(self, segment: Segment, first: str, end: str) -> None:
        """Rows of points: several together where whole ones follow each other, else what there is of one."""
        if segment.kernel.ndim == 1:
            self._points(segment, (), first, end, 1)
            return

        def run(outer: tuple[str, ...], first: str, end: str, rows: int) -> None:
            self._points(segment, outer, first, end, rows)

        walk_rows(self._unit, self._code, segment.launch.extent, first, end, run, rows=self._step.rows)

    def _points(self, segment: Segment, outer: tuple[str, ...], first: str, end: str, rows: int) -> None:
        """Points `first` to `end` of one row, or of several."""
        ndim, launch = segment.kernel.ndim, segment.launch
        axes = _axes((IndexKind.GLOBAL_ID,), ndim - 1, ndim - 2, rows)
        lanes = self.lanes(rows)
        inner = self._inner(segment, axes, lanes)

        def step(column: str, until: str) -> None:
            indices: dict[Index, Value] = {}
            for axis, point in enumerate((*outer, column)):
                base = self._code.value(f"add i64 {launch.start[axis]}, {point}")
                indices[IndexKind.GLOBAL_ID, axis] = self._index(axes, (IndexKind.GLOBAL_ID, axis), base, rows)
                indices[IndexKind.GLOBAL_DIM, axis] = uniform(launch.extent[axis])
            self._run(segment, axes, lanes, indices, _Columns(column, until), {}, uniform("0"), inner)

        lead = self._to_alignment(segment, (*outer, first))
        self._steps(lanes, first, end, step, lead, sees_to_the_last=self._sees_to_the_last(segment, inner))

    def _to_alignment(self, segment: Segment, point: tuple[str, ...]) -> str:
        """How many lanes from a point on it is to where the streamed array, if its index is the point, is aligned.

        None where the launch does not stream; an empty text where none ever does.
        """
        code, launch = self._code, segment.launch
        for array in segment.arrays.values():
            item_bytes, is_whole = array.element.itemsize, len(array.strides) == len(point)
            alignment = min(self._step.width * item_bytes, LINE_BYTES)
            if array.streaming is None or not is_whole:
                continue
            offset = "0"
            for axis, number in enumerate(point):
                index = code.value(f"add i64 {launch.start[axis]}, {number}")
                offset = code.value(f"add i64 {offset}, {code.value(f'mul i64 {index}, {array.strides[axis]}')}")
            start = code.value(f"ptrtoint ptr {array.pointer} to i64")
            address = code.value(f"add i64 {start}, {code.value(f'mul i64 {offset}, {item_bytes}')}")
            left = code.value(f"and i64 {code.value(f'sub i64 0, {address}')}, {alignment - 1}")
            lanes = code.value(f"udiv i64 {left}, {item_bytes}")
            return code.value(f"select i1 {array.streaming.condition}, i64 {lanes}, i64 0")
        return ""

    # --- blocks -------------------------------------------------------------------------------------------------------

    def emit_block(self, segment: Segment, block_id: tuple[str, ...]) -> None:
        """The threads of one block: steps of rows along one axis, of vectors along the last."""
        code, block = self._code, segment.kernel.block
        fixed = block_indices(code, segment, block_id)
        starts = {
            name: uniform(segment.cells.block_values(code, name)[0])
            for name in segment.loads
            if name in segment.cells.uniform
        }
        looped = [axis for axis, size in enumerate(block) if size > 1]
        lane_axis = looped.pop() if looped else len(block) - 1
        row_axis = looped.pop() if looped else -1
        if uses_subgroups(segment.kernel.body) and row_axis >= 0 and block[lane_axis] % self._step.width:
            self._consecutive(segment, fixed, starts)
            return

        def steps_at(own: Mapping[int, str], rows: int) -> None:
            axes = _axes((IndexKind.GLOBAL_ID, IndexKind.LOCAL_ID), lane_axis, row_axis, rows)
            lanes = self.lanes(rows)
            inner = self._inner(segment, axes, lanes)

            def step(column: str, until: str) -> None:
                first = dict(fixed)
                for axis, operand in {**own, lane_axis: column}.items():
                    first[IndexKind.LOCAL_ID, axis] = operand
                    origin = fixed[IndexKind.GLOBAL_ID, axis]
                    first[IndexKind.GLOBAL_ID, axis] = code.value(f"add i64 {origin}, {operand}")
                indices = {index: self._index(axes, index, base, rows) for index, base in first.items()}
                number = thread_number(code, block, first)
                indices |= self._subgroup_indices(number)
                threads = uniform(number)
                if rows > 1:
                    threads = Value(Layout(rows=True), self._rows(number, rows, block[lane_axis]))
                self._run(segment, axes, lanes, indices, _Columns(column, until), starts, threads, inner)

            self._steps(
                lanes, "0", str(block[lane_axis]), step, sees_to_the_last=self._sees_to_the_last(segment, inner)
            )

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

    def _consecutive(self, segment: Segment, fixed: Mapping[Index, str], starts: Mapping[str, Value]) -> None:
        """Threads of a block in array order whatever their row, where subgroups go on from one row to the next."""
        block, lanes = segment.kernel.block, self.lanes(1)
        own = frozenset(
            (kind, axis)
            for kind in (IndexKind.GLOBAL_ID, IndexKind.LOCAL_ID)
            for axis, size in enumerate(block)
            if size > 1
        )
        axes = Axes(lanes=_LANE, vectors=own)
        inner = self._inner(segment, axes, lanes)

        def step(number: str, until: str) -> None:
            indices = {index: uniform(operand) for index, operand in fixed.items()} | self._subgroup_indices(number)
            rest = lanes.vectors(Value(Layout(Lanes.LINEAR, 1), (number,)), i64)
            for axis in reversed(range(len(block))):
                if block[axis] == 1:
                    continue
                size = uniform(str(block[axis]))
                local = lanes.operate(VECTOR, _remainder, (rest, i64), (size, i64))
                rest = lanes.operate(VECTOR, _quotient, (rest, i64), (size, i64))
                origin = indices[IndexKind.GLOBAL_ID, axis]
                indices[IndexKind.LOCAL_ID, axis] = local
                indices[IndexKind.GLOBAL_ID, axis] = lanes.operate(VECTOR, index_sum, (local, i64), (origin, i64))
            self._run(segment, axes, lanes, indices, _Columns(number, until), starts, uniform(number), inner)

        self._steps(lanes, "0", str(math.prod(block)), step, sees_to_the_last=self._sees_to_the_last(segment, inner))

    def _subgroup_indices(self, number: str) -> dict[Index, Value]:
        """The indices within subgroups, where the threads from `number` on are one."""
        width = self._step.width
        return {
            (IndexKind.SUBGROUP_LANE, 0): Value(Layout(Lanes.LINEAR, 1), ("0",)),
            (IndexKind.SUBGROUP_ID, 0): uniform(self._code.value(f"udiv i64 {number}, {width}")),
            (IndexKind.SUBGROUP_SIZE, 0): uniform(str(width)),
        }

    # --- steps --------------------------------------------------------------------------------------------------------

    def lanes(self, rows: int) -> LaneArithmetic:
        """Operators on the values of so many rows."""
        return LaneArithmetic(self._unit, self._code, self._step.width, rows, fast_math=self._fast_math)

    def _index(self, axes: Axes, index: Index, base: str, rows: int) -> Value:
        layout = axes.index(*index)
        return Value(layout, self._rows(base, rows, 1) if layout.rows else (base,))

    def _rows(self, base: str, rows: int, distance: int) -> tuple[str, ...]:
        return tuple(self._code.value(f"add i64 {base}, {row * distance}") for row in range(rows))

    def _steps(
        self, lanes: LaneArithmetic, first: str, end: str, step: _StepWriter, lead: str = "", *, sees_to_the_last: bool
    ) -> None:
        """Steps along the lanes from `first` up to `end`; one of `lead` lanes at first, unless that is 0.

        `sees_to_the_last`: each step finds out whether it is a whole one, so that the last needs no copy of the code.
        """
        code, width = self._code, self._step.width
        masks_always = self._masks_always or sees_to_the_last
        if lead:
            self._steps_after(lanes, first, end, step, lead, masks_always=masks_always)
            return
        if end.isdigit() and first == "0":
            if int(end) == width:
                step("0", "")
                return
            if int(end) < width:
                step("0", end)
                return
            if int(end) % width == 0:
                count_up(code, first, end, lambda column: step(column, ""), step=width)
                return
        if masks_always:
            count_up(code, first, end, lambda column: step(column, end), step=width)
            return
        length = code.value(f"sub i64 {end}, {first}")
        whole = code.value(f"and i64 {length}, {-width}") if not width & (width - 1) else ""
        last = code.value(f"add i64 {first}, {whole}")
        count_up(code, first, last, lambda column: step(column, ""), step=width)
        tail, done = code.label("tail"), code.label("tail.end")
        code.branch_if(code.value(f"icmp slt i64 {last}, {end}"), tail, done)
        code.place(tail)
        step(last, end)
        code.place(done)

    def _steps_after(
        self, lanes: LaneArithmetic, first: str, end: str, step: _StepWriter, lead: str, *, masks_always: bool
    ) -> None:
        code, width = self._code, self._step.width
        smaller = self._unit.declare("i64", "llvm.smin.i64", "i64", "i64")
        follows = code.value(f"add i64 {first}, {lead}")
        leads = code.value(f"icmp ne i64 {lead}, 0")
        column_slot, until_slot = code.allocate("i64"), code.allocate("i64")
        code.do(f"store i64 {first}, ptr {column_slot}")
        if masks_always:
            whole = code.value(f"add i64 {first}, {width}")
            code.do(f"store i64 {code.value(f'select i1 {leads}, i64 {follows}, i64 {whole}')}, ptr {until_slot}")
            head, inside, done = code.label("each"), code.label("each.body"), code.label("each.end")
            code.place(head)
            column = code.value(f"load i64, ptr {column_slot}")
            code.branch_if(code.value(f"icmp slt i64 {column}, {end}"), inside, done)
            code.place(inside)
            until = code.value(f"load i64, ptr {until_slot}")
            step(column, code.value(f"call i64 {smaller}(i64 {until}, i64 {end})"))
            code.do(f"store i64 {until}, ptr {column_slot}")
            code.do(f"store i64 {code.value(f'add i64 {until}, {width}')}, ptr {until_slot}")
            code.branch(head)
            code.place(done)
            return
        # The masked step serves twice: for the lead, and for what is left behind the whole steps.
        edge, whole_steps, done = code.label("edge"), code.label("whole"), code.label("edge.end")
        code.do(f"store i64 {code.value(f'call i64 {smaller}(i64 {follows}, i64 {end})')}, ptr {until_slot}")
        code.branch_if(leads, edge, whole_steps)
        code.place(edge)
        column = code.value(f"load i64, ptr {column_slot}")
        until = code.value(f"load i64, ptr {until_slot}")
        step(column, until)
        code.do(f"store i64 {until}, ptr {column_slot}")
        code.branch_if(code.value(f"icmp slt i64 {until}, {end}"), whole_steps, done)
        code.place(whole_steps)
        start = code.value(f"load i64, ptr {column_slot}")
        length = code.value(f"sub i64 {end}, {start}")
        rest = code.value(f"urem i64 {length}, {width}")
        last = code.value(f"sub i64 {end}, {rest}")
        count_up(code, start, last, lambda column: step(column, ""), step=width)
        code.do(f"store i64 {last}, ptr {column_slot}")
        code.do(f"store i64 {end}, ptr {until_slot}")
        code.branch_if(code.value(f"icmp slt i64 {last}, {end}"), edge, done)
        code.place(done)

    def _beyond(self, lanes: LaneArithmetic, columns: _Columns) -> Value:
        """The mask of the lanes that run threads."""
        code, width = self._code, self._step.width
        left = code.value(f"sub i64 {columns.until}, {columns.first}")
        smaller = self._unit.declare("i64", "llvm.smin.i64", "i64", "i64")
        bounded = code.value(f"call i64 {smaller}(i64 {left}, i64 {width})")
        narrow = code.value(f"trunc i64 {bounded} to i32")
        numbers = lanes.steps("i32", 1)
        limit = lanes.broadcast(narrow, "i32")
        mask = code.value(f"icmp ult <{width} x i32> {numbers}, {limit}")
        return Value(Layout(Lanes.VECTOR), (mask,))

    def _inner(self, segment: Segment, axes: Axes, lanes: LaneArithmetic) -> InnerStep | None:
        """The copy of the code for steps away from the edges, if it has one."""
        if any(isinstance(stmt, Assert) for stmt in walk_statements(segment.body)):
            return None
        return inner_step(segment.body, self._known_axes(segment, axes), _carried(segment), lanes.rows)

    def _sees_to_the_last(self, segment: Segment, inner: InnerStep | None) -> bool:
        """Whether a step's code for the edges runs what is left of a row too: it chooses between two copies anyhow."""
        return inner is not None and not self._masks_always and not _carried(segment)

    def _known_axes(self, segment: Segment, axes: Axes) -> Axes:
        return attrs.evolve(axes, atomics=self._changed_by_atomics(segment.body), calls=self._functions.results)

    def _run(
        self,
        segment: Segment,
        axes: Axes,
        lanes: LaneArithmetic,
        indices: Mapping[Index, Value],
        columns: _Columns,
        starts: Mapping[str, Value],
        threads: Value,
        inner: InnerStep | None,
    ) -> None:
        """One step: all statements, for the threads that run together.

        `starts`: locals on which the block agrees. `threads`: the number of each row's first thread within the block.
        """
        code, cells = self._code, segment.cells
        memory = LaneMemory(self._unit, code, lanes)
        carried = _carried(segment)
        is_masked = bool(columns.until)
        has_whole = is_masked and self._sees_to_the_last(segment, inner) and not columns.are_part(self._step.width)
        fills = not is_masked or has_whole or self._masks_always
        mask = self._beyond(lanes, columns) if is_masked and not has_whole else None
        kept = _Kept(code, memory, cells, Offset(threads, 1, None), mask)
        axes = self._known_axes(segment, axes)
        allocs = [stmt for stmt in segment.body if isinstance(stmt, Alloc) and stmt.space is Space.PRIVATE]
        private = {alloc.name: self._private(segment, alloc, lanes) for alloc in (*allocs, *segment.private)}
        for alloc, first in cells.arrays:
            private[alloc.name] = PrivateArray(own_array(alloc, first, "", cells.num_threads)[1], threads)
        checks = any(isinstance(stmt, Assert) for stmt in walk_statements(segment.body))
        violation = FirstViolation(code) if checks else None
        scope = LaneScope(
            scalars={name: uniform(operands[0]) for name, operands in segment.scalars.items()},
            arrays=segment.arrays,
            indices=indices,
            private=private,
            leave="",
            diagnostics=segment.diagnostics,
            first=violation,
            functions=self._functions,
        )
        taken = dict(starts) | {name: kept.load(name) for name in segment.loads if name in cells.carried}

        def statements(
            body: Body, mask: Value | None, shapes: Shapes | None = None, more: tuple[LocalVariable, ...] = ()
        ) -> None:
            shapes = shapes or analyse_shapes(body, axes, carried)
            mentioned = {*assigned_names(body), *read_names(body), *carried}
            own = tuple(variable for variable in segment.kernel.locals if variable.name in mentioned)
            leave = code.label("thread.end")
            own_scope, edges = attrs.evolve(scope, leave=leave), frozenset(variable.name for variable in more)
            lane_body = LaneBody(self._unit, code, own_scope, (*own, *more), shapes, lanes, mask, edges, fills=fills)
            lane_body.start(body, taken)
            lane_body.emit(body)
            code.place(leave)
            if violation is not None:
                violation.claim(self._unit, segment.diagnostics)
            for name in segment.stores:
                kept.store(name, lane_body.local(name))

        if inner is None:
            statements(segment.body, mask)
            return
        if not fills:  # A tail, and so at the edge.
            statements(inner.edge, mask, more=inner.variables)
            return
        inside, edge, done = code.label("inner"), code.label("edge"), code.label("inner.end")
        bounds = LaneExpressions(self._unit, code, scope, (), Shapes.without_locals(axes), lanes, None)
        is_inside = all_within(code, lanes, inner.tests, bounds.value)
        if has_whole:
            left = code.value(f"sub i64 {columns.until}, {columns.first}")
            is_inside = code.value(f"and i1 {is_inside}, {code.value(f'icmp sge i64 {left}, {self._step.width}')}")
        code.branch_if(is_inside, inside, edge)
        code.place(inside)
        statements(inner.body, mask, inner.shapes)
        code.branch(done)
        code.place(edge)
        if has_whole:
            mask = self._beyond(lanes, columns)
        statements(inner.edge, mask, more=inner.variables)
        code.place(done)

    def _changed_by_atomics(self, body: Body) -> frozenset[Root]:
        found = set()
        for stmt in walk_statements(body):
            if isinstance(stmt, Atomic):
                found.add(stmt.place.root)
            elif isinstance(stmt, Call) and self._functions.has_atomics:
                found.update(argument.root for argument in stmt.arguments if isinstance(argument, ArrayRef))
        return frozenset(found)

    def _private(self, segment: Segment, alloc: Alloc, lanes: LaneArithmetic) -> PrivateArray:
        """A private array of the threads that run together, in the frame if it is small."""
        group = lanes.width * lanes.rows
        num_elements, array = own_array(alloc, "", "", group)
        pointer = segment.spread.get(alloc.name) or self._code.allocate(
            f"[{num_elements * group} x {memory_type(scalar(alloc.element))}]", 64
        )
        own = Value(Layout(rows=True), tuple(str(row * lanes.width) for row in range(lanes.rows)))
        return PrivateArray(attrs.evolve(array, pointer=pointer), own)


_StepWriter = Callable[[str, str], None]
"""Writes one step: the number of its first lane, and the first that runs no thread, empty where all of them do."""


@attrs.frozen
class _Columns:
    """Lanes of a step: the number of the first, and of the first that runs no thread; empty where all of them do."""

    first: str
    until: str

    def are_part(self, width: int) -> bool:
        """Whether it is known here already that not all lanes of a step run threads."""
        return self.first == "0" and self.until.isdigit() and int(self.until) < width


def _carried(segment: Segment) -> dict[str, Layout]:
    names = {*segment.loads, *segment.stores}
    uniform_names = segment.cells.uniform
    return {name: UNIFORM if name in uniform_names else Layout(Lanes.VECTOR, 0, True) for name in names}


@attrs.frozen
class _Kept:
    """What the threads that run together keep from segment to segment."""

    code: Code
    memory: LaneMemory
    cells: Cells
    place: Offset
    mask: Value | None

    def load(self, name: str) -> Value:
        """What each thread keeps of a local."""
        return self.memory.load(self._type(name), self.cells.carried[name][0], self.place, self.mask)

    def store(self, name: str, value: Value) -> None:
        """Keeps a local; of one on which the block agrees, any thread's value will do."""
        if name not in self.cells.uniform:
            self.memory.store(self._type(name), self.cells.carried[name][0], self.place, value, self.mask)
            return
        operand = value.parts[0]
        if value.is_vector:
            vector = wide(register_type(self._type(name)), self.memory.width)
            operand = self.code.value(f"extractelement {vector} {operand}, i64 0")
        self.cells.set_block_values(self.code, name, (operand,))

    def _type(self, name: str) -> DType:
        """The type that cells have; a narrow float is kept as the f32 that it computes in."""
        dtype = scalar(self.cells.types[name])
        return f32 if is_narrow(dtype) else dtype


_LANE = frozenset({(IndexKind.SUBGROUP_LANE, 0)})


def _axes(kinds: tuple[IndexKind, ...], lane_axis: int, row_axis: int, rows: int) -> Axes:
    return Axes(
        lanes=frozenset((kind, lane_axis) for kind in kinds) | _LANE,
        rows=frozenset((kind, row_axis) for kind in kinds if rows > 1),
    )


def _remainder(arithmetic: Arithmetic, left: str, right: str) -> str:
    return arithmetic.binary(BinaryOp.MOD, i64, left, right)


def _quotient(arithmetic: Arithmetic, left: str, right: str) -> str:
    return arithmetic.binary(BinaryOp.FLOORDIV, i64, left, right)
