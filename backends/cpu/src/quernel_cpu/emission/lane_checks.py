"""What a check tests: first whether no lane can fail, in scalar code where that is possible; then each lane.

An index that grows by a constant from lane to lane lies within its array for all lanes if it does for the first and for
the last. Lanes that are off count there too, so a test that fails only says that each lane has to be looked at.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable

import attrs

from quernel.dtypes import DType, bool_, u64
from quernel.ir.nodes import Binary, BinaryOp, Compare, CompareOp, Const, Expr, Shape, Unary, UnaryOp
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.inner_steps import Within
from quernel_cpu.emission.lane_values import LaneArithmetic, Value
from quernel_cpu.emission.shapes import Lanes, Layout
from quernel_cpu.emission.text import Code
from quernel_cpu.emission.values import scalar

__all__ = ["Checked", "all_within", "checked"]


@attrs.frozen
class Checked:
    """One part of what has to hold.

    Attributes:
        certain: scalar conditions, all of which hold only if the part holds in every lane; empty if there are none.
        exact: where it holds, written into the code where that is asked for.
    """

    certain: tuple[str, ...]
    exact: Callable[[], Value]


def checked(code: Code, lanes: LaneArithmetic, failing: Expr, value: Callable[[Expr], Value]) -> list[Checked]:
    """The parts of a condition under which a check fails, turned round. `value` gives an expression of all threads."""
    if not (isinstance(failing, Unary) and failing.op is UnaryOp.NOT):
        return [_condition(value(Unary(op=UnaryOp.NOT, operand=failing, loc=failing.loc)))]
    parts = _conjuncts(failing.operand)
    found: list[Checked] = []
    while parts:
        if len(parts) > 1 and _is_range(parts[0], parts[1]):
            within = parts[1]
            assert isinstance(within, Compare)
            found.append(_within(code, lanes, value(within.left), value(within.right)))
            del parts[:2]
        else:
            found.append(_condition(value(parts.pop(0))))
    return found


def _conjuncts(expr: Expr) -> list[Expr]:
    pending, found = [expr], list[Expr]()
    while pending:
        node = pending.pop()
        if isinstance(node, Binary) and node.op is BinaryOp.AND and node.type is bool_:
            pending += [node.right, node.left]
        else:
            found.append(node)
    return found


def _is_range(low: Expr, high: Expr) -> bool:
    """Whether the two say `0 <= index` and `index < length` of one index."""
    return (
        isinstance(low, Compare)
        and low.op is CompareOp.LE
        and isinstance(low.left, Const)
        and low.left.value == 0
        and isinstance(high, Compare)
        and high.op is CompareOp.LT
        and low.right == high.left
        and (isinstance(high.right, Shape) or (isinstance(high.right, Const) and high.right.value >= 0))
    )


def _condition(holds: Value) -> Checked:
    certain = () if holds.layout.lanes is Lanes.VECTOR else holds.parts
    return Checked(certain, lambda: holds)


def _within(code: Code, lanes: LaneArithmetic, index: Value, length: Value) -> Checked:
    """As a length is no negative number, an index within it is a smaller one without a sign."""

    def is_below(arithmetic: Arithmetic, left: str, right: str) -> str:
        return arithmetic.compare(CompareOp.LT, u64, left, right)

    rows = index.layout.rows or length.layout.rows
    if index.layout.lanes is not Lanes.LINEAR:
        layout = Layout(index.layout.lanes, 0, rows)
        return _condition(lanes.operate(layout, is_below, (index, u64), (length, u64)))
    distance = index.layout.stride * (lanes.width - 1)
    certain: list[str] = []
    for row in lanes.rows_of(Layout(rows=rows)):
        last = code.value(f"add i64 {index.part(row)}, {distance}")
        certain += [is_below(lanes.scalar, end, length.part(row)) for end in (index.part(row), last)]
    layout = Layout(Lanes.VECTOR, 0, rows)
    return Checked(tuple(certain), lambda: lanes.operate(layout, is_below, (index, u64), (length, u64)))


def all_within(code: Code, lanes: LaneArithmetic, tests: Iterable[Within], value: Callable[[Expr], Value]) -> str:
    """Whether all lanes of all rows have in common what an inner step's have, as an `i1`; in doubt, they have not."""
    holds = [condition for test in tests for condition in _within_limit(code, lanes, test, value)]
    return functools.reduce(lambda left, right: code.value(f"and i1 {left}, {right}"), holds)


def _within_limit(code: Code, lanes: LaneArithmetic, test: Within, value: Callable[[Expr], Value]) -> list[str]:
    dtype = scalar(test.limit.type)
    values, limit = [value(expr) for expr in test.path], value(test.limit)
    distance = values[0].layout.stride * (lanes.width - 1)
    holds: list[str] = []
    for row in lanes.rows_of(Layout(rows=values[0].layout.rows or limit.layout.rows)):
        points = [part.part(row) for part in values]
        if distance > 0:
            points.append(lanes.scalar.binary(BinaryOp.ADD, dtype, points[-1], str(distance)))
        else:
            points.insert(0, lanes.scalar.binary(BinaryOp.ADD, dtype, points[0], str(distance)))
        # Arithmetic wraps: only if the value never falls on its way is nothing beyond the ends of it.
        holds += [lanes.scalar.compare(CompareOp.LE, dtype, low, high) for low, high in itertools.pairwise(points)]
        holds.append(_beside(code, lanes, dtype, points, test.op, limit.part(row)))
    return holds


def _beside(code: Code, lanes: LaneArithmetic, dtype: DType, points: list[str], op: CompareOp, limit: str) -> str:
    compare = lanes.scalar.compare
    match op:
        case CompareOp.GE | CompareOp.GT:
            return compare(op, dtype, points[0], limit)
        case CompareOp.LE | CompareOp.LT:
            return compare(op, dtype, points[-1], limit)
        case _:
            above, below = (
                compare(CompareOp.GT, dtype, points[0], limit),
                compare(CompareOp.LT, dtype, points[-1], limit),
            )
            return code.value(f"or i1 {above}, {below}")
