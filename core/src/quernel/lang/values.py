"""What an expression of a kernel may be while it is lowered: a scalar, an array, a tuple, or a Python object."""

from __future__ import annotations

from typing import Final

import attrs

from quernel.dtypes import ArrayType, DType, ScalarType, VectorType
from quernel.ir import nodes
from quernel.lang.origins import NOWHERE, Origins

__all__ = [
    "COMPONENTS",
    "ArrayValue",
    "Compound",
    "Number",
    "ObjectValue",
    "Scalar",
    "StructValue",
    "TupleValue",
    "Value",
    "VectorValue",
    "describe",
    "named",
]

Number = bool | int | float
"""A constant as Python holds it."""


@attrs.frozen
class Scalar:
    """A value of a thread.

    Attributes:
        type: its type; weak where only Python numbers went into it.
        expr: its IR; `None` for a constant, whose IR is made when its type is decided.
        constant: its value where that is known; exact for a weak one.
        origins: the weak parameters from which a weak integer follows, so that it fits what it is converted to.
        has_load: whether its IR reads memory.
        depth: how deep its IR nests.
    """

    type: ScalarType
    expr: nodes.Expr | None = None
    constant: Number | None = None
    origins: Origins = NOWHERE
    has_load: bool = False
    depth: int = 1

    @property
    def dtype(self) -> DType:
        """The scalar type in which it is held."""
        dtype = self.type.dtype
        assert isinstance(dtype, DType)
        return dtype

    @property
    def weak(self) -> bool:
        """Whether it takes the type of what it meets."""
        return self.type.weak


@attrs.frozen
class ArrayValue:
    """An array of this function.

    Attributes:
        root: the parameter or allocation.
        type: its element type and rank.
        shape: its shape, where it is one that a kernel allocated; else it is known when the kernel is launched.
        space: the memory of such an array; `None` for an argument of the kernel.
    """

    root: nodes.Root
    type: ArrayType
    shape: tuple[int, ...] | None = None
    space: nodes.Space | None = None


@attrs.frozen
class TupleValue:
    """Several values, to be unpacked or indexed by a constant."""

    items: tuple[Value, ...]


@attrs.frozen
class VectorValue:
    """A vector: its components, all of its element type."""

    type: VectorType
    items: tuple[Scalar, ...]


@attrs.frozen
class StructValue:
    """A struct: the values of its fields."""

    name: str
    fields: tuple[str, ...]
    items: tuple[Value, ...]


@attrs.frozen(eq=False)
class ObjectValue:
    """A Python object known when the kernel is compiled: a module, type, function, string, enum member or `None`."""

    value: object


Compound = TupleValue | VectorValue | StructValue
"""A value made of others. Locals, arguments and results hold its leaves, each by itself."""

Value = Scalar | ArrayValue | Compound | ObjectValue

COMPONENTS: Final = ("x", "y", "z", "w")
"""The names of a vector's components."""


def named(of: ScalarType) -> str:
    """A scalar type in words of the language: `int` and `float` are the weak ones."""
    if not of.weak:
        return str(of.dtype)
    assert isinstance(of.dtype, DType)
    return "float" if of.dtype.is_float else "int"


def describe(value: Value) -> str:
    """The type of `value` in words of the language."""
    match value:
        case Scalar(constant=None):
            return named(value.type)
        case Scalar(constant=known):
            return repr(known) if value.weak or value.dtype.is_bool else f"{value.dtype}({known!r})"
        case ArrayValue():
            return str(value.type)
        case TupleValue():
            return f"tuple of {len(value.items)}"
        case VectorValue(type=type_):
            return str(type_)
        case StructValue(name=name):
            return f"struct<{name}>"
        case ObjectValue():
            known_as = getattr(value.value, "__name__", None)
            return f"{known_as}" if known_as else f"{type(value.value).__name__} {value.value!r}"
