"""Vectors and structs from Python and NumPy: classes and structured dtypes as types of the language, and back.

A struct is written as a frozen attrs class whose fields are annotated with scalar types, vectors or other such classes,
or it is a NumPy structured dtype. A class is laid out as C lays out a struct, each field at the next multiple of its
alignment; a dtype keeps the offsets that it has. Fields are found by name, so a class and a dtype with the same names
stand for each other.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

import attrs
import numpy as np

from quernel.dtypes import ArrayType, DType, StructField, StructType, ValueType, VectorType, dtype_of
from quernel.errors import KernelTypeError
from quernel.wording import counted

__all__ = [
    "VECTOR_LENGTHS",
    "check_finite",
    "fields_of",
    "is_struct_class",
    "numpy_of",
    "struct_of",
    "value_type_of",
    "vec",
]

VECTOR_LENGTHS = (2, 4)
"""How many components a vector may have."""


def vec(element: Any, length: int) -> VectorType:
    """The type of vectors of `length` scalars.

    Raises:
        KernelTypeError: the element is no scalar type, or the length is neither 2 nor 4.
    """
    dtype = dtype_of(element)
    if length not in VECTOR_LENGTHS:
        raise KernelTypeError(f"a vector of {counted(length, 'component')}", fix="use 2 or 4 components")
    return VectorType(dtype, int(length))


def is_struct_class(given: object) -> bool:
    """Whether `given` is a class that a kernel takes as a struct: a frozen attrs class."""
    return isinstance(given, type) and "__attrs_attrs__" in vars(given) and given.__hash__ is not None


def fields_of(cls: type) -> tuple[tuple[str, Any], ...]:
    """The names of the fields of a class and what their annotations declare, read where they are text.

    Raises:
        KernelTypeError: an annotation is missing, names something that is not there, or asks for the class itself.
    """
    outer = _being_read.get()
    if any(cls is one for one in outer):  # as in `field: qn.Array[Node]` of Node
        raise KernelTypeError(f"a field of {cls.__name__} mentions {cls.__name__}, of which it is a part", fix=_INDEX)
    token = _being_read.set((*outer, cls))
    try:
        return tuple([(field.name, _declared(cls, field.name, field.type)) for field in attrs.fields(cls)])
    finally:
        _being_read.reset(token)


_being_read: ContextVar[tuple[type, ...]] = ContextVar("quernel_struct_being_read", default=())
_INDEX = "keep an index into an array of them instead"


def check_finite(cls: type, outer: tuple[type, ...] = ()) -> None:
    """Raises where a class contains itself, directly or through the classes of its fields.

    Raises:
        KernelTypeError: it does, so its values would have no end.
    """
    outer = (*outer, cls)
    for name, declared in fields_of(cls):
        if any(declared is one for one in outer):
            raise KernelTypeError(
                f"field {name!r} of {cls.__name__} contains {declared.__name__}, of which it is a part", fix=_INDEX
            )
        if is_struct_class(declared):
            check_finite(declared, outer)


def _declared(cls: type, name: str, declared: Any) -> Any:
    for _ in range(2):  # One that was quoted already is quoted twice under `from __future__ import annotations`.
        if isinstance(declared, str):
            declared = _read(cls, name, declared)
    if declared is None:
        raise KernelTypeError(f"field {name!r} of {cls.__name__} has no type", fix=f"annotate it: `{name}: qn.f32`")
    return declared


def _read(cls: type, name: str, text: str) -> Any:
    module = sys.modules.get(cls.__module__)
    try:
        return eval(text, dict(vars(module)) if module is not None else {})
    except NameError as error:
        raise KernelTypeError(
            f"the annotation of field {name!r} of {cls.__name__} cannot be read: {error}",
            fix="define what it names at the top of the module",
        ) from None


def value_type_of(given: Any) -> ValueType:
    """The type that an annotation, a class, a dtype or a type of the language stands for.

    Raises:
        KernelTypeError: it stands for none.
    """
    if isinstance(given, DType | VectorType | StructType):
        return given
    if is_struct_class(given) or (isinstance(given, np.dtype) and given.names is not None):
        return struct_of(given)
    if isinstance(given, np.dtype) and given.subdtype is not None:
        base, shape = given.subdtype
        if len(shape) == 1 and shape[0] in VECTOR_LENGTHS:
            return vec(base, shape[0])
    return dtype_of(given)


def struct_of(given: Any) -> StructType:
    """The struct type of a frozen attrs class or a NumPy structured dtype.

    Raises:
        KernelTypeError: a field is no scalar, vector or struct, or the class contains itself.
    """
    if isinstance(given, np.dtype):
        return _struct_of_dtype(given)
    check_finite(given)
    fields: list[StructField] = []
    offset, alignment = 0, 1
    for name, declared in fields_of(given):
        if isinstance(declared, ArrayType):
            raise KernelTypeError(
                f"field {name!r} of {given.__name__} is an array, which has no place in memory of its own",
                fix="pass the struct as a parameter, not as an element",
            )
        type_ = value_type_of(declared)
        offset = -(-offset // type_.alignment) * type_.alignment
        fields.append(StructField(name, type_, offset))
        offset += type_.itemsize
        alignment = max(alignment, type_.alignment)
    if not fields:
        raise KernelTypeError(f"{given.__name__} has no fields", fix="give it at least one field")
    return StructType(given.__name__, tuple(fields), -(-offset // alignment) * alignment, alignment)


def _struct_of_dtype(dtype: np.dtype[Any]) -> StructType:
    assert dtype.names is not None
    assert dtype.fields is not None
    fields = []
    for name in dtype.names:
        inner, offset = dtype.fields[name][:2]
        fields.append(StructField(name, value_type_of(inner), int(offset)))
    return StructType("struct", tuple(fields), dtype.itemsize, _alignment(fields, dtype.itemsize))


def _alignment(fields: list[StructField], itemsize: int) -> int:
    """The greatest alignment of a field, where every field and element stands at multiples of its own; else 1.

    NumPy itself says 1 of every dtype that was not made with `align=True`, however its fields lie.
    """
    steps = [(field.offset_bytes, _step(field.type)) for field in fields]
    greatest = max((step for _, step in steps), default=1)
    is_natural = itemsize % greatest == 0 and all(offset % step == 0 for offset, step in steps)
    return greatest if is_natural else 1


def _step(type_: ValueType) -> int:
    return type_.element.alignment if isinstance(type_, VectorType) else type_.alignment


def numpy_of(type_: ValueType) -> np.dtype[Any]:
    """The NumPy dtype with the same bytes; of a vector, one with its length as a shape."""
    match type_:
        case DType():
            return type_.numpy
        case VectorType():
            return np.dtype((type_.element.numpy, (type_.length,)))
        case StructType():
            return np.dtype(
                {
                    "names": [field.name for field in type_.fields],
                    "formats": [numpy_of(field.type) for field in type_.fields],
                    "offsets": [field.offset_bytes for field in type_.fields],
                    "itemsize": type_.itemsize,
                }
            )
