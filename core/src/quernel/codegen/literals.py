"""Constants as literals that the compiler reads back exactly."""

from __future__ import annotations

import math

import numpy as np

from quernel.codegen.dialect import Dialect
from quernel.codegen.text import Binding, Code, call, primary, unary
from quernel.dtypes import DType, f32, f64, i32, i64, u32, u64

__all__ = ["float_literal", "integer_literal", "literal", "negative"]


def literal(dialect: Dialect, value: bool | int | float, dtype: DType) -> Code:
    """A constant of a scalar type as a value of that type."""
    if dtype.is_bool:
        return primary("true" if value else "false")
    if dtype.is_float:
        return float_literal(dialect, float(value), dtype)
    return integer_literal(dialect, int(value), dtype)


def integer_literal(dialect: Dialect, value: int, dtype: DType) -> Code:
    """An integer; one narrower than 32 bits is an `int`, which C makes of it in any case."""
    if dtype.bits < 32:
        return _signed(dialect, value, i32)
    if dtype.is_signed:
        return _signed(dialect, value, dtype)
    return primary(f"{value}{dialect.suffixes[dtype]}")


def _signed(dialect: Dialect, value: int, dtype: DType) -> Code:
    suffix = dialect.suffixes[dtype]
    unsigned_type = u64 if dtype is i64 else u32
    unsigned = primary(f"{value & unsigned_type.max}{dialect.suffixes[unsigned_type]}")
    if value == dtype.min:  # its magnitude is no literal of the type
        return Code(f"-{dtype.max}{suffix} - 1", Binding.SUM, 0, unsigned)
    narrow = _signed(dialect, value, i32) if dtype is i64 and i32.min <= value <= i32.max else None
    if value < 0:
        return Code(f"-{-value}{suffix}", Binding.UNARY, 0, unsigned, narrow)
    return Code(f"{value}{suffix}", Binding.PRIMARY, 0, unsigned, narrow)


def float_literal(dialect: Dialect, value: float, dtype: DType) -> Code:
    """A float; f16 and bf16 are values of f32. The fewest digits that name the number are used."""
    is_double = dtype is f64
    if math.isnan(value):
        return primary(dialect.nan[f64 if is_double else f32])
    if math.isinf(value):
        infinity = dialect.infinity[f64 if is_double else f32]
        return primary(infinity) if value > 0 else Code(f"-{infinity}", Binding.UNARY)
    text = repr(abs(value)) if is_double else f"{_shortest(np.float32(abs(value)))}f"
    if math.copysign(1.0, value) > 0:
        return primary(text)
    if value in (0.0, -1.0):  # What makes a negation of a difference, a product or a quotient.
        return negative(dialect, primary(text))
    return Code(f"-{text}", Binding.UNARY)


def negative(dialect: Dialect, x: Code) -> Code:
    """A float with the other sign."""
    return call(dialect.negated, x) if dialect.negated else unary("-", x)


def _shortest(value: np.float32) -> str:
    """The fewest digits that name the number, as Python writes its own."""
    if value == 0 or 1e-4 <= value < 1e16:
        return np.format_float_positional(value, trim="0")
    return np.format_float_scientific(value, trim="-", exp_digits=1)
