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
from typing import assert_never

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
    Break,
    Breakpoint,
    Call,
    CompareOp,
    Const,
    Continue,
    Expr,
    For,
    If,
    Load,
    LocalVariable,
    Loop,
    Math,
    Print,
    Return,
    RootKind,
    Stmt,
    Store,
    Subgroup,
)
from quernel.ir.passes.composites import scalars_made
from quernel.ir.walk import Body, expressions_of, walk_expressions, walk_statements
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.lane_atomics import LaneAtomics
from quernel_cpu.emission.lane_calls import LaneCalls
from quernel_cpu.emission.lane_checks import Checked, checked
from quernel_cpu.emission.lane_expressions import LaneExpressions
from quernel_cpu.emission.lane_reports import LaneReports
from quernel_cpu.emission.lane_scope import LaneScope
from quernel_cpu.emission.lane_values import LaneArithmetic, Value, uniform
from quernel_cpu.emission.leaves import Part, leaves, part_at
from quernel_cpu.emission.loops import num_trips
from quernel_cpu.emission.part_groups import is_most, loads_together, stores_together
from quernel_cpu.emission.shapes import Lanes, Layout, Shapes, argument_layouts, assigned_by
from quernel_cpu.emission.subgroups import SubgroupEmitter
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import scalar, splat, zero

__all__ = ["LaneBody"]

_CHEAP = 10
"""A branch of at most so many operators, and nothing dear, is run rather than jumped over when no lane takes it."""
_MOST_COPIED = 200
"""A body of at most so many operators and statements, times rows, has a copy for when every lane is on."""
_MOST_COPIED_WITH_MASKS = 64
"""The same where masks are registers of their own and cost little (AVX-512)."""
_LONG = 1000
"""In a body of more operators and statements, times rows, what goes on choosing behind a branch has no such copy."""
_MOST_NESTED = 3
"""Copies that hold each other are at most so many times as long together: those of a chain grow as its square."""


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


