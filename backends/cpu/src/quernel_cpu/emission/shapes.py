"""How each value of a kernel lies across the lanes and the rows of threads that run together.

Lanes are threads side by side along the last axis; rows are copies of them along the axis before. A value is uniform
(one number for all lanes), linear (lane `k` has the first lane's number plus `k` times a constant), or a vector. It may
differ from row to row in any of these ways.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

import attrs

from quernel.dtypes import DType
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
    Cast,
    Const,
    Continue,
    Expr,
    For,
    If,
    IndexKind,
    Load,
    Local,
    Loop,
    Param,
    Print,
    Return,
    Root,
    RootKind,
    Shape,
    Stmt,
    Store,
    Subgroup,
    SubgroupOp,
    ThreadIndex,
    Unary,
    UnaryOp,
)
from quernel.ir.walk import Body, bodies, expressions_of, fold_expression, walk_expressions, walk_statements

__all__ = [
    "UNIFORM",
    "VECTOR",
    "Axes",
    "Lanes",
    "Layout",
    "Shapes",
    "analyse_shapes",
    "argument_layouts",
    "call_layouts",
    "combined",
    "joined",
]


class Lanes(enum.IntEnum):
    """How the lanes of one row differ."""

    UNIFORM = 0
    LINEAR = 1
    VECTOR = 2


@attrs.frozen
class Layout:
    """How a value lies.

    Attributes:
        lanes: across the lanes of a row.
        stride: of a linear value, from one lane to the next.
        rows: whether rows differ.
    """

    lanes: Lanes = Lanes.UNIFORM
    stride: int = 0
    rows: bool = False

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes of all rows agree."""
        return self.lanes is Lanes.UNIFORM and not self.rows


UNIFORM = Layout()
VECTOR = Layout(Lanes.VECTOR)


@attrs.frozen
class Axes:
    """Which thread indices differ between the threads that run together.

    Attributes:
        lanes: the indices that grow by one from lane to lane.
        rows: the indices that differ between rows.
        vectors: the indices that differ between lanes in other ways.
        atomics: arrays that atomics change, so that no two reads need agree.
        params: how the parameters of a device function lie; those of a kernel are uniform.
        calls: how the results of a device function lie, by how its value arguments do; `None` knows nothing of it.
    """

    lanes: frozenset[tuple[IndexKind, int]]
    rows: frozenset[tuple[IndexKind, int]] = frozenset()
    vectors: frozenset[tuple[IndexKind, int]] = frozenset()
    atomics: frozenset[Root] = frozenset()
    params: Mapping[str, Layout] = attrs.field(factory=dict, eq=False)
    calls: Callable[[str, tuple[Layout, ...], Axes], tuple[Layout, ...]] | None = attrs.field(default=None, eq=False)

    def index(self, kind: IndexKind, axis: int) -> Layout:
        """How a thread index lies."""
        if (kind, axis) in self.lanes:
            return Layout(Lanes.LINEAR, 1)
        if (kind, axis) in self.vectors:
            return VECTOR
        return Layout(rows=(kind, axis) in self.rows)


def joined(layouts: Iterable[Layout]) -> Layout:
    """A layout that holds values of any of these."""
    found = list(layouts)
    rows = any(layout.rows for layout in found)
    first = found[0] if found else UNIFORM
    if all((layout.lanes, layout.stride) == (first.lanes, first.stride) for layout in found):
        return Layout(first.lanes, first.stride, rows)
    return Layout(Lanes.VECTOR, 0, rows)


def combined(expr: Expr, operands: tuple[Layout, ...]) -> Layout:
    """The layout of an operator's result, by those of its operands. Not for leaves and loads."""
    rows = any(layout.rows for layout in operands)
    if isinstance(expr, Unary) and expr.op is UnaryOp.UNIFORM:
        return UNIFORM
    if all(layout.lanes is Lanes.UNIFORM for layout in operands):
        return Layout(rows=rows)
    stride = _linear_stride(expr, operands)
    if stride == 0:
        return Layout(rows=rows)
    return Layout(Lanes.VECTOR, 0, rows) if stride is None else Layout(Lanes.LINEAR, stride, rows)


