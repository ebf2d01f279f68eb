"""What every operator of the IR means, on single values; constant folding and the reference interpreter share it.

A bool is a Python bool, an integer a Python int within its type, a float a Python float that its type represents.
No function here raises on a value: each is total, as expressions are. f16 and bf16 compute in f32 and round after each
operation.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Final

from quernel.dtypes import DType, bf16, f16, f32, f64
from quernel.ir.math_functions import EXACT_FUNCTIONS, float_function, integer_function
from quernel.ir.nodes import BinaryOp, CompareOp, MathFunction, UnaryOp
from quernel.ir.rounding import exact_integer, round_exact, round_float, saturated, wrap

__all__ = [
    "EXACT_FUNCTIONS",
    "Value",
    "binary",
    "bitcast",
    "cast",
    "compare",
    "fma",
    "is_value_of",
    "math_function",
    "same_value",
    "trip_count",
    "unary",
]

Value = bool | int | float
"""One scalar of the IR."""


def unary(op: UnaryOp, x: Value, dtype: DType) -> Value:
    """`op x` for an operand of `dtype`."""
    if op is UnaryOp.UNIFORM:
        return x
    if dtype.is_float:
        return _FLOAT_UNARY[op](x)
    if dtype.is_bool:
        return not x
    return wrap(_INTEGER_UNARY[op](int(x)), dtype)


def binary(op: BinaryOp, left: Value, right: Value, dtype: DType) -> Value:
    """`left op right` for operands of `dtype`."""
    if dtype.is_float:
        return _float_binary(op, float(left), float(right), dtype)
    if dtype.is_bool:
        return bool(_BITS[op](bool(left), bool(right)))
    if op is BinaryOp.SHL:  # Stopped here, because the shifted integer itself may not fit in memory.
        return wrap(int(left) << min(max(int(right), 0), dtype.bits), dtype)
    if op is BinaryOp.POW:
        return wrap(pow(int(left), max(int(right), 0), 1 << dtype.bits), dtype)
    return wrap(_INTEGER_BINARY[op](int(left), int(right)), dtype)


def compare(op: CompareOp, left: Value, right: Value) -> bool:
    """`left op right`; with a NaN only `NE` holds."""
    return bool(_COMPARE[op](left, right))


def cast(x: Value, from_dtype: DType, to_dtype: DType) -> Value:
    """`x` converted: truncating and saturating to integers, wrapping between them, rounding once to floats."""
    if to_dtype.is_bool:
        return x != 0
    if to_dtype.is_float:
        return round_float(float(x), to_dtype) if from_dtype.is_float else round_exact(int(x), 0, to_dtype)
    return saturated(float(x), to_dtype) if from_dtype.is_float else wrap(int(x), to_dtype)


def bitcast(x: Value, from_dtype: DType, to_dtype: DType) -> Value:
    """The bits of `x` as another type of the same width. A NaN's bits are those of the canonical one."""
    return _of_bits(_bits_of(x, from_dtype), to_dtype)


def fma(a: float, b: float, c: float, dtype: DType) -> float:
    """`a * b + c`, rounded once (for f16 and bf16: once to f32, then to the type)."""
    compute = dtype if dtype is f64 else f32
    return round_float(_fma(a, b, c, compute), dtype)


def math_function(function: MathFunction, operands: tuple[Value, ...], dtype: DType) -> Value:
    """The function of operands of `dtype`. Domain errors give NaN or infinities as in C.

    The functions in `EXACT_FUNCTIONS` are exact; others are computed in f64 and rounded to the type.
    """
    if dtype.is_float:
        result = float_function(function, tuple(float(operand) for operand in operands))
        return result if isinstance(result, bool) else round_float(result, dtype)
    return integer_function(function, int(operands[0]), dtype)


