"""Structs and vectors as arguments: passed part by part, each part a parameter of its own.

A struct `p` becomes `p.x`, `p.y`, … in the order of its fields, nested ones too; a vector `v` becomes `v.0`, `v.1`, ….
Fields may hold arrays, and be declared as any parameter is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from quernel.dtypes import ArrayType, ScalarType, StructType, VectorType
from quernel.errors import KernelTypeError
from quernel.runtime.argument_types import takes_numbers_of, unlike_type
from quernel.runtime.parameters import MISSING, Spec, declared_type
from quernel.runtime.scalars import shown
from quernel.structs import check_finite, fields_of, is_struct_class, value_type_of

if TYPE_CHECKING:
    from quernel.runtime.parameters import Declared

__all__ = ["flattened", "is_struct_value", "matched_struct", "refuse_other_compound"]


def is_struct_value(value: Any) -> bool:
    """Whether an argument without a declared type is a struct: an instance of an attrs class, or NumPy's own."""
    cls = value.__class__
    return cls is np.void or ("__attrs_attrs__" in cls.__dict__ and cls.__module__ != ArrayType.__module__)


def flattened(specs: Sequence[Spec], args: Sequence[Any]) -> tuple[tuple[Spec, ...], tuple[Any, ...], list[object]]:
    """Parameters and arguments with structs and vectors taken apart, and what the structs were.

    A parameter that is `MISSING` is taken apart by its declared type; its parts are missing.

    Raises:
        KernelTypeError: an argument is no struct or vector of the declared kind.
    """
    kinds: list[object] = []
    parts = [part for spec, value in zip(specs, args, strict=True) for part in _parts(spec, value, kinds)]
    return tuple(spec for spec, _ in parts), tuple(value for _, value in parts), kinds


def _parts(spec: Spec, value: Any, kinds: list[object]) -> Iterator[tuple[Spec, Any]]:
    declared = spec.declared
    if spec.is_const or not (spec.is_compound or (declared is None and is_struct_value(value))):
        yield spec, value
        return
    if isinstance(declared, ScalarType):
        yield from zip(_component_specs(spec.name, declared.dtype), _components(spec, value), strict=True)
        return
    known = declared if declared is not None else _kind_of(spec, value)
    kinds.append(known)
    for name, inner in _field_specs(spec.name, known):
        yield from _parts(inner, _field(spec, known, value, name), kinds)


def _kind_of(spec: Spec, value: Any) -> Any:
    if isinstance(value, np.void):
        if value.dtype.names is None:
            raise KernelTypeError(f"parameter {spec.name!r} got {shown(value)}, which has no fields")
        return value_type_of(value.dtype)
    if not is_struct_class(type(value)):
        raise KernelTypeError(
            f"parameter {spec.name!r} got an instance of {type(value).__name__}, which may change",
            fix="make the class a frozen one, with @attrs.frozen",
        )
    return type(value)


def _field(spec: Spec, known: Any, value: Any, name: str) -> Any:
    if value is MISSING:
        return MISSING
    if isinstance(value, np.void) and value.dtype.names is not None and name in value.dtype.names:
        field = value[name]
        return tuple(field) if isinstance(field, np.ndarray) else field
    if isinstance(known, StructType) and is_struct_value(value) and hasattr(value, name):
        return getattr(value, name)
    if isinstance(known, type) and isinstance(value, known):
        return getattr(value, name)
    wanted = known.__name__ if isinstance(known, type) else "a struct"
    raise KernelTypeError(
        f"parameter {spec.name!r} is {wanted} and got {shown(value)}",
        fix=f"pass a value with the fields {', '.join(field for field, _ in _field_specs(spec.name, known))}",
    )


@lru_cache
def _field_specs(name: str, known: Any) -> tuple[tuple[str, Spec], ...]:
    """The fields of a struct as parameters."""
    declared: Sequence[tuple[str, Any]]
    if isinstance(known, StructType):
        declared = [(field.name, field.type) for field in known.fields]
    else:
        check_finite(known)
        declared = fields_of(known)
    return tuple((field, Spec(f"{name}.{field}", declared_type(f"{name}.{field}", kind))) for field, kind in declared)


@lru_cache
def _component_specs(name: str, type_: Any) -> tuple[Spec, ...]:
    assert isinstance(type_, VectorType)
    return tuple(Spec(f"{name}.{number}", ScalarType(type_.element)) for number in range(type_.length))


def _components(spec: Spec, value: Any) -> Sequence[Any]:
    declared: Declared = spec.declared
    assert isinstance(declared, ScalarType)
    assert isinstance(declared.dtype, VectorType)
    length = declared.dtype.length
    if value is MISSING:
        return (MISSING,) * length
    if not isinstance(value, tuple | list) or len(value) != length:
        raise KernelTypeError(
            f"parameter {spec.name!r} is {declared.dtype} and got {shown(value)}",
            fix=f"pass a tuple of {length} numbers, for example tuple(value)",
        )
    return value


def refuse_other_compound(spec: Spec, given: Spec) -> None:
    """Holds the type given for a struct or vector against the declared one, which a launch goes by.

    Raises:
        KernelTypeError: values of that type do not fit. Of a class, its instances do; where one of the two is a
            structured dtype, what has the same fields, found by name.
    """
    declared, other = spec.declared, given.declared
    if declared == other or (isinstance(declared, type) and isinstance(other, type) and issubclass(other, declared)):
        return
    if isinstance(declared, ScalarType) and isinstance(other, ScalarType) and takes_numbers_of(declared, other):
        return
    structs = [kind for kind in (declared, other) if isinstance(kind, StructType | type)]
    if len(structs) < 2 or all(isinstance(kind, type) for kind in structs):
        raise unlike_type(spec, other)
    fields = dict(_field_specs(spec.name, other))
    for name, field in _field_specs(spec.name, declared):
        if name not in fields:
            raise KernelTypeError(
                f"parameter {spec.name!r} has a field {name!r}, and the type given has none",
                fix=f"give a type with the fields {', '.join(one for one, _ in _field_specs(spec.name, declared))}",
            )
        refuse_other_compound(field, fields[name])


def matched_struct(name: str, declared: StructType, given: StructType) -> StructType:
    """A declared struct where the elements of an array have its fields: found by name, at the array's own offsets.

    Raises:
        KernelTypeError: a field is missing or has another type.
    """
    fields = []
    for field in declared.fields:
        found = given.field(field.name)
        if found is None:
            raise KernelTypeError(
                f"parameter {name!r} is an array of {declared.name}, and its elements have no field {field.name!r}",
                fix=f"their fields are {', '.join(other.name for other in given.fields)}",
            )
        type_ = found.type
        if isinstance(field.type, StructType) and isinstance(type_, StructType):
            type_ = matched_struct(f"{name}.{field.name}", field.type, type_)
        elif type_ != field.type:
            raise KernelTypeError(
                f"parameter {name!r} is an array of {declared.name}, whose field {field.name!r} is {field.type}, "
                f"and its elements have {type_} there",
                fix="convert the field, or declare the type that the array has",
            )
        fields.append(attrs.evolve(field, type=type_, offset_bytes=found.offset_bytes))
    return StructType(declared.name, tuple(fields), given.itemsize, given.alignment)