def _linear_stride(expr: Expr, operands: tuple[Layout, ...]) -> int | None:
    """The stride of an integer result that stays linear, in arithmetic that wraps too."""
    if any(layout.lanes is Lanes.VECTOR for layout in operands):
        return None
    strides = [layout.stride for layout in operands]
    match expr:
        case Unary(op=UnaryOp.NEG) if _is_integer(expr):
            return -strides[0]
        case Binary(op=BinaryOp.ADD) if _is_integer(expr):
            return sum(strides)
        case Binary(op=BinaryOp.SUB) if _is_integer(expr):
            return strides[0] - strides[1]
        case Binary(op=BinaryOp.MUL, left=left, right=right) if _is_integer(expr):
            if isinstance(right, Const) and abs(right.value) < _MOST_STRIDE:
                return strides[0] * int(right.value)
            if isinstance(left, Const) and abs(left.value) < _MOST_STRIDE:
                return strides[1] * int(left.value)
            return None
        case Binary(op=BinaryOp.SHL, right=Const(value=count)) if _is_integer(expr) and 0 <= count < _MOST_SHIFT:
            return strides[0] << int(count)
        case Cast(operand=operand) if _is_integer(expr) and _is_integer(operand):
            assert isinstance(operand.type, DType)
            return strides[0] if expr.type.bits <= operand.type.bits else None
        case _:
            return None


_MOST_STRIDE = 1 << 20
_MOST_SHIFT = 16


def _is_integer(expr: Expr) -> bool:
    return isinstance(expr.type, DType) and expr.type.is_integer


def subgroup_layout(op: SubgroupOp) -> Layout:
    """How the result of a subgroup operation lies; a row is a subgroup."""
    match op:
        case SubgroupOp.BALLOT | SubgroupOp.ANY | SubgroupOp.ALL | SubgroupOp.BROADCAST:
            return UNIFORM
        case SubgroupOp.SUM | SubgroupOp.MIN | SubgroupOp.MAX:
            return UNIFORM
        case SubgroupOp.SCAN | SubgroupOp.SHUFFLE | SubgroupOp.SHUFFLE_XOR:
            return VECTOR
        case SubgroupOp.SHUFFLE_UP | SubgroupOp.SHUFFLE_DOWN:
            return VECTOR
        case _:
            assert_never(op)


# --- locals -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Shapes:
    """The result of the analysis of one body.

    Attributes:
        axes: what it rests on.
        locals: the layout of each local.
        plain: `id`s of assignments that need no blending with the value before, whichever lanes are off: no lane that
            is off here reads the local before it is assigned again.
        divergent: `id`s of loops that lanes may leave one by one, or that they run a different number of times.
        masked: `id`s of the exits by which some lanes leave while others go on.
    """

    axes: Axes
    locals: Mapping[str, Layout]
    plain: frozenset[int]
    divergent: frozenset[int]
    masked: frozenset[int]

    @classmethod
    def without_locals(cls, axes: Axes) -> Shapes:
        """For expressions of parameters and thread indices alone."""
        return cls(axes, {}, frozenset(), frozenset(), frozenset())

    def layout(self, expr: Expr) -> Layout:
        """The layout of an expression."""
        return _layout(expr, self.axes, self.locals)


def _layout(expr: Expr, axes: Axes, names: Mapping[str, Layout]) -> Layout:
    def combine(node: Expr, operands: tuple[Layout, ...]) -> Layout:
        match node:
            case Const() | Shape():
                return UNIFORM
            case Param():
                return axes.params.get(node.name, UNIFORM)
            case Local():
                return names.get(node.name, UNIFORM)
            case ThreadIndex():
                return axes.index(node.kind, node.axis)
            case Load():
                return load_layout(node, operands, axes)
            case _:
                return combined(node, operands)

    return fold_expression(expr, combine)


def load_layout(load: Load, indices: tuple[Layout, ...], axes: Axes) -> Layout:
    """How what is loaded lies."""
    root = load.place.root
    rows = any(layout.rows for layout in indices)
    if root.kind is RootKind.PRIVATE or root in axes.atomics:
        return Layout(Lanes.VECTOR, 0, True)
    uniform = all(layout.lanes is Lanes.UNIFORM for layout in indices)
    return Layout(Lanes.UNIFORM if uniform else Lanes.VECTOR, 0, rows)


def argument_layouts(call: Call, layout: Callable[[Expr], Layout]) -> tuple[Layout, ...]:
    """How the value arguments of a call lie across the lanes of one row, as the function is told.

    Each combination is a version of the function, so there must not be many: strides are those of neighbours, and where
    there are many arguments, all are vectors if one is.
    """
    values = [layout(argument) for argument in call.arguments if not isinstance(argument, ArrayRef)]
    told = [
        Layout(value.lanes, value.stride) if value.lanes is not Lanes.LINEAR or abs(value.stride) == 1 else VECTOR
        for value in values
    ]
    if len(told) > _MOST_TOLD_APART and any(value.lanes is not Lanes.UNIFORM for value in told):
        return (VECTOR,) * len(told)
    return tuple(told)


_MOST_TOLD_APART = 6


