"""What the language promises, worked out with Python's integers and floats alone."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np

import quernel as qn

SIGNED = (qn.i8, qn.i16, qn.i32, qn.i64)
UNSIGNED = (qn.u8, qn.u16, qn.u32, qn.u64)
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = (qn.f32, qn.f64)
BOOL = qn.bool
SCALARS = (BOOL, *INTEGERS, *FLOATS)


def edges(dtype: Any) -> list[Any]:
    """Values at which an implementation of `dtype` goes wrong first."""
    if dtype is BOOL:
        return [False, True]
    if dtype.is_integer:
        values = [0, 1, 2, 3, 5, 7, 31, dtype.bits - 1, dtype.max // 2, dtype.max - 1, dtype.max]
        if dtype.is_signed:
            values += [-1, -2, -3, -7, dtype.min, dtype.min + 1]
        return sorted(set(values))
    tiny, huge = (1e-45, 3.4028234663852886e38) if dtype is qn.f32 else (5e-324, 1.7976931348623157e308)
    positive = [0.0, tiny, 0.1, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 2147483648.0, 1e10, 9.3e18, 2e19, huge, math.inf]
    return [rounded(sign * value, dtype) for value in positive for sign in (1, -1)] + [math.nan]


def wrap(value: int, dtype: Any) -> int:
    """An integer modulo the width of the type."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value > dtype.max else value


def rounded(value: float, dtype: Any) -> float:
    """A double rounded to the float type."""
    if dtype is qn.f64 or not math.isfinite(value):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def from_integer(value: int, dtype: Any) -> float:
    """An integer rounded once to the float type, ties to even."""
    if dtype is qn.f64:
        return float(value)
    magnitude = abs(value)
    shift = max(magnitude.bit_length() - 24, 0)
    kept, rest = magnitude >> shift, magnitude & ((1 << shift) - 1)
    half = 1 << (shift - 1) if shift else 1
    if shift and (rest > half or (rest == half and kept & 1)):
        kept += 1
    return math.copysign(float(kept << shift), value)


def to_integer(value: float, dtype: Any) -> int:
    """A float truncated and saturated; NaN gives 0."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return int(dtype.max if value > 0 else dtype.min)
    return int(min(max(math.trunc(value), dtype.min), dtype.max))


def cast(value: Any, source: Any, target: Any) -> Any:
    """`target(value)` for a value of type `source`."""
    if target is BOOL:
        return value != 0
    if target.is_float:
        return rounded(value, target) if source.is_float else from_integer(int(value), target)
    return to_integer(value, target) if source.is_float else wrap(int(value), target)


def fused(a: float, b: float, c: float, dtype: Any) -> float:
    """`a * b + c` of finite values, rounded once."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if dtype is qn.f64:
        return float(exact)
    # Round to odd at 53 bits first, so that rounding a second time is harmless.
    near = float(exact)
    if Fraction(near) != exact:
        toward = math.nextafter(near, -math.inf if Fraction(near) > exact else math.inf)
        low, high = sorted((near, toward))
        near = low if int(math.frexp(low)[0] * 2**53) & 1 else high
    return rounded(near, dtype)


def widened(dtype: Any) -> Any:
    """The type in which arithmetic on two values of `dtype` computes."""
    return qn.i32 if dtype is BOOL or (dtype.is_integer and dtype.bits < 32) else dtype


def arithmetic(left: Any, right: Any) -> Any:
    """The type in which arithmetic on typed values computes; `None` where it is refused."""
    if left.is_float or right.is_float:
        floats = [dtype for dtype in (left, right) if dtype.is_float]
        return max(floats, key=lambda dtype: dtype.bits)
    if qn.u64 in (left, right):
        return None if left.is_signed or right.is_signed else qn.u64
    left, right = widened(left), widened(right)
    if left is right:
        return left
    if {left, right} == {qn.i32, qn.u32}:
        return qn.i64
    return max(left, right, key=lambda dtype: dtype.bits)


def array(values: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """A NumPy array of the type."""
    return np.array(values, dtype.numpy)


def pairs(left: Any, right: Any) -> tuple[list[Any], list[Any]]:
    """Every pair of the two lists, as two columns."""
    rows = [(a, b) for a in left for b in right]
    return [a for a, _ in rows], [b for _, b in rows]


def assert_equal(actual: np.ndarray[Any, Any], expected: list[Any], *columns: list[Any]) -> None:
    """Bit for bit, NaNs alike, zeros by their sign; the first few rows that differ are shown."""
    values = actual.tolist()
    wrong = [
        (*[column[row] for column in columns], "gives", value, "not", wanted)
        for row, (value, wanted) in enumerate(zip(values, expected, strict=True))
        if not _same(value, wanted)
    ]
    assert not wrong, f"{len(wrong)} of {len(values)} differ: {wrong[:6]}"


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, float):
        if math.isnan(value) or math.isnan(wanted):
            return math.isnan(value) and math.isnan(wanted)
        return value == wanted and math.copysign(1.0, value) == math.copysign(1.0, wanted)
    return bool(value == wanted)
