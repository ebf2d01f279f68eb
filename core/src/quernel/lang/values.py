"""What an expression of a kernel may be while it is lowered: a scalar, an array, a tuple, or a Python object."""

from __future__ import annotations

import attrs

from quernel.dtypes import ArrayType, DType, ScalarType
from quernel.ir import nodes

__all__ = ["ArrayValue", "Number", "ObjectValue", "Scalar", "TupleValue", "Value", "describe", "named"]

Number = bool | int | float
"""A constant as Python holds it."""


@attrs.frozen
class Scalar:
    """A value of a thread.

    Attributes:
        type: its type; weak where only Python numbers went into it.
        expr: its IR; `None` for a constant, whose IR is made when its type is decided.
        constant: its value where that is known; exact for a weak one.
        origins: the weak parameters whose very value this may be; they must fit what it is converted to.
        has_load: whether its IR reads memory.
        depth: how deep its IR nests.
    """

    type: ScalarType
    expr: nodes.Expr | None = None
    constant: Number | None = None
    origins: frozenset[str] = frozenset()
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


@attrs.frozen(eq=False)
class ObjectValue:
    """A Python object known when the kernel is compiled: a module, type, function, string, enum member or `None`."""

    value: object


Value = Scalar | ArrayValue | TupleValue | ObjectValue


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
        case ObjectValue():
            name = getattr(value.value, "__name__", None)
            return f"{name}" if name else f"{type(value.value).__name__} {value.value!r}"
