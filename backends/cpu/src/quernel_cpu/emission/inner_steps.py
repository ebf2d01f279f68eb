"""Steps away from the edges of what they read: indices that are kept within bounds for the sake of others' lanes.

`x[max(i - 1, 0)]` lies beside `x[i]` in all lanes but the very first one of a row, and still each lane's place may be
anywhere, which makes the load a gather. So a step whose lanes all leave such an index as it is runs a copy of the code
without the bound, in which the index grows from lane to lane. Whether they do is asked once, before the step, in scalar
code: of the first and of the last lane, as what lies between is between.

Bounds are `min`, `max`, conditional expressions by a comparison, and the remainder by a length, of an index that grows
by a constant from lane to lane against a number on which lanes agree. Both have to be known before the step: they
depend on thread indices, parameters and shapes, and on variables of loops whose bounds do too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from quernel.dtypes import DType
from quernel.ir.nodes import (
    Assign,
    Atomic,
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    For,
    Load,
    Local,
    LocalVariable,
    Param,
    Place,
    Select,
    Shape,
    Store,
    ThreadIndex,
    Unary,
    UnaryOp,
)
from quernel.ir.walk import (
    Body,
    expressions_of,
    fold_expression,
    map_statements,
    walk_expressions,
    walk_statements,
    with_children,
    with_expressions,
)
from quernel_cpu.emission.edge_loads import with_edge_loads
from quernel_cpu.emission.shapes import Axes, Lanes, Layout, Shapes, analyse_shapes, assigned_by
from quernel_cpu.emission.values import scalar

__all__ = ["InnerStep", "Within", "inner_step"]

_MOST_NODES = 32
"""An index of more operators is not worked out before the step."""
_MOST_COPIED = 600
"""Bodies of more operators and statements, times rows, have no copy."""


@attrs.frozen
class Within:
    """What an inner step's lanes have in common: a value that leaves no doubt about a comparison with a number.

    Attributes:
        path: the value on the trips where it is least, ..., where it is greatest; just the value outside of loops.
        op: `GE`, `GT`, `LE` or `LT`; or `NE`, if the value passes the number on no way from the first to the last.
        limit: the number, on which the lanes of a row agree.
    """

    path: tuple[Expr, ...]
    op: CompareOp
    limit: Expr


@attrs.frozen
class InnerStep:
    """Two bodies that do the same.

    Attributes:
        tests: what the threads of inner steps have in common.
        body: for inner steps.
        shapes: of `body`.
        edge: for any step.
        variables: further locals of `edge`.
    """

    tests: tuple[Within, ...]
    body: Body
    shapes: Shapes
    edge: Body
    variables: tuple[LocalVariable, ...]


def inner_step(body: Body, axes: Axes, carried: Mapping[str, Layout], rows: int) -> InnerStep | None:
    """The body for steps away from the edges, or `None` if it reads and writes no better than `body` itself."""
    if not any(map(_may_bound, walk_expressions(body))):
        return None
    size = sum(1 for _ in walk_expressions(body)) + sum(1 for _ in walk_statements(body))
    if size * rows > _MOST_COPIED:
        return None
    rewriting = _Rewriting(body, axes, frozenset(carried))
    inner = rewriting.body()
    if not rewriting.tests:
        return None
    before, after = analyse_shapes(body, axes, carried), analyse_shapes(inner, axes, carried)
    if _num_apart(inner, after) >= _num_apart(body, before):
        return None
    edge, variables = with_edge_loads(body, before, rewriting.defined)
    return InnerStep(tuple(rewriting.tests), inner, after, edge, variables)


def _may_bound(expr: Expr) -> bool:
    if not isinstance(expr.type, DType) or not expr.type.is_integer:
        return False
    return isinstance(expr, Select) or (
        isinstance(expr, Binary) and expr.op in (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MOD)
    )


def _num_apart(body: Body, shapes: Shapes) -> int:
    """Accesses whose places lanes may have anywhere."""
    return sum(any(shapes.layout(index).lanes is Lanes.VECTOR for index in place.indices) for place in _places(body))


def _places(body: Body) -> Iterator[Place]:
    for stmt in walk_statements(body):
        if isinstance(stmt, Store | Atomic):
            yield stmt.place
    for expr in walk_expressions(body):
        if isinstance(expr, Load):
            yield expr.place


@attrs.frozen
class _Known:
    """An expression as it stands, and worked out before the step: of nothing but what is known there.

    Attributes:
        here: in the inner step's code.
        before: of thread indices, parameters, shapes and loops' variables; `None` if it depends on anything else.
    """

    here: Expr
    before: Expr | None


class _Rewriting:
    """Leaves out bounds that inner steps do not need, and collects what has to hold for that."""

    def __init__(self, body: Body, axes: Axes, carried: frozenset[str]) -> None:
        self._body = body
        self._shapes = Shapes.without_locals(axes)
        self.tests: dict[Within, None] = {}
        counts: dict[str, int] = dict.fromkeys(carried, 2)
        for stmt in walk_statements(body):
            for name in assigned_by(stmt):
                counts[name] = counts.get(name, 0) + 1
        once = [stmt for stmt in walk_statements(body) if isinstance(stmt, Assign | For)]
        self._assigned = {s.name: s.value for s in once if isinstance(s, Assign) and counts[s.name] == 1}
        self._known: dict[str, Expr | None] = {}
        self._plain: dict[str, Expr | None] = {}
        self._ranges: dict[str, tuple[Expr, Expr]] = {}
        for stmt in once:
            if isinstance(stmt, For) and counts[stmt.variable] == 1:
                self._note_range(stmt)

    def body(self) -> Body:
        """The body without the bounds."""
        return map_statements(
            self._body,
            lambda stmt: with_expressions(stmt, tuple(self._rewritten(expr).here for expr in expressions_of(stmt))),
        )

    def defined(self, name: str) -> Expr | None:
        """The value of a local as the body has it, of nothing that changes."""
        if name not in self._plain:
            self._plain[name] = None
            if name in self._assigned:
                self._plain[name] = fold_expression(self._assigned[name], self._as_it_stands)
        return self._plain[name]

    def _as_it_stands(self, node: Expr, below: tuple[Expr | None, ...]) -> Expr | None:
        operands = tuple(operand for operand in below if operand is not None)
        match node:
            case Local():
                return self.defined(node.name)
            case Const() | Param() | Shape() | ThreadIndex() | Binary() | Unary() | Compare() | Select() | Cast():
                if len(operands) < len(below):
                    return None
                whole = with_children(node, operands)
                return whole if _is_short(whole) else None
            case _:
                return None

    # --- what is known before the step --------------------------------------------------------------------------------

    def _note_range(self, loop: For) -> None:
        """The least and the greatest number of a loop's variable, or beyond them."""
        start, stop = self._rewritten(loop.start).before, self._rewritten(loop.stop).before
        if start is None or stop is None or not isinstance(loop.step, Const) or loop.step.value == 0:
            return
        if self._variables(start) or self._variables(stop):
            return
        one = Const(value=1, type=scalar(stop.type))
        if loop.step.value > 0:
            self._ranges[loop.variable] = (start, Binary(op=BinaryOp.SUB, left=stop, right=one))
        else:
            self._ranges[loop.variable] = (Binary(op=BinaryOp.ADD, left=stop, right=one), start)

    def _local(self, local: Local) -> Expr | None:
        name = local.name
        if name in self._ranges:
            return local
        if name not in self._known:
            self._known[name] = None  # A local that depends on itself is not known.
            if name in self._assigned:
                self._known[name] = self._rewritten(self._assigned[name]).before
        return self._known[name]

    def _rewritten(self, expr: Expr) -> _Known:
        return fold_expression(expr, self._combined)

    def _combined(self, node: Expr, below: tuple[_Known, ...]) -> _Known:
        here = with_children(node, tuple(known.here for known in below))
        match node:
            case Local():
                return _Known(here, self._local(node))
            case Const() | Param() | Shape() | ThreadIndex():
                return _Known(here, here)
            case Binary() | Unary() | Compare() | Select() | Cast() | Bitcast():
                operands = tuple(known.before for known in below if known.before is not None)
                if len(operands) < len(below) or (isinstance(node, Unary) and node.op is UnaryOp.UNIFORM):
                    return _Known(here, None)
                kept = self._kept(node, operands) if _may_bound(node) else None
                if kept is not None:
                    return below[kept]
                before = with_children(node, operands)
                return _Known(here, before if _is_short(before) else None)
            case _:
                return _Known(here, None)

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _kept(self, node: Expr, operands: tuple[Expr, ...]) -> int | None:
        """Which operand of a bound an inner step takes as it is, once what that needs is noted."""
        match node:
            case Binary(op=BinaryOp.MIN | BinaryOp.MAX):
                op = CompareOp.LE if node.op is BinaryOp.MIN else CompareOp.GE
                for kept in (0, 1):
                    if self._needs(operands[kept], op, operands[1 - kept]):
                        return kept
                return None
            case Binary(op=BinaryOp.MOD):
                zero = Const(value=0, type=scalar(operands[0].type))
                is_within = self._needs(operands[0], CompareOp.LT, operands[1])
                return 0 if is_within and self._needs(operands[0], CompareOp.GE, zero) else None
            case Select():
                return self._chosen(operands)
            case _:
                return None

    def _chosen(self, operands: tuple[Expr, ...]) -> int | None:
        """The side that grows, if the other one does not and the condition is a comparison."""
        condition, then, otherwise = operands
        grows = [self._lanes(side) is Lanes.LINEAR for side in (then, otherwise)]
        if not isinstance(condition, Compare) or grows[0] == grows[1]:
            return None
        op = condition.op if grows[0] else _OPPOSITES[condition.op]
        for left, right, relation in (
            (condition.left, condition.right, op),
            (condition.right, condition.left, _SWAPPED[op]),
        ):
            if relation is not CompareOp.EQ and self._needs(left, relation, right):
                return 1 if grows[0] else 2
        return None

    def _lanes(self, expr: Expr) -> Lanes:
        return self._shapes.layout(expr).lanes

    def _needs(self, value: Expr, op: CompareOp, limit: Expr) -> bool:
        """Notes that a value has to compare so; false if that cannot be asked before the step."""
        if not (isinstance(value.type, DType) and value.type.is_integer) or value.type is not limit.type:
            return False
        if self._lanes(value) is not Lanes.LINEAR or self._lanes(limit) is not Lanes.UNIFORM:
            return False
        path = self._path(value)
        if path is None or self._variables(limit):
            return False
        self.tests[Within(path, op, limit)] = None
        return True

    def _variables(self, expr: Expr) -> list[str]:
        return [node.name for node in walk_expressions(expr) if isinstance(node, Local)]

    def _path(self, value: Expr) -> tuple[Expr, ...] | None:
        """The value where it is least on any trip of the loops around, ..., where it is greatest."""
        names = list(dict.fromkeys(self._variables(value)))
        ends: dict[str, Expr] = {}
        reversals: dict[str, Expr] = {}
        for name in names:
            slope = _slope(value, name)
            if slope not in (1, -1):
                return None
            least, greatest = self._ranges[name][::slope]
            ends[name], reversals[name] = least, greatest
        path = [_substituted(value, ends)]
        for name in names:
            ends[name] = reversals[name]
            path.append(_substituted(value, ends))
        return tuple(path)


