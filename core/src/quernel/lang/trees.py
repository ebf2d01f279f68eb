"""Compound values as trees: the leaves of tuples, vectors and structs by their paths, and values made of leaves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import attrs

from quernel.lang.values import (
    COMPONENTS,
    ArrayValue,
    Compound,
    ObjectValue,
    Scalar,
    StructValue,
    TupleValue,
    Value,
    VectorValue,
)

__all__ = ["Leaf", "has_layout_of", "leaves", "map_leaves", "shown_path", "steps"]

Leaf = Scalar | ArrayValue | ObjectValue
"""A value that is not made of others."""


def steps(value: Compound) -> tuple[str, ...]:
    """What leads to each of the items: a number, a component or a field."""
    match value:
        case TupleValue(items):
            return tuple(str(number) for number in range(len(items)))
        case VectorValue(items=items):
            return COMPONENTS[: len(items)]
        case StructValue(fields=fields):
            return fields


def leaves(value: Value, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """The leaves of a value in order, each with its path behind `path`: `t.0`, `v.x`, `p.position.x`."""
    if not isinstance(value, Compound):
        yield path, value
        return
    for step, item in zip(steps(value), value.items, strict=True):
        yield from leaves(item, f"{path}.{step}")


def map_leaves(value: Value, change: Callable[[str, Leaf], Value], path: str = "") -> Value:
    """`value` with every leaf changed; the components of a vector stay scalars."""
    if not isinstance(value, Compound):
        return change(path, value)
    items = tuple(
        map_leaves(item, change, f"{path}.{step}") for step, item in zip(steps(value), value.items, strict=True)
    )
    if not isinstance(value, VectorValue):
        return attrs.evolve(value, items=items)
    components = tuple(item for item in items if isinstance(item, Scalar))
    element = components[0].dtype
    return VectorValue(attrs.evolve(value.type, element=element), components)


def has_layout_of(value: Value, other: Value) -> bool:
    """Whether two values are made of the same parts: scalars of any type, and the very same arrays and objects."""
    match value, other:
        case Scalar(), Scalar():
            return True
        case ArrayValue(), ArrayValue():
            return value == other
        case ObjectValue(value=held), ObjectValue(value=known):
            return held is known or (isinstance(held, str) and held == known)
        case TupleValue(), TupleValue():
            pass
        case VectorValue(), VectorValue():
            pass
        case StructValue(fields=fields), StructValue(fields=known_fields) if fields == known_fields:
            pass
        case _:
            return False
    return len(value.items) == len(other.items) and all(map(has_layout_of, value.items, other.items))


def shown_path(path: str) -> str:
    """A path as a user writes it: `t[0]`, `p.position.x`."""
    return re.sub(r"\.(\d+)", r"[\1]", path)
