"""Prints: strings and values that a thread hands to the host."""

from __future__ import annotations

import ast

from quernel.ir import nodes
from quernel.lang.lowering import FunctionLowering
from quernel.lang.trees import steps
from quernel.lang.values import ArrayValue, ObjectValue, Scalar, StructValue, TupleValue, Value, VectorValue

__all__ = ["lower_print"]


def lower_print(lowering: FunctionLowering, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> None:
    """`print("x =", x)`: strings known when the kernel is compiled, and numbers, which the host shows as Python does.

    Raises:
        KernelTypeError: an argument is a whole array, or another object.
        KernelSyntaxError: a keyword other than `sep`, or one that is no string known when the kernel is compiled.
    """
    separator = " "
    for name, given in keywords.items():
        if name != "sep":
            raise lowering.refuse.syntax(
                node, f"`{name}=` of `print` has no meaning in a kernel", "a print is one line; `sep=` takes a string"
            )
        if not isinstance(given, ObjectValue) or not isinstance(given.value, str):
            raise lowering.refuse.syntax(
                node,
                "the `sep=` of `print` must be a string that is known when the kernel is compiled",
                'write the text, as in `sep=", "`',
            )
        separator = given.value
    pieces = [""]
    values: list[nodes.Expr] = []

    def add(value: Value, at: ast.expr) -> None:
        match value:
            case ObjectValue(value=str() as text):
                pieces[-1] += text
            case Scalar():
                values.append(lowering.expr(value, at))
                pieces.append("")
            case TupleValue() | VectorValue() | StructValue():
                add_items(value, at)
            case ArrayValue() | ObjectValue():
                raise lowering.refuse.type(
                    at, f"`{ast.unparse(at)}` cannot be printed in a kernel", "print numbers and string literals"
                )

    def add_items(value: TupleValue | VectorValue | StructValue, at: ast.expr) -> None:
        pieces[-1] += f"{value.name}(" if isinstance(value, StructValue) else "("
        for number, (step, item) in enumerate(zip(steps(value), value.items, strict=True)):
            pieces[-1] += ", " if number else ""
            pieces[-1] += f"{step}=" if isinstance(value, StructValue) else ""
            add(item, at)
        pieces[-1] += ",)" if isinstance(value, TupleValue) and len(value.items) == 1 else ")"

    for number, (value, at) in enumerate(zip(arguments, node.args, strict=True)):
        pieces[-1] += separator if number else ""
        add(value, at)
    lowering.emit(nodes.Print(values=tuple(values), site=0, format=tuple(pieces), loc=lowering.where(node)))
