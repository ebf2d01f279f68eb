"""Index narrowing: for launches whose extents, lengths and element offsets fit 31 bits, indices computed in 32 bits.

In the language such values are i64. An index that is used lies within its array, so its low 32 bits say all of it, and
sums, differences, products, left shifts and bitwise operations can be done on low halves alone. Floor division, the
remainder, right shifts, minima, maxima and comparisons look at whole values: they are narrowed only where the ranges
of their operands prove that nothing is lost. So are locals.
"""

from __future__ import annotations

from typing import Final, TypeVar

import attrs

from quernel.dtypes import DType, i32, i64
from quernel.ir.bounds import Interval, Ranges
from quernel.ir.nodes import (
    Assign,
    Atomic,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    Function,
    Kernel,
    Load,
    Local,
    Module,
    Param,
    Place,
    Select,
    Stmt,
    Store,
    Subgroup,
    Unary,
    UnaryOp,
)
from quernel.ir.rounding import wrap
from quernel.ir.walk import (
    Body,
    expressions_of,
    fold_expression,
    map_expressions,
    map_statements,
    walk_statements,
    with_expressions,
)

__all__ = ["narrow_indices"]

_LOW_BITS: Final = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR})
"""Operators whose low bits depend on the low bits of their operands only."""

_WHOLE_VALUES: Final = frozenset({BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.SHR, BinaryOp.MIN, BinaryOp.MAX})
"""Operators that give the same in 32 bits where both operands fit."""

_LOW_BITS_UNARY: Final = frozenset({UnaryOp.NEG, UnaryOp.INVERT, UnaryOp.UNIFORM})

_OwnerT = TypeVar("_OwnerT", Kernel, Function)


def narrow_indices(module: Module) -> Module:
    """`module` for launches that promise `index32`: the same results, its indices computed in i32 where possible.

    The promise: every extent, block count, array length and element offset of an access that happens is below 2**31,
    and every global id is an i32.
    """
    kernel = _Narrowing(module, module.kernel).narrowed(module.kernel)
    functions = tuple(_Narrowing(module, function).narrowed(function) for function in module.functions)
    return Module(kernel=kernel, functions=functions)


class _Narrowing:
    """Narrows one kernel or device function."""

    def __init__(self, module: Module, owner: Kernel | Function) -> None:
        self._ranges = Ranges(module, owner, index32=True)
        fixed: set[str] = set()
        for stmt in walk_statements(owner.body):
            match stmt:
                case For():
                    fixed.add(stmt.variable)
                case Call():
                    fixed.update(stmt.results)
                case Atomic() if stmt.result is not None:
                    fixed.add(stmt.result)
                case Subgroup():
                    fixed.add(stmt.result)
                case _:
                    pass
        self._narrow = {
            local.name
            for local in owner.locals
            if local.type is i64 and local.name not in fixed and _fit(self._ranges.local(local.name))
        }

    def narrowed(self, owner: _OwnerT) -> _OwnerT:
        locals_ = tuple(
            attrs.evolve(local, type=i32) if local.name in self._narrow else local for local in owner.locals
        )
        body = map_statements(owner.body, self._statement)
        return attrs.evolve(owner, locals=locals_, body=self._with_narrow_locals(body))

    # --- statements ---

    def _statement(self, stmt: Stmt) -> Stmt:
        exprs = tuple(map_expressions(expr, self._expression) for expr in expressions_of(stmt))
        stmt = with_expressions(stmt, exprs)
        match stmt:
            case Assign() if stmt.name in self._narrow:
                return attrs.evolve(stmt, value=self._low(stmt.value))
            case Store() | Atomic():
                return attrs.evolve(stmt, place=self._place(stmt.place))
            case _:
                return stmt

    def _with_narrow_locals(self, body: Body) -> Body:
        """The locals that are i32 now: as they are where that is wanted, and as i64 elsewhere."""

        def widened(expr: Expr) -> Expr:
            if isinstance(expr, Local) and expr.name in self._narrow:
                return Cast(operand=attrs.evolve(expr, type=i32), type=i64, loc=expr.loc)
            if isinstance(expr, Cast) and expr.type is i32 and isinstance(expr.operand, Cast):
                inner = expr.operand
                if inner.type is i64 and inner.operand.type is i32:
                    return inner.operand
            return expr

        return map_expressions(body, widened)

    # --- expressions ---

    def _expression(self, expr: Expr) -> Expr:
        match expr:
            case Load():
                return attrs.evolve(expr, place=self._place(expr.place))
            case Compare() if expr.left.type is i64 and (self._gains(expr.left) or self._gains(expr.right)):
                (left, left_range), (right, right_range) = self._halved(expr.left), self._halved(expr.right)
                return attrs.evolve(expr, left=left, right=right) if _fit(left_range, right_range) else expr
            case _:
                return expr

    def _place(self, place: Place) -> Place:
        return attrs.evolve(place, indices=tuple(self._index(index) for index in place.indices))

    def _index(self, index: Expr) -> Expr:
        return Cast(operand=self._low(index), type=i64, loc=index.loc) if self._gains(index) else index

    def _gains(self, expr: Expr) -> bool:
        """Whether there is anything to compute in 32 bits: a value that is there in 64 is no cheaper in halves."""
        match expr:
            case Const() | Param() | Load():
                return False
            case Local():
                return expr.name in self._narrow
            case Cast():
                return expr.operand.type is not i32
            case _:
                return True

    def _low(self, expr: Expr) -> Expr:
        """The low 32 bits of an i64 expression, as i32: all of it, where it fits."""
        return self._halved(expr)[0]

    def _halved(self, expr: Expr) -> _Halved:
        return fold_expression(expr, self._halved_node)

    def _halved_node(self, expr: Expr, below: tuple[_Halved, ...]) -> _Halved:
        """The low half of one node, from those of its children; what is no i64 stays whole."""
        interval = self._ranges.combined(expr, tuple(part for _, part in below))
        if expr.type is not i64:
            return expr, interval
        low: Expr = Cast(operand=expr, type=i32, loc=expr.loc)
        match expr:
            case Const():
                low = Const(value=wrap(int(expr.value), i32), type=i32, loc=expr.loc)
            case Unary() if expr.op in _LOW_BITS_UNARY:
                low = attrs.evolve(expr, operand=below[0][0])
            case Binary():
                (left, left_range), (right, right_range) = below
                if (
                    expr.op in _LOW_BITS
                    or (expr.op is BinaryOp.SHL and _fit(right_range))
                    or (expr.op in _WHOLE_VALUES and _fit(left_range, right_range))
                ):
                    low = attrs.evolve(expr, left=left, right=right)
            case Select():
                low = attrs.evolve(expr, then=below[1][0], otherwise=below[2][0])
            case Cast() if isinstance(expr.operand.type, DType) and not expr.operand.type.is_float:
                operand = expr.operand
                low = operand if operand.type is i32 else Cast(operand=operand, type=i32, loc=expr.loc)
            case _:
                pass
        return low, interval


_Halved = tuple[Expr, Interval | None]
"""The low half of an expression, and between which values the whole of it lies."""


def _fit(*intervals: Interval | None) -> bool:
    return all(interval is not None and interval.fits(i32) for interval in intervals)
