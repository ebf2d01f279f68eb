"""What operations of the IR give, for whoever knows what a thread holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from quernel.dtypes import DType
from quernel.ir import semantics
from quernel.ir.nodes import Binary, Bitcast, Cast, Compare, Const, Expr, Fma, Math, Select, Unary
from quernel.ir.semantics import Value

Frame = TypeVar("Frame")


def operation(expr: Expr, value: Callable[[Expr, Frame], Value], frame: Frame) -> Value:
    """The value of an expression that reads nothing of the thread itself; `value` gives those of its operands."""
    match expr:
        case Const():
            return expr.value
        case Unary():
            return semantics.unary(expr.op, value(expr.operand, frame), scalar(expr))
        case Binary():
            left, right = value(expr.left, frame), value(expr.right, frame)
            return semantics.binary(expr.op, left, right, scalar(expr))
        case Compare():
            return semantics.compare(expr.op, value(expr.left, frame), value(expr.right, frame))
        case Select():
            condition = value(expr.condition, frame)
            then, otherwise = value(expr.then, frame), value(expr.otherwise, frame)
            return then if condition else otherwise
        case Cast():
            return semantics.cast(value(expr.operand, frame), scalar(expr.operand), expr.type)
        case Bitcast():
            return semantics.bitcast(value(expr.operand, frame), scalar(expr.operand), expr.type)
        case Fma():
            a, b, c = (float(value(part, frame)) for part in (expr.a, expr.b, expr.c))
            return semantics.fma(a, b, c, scalar(expr))
        case Math():
            operands = tuple(value(operand, frame) for operand in expr.operands)
            return semantics.math_function(expr.function, operands, scalar(expr.operands[0]))
        case _:
            raise AssertionError(expr)


def scalar(expr: Expr) -> DType:
    dtype = expr.type
    assert isinstance(dtype, DType)
    return dtype
