"""Assertions: kept where a launch is checked."""

from __future__ import annotations

import ast

from quernel.ir import nodes
from quernel.lang.conversions import shortened
from quernel.lang.expressions import compared, condition, evaluate
from quernel.lang.lowering import FunctionLowering
from quernel.lang.values import ObjectValue, Scalar, Value

__all__ = ["lower_assert"]


def lower_assert(lowering: FunctionLowering, node: ast.Assert) -> None:
    """`assert test, "message"`: kept where the launch is checked, as Python keeps it where it runs without `-O`.

    What it calls is called in a checked launch only. The assertion is looked at in either case. The parts of an `and`,
    and the links of a chain of comparisons, are asserted one by one, so that each reports the values that it compares.

    Raises:
        KernelSyntaxError: the message is no string known when the kernel is compiled.
    """
    message = _message(lowering, node)
    with lowering.new_block() as checked:
        for test in _conjuncts(node.test):
            _lower_part(lowering, node, test, message)
    if lowering.unit.options.checked and __debug__:
        lowering.block.extend(checked)


def _conjuncts(test: ast.expr) -> list[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in _conjuncts(value)]
    return [test]


def _lower_part(lowering: FunctionLowering, node: ast.Assert, test: ast.expr, message: str) -> None:
    if not isinstance(test, ast.Compare) or any(isinstance(op, ast.In | ast.NotIn) for op in test.ops):
        _emit(lowering, node, test, condition(lowering, test), message)
        return
    operands = [test.left, *test.comparators]
    left = evaluate(lowering, test.left)
    for number, op in enumerate(test.ops):
        mark = lowering.mark()
        right = evaluate(lowering, operands[number + 1])
        values = [left]
        lowering.loads_before(values, [mark], [operands[number]])
        sides = [_held(lowering, value, at) for value, at in zip((*values, right), operands[number:], strict=False)]
        held = compared(lowering, test, type(op), *sides)
        shown = {
            shortened(at): value
            for value, at in zip(sides, operands[number:], strict=False)
            if isinstance(value, Scalar) and value.constant is None
        }
        _emit(lowering, node, test, held, message, shown)
        left = sides[1]


def _held(lowering: FunctionLowering, value: Value, node: ast.expr) -> Value:
    return lowering.leaf(value, node) if isinstance(value, Scalar) else value


def _emit(
    lowering: FunctionLowering,
    node: ast.Assert,
    test: ast.expr,
    held: Scalar,
    message: str,
    shown: dict[str, Scalar] | None = None,
) -> None:
    known = shown or {}
    lowering.emit(
        nodes.Assert(
            condition=lowering.expr(held, test),
            site=0,
            values=tuple(lowering.expr(value, test) for value in known.values()),
            message=message,
            texts=tuple(known),
            loc=lowering.where(node),
        )
    )


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
