"""Values of the IR as scalars: a vector or a struct is its components, one after the other, wherever they are nested.

So LLVM sees scalars only, which its vectoriser turns into lanes of neighbouring threads; it makes wide loads and
shuffles of the accesses to an array of vectors or structs by itself.
"""

from __future__ import annotations

from functools import cache
from typing import assert_never

import attrs

from quernel.dtypes import DType, StructType, ValueType, VectorType
from quernel_cpu.emission.values import memory_type

__all__ = ["Leaf", "Part", "element_type", "leaf_alignment", "leaves", "part", "part_at"]


@attrs.frozen
class Leaf:
    """A scalar inside a value: its type, and its place in bytes where the value is in memory."""

    dtype: DType
    offset_bytes: int


@attrs.frozen
class Part:
    """A part of a value: its type, its first leaf among the value's, and its place in bytes."""

    type: ValueType
    first_leaf: int = 0
    offset_bytes: int = 0


@cache
def leaves(value_type: ValueType) -> tuple[Leaf, ...]:
    """The scalars of a value, in order; of a scalar itself."""
    match value_type:
        case DType():
            return (Leaf(value_type, 0),)
        case VectorType():
            element = value_type.element
            return tuple(Leaf(element, number * element.itemsize) for number in range(value_type.length))
        case StructType():
            return tuple(
                Leaf(leaf.dtype, field.offset_bytes + leaf.offset_bytes)
                for field in value_type.fields
                for leaf in leaves(field.type)
            )
        case _:
            assert_never(value_type)


@cache
def part(value_type: ValueType, step: str | int) -> Part:
    """The field of that name, or the component of that number."""
    match value_type:
        case VectorType() if isinstance(step, int):
            return Part(value_type.element, step, step * value_type.element.itemsize)
        case StructType():
            first_leaf = 0
            for field in value_type.fields:
                if field.name == step:
                    return Part(field.type, first_leaf, field.offset_bytes)
                first_leaf += len(leaves(field.type))
    raise AssertionError(f"{value_type} has no part {step!r}")


def part_at(value_type: ValueType, view: tuple[str | int, ...]) -> Part:
    """The part at the end of a path."""
    found = Part(value_type)
    for step in view:
        inner = part(found.type, step)
        found = Part(inner.type, found.first_leaf + inner.first_leaf, found.offset_bytes + inner.offset_bytes)
    return found


def leaf_alignment(element: ValueType, leaf: Leaf, offset_bytes: int) -> int:
    """Bytes to which a leaf is aligned that stands at `offset_bytes` in an element; packed structs align nothing."""
    return min(leaf.dtype.alignment, element.alignment, offset_bytes & -offset_bytes or element.alignment)


def element_type(element: ValueType) -> str:
    """The LLVM type that an array's elements are counted in."""
    return memory_type(element) if isinstance(element, DType) else f"[{element.itemsize} x i8]"
