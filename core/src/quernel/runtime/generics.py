"""Type variables among a kernel's parameters: one type wherever a variable stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from quernel.dtypes import ArrayType, DType, ParameterType, ScalarType, ValueType, dtype_of
from quernel.errors import KernelTypeError
from quernel.runtime.argument_types import convert_argument
from quernel.runtime.parameters import MISSING, Spec

__all__ = ["with_variables"]


def with_variables(specs: Sequence[Spec], types: Sequence[ParameterType], values: Sequence[Any]) -> list[ParameterType]:
    """The types with every variable the same: Python's own numbers adapt to what else has its type.

    Raises:
        KernelTypeError: a variable stands for two types, or for one that it does not allow.
    """
    found: dict[TypeVar, tuple[str, ValueType]] = {}
    weak: dict[TypeVar, list[int]] = {}
    result = list(types)
    for index, (spec, given) in enumerate(zip(specs, types, strict=True)):
        variable = spec.variable
        if variable is None:
            continue
        if isinstance(given, ScalarType) and given.weak:
            weak.setdefault(variable, []).append(index)
            continue
        _settle(found, variable, spec.name, _value_type(given))
    for variable, indices in weak.items():
        if variable not in found:
            widest = max((_value_type(result[index]) for index in indices), key=lambda type_: type_ is dtype_of(float))
            _settle(found, variable, specs[indices[0]].name, widest)
        settled = found[variable][1]
        for index in indices:
            result[index] = ScalarType(settled)
            if values[index] is not MISSING:
                convert_argument(specs[index].name, ScalarType(settled), values[index])
    return result


def _value_type(given: ParameterType) -> ValueType:
    type_ = given.element if isinstance(given, ArrayType) else given.dtype
    assert type_ is not None
    return type_


def _settle(found: dict[TypeVar, tuple[str, ValueType]], variable: TypeVar, name: str, type_: ValueType) -> None:
    if variable not in found:
        _check_allowed(variable, name, type_)
        found[variable] = (name, type_)
        return
    other, settled = found[variable]
    if settled != type_:
        raise KernelTypeError(
            f"the type variable {variable.__name__} is {settled} for parameter {other!r} and {type_} for {name!r}",
            fix="pass arguments of one type, or annotate the parameters with two variables",
        )


def _check_allowed(variable: TypeVar, name: str, type_: ValueType) -> None:
    constraints, bound = variable.__constraints__, variable.__bound__
    if constraints:
        allowed = any(_is_among(type_, constraint) for constraint in constraints)
        told = f"one of {', '.join(map(_name, constraints))}"
    else:
        allowed = bound is None or _is_among(type_, bound)
        told = _name(bound)
    if not allowed:
        raise KernelTypeError(
            f"parameter {name!r} has type {type_}, and its type variable {variable.__name__} is {told}",
            fix="pass another type, or widen the variable",
        )


def _is_among(type_: ValueType, allowed: Any) -> bool:
    """`float` stands for all float types, `int` for all integer types; others for themselves."""
    if allowed is float:
        return isinstance(type_, DType) and type_.is_float
    if allowed is int:
        return isinstance(type_, DType) and type_.is_integer
    from quernel.structs import value_type_of

    wanted: ValueType = value_type_of(allowed)
    return type_ == wanted


def _name(allowed: Any) -> str:
    return str(getattr(allowed, "__name__", allowed))
