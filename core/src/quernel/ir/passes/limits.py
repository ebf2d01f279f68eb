"""Limits by one constant of which a NaN passes one and not another, written so that compilers keep them apart.

`MIN(x, c)` gives NaN for a NaN, `MIN(c, x)` gives `c`. LLVM (seen in 14 and 22) takes `MIN(c, MIN(x, c))` for
`MIN(x, c)`, which is wrong for a NaN, also where a kernel has a name for the inner one; with another constant in
between it does not. What only a compiler sees is not mended here: a limit within a device function that is called, or
one that an `If` decides.
"""

from __future__ import annotations

from typing import Final

import attrs

from quernel.dtypes import DType, u16, u32, u64
from quernel.ir.nodes import Binary, BinaryOp, Compare, CompareOp, Const, Expr, Module, Select, Unary, UnaryOp
from quernel.ir.semantics import bitcast
from quernel.ir.walk import map_expressions, walk_expressions

__all__ = ["keep_limits_apart"]

_BITS: Final = {16: u16, 32: u32, 64: u64}
_LEAST: Final = {CompareOp.LT: BinaryOp.MIN, CompareOp.GT: BinaryOp.MAX}
_LEAST_OR_EQUAL: Final = {CompareOp.LE: BinaryOp.MIN, CompareOp.GE: BinaryOp.MAX}
_MIRRORED: Final = {
    CompareOp.LT: CompareOp.GT,
    CompareOp.GT: CompareOp.LT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GE: CompareOp.LE,
}


@attrs.frozen
class _Limit:
    """The least or greatest of a value and a constant that is finite.

    Attributes:
        keeps_nan: a NaN stays one, instead of giving the constant.
    """

    op: BinaryOp
    value: Expr
    constant: Const
    keeps_nan: bool

    @property
    def key(self) -> tuple[BinaryOp, DType, float]:
        """What compilers compare: they do not tell zeros apart."""
        return self.op, self.constant.type, float(self.constant.value)


def keep_limits_apart(module: Module) -> Module:
    """`module`, in which no constant limits one value that a NaN passes and another that none does, from one side."""
    limits = [limit for expr in walk_expressions(module) if (limit := _limit(expr)) is not None]
    passing = {limit.key for limit in limits if limit.keeps_nan}
    if not any(limit.key in passing for limit in limits if not limit.keeps_nan):
        return module

    def apart(expr: Expr) -> Expr:
        limit = _limit(expr)
        if limit is None or limit.keeps_nan or limit.key not in passing:
            return expr
        return _in_two_steps(limit, passing)

    return map_expressions(module, apart)


def _in_two_steps(limit: _Limit, passing: set[tuple[BinaryOp, DType, float]]) -> Expr:
    """A limit a little further off, which no NaN passes, and then the real one."""
    op, constant = limit.op, limit.constant
    beyond = constant
    while (op, beyond.type, float(beyond.value)) in passing:
        beyond = attrs.evolve(constant, value=_next(float(beyond.value), beyond.type, up=op is BinaryOp.MIN))
    result: Expr = Binary(
        op=op, left=Binary(op=op, left=beyond, right=limit.value, loc=constant.loc), right=constant, loc=constant.loc
    )
    if constant.value == 0.0:
        result = _as_zero(result, constant)
    return result


def _as_zero(expr: Expr, zero: Const) -> Expr:
    """The value, with the sign of `zero` if it is a zero of either sign."""
    plus = Const(value=0.0, type=zero.type, loc=zero.loc)
    if str(zero.value) == "0.0":
        return Binary(op=BinaryOp.ADD, left=expr, right=plus, loc=zero.loc)
    negated = Binary(op=BinaryOp.ADD, left=Unary(op=UnaryOp.NEG, operand=expr, loc=zero.loc), right=plus, loc=zero.loc)
    return Unary(op=UnaryOp.NEG, operand=negated, loc=zero.loc)


def _next(value: float, dtype: DType, *, up: bool) -> float:
    """The next float of the type, upwards or downwards."""
    integer = _BITS[dtype.bits]
    sign = 1 << dtype.bits - 1
    if value == 0.0:
        bits = 1 if up else sign | 1
    else:
        bits = int(bitcast(value, dtype, integer)) + (1 if (value > 0.0) is up else -1)
    return float(bitcast(bits, integer, dtype))


def _limit(expr: Expr) -> _Limit | None:
    """What the expression is as a limit, whichever way it is written."""
    if isinstance(expr, Binary) and expr.op in (BinaryOp.MIN, BinaryOp.MAX):
        if isinstance(expr.right, Const):
            return _of(expr.op, expr.left, expr.right, keeps_nan=True)
        if isinstance(expr.left, Const):
            return _of(expr.op, expr.right, expr.left, keeps_nan=False)
    elif isinstance(expr, Select) and isinstance(expr.condition, Compare) and expr.condition.op in _MIRRORED:
        return _chosen(expr, expr.condition)
    return None


def _chosen(expr: Select, test: Compare) -> _Limit | None:
    """`a if a < b else b` and its like: the constant that stands for the other operand is what a NaN gives, or not."""
    op = test.op if test.left == expr.then and test.right == expr.otherwise else None
    if op is None and test.right == expr.then and test.left == expr.otherwise:
        op = _MIRRORED[test.op]
    if op is None:
        return None
    kind = _LEAST.get(op) or _LEAST_OR_EQUAL[op]
    if isinstance(expr.then, Const):
        return _of(kind, expr.otherwise, expr.then, keeps_nan=True)
    if isinstance(expr.otherwise, Const) and (op in _LEAST or expr.otherwise.value != 0.0):
        return _of(kind, expr.then, expr.otherwise, keeps_nan=False)
    return None


def _of(op: BinaryOp, value: Expr, constant: Const, *, keeps_nan: bool) -> _Limit | None:
    is_finite = constant.type.is_float and abs(float(constant.value)) < float("inf")
    return _Limit(op, value, constant, keeps_nan) if is_finite and not isinstance(value, Const) else None
