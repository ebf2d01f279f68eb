"""The annotations of device functions: what they declare of an argument."""

from __future__ import annotations

import builtins
import types
from typing import Any

from quernel.dtypes import ArrayType, DType, ParameterType, dtype_of
from quernel.lang.values import ArrayValue, Scalar, Value

__all__ = ["declared_type", "fits_declaration"]


def declared_type(function: types.FunctionType, name: str) -> DType | ArrayType | None:
    """What the annotation of a parameter declares; `None` for Python's own number types, and where it says nothing.

    An annotation that `from __future__ import annotations` left as text is read in the scope of the function.
    """
    annotation: Any = function.__annotations__.get(name)
    if isinstance(annotation, str):
        annotation = _read(function, annotation)
    if isinstance(annotation, DType | ArrayType):
        return annotation
    if annotation is None or annotation in (bool, int, float):
        return None
    if hasattr(annotation, "ndim") and hasattr(annotation, "__getitem__"):
        return ArrayType(None, annotation.ndim)
    try:
        return dtype_of(annotation)
    except TypeError:
        return None


def _read(function: types.FunctionType, text: str) -> object:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = {}
    for name, cell in cells:
        try:
            known[name] = cell.cell_contents
        except ValueError:
            continue
    try:
        return eval(text, {**vars(builtins), **function.__globals__}, known)
    except Exception:  # An annotation may be any text, and this one declares nothing that can be read.
        return None


def fits_declaration(value: Value, declared: ParameterType | DType) -> bool:
    """Whether an array argument is what an annotation declares."""
    if isinstance(value, ArrayValue) and isinstance(declared, ArrayType):
        has_element = declared.element is None or declared.element == value.type.element
        return has_element and declared.ndim in (None, value.type.ndim)
    return isinstance(value, Scalar) and value.type == declared
