"""Assertions: kept where a launch is checked."""

from __future__ import annotations

import ast

from quernel.ir import nodes
from quernel.lang.expressions import condition, evaluate
from quernel.lang.lowering import FunctionLowering
from quernel.lang.values import ObjectValue

__all__ = ["lower_assert"]


def lower_assert(lowering: FunctionLowering, node: ast.Assert) -> None:
    """`assert test, "message"`: kept where the launch is checked, as Python keeps it where it runs without `-O`.

    What it calls is called in a checked launch only. The assertion is looked at in either case.

    Raises:
        KernelSyntaxError: the message is no string known when the kernel is compiled.
    """
    message = _message(lowering, node)
    loc = lowering.where(node)
    with lowering.new_block() as checked:
        test = condition(lowering, node.test)
        held = lowering.expr(test, node.test)
        checked.append(nodes.Assert(condition=held, site=0, message=message, loc=loc))
    if lowering.unit.options.checked and __debug__:
        lowering.block.extend(checked)


def _message(lowering: FunctionLowering, node: ast.Assert) -> str:
    if node.msg is None:
        return ""
    value = evaluate(lowering, node.msg) if isinstance(node.msg, ast.Constant | ast.Name | ast.Attribute) else None
    if isinstance(value, ObjectValue) and isinstance(value.value, str):
        return value.value
    raise lowering.refuse.syntax(
        node.msg,
        "the message of an assertion must be a string that is known when the kernel is compiled",
        "write the text, or `print` the values",
    )
