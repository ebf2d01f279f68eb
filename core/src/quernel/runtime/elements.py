"""Structs and vectors as elements of arrays: values and host arrays brought into the layout of an element type."""

from __future__ import annotations

from typing import Any

import numpy as np

from quernel.dtypes import DType, StructType, ValueType, VectorType
from quernel.errors import KernelTypeError
from quernel.runtime.compounds import is_struct_value
from quernel.runtime.scalars import convert_scalar, shown
from quernel.structs import numpy_of, struct_of

__all__ = ["as_structs", "check_vectors", "is_same_layout", "struct_element", "vector_element"]

HostArray = np.ndarray[Any, np.dtype[Any]]


def is_same_layout(left: ValueType, right: ValueType, *, anywhere: bool = False) -> bool:
    """Whether two types have the same fields at the same bytes, or `anywhere`; what structs are called is no matter."""
    if not (isinstance(left, StructType) and isinstance(right, StructType)):
        return left == right
    if len(left.fields) != len(right.fields) or (left.itemsize != right.itemsize and not anywhere):
        return False
    return all(
        one.name == other.name
        and (anywhere or one.offset_bytes == other.offset_bytes)
        and is_same_layout(one.type, other.type, anywhere=anywhere)
        for one, other in zip(left.fields, right.fields, strict=True)
    )


def as_structs(source: Any, type_: StructType) -> HostArray:
    """A host array of structs: `source` where it has the fields in the same order, or made of instances of a class.

    Raises:
        KernelTypeError: it holds something else.
    """
    given = np.asarray(source)
    if given.dtype.names is not None:
        found = struct_of(given.dtype)
        if is_same_layout(found, type_):
            return given
        if is_same_layout(found, type_, anywhere=True):
            return given.astype(numpy_of(type_))
        raise KernelTypeError(
            f"an array with the fields {_fields(found)} is none of {type_}", fix=f"its fields are {_fields(type_)}"
        )
    if given.dtype != object and given.size:
        raise KernelTypeError(
            f"an array of {given.dtype} is none of {type_}",
            fix=f"give a NumPy array with the fields {_fields(type_)}, or a list of instances",
        )
    result = np.zeros(given.shape, numpy_of(type_))
    for index in np.ndindex(given.shape):
        result[index] = struct_element(given[index], type_)
    return result


def struct_element(value: Any, type_: StructType) -> HostArray:
    """One struct as NumPy holds it, padding zero, its fields converted as scalar arguments are.

    Raises:
        KernelTypeError: the value lacks a field, or one does not fit.
    """
    result = np.zeros((), numpy_of(type_))
    _put(result, type_, value, "")
    return result


def _put(target: HostArray, type_: StructType, value: Any, path: str) -> None:
    for field in type_.fields:
        name = f"{path}{field.name}"
        part = _part(value, field.name, type_)
        if isinstance(field.type, StructType):
            _put(target[field.name], field.type, part, f"{name}.")
        elif isinstance(field.type, VectorType):
            target[field.name][...] = vector_element(part, field.type, f"field {name!r}")
        else:
            target[field.name][...] = convert_scalar(part, field.type, f"field {name!r}")


def _part(value: Any, name: str, type_: StructType) -> Any:
    if isinstance(value, np.void) and name in (value.dtype.names or ()):
        return value[name]
    if is_struct_value(value) and not isinstance(value, np.void) and hasattr(value, name):
        return getattr(value, name)
    raise KernelTypeError(
        f"an element is {type_} and got {shown(value)}", fix=f"give a value with the fields {_fields(type_)}"
    )


def vector_element(value: Any, type_: VectorType, what: str) -> HostArray:
    """The components of one vector, converted as scalar arguments are.

    Raises:
        KernelTypeError: there are more or fewer, or one does not fit.
    """
    is_row = isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    if not is_row or len(value) != type_.length:
        raise KernelTypeError(f"{what} is {type_} and got {shown(value)}", fix=f"give {type_.length} numbers")
    return np.array([convert_scalar(part, type_.element, what) for part in value], type_.element.numpy)


def check_vectors(shape: tuple[int, ...], type_: VectorType) -> DType:
    """The components' type of an array of vectors, whose last axis holds the components.

    Raises:
        KernelTypeError: that axis has another length.
    """
    if shape[-1:] != (type_.length,):
        raise KernelTypeError(
            f"an array of shape {shape} is none of {type_}", fix=f"give one whose last axis has {type_.length} elements"
        )
    return type_.element


def _fields(type_: StructType) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in type_.fields)
