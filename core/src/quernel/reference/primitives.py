"""The interpreter's own names: operations that lowered functions call, each found by what its name says.

A name is a dot, a word, and further words that say which operation of which type, as in `.binary floordiv i32`. No
identifier of a user holds a dot, so no local of a kernel ever hides one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from quernel.dtypes import BY_NAME, ValueType
from quernel.errors import KernelAssertionError, OutOfBoundsError
from quernel.ir.nodes import AtomicOp, BinaryOp, MathFunction, SubgroupOp, UnaryOp
from quernel.ir.rounding import round_float
from quernel.ir.semantics import Value, binary, bitcast, cast, fma, math_function, trip_count, unary
from quernel.ir.sites import Site, assertion_error, outside_error
from quernel.locations import Location
from quernel.reference.prints import cells_of
from quernel.reference.subgroups import Meeting
from quernel.reference.threads import BLOCK_MEMORY, PRINTER, Thread, global_id_of
from quernel.reference.views import ElementView, allocated_view

__all__ = [
    "OBJECT",
    "SITE",
    "function_name",
    "is_primitive",
    "object_name",
    "operation_name",
    "parameter_name",
    "primitive",
    "site_name",
]


SITE: Final = ".site "
"""What the names of locations begin with; the location's number follows."""

OBJECT: Final = ".object "
"""The same of objects that no literal spells, such as types."""


def operation_name(kind: str, *words: str) -> str:
    """The name of an operation."""
    return " ".join((f".{kind}", *words))


def site_name(site: int) -> str:
    """The name of the location with that number."""
    return f"{SITE}{site}"


def object_name(number: int) -> str:
    """The name of the object with that number."""
    return f"{OBJECT}{number}"


def function_name(function: str) -> str:
    """The name by which lowered functions know a device function."""
    return f".function {function}"


def parameter_name(parameter: str) -> str:
    """The name of a parameter whose own name a local has taken."""
    return f".parameter {parameter}"


def is_primitive(name: str) -> bool:
    """Whether `primitive` finds what this global name means."""
    return name.startswith(".") and name.split(" ", 1)[0] in _MAKERS


def primitive(name: str) -> Any:
    """What a name of `operation_name` means."""
    kind, *words = name.split(" ")
    return _MAKERS[kind](*words)


def _binary(op: str, dtype: str) -> Callable[[Value, Value], Value]:
    operator, type_ = BinaryOp(op), BY_NAME[dtype]
    return lambda left, right: binary(operator, left, right, type_)


def _unary(op: str, dtype: str) -> Callable[[Value], Value]:
    operator, type_ = UnaryOp(op), BY_NAME[dtype]
    return lambda operand: unary(operator, operand, type_)


def _cast(from_dtype: str, to_dtype: str) -> Callable[[Value], Value]:
    source, target = BY_NAME[from_dtype], BY_NAME[to_dtype]
    return lambda operand: cast(operand, source, target)


def _bitcast(from_dtype: str, to_dtype: str) -> Callable[[Value], Value]:
    source, target = BY_NAME[from_dtype], BY_NAME[to_dtype]
    return lambda operand: bitcast(operand, source, target)


def _fma(dtype: str) -> Callable[[float, float, float], float]:
    type_ = BY_NAME[dtype]
    return lambda a, b, c: fma(a, b, c, type_)


def _math(function: str, dtype: str) -> Callable[..., Value]:
    which, type_ = MathFunction(function), BY_NAME[dtype]
    return lambda *operands: math_function(which, operands, type_)


def _round(dtype: str) -> Callable[[float], float]:
    type_ = BY_NAME[dtype]
    return lambda value: round_float(value, type_)


def _trips(start: int, stop: int, step: int) -> range:
    """The values of a loop's variable; a step of zero gives none."""
    return range(start, start + trip_count(start, stop, step) * step, step or 1)


def _lengths(shape: str) -> tuple[int, ...]:
    return tuple(int(length) for length in shape.split("x"))


def _private(name: str, shape: str) -> Callable[[Thread, ValueType], ElementView]:
    lengths = _lengths(shape)
    return lambda thread, element: allocated_view(name, element, lengths)


def _shared(name: str, shape: str, site: str) -> Callable[[Thread, ValueType], ElementView]:
    lengths = _lengths(shape)
    key = f"{name} {site}"

    def of_block(thread: Thread, element: ValueType) -> ElementView:
        memory: dict[str, ElementView] = thread[BLOCK_MEMORY]
        if key not in memory:
            memory[key] = allocated_view(name, element, lengths)
        return memory[key]

    return of_block


def _inside(call: str) -> Callable[[Thread], Thread]:
    """The thread as a call sees it: each call has shared memory of its own, as if the function stood in its place."""
    key = f".call {call}"

    def of_call(thread: Thread) -> Thread:
        memory: dict[str, Any] = thread[BLOCK_MEMORY]
        return (memory.setdefault(key, {}), *thread[BLOCK_MEMORY + 1 :])

    return of_call


def _meeting(op: str, dtype: str) -> Callable[[int, tuple[Value, ...]], Meeting]:
    operation, type_ = SubgroupOp(op), BY_NAME[dtype]
    return lambda site, operands: Meeting(site, operation, type_, operands)


def _print(thread: Thread, site: Site, values: tuple[Value, ...]) -> None:
    thread[PRINTER].print(global_id_of(thread), site, values)


def _failed(site: Site, values: tuple[Value, ...]) -> KernelAssertionError:
    return assertion_error(site, cells_of(site, values))


def _outside(where: Location, array: str, values: tuple[int, ...]) -> OutOfBoundsError:
    """The error of a bounds check from its values: the indices, then the lengths."""
    num_axes = len(values) // 2
    return outside_error(array, values[:num_axes], values[num_axes:], where)


_MAKERS: Final[dict[str, Callable[..., Any]]] = {
    ".binary": _binary,
    ".unary": _unary,
    ".cast": _cast,
    ".bitcast": _bitcast,
    ".fma": _fma,
    ".math": _math,
    ".round": _round,
    ".private": _private,
    ".shared": _shared,
    ".inside": _inside,
    ".atomic": AtomicOp,
    ".meeting": _meeting,
    ".print": lambda: _print,
    ".breakpoint": lambda: breakpoint,
    ".failed": lambda: _failed,
    ".outside": lambda: _outside,
    ".trips": lambda: _trips,
    ".range": lambda: range,
    ".min": lambda: min,
    ".max": lambda: max,
    ".abs": lambda: abs,
    ".fabs": lambda: math.fabs,
    ".int": lambda: int,
    ".float": lambda: float,
}
