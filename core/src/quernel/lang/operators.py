"""Operators on scalars, by the promotion rules."""

from __future__ import annotations

import ast
from typing import Final

import attrs

from quernel.dtypes import DType, ScalarType, bool_, f64, u64
from quernel.ir import nodes
from quernel.ir.nodes import BinaryOp, MathFunction, UnaryOp
from quernel.lang import promotion
from quernel.lang.constants import MAX_BITS, TooLargeConstantError, constant, converted, fold, literal
from quernel.lang.conversions import cast, meeting, truth
from quernel.lang.lowering import FunctionLowering
from quernel.lang.origins import Origins, after, traced
from quernel.lang.refusals import Node
from quernel.lang.values import Number, Scalar, named

__all__ = ["SYMBOLS", "binary", "common_type", "power", "unary"]

SYMBOLS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.MatMult: "@",
}

_ARITHMETIC: Final[dict[type[ast.operator], BinaryOp]] = {
    ast.Add: BinaryOp.ADD,
    ast.Sub: BinaryOp.SUB,
    ast.Mult: BinaryOp.MUL,
    ast.Div: BinaryOp.DIV,
    ast.FloorDiv: BinaryOp.FLOORDIV,
    ast.Mod: BinaryOp.MOD,
}
_BITWISE: Final[dict[type[ast.operator], BinaryOp]] = {
    ast.BitAnd: BinaryOp.AND,
    ast.BitOr: BinaryOp.OR,
    ast.BitXor: BinaryOp.XOR,
}
_SHIFT: Final[dict[type[ast.operator], BinaryOp]] = {ast.LShift: BinaryOp.SHL, ast.RShift: BinaryOp.SHR}


def common_type(lowering: FunctionLowering, left: Scalar, right: Scalar, node: Node) -> ScalarType:
    """The type in which arithmetic on both computes.

    Raises:
        KernelTypeError: u64 with a typed signed integer.
    """
    found = promotion.arithmetic(left.type, right.type)
    if found is None:
        raise _signed_with_u64(lowering, left, right, node)
    return found


def _signed_with_u64(lowering: FunctionLowering, left: Scalar, right: Scalar, node: Node) -> Exception:
    signed = right if left.dtype is u64 else left
    return lowering.refuse.type(
        node,
        f"u64 and {signed.dtype} have no common integer type",
        f"cast one of them: `qn.u64(…)` of the {signed.dtype}, or `qn.i64(…)` of the u64",
    )


def binary(lowering: FunctionLowering, op: type[ast.operator], left: Scalar, right: Scalar, node: Node) -> Scalar:
    """`left op right`.

    Raises:
        KernelTypeError: the operator is not defined on these types.
    """
    try:
        folded = _folded(op, left, right)
    except TooLargeConstantError:
        raise lowering.refuse.type(
            node,
            f"a constant integer of more than {MAX_BITS} bits",
            "use smaller powers and shifts",
        ) from None
    if folded is not None:
        return folded
    result = _computed(lowering, op, left, right, node)
    if not result.weak or not result.dtype.is_integer:
        return result
    return attrs.evolve(result, origins=_origins(op, left, right))


def _origins(op: type[ast.operator], left: Scalar, right: Scalar) -> Origins:
    known = [int(side.constant) if side.constant is not None else None for side in (left, right)]
    return traced(op, left.origins, right.origins, known[0], known[1])


def _computed(lowering: FunctionLowering, op: type[ast.operator], left: Scalar, right: Scalar, node: Node) -> Scalar:
    if op is ast.Pow:
        return power(lowering, left, right, node)
    if op in _SHIFT:
        return _shift(lowering, _SHIFT[op], left, right, node)
    if op in _BITWISE:
        return _bitwise(lowering, op, left, right, node)
    if op not in _ARITHMETIC:
        raise lowering.refuse.type(
            node, f"the operator `{SYMBOLS[op]}` is not defined on scalars", "write the sums of products as loops"
        )
    target = common_type(lowering, left, right, node)
    if op is ast.Div and not _dtype(target).is_float:
        target = ScalarType(f64, target.weak)
    return _applied(lowering, _ARITHMETIC[op], left, right, target, node)


