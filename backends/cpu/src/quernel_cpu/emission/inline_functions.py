"""Our own functions of f32 vectors: `exp`, `log`, `sin`, `cos`, `tanh`, `erf`, `pow`.

They are more exact than the C library's vector forms and mostly faster, and need no library. Each docstring says how
far a result may be from the exact one, in units of the last place, as all 2**32 operands (of `pow`: 10**8) show.
Coefficients of the functions beside `exp` and `log` are our own, made by `tests/benchmarks/fit_mathematics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from quernel.ir.nodes import MathFunction
from quernel_cpu.emission.avx512 import Kind, Response, exponent_of, looked_up, mantissa_of, repaired, scaled
from quernel_cpu.emission.formulas import Formula, Term, defined
from quernel_cpu.emission.inline_trigonometry import cosine, sine
from quernel_cpu.emission.text import Unit

__all__ = ["OWN_MATHEMATICS", "inline_function"]

OWN_MATHEMATICS = "own-mathematics"
"""Among a target's features: the functions here are used, not those of the C library."""


def inline_function(unit: Unit, function: MathFunction, single: str, lanes: int) -> str | None:
    """The symbol of our own function of vectors, where there is one for this type."""
    make = _FUNCTIONS.get(function)
    if make is None or single != "float" or OWN_MATHEMATICS not in unit.features:
        return None
    parameters = ("x", "y") if function is MathFunction.POW else ("x",)
    return defined(unit, f"q.{function.value}.f32", lanes, make, parameters)


