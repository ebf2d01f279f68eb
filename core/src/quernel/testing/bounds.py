"""How far the result of each mathematical function may be from the exact one, in units of the last place."""

from __future__ import annotations

from typing import Final

from quernel.ir.nodes import MathFunction

__all__ = ["BOUNDS", "bound_of"]

BOUNDS: Final[dict[MathFunction, float]] = {
    MathFunction.RSQRT: 2,
    MathFunction.EXP: 4,
    MathFunction.EXP2: 4,
    MathFunction.EXPM1: 4,
    MathFunction.LOG: 4,
    MathFunction.LOG2: 4,
    MathFunction.LOG10: 4,
    MathFunction.LOG1P: 4,
    MathFunction.SIN: 4,
    MathFunction.COS: 4,
    MathFunction.TAN: 5,
    MathFunction.ASIN: 4,
    MathFunction.ACOS: 4,
    MathFunction.ATAN: 4,
    MathFunction.ATAN2: 6,
    MathFunction.SINH: 4,
    MathFunction.COSH: 4,
    MathFunction.TANH: 5,
    MathFunction.ASINH: 4,
    MathFunction.ACOSH: 4,
    MathFunction.ATANH: 5,
    MathFunction.CBRT: 4,
    MathFunction.HYPOT: 4,
    MathFunction.POW: 16,
    MathFunction.ERF: 16,
    MathFunction.ERFC: 16,
    MathFunction.GAMMA: 16,
    MathFunction.LGAMMA: 16,
}
"""For f32 and f64. f16 and bf16 compute in f32 and round, which adds half a unit of their own."""


def bound_of(function: MathFunction) -> float:
    """The bound in f32 and f64; 0.5, correctly rounded, for functions with one right result."""
    return BOUNDS.get(function, 0.5)