def _dtype(of: ScalarType) -> DType:
    assert isinstance(of.dtype, DType)
    return of.dtype


def _applied(
    lowering: FunctionLowering, op: BinaryOp, left: Scalar, right: Scalar, target: ScalarType, node: Node
) -> Scalar:
    dtype = _dtype(target)
    a = meeting(lowering, left, dtype, node)
    b = meeting(lowering, right, dtype, node)
    expr = nodes.Binary(op=op, left=lowering.expr(a, node), right=lowering.expr(b, node), loc=lowering.where(node))
    return lowering.made(target, expr, node, a, b)


def _folded(op: type[ast.operator], left: Scalar, right: Scalar) -> Scalar | None:
    """The operator on two constants, if it can be computed now: Python's value, or a typed integer's."""
    if left.constant is None or right.constant is None or op is ast.MatMult:
        return None
    if (op in _BITWISE or op in _SHIFT) and (left.dtype.is_float or right.dtype.is_float):
        return None
    typed = [side for side in (left, right) if not side.weak and not side.dtype.is_bool]
    if any(side.dtype.is_float for side in typed):
        return None
    if not typed:
        value = fold(op, left.constant, right.constant)
        return constant(value) if value is not None else None
    if op is ast.Div or op in _SHIFT or left.dtype.is_float or right.dtype.is_float:
        return None
    target = promotion.bitwise(left.type, right.type) if op in _BITWISE else promotion.arithmetic(left.type, right.type)
    if target is None or any(side.weak and not _fits(side.constant, _dtype(target)) for side in (left, right)):
        return None
    try:
        value = fold(op, left.constant, right.constant)
    except TooLargeConstantError:
        return None  # it wraps as it is computed
    return Scalar(target, constant=converted(value, _dtype(target))) if value is not None else None


def _fits(value: Number | None, dtype: DType) -> bool:
    return value is not None and dtype.min <= value <= dtype.max


def _bitwise(lowering: FunctionLowering, op: type[ast.operator], left: Scalar, right: Scalar, node: Node) -> Scalar:
    for side in (left, right):
        if side.dtype.is_float:
            raise lowering.refuse.type(
                node,
                f"the operator `{SYMBOLS[op]}` takes integers and bools, not {named(side.type)}",
                "cast with `int(…)`, or look at the bits with `qn.bitcast(…)`",
            )
    target = promotion.bitwise(left.type, right.type)
    if target is None:
        raise _signed_with_u64(lowering, left, right, node)
    return _applied(lowering, _BITWISE[op], left, right, target, node)


def _shift(lowering: FunctionLowering, op: BinaryOp, left: Scalar, right: Scalar, node: Node) -> Scalar:
    """A shift, in the type of its left side; a weak left side takes the type of the count."""
    for side in (left, right):
        if side.dtype.is_float:
            raise lowering.refuse.type(
                node,
                f"a shift takes integers, not {named(side.type)}",
                "cast with `int(…)`, or multiply by a power of two",
            )
    if left.weak and not right.weak:
        target = ScalarType(promotion.widened(right.dtype))
    else:
        target = ScalarType(promotion.widened(left.dtype), left.weak)
    dtype = _dtype(target)
    value = meeting(lowering, left, dtype, node)
    count = _shift_count(lowering, right, dtype, node)
    expr = nodes.Binary(
        op=op, left=lowering.expr(value, node), right=lowering.expr(count, node), loc=lowering.where(node)
    )
    return lowering.made(target, expr, node, value, count)


def _shift_count(lowering: FunctionLowering, count: Scalar, dtype: DType, node: Node) -> Scalar:
    """The count of a shift of `dtype`, brought between 0 and the width where its own type is not the same."""
    if count.constant is not None:
        return cast(lowering, constant(int(min(max(count.constant, 0), dtype.bits))), dtype, node)
    own = promotion.widened(count.dtype)
    held = cast(lowering, count, own, node)
    if own is dtype:
        return held
    loc = lowering.where(node)
    expr = lowering.expr(held, node)
    if own.is_signed:
        expr = nodes.Binary(op=BinaryOp.MAX, left=expr, right=literal(0, own, loc), loc=loc)
    expr = nodes.Binary(op=BinaryOp.MIN, left=expr, right=literal(dtype.bits, own, loc), loc=loc)
    limited = lowering.made(ScalarType(own), expr, node, held)
    return cast(lowering, limited, dtype, node)


