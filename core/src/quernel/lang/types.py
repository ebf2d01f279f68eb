"""Types that stand in an expression of a kernel: what they name, and what the language has of them."""

from __future__ import annotations

import numpy as np

from quernel.dtypes import DType, StructType, ValueType, VectorType, dtype_of
from quernel.errors import KernelTypeError
from quernel.lang.lowering import FunctionLowering
from quernel.lang.refusals import Node
from quernel.lang.values import ObjectValue, Value, describe

__all__ = ["type_of", "type_that"]


def type_of(held: object) -> ValueType | None:
    """The type that a Python object names, if it names one."""
    if isinstance(held, DType | VectorType | StructType):
        return held
    if any(held is python for python in (bool, int, float)) or isinstance(held, np.dtype):
        return dtype_of(held)
    if isinstance(held, type) and issubclass(held, np.generic):
        return dtype_of(held)
    return None


def type_that(lowering: FunctionLowering, value: Value, node: Node, what: str) -> ValueType:
    """The type that `value` names.

    Raises:
        KernelTypeError: it names none.
    """
    found = None
    if isinstance(value, ObjectValue):
        try:
            found = type_of(value.value)
        except KernelTypeError as error:
            raise lowering.refuse.type(node, error.what, error.fix or "use a type of the language") from None
    if found is None:
        raise lowering.refuse.type(node, f"{what} must be a type, not {describe(value)}", "write `qn.f32`, for example")
    return found
