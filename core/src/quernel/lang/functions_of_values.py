"""Python's builtins, the `math` module and the package's own functions, as functions of scalars."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Final

import attrs

from quernel import intrinsics
from quernel.dtypes import DType, ScalarType, bool_, f64, i64
from quernel.ir import nodes
from quernel.ir.nodes import BinaryOp, CompareOp, MathFunction, UnaryOp
from quernel.lang import promotion
from quernel.lang.constants import constant, literal
from quernel.lang.conversions import cast, meeting, truth
from quernel.lang.lowering import FunctionLowering
from quernel.lang.operators import binary, common_type, power
from quernel.lang.origins import after, merged
from quernel.lang.values import Scalar, TupleValue, Value, named

__all__ = ["FUNCTIONS", "Handler"]

Handler = Callable[[FunctionLowering, ast.Call, list[Scalar]], Value]
"""Makes the value of a call from its positional arguments, which are all scalars."""


def _float_type(value: Scalar) -> ScalarType:
    """The float type in which a mathematical function takes an argument: its own, or f64 for integers."""
    return value.type if value.dtype.is_float else ScalarType(f64, value.weak)


def _dtype(type_: ScalarType) -> DType:
    assert isinstance(type_.dtype, DType)
    return type_.dtype


def _math(
    lowering: FunctionLowering,
    node: ast.Call,
    function: MathFunction,
    arguments: list[Scalar],
    type_: ScalarType,
    result: ScalarType | None = None,
) -> Scalar:
    dtype = _dtype(type_)
    parts = [meeting(lowering, argument, dtype, node) for argument in arguments]
    operands = tuple(lowering.expr(part, node) for part in parts)
    of = result or type_
    expr = nodes.Math(function=function, operands=operands, type=_dtype(of), loc=lowering.where(node))
    return lowering.made(of, expr, node, *parts)


def _of_floats(function: MathFunction) -> Handler:
    """A function of floats, in the type of its arguments."""

    def make(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
        type_ = _float_type(arguments[0])
        for argument in arguments[1:]:
            other = _float_type(argument)
            type_ = promotion.arithmetic(type_, other) or type_
        if function is MathFunction.SQRT and arguments[0].weak and 0 < (arguments[0].constant or 0) < 1 << 1000:
            assert arguments[0].constant is not None
            return constant(math.sqrt(arguments[0].constant))
        return _math(lowering, node, function, arguments, type_)

    return make


def _predicate(function: MathFunction) -> Handler:
    """A question about a float."""

    def make(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
        return _math(lowering, node, function, arguments, _float_type(arguments[0]), ScalarType(bool_))

    return make


def _keeping_float(function: MathFunction) -> Handler:
    """A rounding in the float type; integers are refused, as they need none."""

    def make(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
        (value,) = arguments
        if not value.dtype.is_float and not value.weak:
            raise lowering.refuse.type(
                node, f"qn.{function.value} keeps a float's type, and {named(value.type)} is none", "leave the call out"
            )
        return _math(lowering, node, function, arguments, _float_type(value))

    return make


def _to_i64(function: MathFunction, host: Callable[[float], int]) -> Handler:
    """A rounding that gives an integer, as Python's does: i64."""

    def make(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
        (value,) = arguments
        if value.weak and value.dtype.is_integer:
            return value
        if value.weak and value.constant is not None and math.isfinite(value.constant):
            return constant(host(float(value.constant)))
        if value.dtype.is_float:
            value = _math(lowering, node, function, [value], value.type)
        return cast(lowering, value, i64, node)

    return make


def _int(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    (value,) = arguments
    if value.weak and value.dtype.is_integer:
        return value
    if value.weak and value.constant is not None and math.isfinite(value.constant):
        return constant(int(value.constant))
    return cast(lowering, value, i64, node)


def _float(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    (value,) = arguments
    if not value.weak:
        return cast(lowering, value, f64, node)
    if value.constant is not None and abs(value.constant) < 1 << 1023:
        return constant(float(value.constant))
    wide = cast(lowering, value, f64, node)
    return Scalar(promotion.WEAK_FLOAT, wide.expr, has_load=wide.has_load, depth=wide.depth)


def _bool(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    return truth(lowering, arguments[0], node)


def _abs(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    (value,) = arguments
    if value.constant is not None and value.weak:
        return constant(abs(value.constant))
    dtype = promotion.widened(value.dtype)
    wide = value if dtype is value.dtype else cast(lowering, value, dtype, node)
    expr = nodes.Unary(op=UnaryOp.ABS, operand=lowering.expr(wide, node), loc=lowering.where(node))
    result = lowering.made(ScalarType(dtype, value.weak), expr, node, wide)
    return attrs.evolve(result, origins=after(value.origins, "abs")) if value.weak else result


def _extreme(op: BinaryOp, host: Callable[..., bool | int | float]) -> Handler:
    """`min` or `max` of two or more, folded from the left as Python does."""

    def make(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
        result = arguments[0]
        for value in arguments[1:]:
            result = both(lowering, node, result, value)
        return result

    def both(lowering: FunctionLowering, node: ast.Call, left: Scalar, right: Scalar) -> Scalar:
        if left.constant is not None and right.constant is not None and left.weak and right.weak:
            return constant(host(left.constant, right.constant))
        same = left.dtype is right.dtype and left.weak == right.weak
        target = left.type if same else common_type(lowering, left, right, node)
        if _dtype(target).is_bool:
            target = common_type(lowering, left, right, node)
        a = meeting(lowering, left, _dtype(target), node)
        b = meeting(lowering, right, _dtype(target), node)
        expr = nodes.Binary(op=op, left=lowering.expr(a, node), right=lowering.expr(b, node), loc=lowering.where(node))
        result = lowering.made(target, expr, node, a, b)
        if not target.weak:
            return result
        for known, other in ((left.constant, right), (right.constant, left)):
            if isinstance(known, int):
                return attrs.evolve(result, origins=after(other.origins, op.value, known))
        return attrs.evolve(result, origins=merged(left.origins, right.origins))

    return make


def _clamp(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    value, low, high = arguments
    raised = _MAX(lowering, node, [value, low])
    assert isinstance(raised, Scalar)
    return _MIN(lowering, node, [raised, high])


def _pow(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    return binary(lowering, ast.Pow, arguments[0], arguments[1], node)


def _math_pow(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    base, exponent = arguments
    if not base.dtype.is_float and not exponent.dtype.is_float:
        base = _widened_float(lowering, node, base)
    return power(lowering, base, exponent, node)


def _widened_float(lowering: FunctionLowering, node: ast.Call, value: Scalar) -> Scalar:
    result = _float(lowering, node, [value])
    assert isinstance(result, Scalar)
    return result


def _divmod(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    left, right = (lowering.leaf(argument, node) for argument in arguments)
    return TupleValue((binary(lowering, ast.FloorDiv, left, right, node), binary(lowering, ast.Mod, left, right, node)))


def _cdiv(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    """`a // b`, and one more where a rest remains."""
    for argument in arguments:
        if not argument.dtype.is_integer:
            raise lowering.refuse.type(
                node,
                f"qn.cdiv takes integers, not {named(argument.type)}",
                "cast with `int(…)`, or write `math.ceil(a / b)`",
            )
    left, right = (lowering.leaf(argument, node) for argument in arguments)
    quotient = binary(lowering, ast.FloorDiv, left, right, node)
    rest = binary(lowering, ast.Mod, left, right, node)
    if rest.constant is not None:
        return binary(lowering, ast.Add, quotient, constant(int(rest.constant != 0)), node)
    expr = nodes.Compare(
        op=CompareOp.NE,
        left=lowering.expr(rest, node),
        right=literal(0, rest.dtype, lowering.where(node)),
        loc=lowering.where(node),
    )
    remains = lowering.made(ScalarType(bool_), expr, node, rest)
    one = cast(lowering, remains, quotient.dtype, node)
    return binary(lowering, ast.Add, quotient, Scalar(quotient.type, one.expr, depth=one.depth), node)


def _fma(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    type_ = _float_type(arguments[0])
    for argument in arguments[1:]:
        type_ = promotion.arithmetic(type_, _float_type(argument)) or type_
    parts = [meeting(lowering, argument, _dtype(type_), node) for argument in arguments]
    a, b, c = (lowering.expr(part, node) for part in parts)
    return lowering.made(type_, nodes.Fma(a=a, b=b, c=c, loc=lowering.where(node)), node, *parts)


def _of_bits(function: MathFunction) -> Handler:
    """A count of an integer's bits, in its type."""

    def make(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
        (value,) = arguments
        if not value.dtype.is_integer:
            raise lowering.refuse.type(
                node,
                f"qn.{function.value} takes an integer, not {named(value.type)}",
                "look at a float's bits with `qn.bitcast(x, qn.u32)`",
            )
        return _math(lowering, node, function, arguments, ScalarType(value.dtype))

    return make


def _scaled(factor: float) -> Handler:
    def make(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
        value = arguments[0] if arguments[0].dtype.is_float else _widened_float(lowering, node, arguments[0])
        return binary(lowering, ast.Mult, value, constant(factor), node)

    return make


def _fabs(lowering: FunctionLowering, node: ast.Call, arguments: list[Scalar]) -> Value:
    value = arguments[0] if arguments[0].dtype.is_float else _widened_float(lowering, node, arguments[0])
    return _abs(lowering, node, [value])


_MIN: Final = _extreme(BinaryOp.MIN, min)
_MAX: Final = _extreme(BinaryOp.MAX, max)
_MANY: Final = 1000


def _of_math() -> dict[object, tuple[Handler, int, int]]:
    one = "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    one += "gamma lgamma cbrt sqrt"
    table = {getattr(math, name): (_of_floats(MathFunction(name)), 1, 1) for name in one.split()}
    table |= {
        getattr(math, name): (_of_floats(MathFunction(name)), 2, 2) for name in ("atan2", "fmod", "hypot", "copysign")
    }
    table |= {getattr(math, name): (_predicate(MathFunction(name)), 1, 1) for name in ("isnan", "isinf", "isfinite")}
    table |= {
        math.floor: (_to_i64(MathFunction.FLOOR, math.floor), 1, 1),
        math.ceil: (_to_i64(MathFunction.CEIL, math.ceil), 1, 1),
        math.trunc: (_to_i64(MathFunction.TRUNC, math.trunc), 1, 1),
        math.pow: (_math_pow, 2, 2),
        math.fabs: (_fabs, 1, 1),
        math.degrees: (_scaled(180.0 / math.pi), 1, 1),
        math.radians: (_scaled(math.pi / 180.0), 1, 1),
    }
    if hasattr(math, "fma"):
        table[math.fma] = (_fma, 3, 3)
    return table


FUNCTIONS: Final[dict[object, tuple[Handler, int, int]]] = {
    **_of_math(),
    int: (_int, 1, 1),
    float: (_float, 1, 1),
    bool: (_bool, 1, 1),
    abs: (_abs, 1, 1),
    round: (_to_i64(MathFunction.RINT, round), 1, 1),
    min: (_MIN, 2, _MANY),
    max: (_MAX, 2, _MANY),
    pow: (_pow, 2, 2),
    divmod: (_divmod, 2, 2),
    intrinsics.cdiv: (_cdiv, 2, 2),
    intrinsics.fma: (_fma, 3, 3),
    intrinsics.rsqrt: (_of_floats(MathFunction.RSQRT), 1, 1),
    intrinsics.clamp: (_clamp, 3, 3),
    intrinsics.popcount: (_of_bits(MathFunction.POPCOUNT), 1, 1),
    intrinsics.clz: (_of_bits(MathFunction.CLZ), 1, 1),
    intrinsics.ctz: (_of_bits(MathFunction.CTZ), 1, 1),
    intrinsics.rint: (_keeping_float(MathFunction.RINT), 1, 1),
    intrinsics.floor: (_keeping_float(MathFunction.FLOOR), 1, 1),
    intrinsics.ceil: (_keeping_float(MathFunction.CEIL), 1, 1),
    intrinsics.trunc: (_keeping_float(MathFunction.TRUNC), 1, 1),
}
"""Each function with its handler and the least and greatest number of its arguments."""