def power(lowering: FunctionLowering, base: Scalar, exponent: Scalar, node: Node) -> Scalar:
    """`base ** exponent`; a square is a product.

    Raises:
        KernelTypeError: an integer to a power that may be negative.
    """
    target = common_type(lowering, base, exponent, node)
    if _dtype(target).is_float:
        if exponent.constant == 2 and exponent.weak:
            square = lowering.leaf(meeting(lowering, base, _dtype(target), node), node)
            expr = lowering.expr(square, node)
            product = nodes.Binary(op=BinaryOp.MUL, left=expr, right=expr, loc=lowering.where(node))
            return lowering.made(target, product, node, square)
        a = meeting(lowering, base, _dtype(target), node)
        b = meeting(lowering, exponent, _dtype(target), node)
        operands = lowering.expr(a, node), lowering.expr(b, node)
        powered = nodes.Math(
            function=MathFunction.POW, operands=operands, type=_dtype(target), loc=lowering.where(node)
        )
        return lowering.made(target, powered, node, a, b)
    known = exponent.constant
    if known is not None and known < 0:
        raise lowering.refuse.type(
            node, f"an integer to the negative power {known}", "make the base a float: `float(x) ** …`"
        )
    if known is None and exponent.dtype.is_signed:
        raise lowering.refuse.type(
            node,
            f"an integer to the power of a signed {exponent.dtype}, which may be negative",
            "make the base a float, or the exponent unsigned: `qn.u32(…)`",
        )
    return _applied(lowering, BinaryOp.POW, base, exponent, target, node)


def unary(lowering: FunctionLowering, op: type[ast.unaryop], operand: Scalar, node: Node) -> Scalar:
    """`+x`, `-x`, `~x` or `not x`.

    Raises:
        KernelTypeError: `~` of a float or a bool.
    """
    if op is ast.Not:
        return _negated(lowering, truth(lowering, operand, node), node)
    if op is ast.Invert and not operand.dtype.is_integer:
        fix = "write `not x`" if operand.dtype.is_bool else "look at the bits with `qn.bitcast(…)`"
        raise lowering.refuse.type(node, f"the operator `~` takes integers, not {named(operand.type)}", fix)
    if operand.constant is not None and (operand.weak or operand.dtype.is_bool):
        number = operand.constant
        return constant(+number if op is ast.UAdd else -number if op is ast.USub else ~int(number))
    dtype = operand.dtype if op is ast.Invert else promotion.widened(operand.dtype)
    target = ScalarType(dtype, operand.weak)
    value = cast(lowering, operand, dtype, node) if operand.dtype is not dtype else operand
    if op is ast.UAdd:
        return Scalar(target, value.expr, value.constant, operand.origins, value.has_load, value.depth)
    known = None
    if value.constant is not None and not dtype.is_float:
        known = converted(-value.constant if op is ast.USub else ~int(value.constant), dtype)
    expr = nodes.Unary(
        op=UnaryOp.NEG if op is ast.USub else UnaryOp.INVERT,
        operand=lowering.expr(value, node),
        loc=lowering.where(node),
    )
    result = lowering.made(target, expr, node, value, constant=known)
    if not target.weak:
        return result
    negative = after(operand.origins, "*", -1)
    return attrs.evolve(result, origins=negative if op is ast.USub else after(negative, "+", -1))


def _negated(lowering: FunctionLowering, value: Scalar, node: Node) -> Scalar:
    if value.constant is not None:
        return constant(not value.constant)
    expr = nodes.Unary(op=UnaryOp.NOT, operand=lowering.expr(value, node), loc=lowering.where(node))
    return lowering.made(ScalarType(bool_), expr, node, value)
