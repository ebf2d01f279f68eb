"""The mathematical functions that the languages of the C family call as C does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quernel.ir.nodes import MathFunction

__all__ = ["C_MATH"]

_OF_ONE: Final = (
    MathFunction.SQRT,
    MathFunction.FLOOR,
    MathFunction.CEIL,
    MathFunction.TRUNC,
    MathFunction.RINT,
    MathFunction.EXP,
    MathFunction.EXP2,
    MathFunction.EXPM1,
    MathFunction.LOG,
    MathFunction.LOG2,
    MathFunction.LOG10,
    MathFunction.LOG1P,
    MathFunction.SIN,
    MathFunction.COS,
    MathFunction.TAN,
    MathFunction.ASIN,
    MathFunction.ACOS,
    MathFunction.ATAN,
    MathFunction.SINH,
    MathFunction.COSH,
    MathFunction.TANH,
    MathFunction.ASINH,
    MathFunction.ACOSH,
    MathFunction.ATANH,
    MathFunction.ERF,
    MathFunction.ERFC,
    MathFunction.LGAMMA,
    MathFunction.CBRT,
)
_OF_TWO: Final = (MathFunction.ATAN2, MathFunction.POW, MathFunction.FMOD, MathFunction.HYPOT, MathFunction.COPYSIGN)

C_MATH: Final[Mapping[MathFunction, str]] = {
    **{function: f"{function.value}{{f}}({{0}})" for function in _OF_ONE},
    **{function: f"{function.value}{{f}}({{0}}, {{1}})" for function in _OF_TWO},
    MathFunction.GAMMA: "tgamma{f}({0})",
}
"""Templates for `Dialect.math`: `{f}` is the suffix of a function of f32, where the language has one."""