class LaneBody(LaneExpressions):
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
        edges: frozenset[str] = frozenset(),
        *,
        fills: bool,
    ) -> None:
        """`edges`: locals for what is read at an edge: lanes part there, so a copy for all of them gains nothing.

        `fills`: whether every lane may be on at once, which they never are in what is left of a row.
        """
        super().__init__(unit, code, scope, variables, shapes, lanes, mask)
        self._edges = edges
        self._reports = LaneReports(unit, code, lanes, self._memory, scope.indices, scope.diagnostics, scope.first)
        self._calls = LaneCalls(code, lanes, scope, shapes.axes)
        self._loops: list[_Loop] = []
        self._root: list[str] = []
        self._memory.may_fill = fills
        self._copied_around = 0
        """The lengths of the bodies around what is written whose copy for when every lane is on holds it, together."""
        self._is_long = False
        """Whether the body is so long that there are fewer copies, which LLVM would take seconds for."""
        self._left = False
        """Whether lanes have left under a mask since the mask was last worked out."""
        self._together: dict[int, tuple[Store, ...]] = {}
        """Stores of parts of one element, by the `id` of the first; it writes them all."""
        self._behind: frozenset[int] = frozenset()
        """`id`s of the others."""

    # --- the whole ----------------------------------------------------------------------------------------------------

    def start(self, body: Body, taken: Mapping[str, Value]) -> None:
        """Sets locals to what earlier segments left, the others to zero."""
        num_nodes = sum(1 for _ in walk_statements(body)) + sum(1 for _ in walk_expressions(body))
        self._is_long = num_nodes * self._lanes.rows > _LONG
        loads = list(loads_together(body))
        self._alike = {id(load): group for group in loads for load in group}
        self._wholes = frozenset(
            id(load) for group in loads if is_most(group, self._element(group[0].place.root)) for load in group
        )
        groups = list(stores_together(body))
        self._together = {id(group[0]): group for group in groups}
        self._behind = frozenset(id(stmt) for group in groups for stmt in group[1:])
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
            if number == 0 or not isinstance(body[number - 1], Assign):
                self._loaded = {}
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
            if self._is_long and _is_next_choice(body):
                self._statements(body)
            else:
                self._whole_or_masked(body, None)
            self._code.place(done)
        self._left = self._left or left

    def _whole_or_masked(self, body: Body, skip: str | None) -> None:
        """The statements under the mask that is set, with a copy for when every lane is on, if that pays."""
        mask = self._mask
        size = self._size_if_it_pays(body) if self._memory.may_fill else 0
        if mask is None or size == 0:
            self._statements(body, skip)
            return
        code = self._code
        whole, some, end = code.label("whole"), code.label("masked"), code.label("whole.end")
        code.branch_if(self._lanes.all_of(mask), whole, some)
        code.place(whole)
        self._mask = None
        self._copied_around += size
        self._statements(body, skip)
        self._copied_around -= size
        left = self._left
        if not code.is_closed:
            code.branch(end)
        code.place(some)
        self._mask, self._left, self._memory.may_fill = mask, False, False
        self._statements(body, skip)
        self._left, self._memory.may_fill = self._left or left, True
        code.place(end)

    def _size_if_it_pays(self, body: Body) -> int:
        """How long a body is that is worth two copies: it is short, and works on memory or keeps what lanes had before.

        0 for any other. No more of it is walked than may be copied, as bodies within bodies are asked about one by one.
        """
        most = _MOST_COPIED_WITH_MASKS if "avx512vl" in self._unit.features else _MOST_COPIED
        most = min(most, _MOST_NESTED * most - self._copied_around) // self._lanes.rows
        size, gains = 0, 0
        assigns, only_edges = False, True
        for stmt in walk_statements(body):
            size += 1
            for name in assigned_by(stmt):
                assigns, only_edges = True, only_edges and name in self._edges
            if isinstance(stmt, Store):
                gains += 1
            elif isinstance(stmt, Assign) and id(stmt) not in self._shapes.plain:
                gains += self._layout(stmt.name).lanes is Lanes.VECTOR
            for node in (part for expr in expressions_of(stmt) for part in walk_expressions(expr)):
                size += 1
                gains += isinstance(node, Load) and self._shapes.layout(node).lanes is Lanes.VECTOR
                if size > most:
                    return 0
        return size * self._lanes.rows if gains and size <= most and not (assigns and only_edges) else 0

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
        if id(stmt) in self._behind:
            return
        place = stmt.place
        array, offset = self._place(place.root, tuple(self.value(i) for i in place.indices))
        streaming = array.streaming if place.root.kind is RootKind.PARAM else None
        if isinstance(array.element, DType):
            self._memory.store(array.element, array.pointer, offset, self.value(stmt.value), self._mask, streaming)
            return
        parts: list[Part] = []
        values: list[Value] = []
        for each in self._together.get(id(stmt), (stmt,)):
            whole = part_at(array.element, each.place.view)
            parts += (Part(leaf.dtype, 0, whole.offset_bytes + leaf.offset_bytes) for leaf in leaves(whole.type))
            values += map(self.value, scalars_made(each.value))
        self._parts.store(array, parts, offset, values, self._mask, streaming)

    def _atomic(self, stmt: Atomic) -> None:
        place = stmt.place
        array, offset = self._place(place.root, tuple(self.value(i) for i in place.indices))
        if not isinstance(array.element, DType):
            offset = self._parts.located(array.element, part_at(array.element, place.view), offset)
        operands = tuple(self.value(operand) for operand in stmt.operands)
        is_own, is_asked = place.root.kind is RootKind.SHARED, stmt.result is not None
        atomics, dtype = LaneAtomics(self._unit, self._code, self._lanes, self._memory), scalar(place.type)
        old = atomics.emit(
            stmt.op, dtype, array.pointer, offset, operands, self._mask, is_own=is_own, is_asked=is_asked
        )
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
        types = tuple(self._types[name] for name in stmt.results)
        values = tuple(None if isinstance(given, ArrayRef) else self.value(given) for given in stmt.arguments)
        layouts = argument_layouts(stmt, self._shapes.layout)
        for name, value in zip(stmt.results, self._calls.emit(stmt, values, layouts, types, self._mask), strict=True):
            self._assign(stmt, name, value)

    def _subgroup(self, stmt: Subgroup) -> None:
        values = tuple(self.value(operand) for operand in stmt.operands)
        emitter = SubgroupEmitter(self._unit, self._code, self._lanes, self._memory)
        on = None if self._mask is None else self._mask.part(0)
        dtype, lane_type = scalar(stmt.operands[0].type), scalar(stmt.operands[-1].type)
        self._assign(stmt, stmt.result, emitter.emit(stmt.op, dtype, values, lane_type, on))


def _is_next_choice(body: Body) -> bool:
    """Whether a branch chooses again, as an `elif` does: then its own branches have the copies that pay."""
    *before, last = body
    return isinstance(last, If) and all(isinstance(stmt, Assign) for stmt in before)


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