def trip_count(start: int, stop: int, step: int) -> int:
    """How often a `For` runs its body; a step of zero runs nothing."""
    if step == 0:
        return 0
    distance = stop - start
    return max(-(-distance // step), 0)


def is_value_of(value: object, dtype: DType) -> bool:
    """Whether `value` represents a scalar of `dtype` exactly."""
    if dtype.is_bool:
        return isinstance(value, bool)
    if dtype.is_float:
        return isinstance(value, float) and (value != value or round_float(value, dtype) == value)
    return isinstance(value, int) and not isinstance(value, bool) and dtype.min <= value <= dtype.max


def same_value(left: Value, right: Value) -> bool:
    """Whether two values are indistinguishable: -0.0 is not 0.0, True is not 1, all NaNs are the same."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        if left != left or right != right:
            return left != left and right != right
        return left == right and math.copysign(1.0, left) == math.copysign(1.0, right)
    return left == right


_FLOAT_UNARY: Final[dict[UnaryOp, Callable[[Value], Value]]] = {UnaryOp.NEG: operator.neg, UnaryOp.ABS: math.fabs}
_INTEGER_UNARY: Final[dict[UnaryOp, Callable[[int], int]]] = {
    UnaryOp.NEG: operator.neg,
    UnaryOp.INVERT: operator.invert,
    UnaryOp.ABS: abs,
}
_BITS: Final[dict[BinaryOp, Callable[[int, int], int]]] = {
    BinaryOp.AND: operator.and_,
    BinaryOp.OR: operator.or_,
    BinaryOp.XOR: operator.xor,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
}
_INTEGER_BINARY: Final[dict[BinaryOp, Callable[[int, int], int]]] = {
    **_BITS,
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.FLOORDIV: lambda left, right: left // right if right else 0,
    BinaryOp.MOD: lambda left, right: left % right if right else 0,
    BinaryOp.SHR: lambda left, right: left >> max(right, 0),
}
_COMPARE: Final[dict[CompareOp, Callable[[Value, Value], bool]]] = {
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.GT: operator.gt,
    CompareOp.GE: operator.ge,
}


def _divided(left: float, right: float) -> float:
    if right == 0.0:
        if left == 0.0 or left != left:
            return math.nan
        return math.copysign(math.inf, math.copysign(1.0, left) * math.copysign(1.0, right))
    return left / right


def _float_binary(op: BinaryOp, left: float, right: float, dtype: DType) -> float:
    compute = dtype if dtype is f64 else f32
    match op:
        case BinaryOp.ADD:
            result = left + right
        case BinaryOp.SUB:
            result = left - right
        case BinaryOp.MUL:
            result = left * right
        case BinaryOp.DIV:
            result = _divided(left, right)
        case BinaryOp.FLOORDIV:
            result = _floor_and_remainder(left, right, compute)[0]
        case BinaryOp.MOD:
            result = _floor_and_remainder(left, right, compute)[1]
        case BinaryOp.MIN:
            return right if right < left else left
        case BinaryOp.MAX:
            return right if right > left else left
        case _:
            raise KeyError(op)
    # A double holds sums, products and quotients of f32 well enough that rounding twice equals rounding once.
    return round_float(round_float(result, compute), dtype)


def _floor_and_remainder(left: float, right: float, dtype: DType) -> tuple[float, float]:
    """Python's `divmod` of floats, each step rounded to the type; NaNs for a zero divisor."""
    if right == 0.0 or not math.isfinite(left) or right != right:
        return math.nan, math.nan
    remainder = math.fmod(left, right)
    quotient = round_float(round_float(left - remainder, dtype) / right, dtype)
    if remainder == 0.0:
        remainder = math.copysign(0.0, right)
    elif (right < 0) != (remainder < 0):
        remainder = round_float(remainder + right, dtype)
        quotient = round_float(quotient - 1.0, dtype)
    if quotient == 0.0:
        return math.copysign(0.0, left * math.copysign(1.0, right)), remainder
    if math.isinf(quotient):
        return quotient, remainder
    floor = float(math.floor(quotient))
    return (round_float(floor + 1.0, dtype) if quotient - floor > 0.5 else floor), remainder


def _fma(a: float, b: float, c: float, dtype: DType) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    if a == 0.0 or b == 0.0:
        return a * b + c
    (a_digits, a_exponent), (b_digits, b_exponent) = exact_integer(a), exact_integer(b)
    c_digits, c_exponent = exact_integer(c)
    product_exponent = a_exponent + b_exponent
    least = min(product_exponent, c_exponent)
    total = (a_digits * b_digits << (product_exponent - least)) + (c_digits << (c_exponent - least))
    if total == 0:
        return 0.0
    result = round_exact(total, least, dtype)
    return result if total > 0 or result < 0 else -result


_PACKED: Final = {f64: (struct.Struct("<d"), 8), f32: (struct.Struct("<f"), 4), f16: (struct.Struct("<e"), 2)}
_CANONICAL_NAN: Final = {f64: 0x7FF8 << 48, f32: 0x7FC0 << 16, f16: 0x7E00, bf16: 0x7FC0}


def _bits_of(x: Value, dtype: DType) -> int:
    if not dtype.is_float:
        return int(x) & ((1 << dtype.bits) - 1)
    if x != x:
        return _CANONICAL_NAN[dtype]
    packing, _ = _PACKED[f32 if dtype is bf16 else dtype]
    bits = int.from_bytes(packing.pack(x), "little")
    return bits >> 16 if dtype is bf16 else bits


def _of_bits(bits: int, dtype: DType) -> Value:
    if dtype.is_bool:
        return bits != 0
    if not dtype.is_float:
        return wrap(bits, dtype)
    packing, size = _PACKED[f32 if dtype is bf16 else dtype]
    value: float = packing.unpack((bits << 16 if dtype is bf16 else bits).to_bytes(size, "little"))[0]
    return value
