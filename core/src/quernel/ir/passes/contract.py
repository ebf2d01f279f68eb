"""Contraction: a product that is added or subtracted within one expression becomes a fused multiply-add.

Decided here, once, before the digest, so that every backend rounds alike. Of two products the right one is fused.
"""

from __future__ import annotations

from typing import TypeGuard

from quernel.dtypes import f32, f64
from quernel.ir.nodes import Binary, BinaryOp, Const, Expr, Fma, Module, Unary, UnaryOp
from quernel.ir.walk import map_expressions

__all__ = ["contract"]


def contract(module: Module) -> Module:
    """`module` with `a * b ± c` of f32 and f64 fused, unless its kernel's options say otherwise."""
    return map_expressions(module, _fused) if module.kernel.options.contract else module


def _fused(expr: Expr) -> Expr:
    if not isinstance(expr, Binary) or expr.type not in (f32, f64):
        return expr
    left, right, loc = expr.left, expr.right, expr.loc
    if expr.op is BinaryOp.ADD:
        if _is_product(right):
            return Fma(a=right.left, b=right.right, c=left, loc=loc)
        if _is_product(left):
            return Fma(a=left.left, b=left.right, c=right, loc=loc)
    elif expr.op is BinaryOp.SUB:
        if _is_product(right):
            return Fma(a=_negated(right.left), b=right.right, c=left, loc=loc)
        if _is_product(left):
            return Fma(a=left.left, b=left.right, c=_negated(right), loc=loc)
    return expr


def _is_product(expr: Expr) -> TypeGuard[Binary]:
    return isinstance(expr, Binary) and expr.op is BinaryOp.MUL


def _negated(expr: Expr) -> Expr:
    """`-expr`, exact and in its folded form."""
    if isinstance(expr, Const):
        return Const(value=-expr.value, type=expr.type, loc=expr.loc)
    if isinstance(expr, Unary) and expr.op is UnaryOp.NEG:
        return expr.operand
    return Unary(op=UnaryOp.NEG, operand=expr, loc=expr.loc)
