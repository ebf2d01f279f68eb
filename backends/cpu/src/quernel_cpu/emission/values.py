"""How values of the IR look in LLVM IR: in registers, in memory, and as literals.

In registers a bool is an `i1`, and f16 and bf16 are `float`s whose value the narrow type represents: they compute in
f32 and are rounded after each operation. In memory a bool is a byte and a narrow float its 16 bits.
"""

from __future__ import annotations

import struct

from quernel.dtypes import DType, ValueType, bf16, f16, f64

__all__ = ["float_literal", "is_narrow", "literal", "memory_type", "register_type", "scalar", "zero"]


def scalar(value_type: ValueType | None) -> DType:
    """The scalar type that a validated kernel has at this place."""
    assert isinstance(value_type, DType), f"{value_type} was not refused"
    return value_type


def is_narrow(dtype: DType) -> bool:
    """Whether the type computes in f32 and is rounded after each operation."""
    return dtype is f16 or dtype is bf16


def register_type(dtype: DType) -> str:
    """The LLVM type of a value in registers."""
    if dtype.is_bool:
        return "i1"
    if dtype.is_float:
        return "double" if dtype is f64 else "float"
    return f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """The LLVM type of an element in memory."""
    if dtype.is_float and not is_narrow(dtype):
        return register_type(dtype)
    return f"i{dtype.bits}"


def zero(dtype: DType) -> str:
    """The literal zero of the type's register form."""
    return float_literal(0.0) if dtype.is_float else "false" if dtype.is_bool else "0"


def literal(value: bool | int | float, dtype: DType) -> str:
    """A constant of the type, as an operand."""
    if dtype.is_bool:
        return "true" if value else "false"
    return float_literal(float(value)) if dtype.is_float else str(int(value))


def float_literal(value: float) -> str:
    """A float as an operand of type `float` or `double`; LLVM writes both as the bits of a double."""
    if value != value:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
