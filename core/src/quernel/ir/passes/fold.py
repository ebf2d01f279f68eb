"""Constant folding, and identities that hold for every value, NaN and -0.0 included.

Values come from `quernel.ir.semantics`, so folding never changes a result. Functions whose last digits differ between
backends are left to them, and so are the bits of a NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import attrs

from quernel.dtypes import DType, bool_, i64
from quernel.ir import semantics
from quernel.ir.nodes import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    IndexKind,
    Math,
    Module,
    Select,
    ThreadIndex,
    Unary,
    UnaryOp,
)
from quernel.ir.rounding import format_of
from quernel.ir.walk import map_expressions

__all__ = ["fold"]


def fold(module: Module) -> Module:
    """`module` with constant expressions as literals and operations without effect left out."""
    return map_expressions(module, functools.partial(_folded, block=module.kernel.block))


def _folded(expr: Expr, block: tuple[int, ...]) -> Expr:
    match expr:
        case Unary():
            return _unary(expr)
        case Binary():
            return _binary(expr)
        case Compare(left=Const() as left, right=Const() as right):
            return Const(value=semantics.compare(expr.op, left.value, right.value), type=bool_, loc=expr.loc)
        case Select():
            return _select(expr)
        case Cast():
            return _cast(expr)
        case Bitcast():
            return _bitcast(expr)
        case Fma(a=Const() as a, b=Const() as b, c=Const() as c):
            value = semantics.fma(float(a.value), float(b.value), float(c.value), a.type)
            return Const(value=value, type=a.type, loc=expr.loc)
        case Math():
            return _math(expr)
        case ThreadIndex(kind=IndexKind.BLOCK_DIM):
            return Const(value=block[expr.axis], type=i64, loc=expr.loc)
        case ThreadIndex(kind=IndexKind.LOCAL_ID) if block[expr.axis] == 1:
            return Const(value=0, type=i64, loc=expr.loc)
        case _:
            return expr


def _unary(expr: Unary) -> Expr:
    operand = expr.operand
    if isinstance(operand, Const):
        return Const(value=semantics.unary(expr.op, operand.value, operand.type), type=operand.type, loc=expr.loc)
    if not isinstance(operand, Unary) or operand.op is not expr.op:
        return expr
    if expr.op in (UnaryOp.ABS, UnaryOp.UNIFORM):  # The second one changes nothing.
        return operand
    return operand.operand


def _binary(expr: Binary) -> Expr:
    left, right, dtype = expr.left, expr.right, expr.type
    if not isinstance(dtype, DType):
        return expr
    if isinstance(left, Const) and isinstance(right, Const):
        if expr.op is BinaryOp.POW and right.value < 0:
            return expr
        return Const(value=semantics.binary(expr.op, left.value, right.value, dtype), type=dtype, loc=expr.loc)
    if isinstance(right, Const):
        if _is_any(right, _NEUTRAL_RIGHT.get(expr.op), dtype):
            return left
        if _is_any(right, _ABSORBING.get(expr.op), dtype):
            return attrs.evolve(right, loc=expr.loc)
        decided = _DECIDED_RIGHT.get((expr.op, int(right.value))) if dtype.is_integer else None
        if decided is not None:
            return Const(value=decided, type=dtype, loc=expr.loc)
    if isinstance(left, Const) and expr.op in _COMMUTATIVE:
        if _is_any(left, _NEUTRAL_RIGHT.get(expr.op), dtype):
            return right
        if _is_any(left, _ABSORBING.get(expr.op), dtype):
            return attrs.evolve(left, loc=expr.loc)
    return expr


_Wanted = Callable[[DType], semantics.Value | None]


def _is_any(const: Const, wanted: _Wanted | None, dtype: DType) -> bool:
    value = wanted(dtype) if wanted is not None else None
    return value is not None and semantics.same_value(const.value, value)


def _zero(dtype: DType) -> semantics.Value | None:
    """The zero of integers and bools."""
    return None if dtype.is_float else False if dtype.is_bool else 0


def _one(dtype: DType) -> semantics.Value | None:
    """The one of numbers."""
    return None if dtype.is_bool else 1.0 if dtype.is_float else 1


def _ones(dtype: DType) -> semantics.Value | None:
    """The value all of whose bits are set."""
    return None if dtype.is_float else True if dtype.is_bool else dtype.max if not dtype.is_signed else -1


_NEUTRAL_RIGHT: Final[dict[BinaryOp, _Wanted]] = {
    # Adding 0.0 would turn -0.0 into 0.0; adding -0.0 and subtracting 0.0 change nothing.
    BinaryOp.ADD: lambda dtype: -0.0 if dtype.is_float else _zero(dtype),
    BinaryOp.SUB: lambda dtype: 0.0 if dtype.is_float else _zero(dtype),
    BinaryOp.MUL: _one,
    BinaryOp.DIV: _one,
    BinaryOp.FLOORDIV: lambda dtype: None if dtype.is_float else _one(dtype),
    BinaryOp.POW: _one,
    BinaryOp.OR: _zero,
    BinaryOp.XOR: _zero,
    BinaryOp.AND: _ones,
    BinaryOp.SHL: _zero,
    BinaryOp.SHR: _zero,
}
"""The right operand that leaves the left one as it is."""

_ABSORBING: Final[dict[BinaryOp, _Wanted]] = {BinaryOp.MUL: _zero, BinaryOp.AND: _zero, BinaryOp.OR: _ones}
"""The operand on either side that is the result whatever the other one is."""

_COMMUTATIVE: Final = frozenset({BinaryOp.ADD, BinaryOp.MUL, BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR})

_DECIDED_RIGHT: Final = {
    (BinaryOp.FLOORDIV, 0): 0,
    (BinaryOp.MOD, 0): 0,
    (BinaryOp.MOD, 1): 0,
    (BinaryOp.POW, 0): 1,
}
"""Results of integer operations that the right operand alone decides."""


def _select(expr: Select) -> Expr:
    if isinstance(expr.condition, Const):
        return expr.then if expr.condition.value else expr.otherwise
    if isinstance(expr.then, Const) and isinstance(expr.otherwise, Const):
        if semantics.same_value(expr.then.value, expr.otherwise.value):
            return expr.then
        if expr.then.type is bool_:
            return expr.condition if expr.then.value else _unary(Unary(op=UnaryOp.NOT, operand=expr.condition))
    # Both sides are evaluated anyway, so `and` and `or` of bools are the operators of bits.
    if expr.type is bool_ and isinstance(expr.otherwise, Const) and not expr.otherwise.value:
        return Binary(op=BinaryOp.AND, left=expr.condition, right=expr.then, loc=expr.loc)
    if expr.type is bool_ and isinstance(expr.then, Const) and expr.then.value:
        return Binary(op=BinaryOp.OR, left=expr.condition, right=expr.otherwise, loc=expr.loc)
    return expr


def _cast(expr: Cast) -> Expr:
    operand = expr.operand
    if operand.type is expr.type:
        return operand
    if isinstance(operand, Const):
        return Const(value=semantics.cast(operand.value, operand.type, expr.type), type=expr.type, loc=expr.loc)
    if isinstance(operand, Cast) and isinstance(operand.operand.type, DType):
        first, second = operand.operand.type, operand.type
        if _skips(first, second, expr.type):
            return _cast(Cast(operand=operand.operand, type=expr.type, loc=expr.loc))
    return expr


def _skips(first: DType, second: DType, third: DType) -> bool:
    """Whether a cast from `first` to `third` gives the same as one by way of `second`, for every value."""
    if not (first.is_float or second.is_float or third.is_float or second.is_bool or third.is_bool):
        return third.bits <= second.bits or _holds_all(second, first)
    same_rule = first.is_float == second.is_float or third.is_float or third.is_bool
    return same_rule and _holds_all(second, first)


def _holds_all(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if wide.is_float:
        target = format_of(wide)
        if narrow.is_float:
            source = format_of(narrow)
            return (
                source.precision <= target.precision
                and source.least_exponent >= target.least_exponent
                and source.overflow_exponent <= target.overflow_exponent
            )
        return narrow.max.bit_length() <= target.precision
    return not narrow.is_float and wide.min <= narrow.min and narrow.max <= wide.max


def _bitcast(expr: Bitcast) -> Expr:
    operand = expr.operand
    if operand.type is expr.type:
        return operand
    if isinstance(operand, Const) and operand.value == operand.value:
        value = semantics.bitcast(operand.value, operand.type, expr.type)
        if value == value:
            return Const(value=value, type=expr.type, loc=expr.loc)
    return expr


def _math(expr: Math) -> Expr:
    if expr.function not in semantics.EXACT_FUNCTIONS:
        return expr
    values = tuple(operand.value for operand in expr.operands if isinstance(operand, Const))
    dtype = expr.operands[0].type
    if len(values) != len(expr.operands) or not isinstance(dtype, DType):
        return expr
    return Const(value=semantics.math_function(expr.function, values, dtype), type=expr.type, loc=expr.loc)
