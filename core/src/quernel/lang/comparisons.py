"""Comparison of scalars by mathematical value, whatever their types."""

from __future__ import annotations

import ast
from typing import Final

from quernel.dtypes import DType, ScalarType, bf16, bool_, f16, f32, f64, i32, i64, u64
from quernel.ir import nodes
from quernel.ir.nodes import CompareOp
from quernel.lang import promotion
from quernel.lang.constants import compare_constants, constant, converted, literal
from quernel.lang.conversions import cast
from quernel.lang.lowering import FunctionLowering
from quernel.lang.refusals import Node
from quernel.lang.values import Scalar

__all__ = ["compare"]

_COMPARE: Final[dict[type[ast.cmpop], CompareOp]] = {
    ast.Eq: CompareOp.EQ,
    ast.NotEq: CompareOp.NE,
    ast.Lt: CompareOp.LT,
    ast.LtE: CompareOp.LE,
    ast.Gt: CompareOp.GT,
    ast.GtE: CompareOp.GE,
}
_PYTHON: Final = {op: python for python, op in _COMPARE.items()}
_MIRRORED: Final = {
    CompareOp.EQ: CompareOp.EQ,
    CompareOp.NE: CompareOp.NE,
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}
_DIGITS: Final = {f16: 11, bf16: 8, f32: 24, f64: 53}
"""Binary digits of a float type: it holds every integer that has no more."""
_HOLDS_FOR_LESS: Final = frozenset({CompareOp.NE, CompareOp.LT, CompareOp.LE})
_HOLDS_FOR_GREATER: Final = frozenset({CompareOp.NE, CompareOp.GT, CompareOp.GE})


def compare(lowering: FunctionLowering, op: type[ast.cmpop], left: Scalar, right: Scalar, node: Node) -> Scalar:
    """`left op right` by mathematical value; never refused. A weak float takes the float type that it meets."""
    typed_floats = [side for side in (left, right) if side.dtype.is_float and not side.weak]
    if left.constant is not None and right.constant is not None and not typed_floats:
        return constant(compare_constants(op, left.constant, right.constant))
    kind = _COMPARE[op]
    if left.dtype.is_float and right.dtype.is_float:
        target = promotion.arithmetic(left.type, right.type)
        assert target is not None
        assert isinstance(target.dtype, DType)
        return _compared(lowering, kind, left, right, target.dtype, node)
    if left.dtype.is_float:
        return _compare_with_float(lowering, _MIRRORED[kind], right, left, node)
    if right.dtype.is_float:
        return _compare_with_float(lowering, kind, left, right, node)
    return _compare_integers(lowering, kind, left, right, node)


def _compare_with_float(
    lowering: FunctionLowering, op: CompareOp, integer: Scalar, number: Scalar, node: Node
) -> Scalar:
    """An integer with a float: in the float's type if that holds the integer, else in f64, exactly."""
    for dtype in (number.dtype, f64):
        if _is_held_by(integer, dtype):
            return _compared(lowering, op, integer, number, dtype, node)
    return _compare_rounded(lowering, op, integer, number, node)


def _is_held_by(integer: Scalar, dtype: DType) -> bool:
    """Whether every value that the integer may have is a value of the float type."""
    if integer.constant is not None:
        return converted(integer.constant, dtype) == integer.constant
    return integer.dtype.is_bool or integer.dtype.bits - integer.dtype.is_signed <= _DIGITS[dtype]


def _compare_rounded(lowering: FunctionLowering, op: CompareOp, integer: Scalar, number: Scalar, node: Node) -> Scalar:
    """An integer that f64 may not hold: rounded, it compares as it is, unless it becomes equal to the float.

    Then the integer compares with what it was rounded to; that does not depend on the float, so it leaves loops.
    """
    loc = lowering.where(node)
    rounded = lowering.leaf(cast(lowering, integer, f64, node), node)
    if integer.constant is not None:
        known = compare_constants(_PYTHON[op], integer.constant, converted(integer.constant, f64))
        if_equal: nodes.Expr = literal(known, bool_, loc)
    else:
        integer = lowering.leaf(integer, node)
        beyond = nodes.Compare(
            op=CompareOp.GE,
            left=lowering.expr(rounded, node),
            right=literal(float(integer.dtype.max + 1), f64, loc),
            loc=loc,
        )
        back = nodes.Cast(operand=lowering.expr(rounded, node), type=integer.dtype, loc=loc)
        exact = nodes.Compare(op=op, left=lowering.expr(integer, node), right=back, loc=loc)
        less = literal(op in _HOLDS_FOR_LESS, bool_, loc)
        if_equal = nodes.Select(condition=beyond, then=less, otherwise=exact, loc=loc)
    number = lowering.leaf(cast(lowering, number, f64, node), node)
    is_equal = _compared(lowering, CompareOp.EQ, rounded, number, f64, node)
    otherwise = _compared(lowering, op, rounded, number, f64, node)
    expr = nodes.Select(
        condition=lowering.expr(is_equal, node),
        then=if_equal,
        otherwise=lowering.expr(otherwise, node),
        loc=loc,
    )
    return lowering.made(ScalarType(bool_), expr, node, is_equal, otherwise)


def _compared(
    lowering: FunctionLowering, op: CompareOp, left: Scalar, right: Scalar, dtype: DType, node: Node
) -> Scalar:
    a = cast(lowering, left, dtype, node)
    b = cast(lowering, right, dtype, node)
    expr = nodes.Compare(op=op, left=lowering.expr(a, node), right=lowering.expr(b, node), loc=lowering.where(node))
    return lowering.made(ScalarType(bool_), expr, node, a, b)


def _compare_integers(lowering: FunctionLowering, op: CompareOp, left: Scalar, right: Scalar, node: Node) -> Scalar:
    if left.dtype.is_bool and right.dtype.is_bool:
        dtype = bool_ if op in (CompareOp.EQ, CompareOp.NE) else i32
        return _compared(lowering, op, left, right, dtype, node)
    for known, other in ((left, right), (right, left)):
        if known.constant is None or not known.weak:
            continue
        dtype = i32 if other.dtype.is_bool else other.dtype
        if dtype.min <= known.constant <= dtype.max:
            return _compared(lowering, op, left, right, dtype, node)
        left_is_less = (known.constant < dtype.min) == (known is left)
        return constant(op in (_HOLDS_FOR_LESS if left_is_less else _HOLDS_FOR_GREATER))
    common = promotion.holding_both(left.dtype, right.dtype)
    if common is not None:
        return _compared(lowering, op, left, right, common, node)
    return _compare_mixed(lowering, op, left, right, node)


def _compare_mixed(lowering: FunctionLowering, op: CompareOp, left: Scalar, right: Scalar, node: Node) -> Scalar:
    """u64 with a signed integer: a negative one is less than any u64, the others compare as u64."""
    loc = lowering.where(node)
    left, right = lowering.leaf(left, node), lowering.leaf(right, node)
    signed = right if left.dtype is u64 else left
    wide = cast(lowering, signed, i64, node)
    is_negative = nodes.Compare(op=CompareOp.LT, left=lowering.expr(wide, node), right=literal(0, i64, loc), loc=loc)
    holds = op in (_HOLDS_FOR_LESS if signed is left else _HOLDS_FOR_GREATER)
    as_unsigned = _compared(lowering, op, left, right, u64, node)
    expr = nodes.Select(
        condition=is_negative,
        then=literal(holds, bool_, loc),
        otherwise=lowering.expr(as_unsigned, node),
        loc=loc,
    )
    return lowering.made(ScalarType(bool_), expr, node, wide, as_unsigned)
