"""The mathematical functions of the IR on single values, in double precision, total as C's are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from quernel.dtypes import DType
from quernel.ir.nodes import MathFunction

__all__ = ["EXACT_FUNCTIONS", "INTEGER_FUNCTIONS", "PREDICATES", "float_function", "integer_function", "num_operands"]

PREDICATES: Final = frozenset({MathFunction.ISNAN, MathFunction.ISINF, MathFunction.ISFINITE})
"""Functions of floats that give bool."""

INTEGER_FUNCTIONS: Final = frozenset({MathFunction.POPCOUNT, MathFunction.CLZ, MathFunction.CTZ})
"""Functions of integers, in their type."""

EXACT_FUNCTIONS: Final = (
    frozenset(
        {
            MathFunction.SQRT,
            MathFunction.FLOOR,
            MathFunction.CEIL,
            MathFunction.TRUNC,
            MathFunction.RINT,
            MathFunction.FMOD,
            MathFunction.COPYSIGN,
        }
    )
    | PREDICATES
    | INTEGER_FUNCTIONS
)
"""Functions with one right result, which every exact backend gives; only these are ever folded."""


def num_operands(function: MathFunction) -> int:
    """How many operands the function takes."""
    return 2 if function in _OF_TWO else 1


def float_function(function: MathFunction, operands: tuple[float, ...]) -> float | bool:
    """The function of doubles; a bool for `PREDICATES`. Domain and range errors give what C gives."""
    try:
        if function in _OF_TWO:
            left, right = operands
            return _OF_TWO[function](left, right)
        return _OF_ONE[function](operands[0])
    except OverflowError:
        return _overflowed(function, operands)
    except ValueError:
        return _at_singularity(function, operands)


def integer_function(function: MathFunction, value: int, dtype: DType) -> int:
    """The count of bits of `value`, an integer of `dtype`; the width for zeros before or behind the ones of 0."""
    bits = value & ((1 << dtype.bits) - 1)
    if function is MathFunction.POPCOUNT:
        return bits.bit_count()
    if bits == 0:
        return dtype.bits
    if function is MathFunction.CLZ:
        return dtype.bits - bits.bit_length()
    return (bits & -bits).bit_length() - 1


def _keeping_sign(rounded: Callable[[float], int]) -> Callable[[float], float]:
    def function(x: float) -> float:
        return math.copysign(rounded(x), x) if math.isfinite(x) else x

    return function


def _rsqrt(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0.0 else 1.0 / math.sqrt(x)


_OF_ONE: Final[dict[MathFunction, Callable[[float], float | bool]]] = {
    MathFunction.SQRT: math.sqrt,
    MathFunction.RSQRT: _rsqrt,
    MathFunction.FLOOR: _keeping_sign(math.floor),
    MathFunction.CEIL: _keeping_sign(math.ceil),
    MathFunction.TRUNC: _keeping_sign(math.trunc),
    MathFunction.RINT: _keeping_sign(round),
    MathFunction.EXP: math.exp,
    MathFunction.EXP2: math.exp2,
    MathFunction.EXPM1: math.expm1,
    MathFunction.LOG: math.log,
    MathFunction.LOG2: math.log2,
    MathFunction.LOG10: math.log10,
    MathFunction.LOG1P: math.log1p,
    MathFunction.SIN: math.sin,
    MathFunction.COS: math.cos,
    MathFunction.TAN: math.tan,
    MathFunction.ASIN: math.asin,
    MathFunction.ACOS: math.acos,
    MathFunction.ATAN: math.atan,
    MathFunction.SINH: math.sinh,
    MathFunction.COSH: math.cosh,
    MathFunction.TANH: math.tanh,
    MathFunction.ASINH: math.asinh,
    MathFunction.ACOSH: math.acosh,
    MathFunction.ATANH: math.atanh,
    MathFunction.ERF: math.erf,
    MathFunction.ERFC: math.erfc,
    MathFunction.GAMMA: math.gamma,
    MathFunction.LGAMMA: math.lgamma,
    MathFunction.CBRT: math.cbrt,
    MathFunction.ISNAN: math.isnan,
    MathFunction.ISINF: math.isinf,
    MathFunction.ISFINITE: math.isfinite,
}
_OF_TWO: Final[dict[MathFunction, Callable[[float, float], float]]] = {
    MathFunction.ATAN2: math.atan2,
    MathFunction.POW: math.pow,
    MathFunction.FMOD: math.fmod,
    MathFunction.HYPOT: math.hypot,
    MathFunction.COPYSIGN: math.copysign,
}
_ODD: Final = frozenset({MathFunction.SINH, MathFunction.GAMMA})


def _is_odd(x: float) -> bool:
    return math.isfinite(x) and x % 2.0 == 1.0


def _overflowed(function: MathFunction, operands: tuple[float, ...]) -> float:
    """The infinity of a result that is too large for a double."""
    x = operands[0]
    if function in _ODD or (function is MathFunction.POW and _is_odd(operands[1])):
        return math.copysign(math.inf, x)
    return math.inf


def _at_singularity(function: MathFunction, operands: tuple[float, ...]) -> float:
    """The value outside the domain: an infinity at a pole, else NaN."""
    x = operands[0]
    match function:
        case MathFunction.LOG | MathFunction.LOG2 | MathFunction.LOG10 if x == 0.0:
            return -math.inf
        case MathFunction.LOG1P if x == -1.0:
            return -math.inf
        case MathFunction.ATANH if abs(x) == 1.0:
            return math.copysign(math.inf, x)
        case MathFunction.GAMMA if x == 0.0:
            return math.copysign(math.inf, x)
        case MathFunction.LGAMMA:
            return math.inf
        case MathFunction.POW if x == 0.0:
            return math.copysign(math.inf, x) if _is_odd(operands[1]) else math.inf
        case _:
            return math.nan
