"""Values in memory: scalars, vectors and structs as exact Python values, read from and written to bytes.

A vector is a tuple of its components, a struct a tuple of its fields' values.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final, TypeAlias

from quernel.dtypes import DType, StructType, ValueType, VectorType, bf16, bool_, u16
from quernel.ir.semantics import Value, bitcast

__all__ = ["Element", "part_of", "position_of", "read_value", "write_value"]

Element: TypeAlias = "Value | tuple[Element, ...]"
"""A value of a thread."""

_FORMATS: Final = {
    "bool": "<B",
    "i8": "<b",
    "i16": "<h",
    "i32": "<i",
    "i64": "<q",
    "u8": "<B",
    "u16": "<H",
    "u32": "<I",
    "u64": "<Q",
    "f16": "<e",
    "bf16": "<H",
    "f32": "<f",
    "f64": "<d",
}


def read_value(data: Any, offset_bytes: int, type_: ValueType) -> Element:
    """The value of that type whose bytes start there."""
    if not isinstance(type_, DType):
        return tuple(read_value(data, offset_bytes + offset, part) for offset, part in _parts(type_))
    value: int | float
    (value,) = struct.unpack_from(_FORMATS[type_.name], data, offset_bytes)
    if type_ is bool_:
        return value != 0
    return bitcast(value, u16, bf16) if type_ is bf16 else value


def write_value(data: Any, offset_bytes: int, type_: ValueType, value: Any) -> None:
    """Writes a value of that type there; the gaps of a struct stay as they are."""
    if isinstance(type_, DType):
        bits = bitcast(value, bf16, u16) if type_ is bf16 else value
        struct.pack_into(_FORMATS[type_.name], data, offset_bytes, bits)
        return
    for (offset, part), item in zip(_parts(type_), value, strict=True):
        write_value(data, offset_bytes + offset, part, item)


@lru_cache
def part_of(type_: ValueType, path: tuple[str | int, ...]) -> tuple[int, ValueType]:
    """Offset in bytes and type of a part of a value, by names of fields and numbers of components."""
    offset = 0
    for step in path:
        further, type_ = _parts(type_)[position_of(type_, step)]
        offset += further
    return offset, type_


def position_of(type_: ValueType, step: str | int) -> int:
    """Where a tuple holds a field or component."""
    if isinstance(type_, StructType):
        return next(number for number, field in enumerate(type_.fields) if field.name == step)
    assert isinstance(step, int)
    return step


@lru_cache
def _parts(type_: VectorType | StructType) -> tuple[tuple[int, ValueType], ...]:
    if isinstance(type_, StructType):
        return tuple((field.offset_bytes, field.type) for field in type_.fields)
    return tuple((number * type_.element.itemsize, type_.element) for number in range(type_.length))
