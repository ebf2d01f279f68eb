"""Exact rounding to the floating-point types: ties to even, subnormals kept, overflow to infinity, one rounding.

A value of any float type is a Python float that the type represents exactly.
"""

from __future__ import annotations

import math
import struct
from typing import Final

import attrs

from quernel.dtypes import DType, bf16, f16, f32, f64

__all__ = ["FloatFormat", "exact_integer", "format_of", "round_exact", "round_float", "saturated", "wrap"]


@attrs.frozen
class FloatFormat:
    """A binary floating-point format.

    Attributes:
        precision: bits of the significand, the leading one included.
        least_exponent: the exponent of the smallest subnormal.
        overflow_exponent: magnitudes from two to this power on are infinite.
    """

    precision: int
    least_exponent: int
    overflow_exponent: int


_FORMATS: Final = {
    "f64": FloatFormat(53, -1074, 1024),
    "f32": FloatFormat(24, -149, 128),
    "f16": FloatFormat(11, -24, 16),
    "bf16": FloatFormat(8, -133, 128),
}
_F32: Final = struct.Struct("<f")
_F16: Final = struct.Struct("<e")


def format_of(dtype: DType) -> FloatFormat:
    """The format of a float type."""
    return _FORMATS[dtype.name]


def round_exact(significand: int, exponent: int, dtype: DType) -> float:
    """`significand * 2**exponent`, an exact number, rounded once to the float type; a zero is positive."""
    target = _FORMATS[dtype.name]
    magnitude = abs(significand)
    quantum = max(magnitude.bit_length() + exponent - target.precision, target.least_exponent)
    shift = quantum - exponent
    if shift > 0:
        half = 1 << (shift - 1)
        rest = magnitude & ((1 << shift) - 1)
        magnitude >>= shift
        if rest > half or (rest == half and magnitude & 1):
            magnitude += 1
        exponent = quantum
    if magnitude.bit_length() + exponent > target.overflow_exponent:
        return math.inf if significand > 0 else -math.inf
    return math.ldexp(magnitude if significand > 0 else -magnitude, exponent)


def exact_integer(value: float) -> tuple[int, int]:
    """A finite float as `(significand, exponent)` of integers."""
    fraction, exponent = math.frexp(value)
    return int(math.ldexp(fraction, 53)), exponent - 53


def round_float(value: float, dtype: DType) -> float:
    """A double rounded once to the float type."""
    if dtype is f64:
        return value
    if dtype is bf16:
        if value == 0.0 or not math.isfinite(value):
            return value
        return math.copysign(round_exact(*exact_integer(value), bf16), value)
    packing = _F32 if dtype is f32 else _F16
    assert dtype is f32 or dtype is f16
    try:
        rounded: float = packing.unpack(packing.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def wrap(value: int, dtype: DType) -> int:
    """An integer modulo the width of the integer type."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def saturated(value: float, dtype: DType) -> int:
    """A float truncated towards zero into the range of the integer type; NaN gives 0."""
    if value != value:
        return 0
    if math.isinf(value):
        return dtype.max if value > 0 else dtype.min
    return min(max(math.trunc(value), dtype.min), dtype.max)