_OPPOSITES = {
    CompareOp.LT: CompareOp.GE,
    CompareOp.LE: CompareOp.GT,
    CompareOp.GT: CompareOp.LE,
    CompareOp.GE: CompareOp.LT,
    CompareOp.EQ: CompareOp.NE,
    CompareOp.NE: CompareOp.EQ,
}
_SWAPPED = {
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
    CompareOp.EQ: CompareOp.EQ,
    CompareOp.NE: CompareOp.NE,
}


def _is_short(expr: Expr) -> bool:
    return sum(1 for _ in walk_expressions(expr)) <= _MOST_NODES


def _substituted(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    return fold_expression(
        expr,
        lambda node, below: values[node.name] if isinstance(node, Local) else with_children(node, below),
    )


def _slope(expr: Expr, name: str) -> int | None:
    """How much an expression grows with a variable, `None` if not steadily."""

    def combine(node: Expr, below: tuple[int | None, ...]) -> int | None:
        match node, below:
            case Local(), _:
                return int(node.name == name)
            case Binary(op=BinaryOp.ADD), (int(left), int(right)):
                return left + right
            case Binary(op=BinaryOp.SUB), (int(left), int(right)):
                return left - right
            case Unary(op=UnaryOp.NEG), (int(operand),):
                return -operand
            case _:
                return None if any(slope != 0 for slope in below) else 0

    return fold_expression(expr, combine)
