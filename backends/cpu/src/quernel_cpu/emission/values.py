"""How values of the IR look in LLVM IR: in registers, in memory, and as literals.

In registers a bool is an `i1`, and f16 and bf16 are `float`s whose value the narrow type represents: they compute in
f32 and are rounded after each operation. In memory a bool is a byte and a narrow float its 16 bits.
"""

from __future__ import annotations

import re
import struct

from quernel.dtypes import DType, ValueType, bf16, f16, f64

__all__ = [
    "constant_of",
    "float_literal",
    "is_narrow",
    "literal",
    "memory_type",
    "register_type",
    "scalar",
    "splat",
    "type_suffix",
    "wide",
    "zero",
]

_INTEGER_LITERAL = re.compile(r"(?:splat \(i\d+ )?(-?\d+)\)?")


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


def wide(llvm: str, lanes: int) -> str:
    """The LLVM type of a vector of so many values; of one value, for 0 lanes."""
    return f"<{lanes} x {llvm}>" if lanes else llvm


def splat(llvm: str, text: str, lanes: int) -> str:
    """A literal of a type, in every lane."""
    return f"splat ({llvm} {text})" if lanes else text


def constant_of(operand: str) -> int | None:
    """The integer that an operand is a literal of, in every lane if it is a vector."""
    found = _INTEGER_LITERAL.fullmatch(operand)
    return int(found[1]) if found else None


def type_suffix(llvm: str) -> str:
    """How an intrinsic's name spells an operand's type: `f32`, `i64`, `v16f32`."""
    lanes, _, scalar_type = llvm.strip("<>").rpartition(" x ")
    name = {"float": "f32", "double": "f64", "ptr": "p0"}.get(scalar_type, scalar_type)
    return f"v{lanes}{name}" if lanes else name
