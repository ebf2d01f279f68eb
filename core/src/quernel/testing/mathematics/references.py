"""The mathematical functions in f64, on arrays, total as the IR's are; and single values with 40 digits by mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from quernel.ir.math_functions import float_function
from quernel.ir.nodes import MathFunction

__all__ = ["MEASURED", "OF_ONE", "OF_TWO", "WHOLE", "exact_results", "precise_result"]

Array: TypeAlias = np.ndarray[Any, Any]

_UFUNCS: Final[dict[MathFunction, Any]] = {
    MathFunction.SQRT: np.sqrt,
    MathFunction.RSQRT: lambda x: 1 / np.sqrt(x),
    MathFunction.EXP: np.exp,
    MathFunction.EXP2: np.exp2,
    MathFunction.EXPM1: np.expm1,
    MathFunction.LOG: np.log,
    MathFunction.LOG2: np.log2,
    MathFunction.LOG10: np.log10,
    MathFunction.LOG1P: np.log1p,
    MathFunction.SIN: np.sin,
    MathFunction.COS: np.cos,
    MathFunction.TAN: np.tan,
    MathFunction.ASIN: np.arcsin,
    MathFunction.ACOS: np.arccos,
    MathFunction.ATAN: np.arctan,
    MathFunction.SINH: np.sinh,
    MathFunction.COSH: np.cosh,
    MathFunction.TANH: np.tanh,
    MathFunction.ASINH: np.arcsinh,
    MathFunction.ACOSH: np.arccosh,
    MathFunction.ATANH: np.arctanh,
    MathFunction.CBRT: np.cbrt,
    MathFunction.ATAN2: np.arctan2,
    MathFunction.POW: np.power,
    MathFunction.FMOD: np.fmod,
    MathFunction.HYPOT: np.hypot,
}
OF_TWO: Final = (MathFunction.ATAN2, MathFunction.POW, MathFunction.FMOD, MathFunction.HYPOT)
OF_ONE: Final = (
    *(function for function in _UFUNCS if function not in OF_TWO),
    *(MathFunction.ERF, MathFunction.ERFC, MathFunction.GAMMA, MathFunction.LGAMMA),
)
WHOLE: Final = (
    *(MathFunction.SIN, MathFunction.COS, MathFunction.EXP, MathFunction.LOG, MathFunction.TANH, MathFunction.ERF),
)
"""The functions that are tried on all 2**32 operands."""
MEASURED: Final = (*WHOLE, *(function for function in (*OF_ONE, *OF_TWO) if function not in WHOLE))


def exact_results(function: MathFunction, *operands: Array) -> Array:
    """The function of f32 arrays in f64, with an error of a few units of an f64's last place at most."""
    with np.errstate(all="ignore"):
        wide = [operand.astype(np.float64) for operand in operands]
        if function in _UFUNCS:
            return np.asarray(_UFUNCS[function](*wide), np.float64)
        (x,) = wide
        if function is MathFunction.ERF:
            return _erf(x)
        return _one_by_one(function, x)


def _one_by_one(function: MathFunction, x: Array) -> Array:
    return np.array([float_function(function, (value,)) for value in x.tolist()], np.float64)


def _erf(x: Array) -> Array:
    """Python's, which takes each value alone, only where it is neither 1 nor the start of its series."""
    result = np.sign(x)
    is_small = np.abs(x) < 2.0**-13
    result[is_small] = 2 / math.sqrt(math.pi) * x[is_small] * (1 - x[is_small] ** 2 / 3)
    is_between = ~is_small & (np.abs(x) < 6.0)
    result[is_between] = [math.erf(value) for value in x[is_between].tolist()]
    return result


def precise_result(function: MathFunction, operands: tuple[float, ...]) -> Any:
    """The function of finite operands with 40 digits, an mpmath number; `None` without mpmath or a finite result."""
    try:
        import mpmath as mp
    except ImportError:
        return None
    with mp.workdps(40 + 40 * (function in (MathFunction.SIN, MathFunction.COS, MathFunction.TAN))):
        try:
            result = _precise(mp, function)(*(mp.mpf(operand) for operand in operands))
        except (ArithmeticError, ValueError):
            return None
        return result if isinstance(result, mp.mpf) and mp.isfinite(result) else None


def _precise(mp: Any, function: MathFunction) -> Callable[..., Any]:
    named: dict[MathFunction, Callable[..., Any]] = {
        MathFunction.RSQRT: lambda x: 1 / mp.sqrt(x),
        MathFunction.EXP2: lambda x: mp.mpf(2) ** x,
        MathFunction.LOG2: lambda x: mp.log(x, 2),
        MathFunction.LGAMMA: lambda x: mp.log(abs(mp.gamma(x))),
        MathFunction.CBRT: lambda x: mp.sign(x) * mp.cbrt(abs(x)),
        MathFunction.POW: mp.power,
        MathFunction.FMOD: lambda x, y: mp.mpf(math.fmod(x, y)),  # It is exact, and mpmath's takes another sign.
    }
    return named.get(function) or getattr(mp, function.value)
