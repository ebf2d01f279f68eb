"""Types that stand in an expression of a kernel: what they name, and what the language has of them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from quernel.dtypes import DType, StructType, ValueType, VectorType
from quernel.errors import KernelTypeError
from quernel.lang.lowering import FunctionLowering
from quernel.lang.refusals import Node
from quernel.lang.values import ObjectValue, Value, describe
from quernel.structs import is_struct_class, value_type_of

__all__ = ["declared_type", "is_type", "type_that"]


def is_type(held: object) -> bool:
    """Whether a Python object names a type of values."""
    if isinstance(held, DType | VectorType | StructType | np.dtype | TypeVar):
        return True
    if any(held is python for python in (bool, int, float)) or is_struct_class(held):
        return True
    return isinstance(held, type) and issubclass(held, np.generic)


def declared_type(lowering: FunctionLowering, declared: object, node: Node) -> ValueType:
    """The type that an annotation, or a Python object that names a type, stands for here.

    Raises:
        KernelTypeError: it stands for none.
    """
    if isinstance(declared, TypeVar):
        found = lowering.type_variables.get(declared)
        if found is None:
            raise lowering.refuse.type(
                node, f"`{declared.__name__}` stands for no type here", "use it in the annotation of a parameter"
            )
        return found
    try:
        return value_type_of(declared)
    except KernelTypeError as error:
        raise lowering.refuse.type(node, error.what, error.fix or "use a type of the language") from None


def type_that(lowering: FunctionLowering, value: Value, node: Node, what: str) -> ValueType:
    """The type that `value` names.

    Raises:
        KernelTypeError: it names none.
    """
    if isinstance(value, ObjectValue) and is_type(value.value):
        return declared_type(lowering, value.value, node)
    raise lowering.refuse.type(node, f"{what} must be a type, not {describe(value)}", "write `qn.f32`, for example")
