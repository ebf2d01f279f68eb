"""Statements of all threads that run together: scalar control where they agree, masks where they part.

A mask says which lanes are on; none at all means every lane. What lanes that are off compute is never seen: their
stores do not happen, and their locals are kept where they may be read again. A branch that no lane takes is jumped
over, unless the jump would cost more than the branch.

Lanes leave a loop, or the thread, by exits under a mask. Each loop that lanes leave one by one keeps the lanes that are
still in it; the mask after an exit is what is left of the mask before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Protocol, assert_never

import attrs

from quernel.dtypes import DType, bool_, i64, u64
from quernel.ir.flow import has_one_trip
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Binary,
    BinaryOp,
    Bitcast,
    Break,
    Breakpoint,
    Call,
    Cast,
    Compare,
    CompareOp,
    Const,
    Continue,
    Expr,
    Field,
    Fma,
    For,
    If,
    IndexKind,
    Load,
    Local,
    LocalVariable,
    Loop,
    Math,
    Param,
    Print,
    Return,
    Root,
    RootKind,
    Select,
    Shape,
    Stmt,
    Store,
    StructMake,
    Subgroup,
    ThreadIndex,
    Unary,
    UnaryOp,
    VecGet,
    VecMake,
)
from quernel.ir.walk import Body, expressions_of, fold_expression, walk_expressions, walk_statements
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.functions import DeviceFunction
from quernel_cpu.emission.lane_atomics import LaneAtomics
from quernel_cpu.emission.lane_checks import Checked, checked
from quernel_cpu.emission.lane_memory import LaneMemory, Offset, PrivateArray
from quernel_cpu.emission.lane_reports import LaneReports
from quernel_cpu.emission.lane_values import LaneArithmetic, Value, uniform
from quernel_cpu.emission.loops import num_trips
from quernel_cpu.emission.mathematics import emit_math
from quernel_cpu.emission.reports import FirstViolation
from quernel_cpu.emission.shapes import UNIFORM, Axes, Lanes, Layout, Shapes, argument_layouts, combined
from quernel_cpu.emission.subgroups import SubgroupEmitter
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import literal, register_type, scalar, splat, wide, zero

__all__ = ["LaneBody", "LaneScope"]

_CHEAP = 10
"""A branch of at most so many operators, and nothing dear, is run rather than jumped over when no lane takes it."""
_MOST_COPIED = 200
"""A body of at most so many operators and statements, times rows, has a copy for when every lane is on."""
_MOST_COPIED_WITH_MASKS = 64
"""The same where masks are registers of their own and cost little (AVX-512)."""


class LaneCallees(Protocol):
    """The device functions that a body may call."""

    def device_function(self, name: str) -> DeviceFunction:
        """A function as scalar code knows it: what it uses of arrays and of the launch."""
        ...

    def results(self, name: str, arguments: tuple[Layout, ...], axes: Axes) -> tuple[Layout, ...]:
        """How the results lie across the lanes, where the value arguments lie so."""
        ...

    def symbol(
        self,
        name: str,
        arguments: tuple[Layout, ...],
        arrays: tuple[ArrayOperands, ...],
        axes: Axes,
        *,
        is_masked: bool,
    ) -> str:
        """The symbol of the function for such arguments; `is_masked`: its first parameter is the mask."""
        ...

    def result_type(self, name: str, layouts: tuple[Layout, ...]) -> str:
        """The LLVM type of what a function returns."""
        ...

    def passed_type(self, dtype: DType, layout: Layout) -> str:
        """The LLVM type of a value on its way in or out."""
        ...

    def passed(self, code: Code, dtype: DType, layout: Layout, operand: str) -> str:
        """A value in the form in which it travels."""
        ...

    def received(self, code: Code, dtype: DType, layout: Layout, operand: str) -> str:
        """A value that has arrived."""
        ...


@attrs.frozen
class LaneScope:
    """What the names of one kernel stand for.

    Attributes:
        scalars: scalar parameters.
        arrays: array parameters, and the block's arrays.
        indices: thread indices and dimensions, as they lie.
        private: each thread's arrays.
        diagnostics: the address of the diagnostics buffer.
        leave: the label at which the threads end.
        first: where the first violation is kept; `None` if each claims the launch's record at once.
        functions: the device functions that may be called.
    """

    scalars: Mapping[str, Value]
    arrays: Mapping[str, ArrayOperands]
    indices: Mapping[tuple[IndexKind, int], Value]
    private: Mapping[str, PrivateArray]
    leave: str
    diagnostics: str
    first: FirstViolation | None = None
    functions: LaneCallees | None = None


@attrs.define
class _Loop:
    """A loop in the making.

    Attributes:
        next: where a trip ends.
        end: where the loop ends.
        live: slots of the lanes still in it; empty if all leave together.
        trip: slots of the lanes still in this trip; `live` itself where no lane ends a trip early.
    """

    next: str
    end: str
    live: list[str]
    trip: list[str]


class LaneBody:
    """Writes a body for all threads that run together."""

    def __init__(
        self,
        unit: Unit,
        code: Code,
        scope: LaneScope,
        variables: tuple[LocalVariable, ...],
        shapes: Shapes,
        lanes: LaneArithmetic,
        mask: Value | None,
    ) -> None:
        self._unit = unit
        self._code = code
        self._scope = scope
        self._shapes = shapes
        self._lanes = lanes
        self._memory = LaneMemory(unit, code, lanes)
        self._reports = LaneReports(unit, code, lanes, self._memory, scope.indices, scope.diagnostics, scope.first)
        self._mask = mask
        self._types = {variable.name: scalar(variable.type) for variable in variables}
        self._slots = {name: self._allocate(name) for name in self._types}
        self._loops: list[_Loop] = []
        self._root: list[str] = []
        self._fills = True
        """Whether every lane may be on at once; not so in the copy for when some are off."""
        self._left = False
        """Whether lanes have left under a mask since the mask was last worked out."""

    # --- the whole ----------------------------------------------------------------------------------------------------

    def start(self, body: Body, taken: Mapping[str, Value]) -> None:
        """Sets locals to what earlier segments left, the others to zero."""
        for name in self._types:
            layout = self._layout(name)
            value = taken.get(name)
            if value is None:
                value = uniform(zero(self._types[name]))
                if layout.lanes is Lanes.LINEAR:
                    value = Value(Layout(Lanes.LINEAR, layout.stride), value.parts)
            self._write(name, value)
        if any(
            isinstance(stmt, Return | Continue) and id(stmt) in self._shapes.masked for stmt in walk_statements(body)
        ):
            self._root = self._new_mask(self._mask)

    def emit(self, body: Body) -> None:
        """The statements."""
        self._statements(body, self._scope.leave)

    def local(self, name: str) -> Value:
        """What a local holds now."""
        layout = self._layout(name)
        llvm = self._slot_type(name)
        return Value(layout, tuple(self._code.value(f"load {llvm}, ptr {slot}") for slot in self._slots[name]))

    def _layout(self, name: str) -> Layout:
        return self._shapes.locals.get(name, UNIFORM)

    def _slot_type(self, name: str) -> str:
        llvm = register_type(self._types[name])
        return wide(llvm, self._lanes.width) if self._layout(name).lanes is Lanes.VECTOR else llvm

    def _allocate(self, name: str) -> list[str]:
        llvm = self._slot_type(name)
        return [self._code.allocate(llvm) for _ in self._lanes.rows_of(self._layout(name))]

    def _write(self, name: str, value: Value, mask: Value | None = None) -> None:
        """Sets a local, where the mask is on."""
        layout, dtype = self._layout(name), self._types[name]
        if layout.lanes is Lanes.VECTOR:
            value = self._lanes.vectors(value, dtype)
        llvm = self._slot_type(name)
        for row, slot in enumerate(self._slots[name]):
            part = value.part(row)
            if mask is not None:
                before = self._code.value(f"load {llvm}, ptr {slot}")
                part = self._lanes.vector.select(mask.part(row), llvm, part, before)
            self._code.do(f"store {llvm} {part}, ptr {slot}")

    # --- masks --------------------------------------------------------------------------------------------------------

    def _new_mask(self, value: Value | None) -> list[str]:
        llvm = f"<{self._lanes.width} x i1>"
        slots = [self._code.allocate(llvm) for _ in range(self._lanes.rows)]
        self._keep(slots, value)
        return slots

    def _keep(self, slots: list[str], value: Value | None) -> None:
        for row, slot in enumerate(slots):
            part = splat("i1", "true", self._lanes.width) if value is None else value.part(row)
            self._code.do(f"store <{self._lanes.width} x i1> {part}, ptr {slot}")

    def _kept(self, slots: list[str]) -> Value:
        llvm = f"<{self._lanes.width} x i1>"
        parts = tuple(self._code.value(f"load {llvm}, ptr {slot}") for slot in slots)
        return Value(Layout(Lanes.VECTOR, 0, True), parts)

    def _drop(self, slots: list[str]) -> None:
        """Takes the lanes that are on out of a kept mask."""
        if slots:
            self._keep(slots, self._lanes.without(self._kept(slots), self._mask))

    def _alive(self) -> Value | None:
        """The lanes that have not left the trip of the innermost loop, or the thread."""
        slots = self._loops[-1].trip if self._loops and self._loops[-1].trip else self._root
        return self._kept(slots) if slots else None

    # --- statements ---------------------------------------------------------------------------------------------------

    def _statements(self, body: Body, skip: str | None = None) -> None:
        """The statements, one after the other. `skip`: where to go once no lane is on; by default, behind them."""
        own_skip = ""

        def target() -> str:
            nonlocal own_skip
            if skip is None and not own_skip:
                own_skip = self._code.label("off")
            return skip or own_skip

        for number, stmt in enumerate(body):
            if isinstance(stmt, Break | Continue | Return) and id(stmt) in self._shapes.masked:
                self._leave(stmt)
                break
            is_check = isinstance(stmt, If) and self._is_check(stmt)
            if isinstance(stmt, If) and is_check:
                self._check(stmt, target)
            else:
                self._statement(stmt)
            if self._code.is_closed:
                break
            if not self._left:
                continue
            self._mask = self._lanes.both(self._mask, self._alive())
            rest = body[number + 1 :]
            if is_check or (rest and self._mask is not None and not self._is_cheap(rest)):
                if not is_check and self._mask is not None:
                    following = self._code.label("some")
                    self._code.branch_if(self._lanes.any_of(self._mask), following, target())
                    self._code.place(following)
                if skip is not None:  # The mask is what the loop, or the thread, has left, and no list around uses it.
                    self._left = False
        if own_skip:
            self._code.place(own_skip)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Assign():
                value = self.value(stmt.value)
                self._assign(stmt, stmt.name, value)
            case Store():
                self._store(stmt)
            case If():
                self._if(stmt)
            case For():
                self._for(stmt)
            case Loop():
                self._loop(stmt)
            case Break():
                self._code.branch(self._loops[-1].end)
            case Continue() if self._loops:
                self._code.branch(self._loops[-1].next)
            case Return() | Continue():  # Outside the body's own loops, a `continue` ends the thread's run.
                self._code.branch(self._scope.leave)
            case Alloc() | Breakpoint():
                pass  # Who gives the scope allocates; only interpreted launches stop.
            case Atomic():
                self._atomic(stmt)
            case Subgroup():
                self._subgroup(stmt)
            case Assert():
                self._assert(stmt)
            case Print():
                self._reports.printed(stmt.site, self._shown(stmt.values), self._mask)
            case Call():
                self._call(stmt)
            case Barrier():
                raise AssertionError(f"{type(stmt).__name__} was not refused")
            case _:
                assert_never(stmt)

    def _assign(self, stmt: Stmt, name: str, value: Value) -> None:
        blends = id(stmt) not in self._shapes.plain and self._layout(name).lanes is Lanes.VECTOR
        self._write(name, value, self._mask if blends else None)

    def _leave(self, stmt: Break | Continue | Return) -> None:
        """Takes the lanes that are on out of the loop's trip, the loop, or the thread."""
        self._left = True
        loop = self._loops[-1] if self._loops else None
        if isinstance(stmt, Return) or loop is None:
            for outer in self._loops:
                self._drop(outer.live)
                if outer.trip is not outer.live:
                    self._drop(outer.trip)
            self._drop(self._root)
            return
        self._drop(loop.trip)
        if isinstance(stmt, Break) and loop.trip is not loop.live:
            self._drop(loop.live)

    # --- checks -------------------------------------------------------------------------------------------------------

    def _is_check(self, stmt: If) -> bool:
        """Whether lanes that fail report and leave, which hardly ever happens."""
        return (
            not stmt.otherwise
            and isinstance(stmt.then[0], Assert)
            and isinstance(stmt.then[-1], Break | Return)
            and id(stmt.then[-1]) in self._shapes.masked
            and not self._shapes.layout(stmt.condition).is_uniform
        )

    def _check(self, stmt: If, target: Callable[[], str]) -> None:
        """A test of all lanes at once, in scalar code where lanes differ by a stride; only if it fails, one of each.

        `target` gives where to go once no lane is left.
        """
        code, outer = self._code, self._mask
        doubt, fails, holds = code.label("doubt"), code.label("fails"), code.label("holds")
        parts = checked(code, self._lanes, stmt.condition, self.value)
        certain = [condition for part in parts for condition in part.certain]
        vectors = [part for part in parts if not part.certain]
        failing: Value | None = None
        if vectors:
            failing = self._failing(vectors)
            certain.append(self._lanes.scalar.inverted(self._lanes.any_of(failing)))
        together = functools.reduce(lambda left, right: code.value(f"and i1 {left}, {right}"), certain)
        if len(vectors) == len(parts):
            code.branch_if(together, holds, fails)
        else:
            code.branch_if(together, holds, doubt)
            code.place(doubt)
            failing = self._failing(parts)
            code.branch_if(self._lanes.any_of(failing), fails, holds)
        code.place(fails)
        self._mask = failing
        self._statements(stmt.then)
        self._mask = self._lanes.both(outer, self._alive())
        assert self._mask is not None
        code.branch_if(self._lanes.any_of(self._mask), holds, target())
        code.place(holds)
        self._mask = outer

    def _failing(self, parts: list[Checked]) -> Value:
        """The lanes that are on and of which a part does not hold."""
        holds: Value | None = None
        for part in parts:
            holds = self._lanes.both(holds, self._lanes.vectors(part.exact(), bool_))
        assert holds is not None
        failing = self._lanes.both(self._mask, self._lanes.complement(holds))
        assert failing is not None
        return failing

    # --- branches -----------------------------------------------------------------------------------------------------

    def _if(self, stmt: If) -> None:
        condition = self.value(stmt.condition)
        if condition.layout.is_uniform:
            self._uniform_if(stmt, condition.parts[0])
            return
        outer = self._mask
        taken = self._lanes.vectors(condition, bool_)
        self._branch(self._lanes.both(outer, taken), stmt.then)
        if stmt.otherwise:
            self._branch(self._lanes.both(outer, self._lanes.complement(taken)), stmt.otherwise)
        self._mask = outer

    def _branch(self, mask: Value | None, body: Body) -> None:
        if not body:
            return
        assert mask is not None
        self._mask = mask
        left, self._left = self._left, False
        if self._is_cheap(body):
            self._statements(body)
        else:
            inside, done = self._code.label("lanes"), self._code.label("lanes.end")
            self._code.branch_if(self._lanes.any_of(mask), inside, done)
            self._code.place(inside)
            self._whole_or_masked(body, None)
            self._code.place(done)
        self._left = self._left or left

    def _whole_or_masked(self, body: Body, skip: str | None) -> None:
        """The statements under the mask that is set, with a copy for when every lane is on, if that pays."""
        mask = self._mask
        if mask is None or not self._fills or not self._pays(body):
            self._statements(body, skip)
            return
        code = self._code
        whole, some, end = code.label("whole"), code.label("masked"), code.label("whole.end")
        code.branch_if(self._lanes.all_of(mask), whole, some)
        code.place(whole)
        self._mask = None
        self._statements(body, skip)
        left = self._left
        if not code.is_closed:
            code.branch(end)
        code.place(some)
        self._mask, self._left, self._fills = mask, False, False
        self._statements(body, skip)
        self._left, self._fills = self._left or left, True
        code.place(end)

    def _pays(self, body: Body) -> bool:
        """Whether a body is worth two copies: it is short, and works on memory or keeps what lanes had before."""
        size, gains = 0, 0
        for stmt in walk_statements(body):
            size += 1
            if isinstance(stmt, Store):
                gains += 1
            elif isinstance(stmt, Assign) and id(stmt) not in self._shapes.plain:
                gains += self._layout(stmt.name).lanes is Lanes.VECTOR
            for node in (part for expr in expressions_of(stmt) for part in walk_expressions(expr)):
                size += 1
                gains += isinstance(node, Load) and self._shapes.layout(node).lanes is Lanes.VECTOR
        most = _MOST_COPIED_WITH_MASKS if "avx512vl" in self._unit.features else _MOST_COPIED
        return gains > 0 and size * self._lanes.rows <= most

    def _uniform_if(self, stmt: If, condition: str) -> None:
        code, outer = self._code, self._mask
        then, otherwise, end = code.label("then"), code.label("else"), code.label("end")
        code.branch_if(condition, then, otherwise)
        left = self._left
        is_end_reached = False
        for label, body in ((then, stmt.then), (otherwise, stmt.otherwise)):
            code.place(label)
            self._mask = outer
            self._left = False
            self._statements(body)
            left = left or self._left
            if not code.is_closed:
                code.branch(end)
                is_end_reached = True
        self._mask, self._left = outer, left
        if is_end_reached:
            code.place(end)

    def _is_cheap(self, body: Body) -> bool:
        """Whether a body may as well run when no lane takes it: it is short, and reads nothing without a mask."""
        size = 0
        for stmt in body:
            if isinstance(stmt, Break | Continue | Return):
                continue
            if not isinstance(stmt, Assign | Store):
                return False
            for node in (part for expr in expressions_of(stmt) for part in walk_expressions(expr)):
                size += 1
                if size > _CHEAP or isinstance(node, Math) or _divides(node):
                    return False
                if isinstance(node, Load) and self._shapes.layout(node).lanes is Lanes.UNIFORM:
                    return False
            if isinstance(stmt, Store) and all(
                self._shapes.layout(index).lanes is Lanes.UNIFORM for index in stmt.place.indices
            ):
                return False
        return True

    # --- loops --------------------------------------------------------------------------------------------------------

    def _for(self, stmt: For) -> None:
        start, stop, step = (self.value(bound) for bound in (stmt.start, stmt.stop, stmt.step))
        if all(bound.layout.is_uniform for bound in (start, stop, step)):
            self._counted(stmt, start.parts[0], stop.parts[0], step.parts[0])
        else:
            self._uneven(stmt, start, stop, step)

    def _counted(self, stmt: For, start: str, stop: str, step: str) -> None:
        """All lanes that are on run the same number of trips, but for those that leave."""
        code = self._code
        counter = code.allocate("i64")
        head, body, loop = self._open(stmt)
        is_unit = step == "1"
        trips = stop if is_unit else num_trips(self._lanes.scalar, start, stop, step)
        code.do(f"store i64 {start if is_unit else '0'}, ptr {counter}")
        outer, left = self._enter(stmt, loop)
        code.place(head)
        current = code.value(f"load i64, ptr {counter}")
        code.branch_if(code.value(f"icmp {'slt' if is_unit else 'ult'} i64 {current}, {trips}"), body, loop.end)
        code.place(body)
        self._begin_trip(loop)
        value = current
        if not is_unit:
            value = code.value(f"add i64 {start}, {code.value(f'mul i64 {current}, {step}')}")
        self._assign(stmt, stmt.variable, uniform(value))
        self._trip(stmt, loop)
        self._end_trip(loop, "")
        no_wrap = "nsw" if is_unit else "nuw"
        code.do(f"store i64 {code.value(f'add {no_wrap} i64 {current}, 1')}, ptr {counter}")
        code.branch(head)
        self._exit(loop, outer, left)

    def _uneven(self, stmt: For, start: Value, stop: Value, step: Value) -> None:
        """Lanes run different numbers of trips: each is on until its own is reached."""
        code, lanes = self._code, self._lanes
        layout = Layout(Lanes.VECTOR, 0, True)

        def trips_of(arithmetic: Arithmetic, first: str, last: str, by: str) -> str:
            return num_trips(arithmetic, first, last, by)

        trips = lanes.operate(layout, trips_of, (start, i64), (stop, i64), (step, i64))
        counter = code.allocate("i64")
        head, body, loop = self._open(stmt)
        code.do(f"store i64 0, ptr {counter}")
        outer, left = self._enter(stmt, loop)
        code.place(head)
        current = code.value(f"load i64, ptr {counter}")

        def goes_on(arithmetic: Arithmetic, at: str, end: str) -> str:
            return arithmetic.compare(CompareOp.LT, u64, at, end)

        more = lanes.operate(layout, goes_on, (uniform(current), i64), (trips, i64))
        live = lanes.both(self._kept(loop.live), more)
        assert live is not None
        self._keep(loop.live, live)
        code.branch_if(lanes.any_of(live), body, loop.end)
        code.place(body)
        self._begin_trip(loop)

        def reached(arithmetic: Arithmetic, first: str, by: str, trip: str) -> str:
            distance = arithmetic.binary(BinaryOp.MUL, i64, trip, by)
            return arithmetic.binary(BinaryOp.ADD, i64, first, distance)

        value = lanes.operate(layout, reached, (start, i64), (step, i64), (uniform(current), i64))
        self._assign(stmt, stmt.variable, value)
        self._trip(stmt, loop)
        self._end_trip(loop, "")
        code.do(f"store i64 {code.value(f'add nuw i64 {current}, 1')}, ptr {counter}")
        code.branch(head)
        self._exit(loop, outer, left)

    def _loop(self, stmt: Loop) -> None:
        head, body, loop = self._open(stmt)
        outer, left = self._enter(stmt, loop)
        self._code.place(head)
        self._code.place(body)
        self._begin_trip(loop)
        self._trip(stmt, loop)
        if has_one_trip(stmt):
            self._code.place(loop.next)
        else:
            self._end_trip(loop, head)
        self._exit(loop, outer, left)

    def _open(self, stmt: For | Loop) -> tuple[str, str, _Loop]:
        head, body, following, end = (self._code.label(hint) for hint in ("loop", "trip", "trip.end", "loop.end"))
        return head, body, _Loop(following, end, [], [])

    def _enter(self, stmt: For | Loop, loop: _Loop) -> tuple[Value | None, bool]:
        """Starts keeping account of the lanes in the loop; gives the mask outside, and whether lanes had left."""
        outer = self._mask
        if id(stmt) in self._shapes.divergent:
            loop.live = self._new_mask(outer)
            rejoins = any(isinstance(part, Continue) for part in _own(stmt.body))
            loop.trip = self._new_mask(outer) if rejoins else loop.live
        left, self._left = self._left, False
        self._loops.append(loop)
        return outer, left

    def _begin_trip(self, loop: _Loop) -> None:
        if loop.live:
            self._mask = self._kept(loop.live)
            if loop.trip is not loop.live:
                self._keep(loop.trip, self._mask)
        self._left = False

    def _trip(self, stmt: For | Loop, loop: _Loop) -> None:
        if loop.live:
            self._whole_or_masked(stmt.body, self._skip(loop))
        else:
            self._statements(stmt.body, self._skip(loop))

    def _skip(self, loop: _Loop) -> str:
        """Where a trip goes on once no lane is on."""
        return loop.end if loop.trip is loop.live else loop.next

    def _end_trip(self, loop: _Loop, head: str) -> None:
        """Goes on with the next trip, at `head` if it is given, while a lane is left."""
        code = self._code
        has_left = self._left or loop.trip is not loop.live
        code.place(loop.next)
        if loop.live and has_left:
            following = head or code.label("again")
            code.branch_if(self._lanes.any_of(self._kept(loop.live)), following, loop.end)
            if not head:
                code.place(following)
        elif head:
            code.branch(head)

    def _exit(self, loop: _Loop, outer: Value | None, left: bool) -> None:
        self._code.place(loop.end)
        self._loops.pop()
        self._mask = outer
        self._left = left or (bool(loop.live) and bool(self._root))

    # --- memory -------------------------------------------------------------------------------------------------------

    def _store(self, stmt: Store) -> None:
        # Python evaluates the value before the target's indices; none has side effects, so neither order shows.
        element, pointer, offset = self._place(stmt.place.root, tuple(self.value(i) for i in stmt.place.indices))
        streaming = (
            self._scope.arrays[stmt.place.root.name].streaming if stmt.place.root.kind is RootKind.PARAM else None
        )
        self._memory.store(element, pointer, offset, self.value(stmt.value), self._mask, streaming)

    def _atomic(self, stmt: Atomic) -> None:
        element, pointer, offset = self._place(stmt.place.root, tuple(self.value(i) for i in stmt.place.indices))
        operands = tuple(self.value(operand) for operand in stmt.operands)
        is_own, is_asked = stmt.place.root.kind is RootKind.SHARED, stmt.result is not None
        atomics = LaneAtomics(self._unit, self._code, self._lanes, self._memory)
        old = atomics.emit(stmt.op, element, pointer, offset, operands, self._mask, is_own=is_own, is_asked=is_asked)
        if stmt.result is not None:
            self._assign(stmt, stmt.result, Value(Layout(Lanes.VECTOR, 0, True), old))

    def _assert(self, stmt: Assert) -> None:
        """Where a lane that is on fails, the first one of its row reports."""
        failing = self._mask
        if not _never_holds(stmt):
            holds = self._lanes.vectors(self.value(stmt.condition), bool_)
            failing = self._lanes.both(failing, self._lanes.complement(holds))
        self._reports.violation(stmt.site, self._shown(stmt.values), failing)

    def _shown(self, values: tuple[Expr, ...]) -> tuple[tuple[Value, DType], ...]:
        return tuple((self.value(value), scalar(value.type)) for value in values)

    def _call(self, stmt: Call) -> None:
        """A call for each row of which a lane is on."""
        functions, axes = self._scope.functions, self._shapes.axes
        assert functions is not None
        code, lanes, mask = self._code, self._lanes, self._mask
        callee = functions.device_function(stmt.function)
        layouts = argument_layouts(stmt, self._shapes.layout)
        results = functions.results(stmt.function, layouts, axes)
        arrays = tuple(
            self._scope.arrays[argument.root.name] for argument in stmt.arguments if isinstance(argument, ArrayRef)
        )
        symbol = functions.symbol(stmt.function, layouts, arrays, axes, is_masked=mask is not None)
        returned = functions.result_type(stmt.function, results)
        types = [self._types[name] for name in stmt.results]
        values = [None if isinstance(argument, ArrayRef) else self.value(argument) for argument in stmt.arguments]
        parts: list[list[str]] = [[] for _ in results]
        for row in range(lanes.rows):
            operands: list[tuple[str, str]] = []
            done = ""
            slots: list[tuple[str, str]] = []
            if mask is not None:
                on = mask.part(row)
                if lanes.rows > 1:
                    slots = [(llvm, code.allocate(llvm)) for llvm in map(functions.passed_type, types, results)]
                    inside, done = code.label("calls"), code.label("calls.end")
                    code.branch_if(lanes.any_lane(on), inside, done)
                    code.place(inside)
                operands.append((f"i{lanes.width}", lanes.bits(on)))
            given = iter(layouts)
            for param, argument, value in zip(callee.function.params, stmt.arguments, values, strict=True):
                if isinstance(argument, ArrayRef):
                    operands += callee.array_operands(param.name, self._scope.arrays[argument.root.name])
                    continue
                assert value is not None
                operands.append(self._passed(functions, value, scalar(argument.type), next(given), row))
            operands += [
                self._passed(
                    functions, self._scope.indices[index], i64, attrs.evolve(axes.index(*index), rows=False), row
                )
                for index in callee.indices
            ]
            if callee.reports:
                operands.append(("ptr", self._scope.diagnostics))
            listed = ", ".join(f"{llvm} {operand}" for llvm, operand in operands)
            invocation = f"call {returned} {symbol}({listed})"
            if not results:
                code.do(invocation)
            else:
                whole = code.value(invocation)
                found = [whole]
                if len(results) > 1:
                    found = [code.value(f"extractvalue {returned} {whole}, {number}") for number in range(len(results))]
                for (llvm, slot), operand in zip(slots, found, strict=False):
                    code.do(f"store {llvm} {operand}, ptr {slot}")
            if done:
                code.place(done)
                found = [code.value(f"load {llvm}, ptr {slot}") for llvm, slot in slots]
            for kept, dtype, layout, operand in zip(parts, types, results, found if results else (), strict=True):
                kept.append(functions.received(code, dtype, layout, operand))
        for name, layout, operands_of_rows in zip(stmt.results, results, parts, strict=True):
            value = Value(Layout(layout.lanes, 0, lanes.rows > 1), tuple(operands_of_rows))
            self._assign(stmt, name, value)

    def _passed(self, functions: LaneCallees, value: Value, dtype: DType, layout: Layout, row: int) -> tuple[str, str]:
        """Type and operand of one row's value, lying as the function expects it."""
        if layout.lanes is Lanes.VECTOR:
            value = self._lanes.vectors(value, dtype)
        operand = functions.passed(self._code, dtype, layout, value.part(row))
        return functions.passed_type(dtype, layout), operand

    def _subgroup(self, stmt: Subgroup) -> None:
        values = tuple(self.value(operand) for operand in stmt.operands)
        emitter = SubgroupEmitter(self._unit, self._code, self._lanes, self._memory)
        on = None if self._mask is None else self._mask.part(0)
        dtype, lane_type = scalar(stmt.operands[0].type), scalar(stmt.operands[-1].type)
        self._assign(stmt, stmt.result, emitter.emit(stmt.op, dtype, values, lane_type, on))

    def _place(self, root: Root, indices: tuple[Value, ...]) -> tuple[DType, str, Offset]:
        if root.kind is RootKind.PRIVATE:
            private = self._scope.private[root.name]
            array = private.array
            return scalar(array.element), array.pointer, self._memory.private_offset(private, indices)
        array = self._scope.arrays[root.name]
        return scalar(array.element), array.pointer, self._memory.offset(array, indices)

    # --- expressions --------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        """An expression of all threads."""
        return fold_expression(expr, self._combined)

    def _combined(self, expr: Expr, values: tuple[Value, ...]) -> Value:
        match expr:
            case Const():
                return uniform(literal(expr.value, expr.type))
            case Local():
                return self.local(expr.name)
            case Param():
                return self._scope.scalars[expr.name]
            case ThreadIndex():
                return self._scope.indices[expr.kind, expr.axis]
            case Shape():
                return uniform(self._scope.arrays[expr.param].shape[expr.axis])
            case Load():
                return self._load(expr, values)
            case Unary(op=UnaryOp.UNIFORM):
                return self._first_lane(values[0], scalar(expr.type))
            case VecMake() | VecGet() | StructMake() | Field():
                raise AssertionError(f"{type(expr).__name__} was not refused")
            case Unary() | Binary() | Compare() | Fma() | Select() | Cast() | Bitcast() | Math():
                layout = combined(expr, tuple(value.layout for value in values))
                typed = zip(values, _operand_types(expr), strict=True)
                return self._lanes.operate(layout, self._operation(expr), *typed)
            case _:
                assert_never(expr)

    def _operation(self, expr: Unary | Binary | Compare | Fma | Select | Cast | Bitcast | Math) -> Callable[..., str]:
        dtype = scalar(expr.type)

        def operation(arithmetic: Arithmetic, *operands: str) -> str:
            match expr:
                case Unary():
                    return arithmetic.unary(expr.op, dtype, *operands)
                case Binary():
                    return arithmetic.binary(expr.op, dtype, *operands)
                case Compare():
                    return arithmetic.compare(expr.op, scalar(expr.left.type), *operands)
                case Fma():
                    return arithmetic.fma(dtype, *operands)
                case Select():
                    return arithmetic.select(operands[0], arithmetic.type(dtype), *operands[1:])
                case Cast():
                    return arithmetic.cast(scalar(expr.operand.type), dtype, *operands)
                case Bitcast():
                    return arithmetic.bitcast(scalar(expr.operand.type), dtype, *operands)
                case Math():
                    operand = scalar(expr.operands[0].type)
                    result = emit_math(self._unit, self._code, arithmetic, expr.function, operand, operands)
                    if expr.type is operand or expr.type.is_bool:
                        return result
                    return arithmetic.cast(operand, expr.type, result)
                case _:
                    assert_never(expr)

        return operation

    def _load(self, expr: Load, indices: tuple[Value, ...]) -> Value:
        root = expr.place.root
        element, pointer, offset = self._place(root, indices)
        loaded = self._memory.load(element, pointer, offset, self._mask)
        if root in self._shapes.axes.atomics:
            vectors = self._lanes.vectors(loaded, element)
            return Value(Layout(Lanes.VECTOR, 0, True), tuple(vectors.part(row) for row in range(self._lanes.rows)))
        return loaded

    def _first_lane(self, value: Value, dtype: DType) -> Value:
        """What the first lane has, which promises to be what all have."""
        if value.layout.is_uniform:
            return value
        if self._mask is None:
            part = self._lanes.vectors(value, dtype).part(0)
            llvm = wide(register_type(dtype), self._lanes.width)
            return uniform(self._code.value(f"extractelement {llvm} {part}, i64 0"))
        vectors, mask = self._lanes.vectors(value, dtype), self._mask
        llvm = wide(register_type(dtype), self._lanes.width)
        found = ""
        for row in range(self._lanes.rows):
            on = mask.part(row)
            lane = self._memory.last_lane(on)
            bounded = self._code.value(f"and i64 {lane}, {self._lanes.width - 1}")
            here = self._code.value(f"extractelement {llvm} {vectors.part(row)}, i64 {bounded}")
            if found:
                is_on = self._lanes.any_lane(on)
                here = self._lanes.scalar.select(is_on, register_type(dtype), here, found)
            found = here
        return uniform(found)


def _operand_types(expr: Expr) -> tuple[DType, ...]:
    match expr:
        case Binary() | Compare():
            return (scalar(expr.left.type), scalar(expr.right.type))
        case Unary() | Cast() | Bitcast():
            return (scalar(expr.operand.type),)
        case Fma():
            return (scalar(expr.type),) * 3
        case Select():
            return (bool_, scalar(expr.type), scalar(expr.type))
        case Math():
            return tuple(scalar(operand.type) for operand in expr.operands)
        case _:
            raise TypeError(f"{type(expr).__name__} has no operands")


def _divides(node: Expr) -> bool:
    return (
        isinstance(node, Binary)
        and node.op in (BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.POW)
        and not isinstance(node.right, Const)
    )


def _never_holds(stmt: Assert) -> bool:
    return isinstance(stmt.condition, Const) and not stmt.condition.value


def _own(body: Body) -> list[Stmt]:
    """The statements of a loop's body that are not inside an inner loop."""
    found: list[Stmt] = []
    for stmt in body:
        found.append(stmt)
        if isinstance(stmt, If):
            found += _own(stmt.then)
            found += _own(stmt.otherwise)
    return found