# The polynomials and the splitting of ln 2 are those of the Cephes library (S. Moshier, "Methods and Programs for
# Mathematical Functions", 1989).
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
    *(2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_LOG2_E = 1.44269504088896341
_EXP_OF_SIXTEENTH = (1 / 6, 0.5 + (2**0.5 - 1) * (math.log(2) / 32) ** 2 / 12)
"""Of the series' next term, r**4 / 24, the second takes the share that leaves the least at most."""
_POWERS_OF_TWO = tuple(2 ** (k / 16) for k in range(16))

_INFINITY = math.inf
_SMALLEST_NORMAL = 2.0**-126
_ROOT_OF_HALF_BITS = 0x3F3504F3
_EXPONENT_BITS = -1 << 23
_NEAREST_INTEGER = 1.5 * 2.0**23
"""Added to a small f32, it leaves the nearest integer in the sum's low bits, ..."""
_NEAREST_INTEGER_BITS = 0x4B400000
"""... beside these."""
_NEAREST_SIXTEENTH = 1.5 * 2.0**19
"""The same for the nearest sixteenth."""
_NEAREST_INTEGER_WIDE = 1.5 * 2.0**52


def _exp(formula: Formula, x: Term) -> Term:
    """Within 1.1 units: 2**n * e**r, with r at most half of ln 2; with a table, of a sixteenth of it."""
    bounded = formula.select(x.is_("ogt", 89.0), formula.number(89.0, "float"), x)
    bounded = formula.select(bounded.is_("olt", -104.0), formula.number(-104.0, "float"), bounded)
    if formula.has_sixteens:
        return _exp_by_sixteenths(formula, bounded)
    shifted, less_one = _exponential_less_one(formula, bounded)
    return formula.times_power_of_two(less_one + 1.0, _integer(shifted))


def _exp_by_sixteenths(formula: Formula, x: Term) -> Term:
    """2**n * 2**(k / 16) * e**r: the whole table is in one register, so that a look-up is one instruction."""
    shifted = formula.multiply_add(x, _LOG2_E, _NEAREST_SIXTEENTH)
    n = shifted - _NEAREST_SIXTEENTH
    r = formula.multiply_add(n, -_LN2_HIGH, x)
    r = formula.multiply_add(n, -_LN2_LOW, r)
    less_one = formula.multiply_add(formula.polynomial(r, _EXP_OF_SIXTEENTH), r * r, r)
    power = looked_up(formula, _POWERS_OF_TWO, shifted.bits())
    return scaled(formula, formula.multiply_add(power, less_one, power), n)


def _exponential_less_one(formula: Formula, x: Term) -> tuple[Term, Term]:
    """n, above `_NEAREST_INTEGER`, and e**r - 1, with x = n * ln 2 + r and r at most half of ln 2."""
    shifted = formula.multiply_add(x, _LOG2_E, _NEAREST_INTEGER)
    n = shifted - _NEAREST_INTEGER
    r = formula.multiply_add(n, -_LN2_HIGH, x)
    r = formula.multiply_add(n, -_LN2_LOW, r)
    return shifted, formula.multiply_add(formula.polynomial(r, _EXP), r * r, r)


def _integer(shifted: Term) -> Term:
    """The integer that lies above `_NEAREST_INTEGER`."""
    return shifted.bits() - _NEAREST_INTEGER_BITS


def _tanh(formula: Formula, x: Term) -> Term:
    """Within 3 units: t / (t + 2), with t = e**(2 * |x|) - 1."""
    size = formula.intrinsic("fabs", x)
    bounded = formula.select(size.is_("ogt", 9.1), formula.number(9.1, "float"), size)
    shifted, less_one = _exponential_less_one(formula, bounded + bounded)
    power = ((_integer(shifted) + 127) << 23).as_bits()
    t = formula.multiply_add(power, less_one, power - 1.0)
    return formula.intrinsic("copysign", t / (t + 2.0), x)


def _mantissa_and_exponent(formula: Formula, x: Term) -> tuple[Term, Term]:
    """m - 1 and e of a positive x = m * 2**e, with m between the roots of 1/2 and 2; subnormal numbers included."""
    if formula.has_sixteens:
        bits = mantissa_of(formula, x).bits()
        mantissa = (bits - ((bits - _ROOT_OF_HALF_BITS) & _EXPONENT_BITS)).as_bits()
        return mantissa - 1.0, exponent_of(formula, x) - exponent_of(formula, mantissa)
    is_tiny = x.is_("olt", _SMALLEST_NORMAL)
    normal = formula.select(is_tiny, x * 2.0**23, x)
    bits = normal.bits()
    exponent = (bits - _ROOT_OF_HALF_BITS) >> 23
    mantissa = (bits - (exponent << 23)).as_bits()
    return mantissa - 1.0, exponent.as_("float") + formula.select(is_tiny, formula.number(-23.0, "float"), 0.0)


_LOG_SPECIALS = {
    Kind.QUIET_NAN: Response.OPERAND,
    Kind.SIGNALING_NAN: Response.OPERAND,
    Kind.ZERO: Response.NEGATIVE_INFINITY,
    Kind.NEGATIVE_INFINITY: Response.NAN,
    Kind.INFINITY: Response.INFINITY,
    Kind.NEGATIVE: Response.NAN,
}


def _log(formula: Formula, x: Term) -> Term:
    """Within 1.0 units: e * ln 2 + log m, with m between the roots of 1/2 and 2."""
    f, e = _mantissa_and_exponent(formula, x)
    square = f * f
    terms = formula.multiply_add(e, _LN2_LOW, formula.polynomial(f, _LOG) * (square * f))
    near = f + formula.multiply_add(square, -0.5, terms)
    value = formula.multiply_add(e, _LN2_HIGH, near)
    if formula.has_sixteens:
        return repaired(formula, value, x, _LOG_SPECIALS)
    value = formula.select(x.is_("ueq", _INFINITY), x, value)
    value = formula.select(x.is_("olt", 0.0), formula.number(math.nan, "float"), value)
    return formula.select(x.is_("oeq", 0.0), formula.number(-_INFINITY, "float"), value)


_ERF = (
    *(1.9801671413688382e-08, -1.9546075691323495e-06, 0.00014248369552660733, 0.0037377234548330307),
    *(0.05069312825798988, 0.20083783566951752, 0.1283791065216064),
)
_ERF_BOTTOM = (0.000964024686254561, 0.014429266564548016, 0.11537455767393112, 0.5113195180892944)


def _erf(formula: Formula, x: Term) -> Term:
    """Within 7 units: x + x * p(x**2), by 1 + x**2 * q(x**2); 1 where x is large, and never beyond it."""
    square = x * x
    top = formula.multiply_add(x, formula.polynomial(square, _ERF), x)
    value = top / formula.polynomial(square, _ERF_BOTTOM, 1.0)
    one = formula.intrinsic("copysign", formula.number(1.0, "float"), x)
    is_one = formula.intrinsic("fabs", x).is_("ogt", 3.92) | formula.intrinsic("fabs", value).is_("ogt", 1.0)
    return formula.select(is_one, one, value)


_LOG2 = (
    *(0.07737495005130768, -0.1428610384464264, 0.14475984871387482, -0.14315344393253326),
    *(0.15876737236976624, -0.18030068278312683, 0.2061755359172821, -0.24045316874980927),
)
_LOG2_WIDE = (
    *(0.28853728824352465, -0.3606736746966275, 0.48089836144951226, -0.7213475208697603, 1.4426950408686159),
)
_EXP2 = (
    *(0.00015353342524139334, 0.0013398901134802918, 0.009618437608272348, 0.05550332407347423),
    *(0.24022647910213252, 0.6931472028819478, 1.0),
)


def _pow(formula: Formula, x: Term, y: Term) -> Term:
    """Within 0.6 units, so powers that an f32 holds come out exactly: 2**(y * log2 |x|) in f64.

    The terms of the logarithm's series beyond the fifth are small enough for f32. Special values as C's Annex F has
    them.
    """
    size = formula.intrinsic("fabs", x)
    f, e = _mantissa_and_exponent(formula, size)
    f_wide = f.as_("double")
    series = formula.multiply_add(formula.polynomial(f, _LOG2).as_("double"), f_wide, _LOG2_WIDE[0])
    for coefficient in _LOG2_WIDE[1:]:
        series = formula.multiply_add(series, f_wide, coefficient)
    logarithm = formula.multiply_add(series, f_wide, e.as_("double"))
    logarithm = formula.select(size.is_("ueq", _INFINITY), size.as_("double"), logarithm)
    logarithm = formula.select(size.is_("oeq", 0.0), formula.number(-_INFINITY, "double"), logarithm)
    power = y.as_("double") * logarithm
    power = formula.select(power.is_("ogt", 200.0), formula.number(200.0, "double"), power)
    power = formula.select(power.is_("olt", -200.0), formula.number(-200.0, "double"), power)
    shifted = power + _NEAREST_INTEGER_WIDE
    value = formula.polynomial(power - (shifted - _NEAREST_INTEGER_WIDE), _EXP2)
    # A NaN stays one: its low bits, which come from an f32, are zeros, and nothing is added.
    result = (value.bits() + (shifted.bits() << 52)).as_bits().as_("float")
    return _with_specials_of_pow(formula, x, y, size, result)


def _with_specials_of_pow(formula: Formula, x: Term, y: Term, size: Term, power: Term) -> Term:
    half = y * 0.5
    is_integer = formula.intrinsic("trunc", y).is_("oeq", y)
    is_odd = is_integer & formula.intrinsic("trunc", half).is_("one", half)
    signed = formula.intrinsic("copysign", power, x)
    result = formula.select(is_odd, signed, power)
    is_outside = x.is_("olt", 0.0) & x.is_("ogt", -_INFINITY) & (is_integer ^ 1)
    result = formula.select(is_outside, formula.number(math.nan, "float"), result)
    is_infinite = formula.intrinsic("fabs", y).is_("oeq", _INFINITY)
    is_one = x.is_("oeq", 1.0) | y.is_("oeq", 0.0) | (size.is_("oeq", 1.0) & is_infinite)
    return formula.select(is_one, formula.number(1.0, "float"), result)


_FUNCTIONS: dict[MathFunction, Callable[..., Term]] = {
    MathFunction.EXP: _exp,
    MathFunction.LOG: _log,
    MathFunction.SIN: sine,
    MathFunction.COS: cosine,
    MathFunction.TANH: _tanh,
    MathFunction.ERF: _erf,
    MathFunction.POW: _pow,
}