def call_layouts(call: Call, layout: Callable[[Expr], Layout], axes: Axes) -> tuple[Layout, ...]:
    """How the results of a call lie; the function runs for each row by itself."""
    if axes.calls is None:
        return (Layout(Lanes.VECTOR, 0, True),) * len(call.results)
    found = axes.calls(call.function, argument_layouts(call, layout), axes)
    return tuple(Layout(result.lanes, 0, bool(axes.rows)) for result in found)


def analyse_shapes(body: Body, axes: Axes, carried: Mapping[str, Layout]) -> Shapes:
    """The layouts of the locals that `body` assigns. `carried`: those of locals that outlive it."""
    analysis = _Analysis(body, axes, carried)
    return analysis.run()


@attrs.define
class _Region:
    """Statements that lanes leave but do not come back to, while the region runs.

    Attributes:
        rejoins: whether lanes may be off that come back on within the region.
        confined: locals that no lane reads after it has left.
    """

    rejoins: bool
    confined: frozenset[str]


@attrs.define
class _Exits:
    """Whether some lanes, not all, may have left since the current trip of the innermost loop began."""

    returned: bool = False
    broken: bool = False
    continued: bool = False

    def __bool__(self) -> bool:
        return self.returned or self.broken or self.continued


@attrs.frozen
class _Flow:
    """What is known of the lanes where a statement stands.

    Attributes:
        off: whether some lanes may be off.
        parted: whether lanes that began the innermost loop's trip together may have parted.
        region: the innermost region.
        exits: of the innermost loop, or of the whole body.
        before: locals that are assigned on this trip before, in the bodies around.
        in_loop: whether a loop is around.
    """

    off: bool
    parted: bool
    region: _Region
    exits: _Exits
    before: frozenset[str] = frozenset()
    in_loop: bool = False


class _Analysis:
    """A fixed point over the layouts of the locals, which only ever grow."""

    def __init__(self, body: Body, axes: Axes, carried: Mapping[str, Layout]) -> None:
        self._body = body
        self._axes = axes
        self._carried = frozenset(carried)
        self._names: dict[str, Layout] = dict(carried)
        self._plain: set[int] = set()
        self._divergent: set[int] = set()
        self._parting: set[int] = set()
        """Loops that some lanes leave for what follows, where they meet again."""
        self._masked: set[int] = set()
        self._changed = True
        self._scoped = _scoped_assignments(body, self._carried)
        self._reads = _read_counts(body)

    def run(self) -> Shapes:
        names = frozenset(name for stmt in walk_statements(self._body) for name in assigned_by(stmt))
        root = _Region(False, names - self._carried)
        while self._changed:
            self._changed = False
            self._plain.clear()
            self._walk(self._body, _Flow(off=False, parted=False, region=root, exits=_Exits()))
        return Shapes(
            self._axes,
            dict(self._names),
            frozenset(self._plain),
            frozenset(self._divergent),
            frozenset(self._masked),
        )

    def _layout(self, expr: Expr) -> Layout:
        return _layout(expr, self._axes, self._names)

    def _assign(self, stmt: Stmt, name: str, value: Layout, flow: _Flow) -> None:
        plain = id(stmt) in self._scoped or (name in flow.region.confined and not flow.region.rejoins)
        if plain:
            self._plain.add(id(stmt))
        elif flow.off:
            value = Layout(Lanes.VECTOR, 0, True)
        known = self._names.get(name)
        grown = value if known is None else joined((known, value))
        if grown != known:
            self._names[name] = grown
            self._changed = True

    def _note(self, found: set[int], stmt: Stmt) -> None:
        if id(stmt) not in found:
            found.add(id(stmt))
            self._changed = True

    def _walk(self, body: Body, flow: _Flow) -> None:
        for stmt in body:
            left = bool(flow.exits)
            here = attrs.evolve(flow, off=flow.off or left, parted=flow.parted or left)
            self._statement(stmt, here)
            if isinstance(stmt, Assign):
                flow = attrs.evolve(flow, before=flow.before | {stmt.name})

    def _statement(self, stmt: Stmt, flow: _Flow) -> None:
        match stmt:
            case Assign():
                self._assign(stmt, stmt.name, self._layout(stmt.value), flow)
            case Atomic():
                if stmt.result is not None:
                    self._assign(stmt, stmt.result, Layout(Lanes.VECTOR, 0, True), flow)
            case Subgroup():
                self._assign(stmt, stmt.result, subgroup_layout(stmt.op), flow)
            case If():
                self._if(stmt, flow)
            case For() | Loop():
                self._loop(stmt, flow)
            case Break():
                if flow.parted:
                    flow.exits.broken = True
                    self._note(self._masked, stmt)
            case Continue() if flow.in_loop:
                if flow.parted:
                    flow.exits.continued = True
                    self._note(self._masked, stmt)
            case Return() | Continue():  # Outside the body's own loops, a `continue` ends the thread's run.
                if flow.off:
                    flow.exits.returned = True
                    self._note(self._masked, stmt)
            case Store() | Barrier() | Assert() | Print() | Alloc() | Breakpoint():
                pass
            case Call():
                layouts = call_layouts(stmt, self._layout, self._axes)
                for name, layout in zip(stmt.results, layouts, strict=True):
                    self._assign(stmt, name, layout, flow)
            case _:
                assert_never(stmt)

    def _if(self, stmt: If, flow: _Flow) -> None:
        if not self._layout(stmt.condition).is_uniform:
            flow = attrs.evolve(flow, off=True, parted=True, region=_Region(True, frozenset()))
        for side in bodies(stmt):
            self._walk(side, flow)

    def _loop(self, stmt: For | Loop, flow: _Flow) -> None:
        """The loop's body, where lanes may be off that left on trips before."""
        varies = isinstance(stmt, For) and not all(
            self._layout(bound).is_uniform for bound in (stmt.start, stmt.stop, stmt.step)
        )
        leaves = varies or id(stmt) in self._divergent
        parts = varies or id(stmt) in self._parting
        exits = _Exits()
        inner = _Flow(
            off=flow.off or leaves,
            parted=False,
            region=self._region_of(stmt, flow) if parts else flow.region,
            exits=exits,
            in_loop=True,
        )
        if isinstance(stmt, For):
            value = Layout(Lanes.VECTOR, 0, True) if varies else UNIFORM
            self._assign(stmt, stmt.variable, value, inner)
        self._walk(stmt.body, inner)
        if varies or exits:
            self._note(self._divergent, stmt)
        if varies or exits.broken or exits.continued:
            self._note(self._parting, stmt)
        if exits.returned:
            flow.exits.returned = True

    def _region_of(self, stmt: For | Loop, flow: _Flow) -> _Region:
        rejoins = any(isinstance(inner, Continue) for inner in _own_statements(stmt.body))
        assigned = {name for part in walk_statements((stmt,)) for name in assigned_by(part)}
        inside = _read_counts((stmt,))
        confined = {
            name
            for name in assigned - self._carried
            if inside.get(name, 0) == self._reads.get(name, 0) and (not flow.in_loop or name in flow.before)
        }
        return _Region(rejoins, frozenset(confined))


