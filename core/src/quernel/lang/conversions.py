"""Conversions of values: what they meet in arithmetic, what they are assigned to, what they are cast to."""

from __future__ import annotations

import ast

from quernel.dtypes import DType, ScalarType, bool_, i64
from quernel.ir import nodes
from quernel.lang.constants import constant, converted, literal
from quernel.lang.lowering import FunctionLowering
from quernel.lang.refusals import Node
from quernel.lang.values import (
    ArrayValue,
    ObjectValue,
    Scalar,
    StructValue,
    TupleValue,
    Value,
    VectorValue,
    describe,
    named,
)
from quernel.wording import counted

__all__ = ["as_scalar", "cast", "meeting", "shortened", "stored", "to_index", "truth"]


def meeting(lowering: FunctionLowering, value: Scalar, dtype: DType, node: Node) -> Scalar:
    """`value` in the type that it takes where it meets another; the result is typed.

    Raises:
        KernelTypeError: a weak number that does not fit.
    """
    lowering.check_fits(value, dtype, node)
    return cast(lowering, value, dtype, node)


def cast(lowering: FunctionLowering, value: Scalar, dtype: DType, node: Node) -> Scalar:
    """`value` cast to `dtype`, by the language's cast rules: never refused."""
    target = ScalarType(dtype)
    if value.expr is None:
        assert value.constant is not None
        number = converted(value.constant, dtype)
        return Scalar(target, literal(number, dtype, lowering.where(node)), number if not dtype.is_float else None)
    if value.dtype is dtype:
        known = value.constant
        return Scalar(target, value.expr, known, has_load=value.has_load, depth=value.depth)
    known = converted(value.constant, dtype) if value.constant is not None and not dtype.is_float else None
    expr = nodes.Cast(operand=value.expr, type=dtype, loc=lowering.where(node))
    return lowering.made(target, expr, node, value, constant=known)


def stored(lowering: FunctionLowering, value: Scalar, element: DType, node: Node) -> nodes.Expr:
    """`value` as it is stored into an element: integers wrap, floats round.

    Raises:
        KernelTypeError: a float into an integer, or a number into a bool.
    """
    if element.is_bool and not value.dtype.is_bool:
        raise lowering.refuse.type(
            node,
            f"a value of type {named(value.type)} is stored into an array of bool",
            "write `bool(…)` or a comparison",
        )
    if value.dtype.is_float and not element.is_float:
        raise lowering.refuse.type(
            node,
            f"{_a_float(value)} is stored into an array of {element}",
            f"cast it, which truncates: `qn.{element}(…)`; or round it first: `qn.{element}(round(…))`",
        )
    return lowering.expr(cast(lowering, value, element, node), node)


def _a_float(value: Scalar) -> str:
    kind = named(value.type)
    return "a float" if kind == "float" else f"a float ({kind})"


def truth(lowering: FunctionLowering, value: Scalar, node: Node) -> Scalar:
    """Python's truth of a value: bools as they are, numbers where they are not zero."""
    if value.dtype.is_bool:
        return value
    if value.constant is not None:
        return constant(value.constant != 0)
    return cast(lowering, value, bool_, node)


def to_index(lowering: FunctionLowering, value: Scalar, node: Node, what: str) -> Scalar:
    """An integer as i64, as indices and the ends of ranges are.

    Raises:
        KernelTypeError: it is no integer.
    """
    if not value.dtype.is_integer:
        raise lowering.refuse.type(
            node, f"{what} must be an integer, not {named(value.type)}", "write `int(…)` around it"
        )
    return meeting(lowering, value, i64, node)


def as_scalar(lowering: FunctionLowering, value: Value, node: ast.expr, what: str = "") -> Scalar:
    """`value`, which must be a scalar. `what` says what it is; by default, the text of `node`.

    Raises:
        KernelTypeError: it is an array, a tuple or an object.
    """
    if isinstance(value, Scalar):
        return value
    what = what or f"`{shortened(node)}`"
    match value:
        case ArrayValue(type=type_):
            indices = ", ".join("ijkl"[: type_.ndim])
            raise lowering.refuse.type(
                node, f"{what} is a whole array ({type_}); a thread works on one element", f"index it: `[{indices}]`"
            )
        case TupleValue(items):
            raise lowering.refuse.type(
                node,
                f"{what} is a tuple of {counted(len(items), 'value')}",
                "unpack it: `a, b = …`, or index it: `…[0]`",
            )
        case VectorValue():
            raise lowering.refuse.type(
                node, f"{what} is a vector ({describe(value)}), not a number", "take a component: `.x`"
            )
        case StructValue(fields=fields):
            raise lowering.refuse.type(
                node, f"{what} is a struct ({describe(value)}), not a number", f"take a field: `.{fields[0]}`"
            )
        case ObjectValue(value=held):
            if held is None or isinstance(held, str):
                raise lowering.refuse.type(node, f"{what} {_no_number(held, what)}", "use a number")
            raise lowering.refuse.type(
                node,
                f"{what} is {describe(value)}, of type {type(held).__name__}, not a number",
                "pass it as an argument, or use a number",
            )


def _no_number(held: str | None, what: str) -> str:
    """What is said of a string or `None`: its value too, unless that is how it is written."""
    if what == f"`{held!r}`":
        return "is no number" if held is None else "is a string, not a number"
    return f"is {held!r}, not a number" if held is None else f"is the string {held!r}, not a number"


def shortened(node: ast.expr) -> str:
    """The text of an expression, for a message."""
    text = ast.unparse(node)
    return text if len(text) <= 40 else text[:37] + "…"
