"""The struct types that a module mentions."""

from __future__ import annotations

from collections.abc import Iterator

from quernel.dtypes import ArrayType, ScalarType, StructType
from quernel.ir.nodes import Alloc, Function, Kernel, Load, Module, StructMake
from quernel.ir.walk import place_of, walk_expressions, walk_statements

__all__ = ["struct_types"]


def struct_types(module: Module) -> dict[StructType, str]:
    """Each struct type of the module under a name of its own, those that others contain first."""
    names: dict[StructType, str] = {}
    for type_ in _mentioned(module):
        _add(type_, names)
    return names


def _add(type_: object, names: dict[StructType, str]) -> None:
    if isinstance(type_, StructType) and type_ not in names:
        for field in type_.fields:
            _add(field.type, names)
        taken = set(names.values())
        name, number = type_.name, 1
        while name in taken:
            number += 1
            name = f"{type_.name}#{number}"
        names[type_] = name


def _mentioned(module: Module) -> Iterator[object]:
    yield from _mentioned_by(module.kernel)
    for function in module.functions:
        yield from function.results
        yield from _mentioned_by(function)


def _mentioned_by(owner: Kernel | Function) -> Iterator[object]:
    for param in owner.params:
        match param.type:
            case ArrayType(element=element):
                yield element
            case ScalarType(dtype=dtype):
                yield dtype
    for variable in owner.locals:
        yield variable.type
    for stmt in walk_statements(owner.body):
        if isinstance(stmt, Alloc):
            yield stmt.element
        place = place_of(stmt)
        if place is not None:
            yield place.type
    for expr in walk_expressions(owner.body):
        if isinstance(expr, StructMake | Load):
            yield expr.type