def _own_statements(body: Body) -> Iterable[Stmt]:
    """The statements of a loop's body that are not inside an inner loop."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, If):
            for side in bodies(stmt):
                yield from _own_statements(side)


def _read_counts(body: Body) -> dict[str, int]:
    counts: dict[str, int] = {}
    for expr in walk_expressions(body):
        if isinstance(expr, Local):
            counts[expr.name] = counts.get(expr.name, 0) + 1
    return counts


def assigned_by(stmt: Stmt) -> tuple[str, ...]:
    """The locals that a statement itself assigns."""
    match stmt:
        case Assign():
            return (stmt.name,)
        case For():
            return (stmt.variable,)
        case Subgroup():
            return (stmt.result,)
        case Atomic() if stmt.result is not None:
            return (stmt.result,)
        case Call():
            return stmt.results
        case _:
            return ()


def _scoped_assignments(body: Body, carried: frozenset[str]) -> frozenset[int]:
    """`id`s of assignments whose value is only read by lanes that ran them, on the same trip.

    Such a local has no other assignment, and every read of it stands behind in the same body, or inside the `For` whose
    variable it is.
    """
    num_assignments: dict[str, int] = {}
    for stmt in walk_statements(body):
        for name in assigned_by(stmt):
            num_assignments[name] = num_assignments.get(name, 0) + 1
    reads = _read_counts(body)
    scoped: set[int] = set()

    def visit(part: Body) -> dict[str, int]:
        """Reads inside `part`, having settled every assignment in it."""
        behind: dict[str, int] = {}
        for stmt in reversed(part):
            inside: dict[str, int] = {}
            for inner in bodies(stmt):
                for name, count in visit(inner).items():
                    inside[name] = inside.get(name, 0) + count
            names = assigned_by(stmt)
            seen = inside if isinstance(stmt, For) else behind
            if names and all(
                num_assignments[name] == 1 and name not in carried and seen.get(name, 0) == reads.get(name, 0)
                for name in names
            ):
                scoped.add(id(stmt))
            for expr in expressions_of(stmt):
                for node in walk_expressions(expr):
                    if isinstance(node, Local):
                        inside[node.name] = inside.get(node.name, 0) + 1
            for name, count in inside.items():
                behind[name] = behind.get(name, 0) + count
        return behind

    visit(body)
    return frozenset(scoped)
