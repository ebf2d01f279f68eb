"""`breakpoint()` stops where a kernel is interpreted. Where it is compiled instead, its user is told so, once."""

from __future__ import annotations

import builtins
from types import FunctionType, ModuleType
from typing import Any

from quernel.capabilities import Capabilities

__all__ = ["warn_of_breakpoints"]

_NAME = "breakpoint"


def warn_of_breakpoints(function: FunctionType, capabilities: Capabilities) -> None:
    """Warns at each `breakpoint()` that a kernel, or a device function that it reaches, would not stop at.

    Reads the loaded code, so that a kernel that is found in a store says it too.
    """
    if capabilities.breakpoints:
        return
    seen = {function}
    pending = [function]
    while pending:
        current = pending.pop()
        if _NAME in current.__code__.co_names and _captured(current, _NAME) is builtins.breakpoint:
            _warn(function.__name__, current)
        for name in (*current.__code__.co_names, *current.__code__.co_freevars):
            for value in _reached(current, _captured(current, name)):
                inner = getattr(value, "__quernel_function__", None)
                if isinstance(inner, FunctionType) and inner not in seen:
                    seen.add(inner)
                    pending.append(inner)


def _reached(function: FunctionType, value: object) -> list[object]:
    """What a captured name leads to: itself, and of a module what else the function names."""
    if not isinstance(value, ModuleType):
        return [value]
    return [vars(value).get(name) for name in function.__code__.co_names]


def _captured(function: FunctionType, name: str) -> Any:
    code = function.__code__
    if name in code.co_freevars and function.__closure__ is not None:
        try:
            return function.__closure__[code.co_freevars.index(name)].cell_contents
        except ValueError:  # not bound yet
            return None
    return function.__globals__.get(name, getattr(builtins, name, None))


def _warn(kernel: str, function: FunctionType) -> None:
    import dis
    import warnings

    code = function.__code__
    for instruction in dis.get_instructions(code):
        if instruction.argval == _NAME and instruction.opname.startswith("LOAD"):
            line = instruction.positions.lineno if instruction.positions is not None else None
            warnings.warn_explicit(
                f"breakpoint() is passed over where a kernel is compiled; to stop at it, launch "
                f"{kernel}.options(interpret=True), or set QUERNEL_INTERPRET=1",
                RuntimeWarning,
                code.co_filename,
                line or code.co_firstlineno,
                module=function.__module__,
                registry=function.__globals__.setdefault("__warningregistry__", {}),
            )
