"""What a name means that is no local of a kernel: closure cells, globals, builtins, and their attributes."""

from __future__ import annotations

import builtins
import enum
import types
from typing import Any

import numpy as np

from quernel.dtypes import DType
from quernel.intrinsics import DeviceFunction, Intrinsic, Namespace
from quernel.lang.constants import constant_of
from quernel.lang.instead import instead_of_attribute
from quernel.lang.refusals import Node, Refusals
from quernel.lang.values import ObjectValue, TupleValue, Value

__all__ = ["attribute", "captured", "find_name"]

_MISSING = object()


def find_name(function: types.FunctionType, name: str) -> tuple[bool, object]:
    """Whether `name` is bound outside the locals of `function` now, and its value."""
    code = function.__code__
    if name in code.co_freevars and function.__closure__ is not None:
        cell = function.__closure__[code.co_freevars.index(name)]
        try:
            return True, cell.cell_contents
        except ValueError:
            return False, None
    for scope in (function.__globals__, vars(builtins)):
        value = scope.get(name, _MISSING)
        if value is not _MISSING:
            return True, value
    return False, None


def captured(refuse: Refusals, node: Node, name: str, value: object) -> Value:
    """The captured object `value` as a value of the language.

    Raises:
        KernelTypeError: it is data that a kernel cannot hold as a constant.
    """
    if isinstance(value, enum.Enum) and not isinstance(value, int | float):
        return ObjectValue(value)
    number = constant_of(value)
    if number is not None:
        return number
    if value is None or isinstance(
        value,
        str
        | type
        | types.ModuleType
        | types.FunctionType
        | types.BuiltinFunctionType
        | DType
        | DeviceFunction
        | Intrinsic
        | Namespace,
    ):
        return ObjectValue(value)
    if isinstance(value, tuple):
        return TupleValue(tuple(captured(refuse, node, f"{name}[{index}]", item) for index, item in enumerate(value)))
    if isinstance(value, list | dict | set | frozenset | bytes | bytearray | np.ndarray) or hasattr(value, "__array__"):
        kind = type(value).__name__
        raise refuse.type(
            node, f"`{name}` is a captured {kind}, which a kernel cannot hold", f"pass it as an argument: `{name}`"
        )
    return ObjectValue(value)


def attribute(refuse: Refusals, node: Node, owner: ObjectValue, name: str) -> Value:
    """The attribute `name` of a module, class, enum or enum member, as it is now.

    Raises:
        KernelTypeError: there is none, or `owner` is an object whose attributes may change at any time.
    """
    value: Any = owner.value
    label = getattr(value, "__name__", None) or repr(value)
    if not isinstance(value, types.ModuleType | type | Namespace) and not (
        isinstance(value, enum.Enum) and name in ("value", "name")
    ):
        raise refuse.type(
            node,
            f"`.{name}` of an object of type {type(value).__name__} cannot be read in a kernel",
            "pass the value as an argument, or capture it under a name of its own",
        )
    found = getattr(value, name, _MISSING)
    if found is _MISSING:
        raise refuse.type(node, f"{label} has no attribute {name!r}", instead_of_attribute(value, name))
    return captured(refuse, node, f"{label}.{name}", found)
