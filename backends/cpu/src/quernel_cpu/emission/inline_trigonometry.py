"""Our own f32 sine and cosine, for operands of any size.

|x| is n * pi/2 + r. Up to 2**16 the multiple of pi/2 is subtracted in three parts (W. Cody and W. Waite, "Software
Manual for the Elementary Functions", 1980). Beyond it, |x| = m * 2**k with an integer m of 24 bits, and 2**k * 2/pi,
less multiples of 4, is found in a table with 80 digits (as M. Payne and R. Hanek do it, "Radian Reduction for
Trigonometric Functions", 1983): m times its first 29 digits is exact in f64, and n leaves it exactly. No f32 of that
size is nearer to a multiple of pi/2 than 2**-30 of pi/2, and the sum is within 2**-56 of it: r is right to 26 digits.
Coefficients are our own, made by `tests/benchmarks/fit_mathematics.py`.
"""

from __future__ import annotations

import math

from quernel_cpu.emission.formulas import Formula, Term, defined
from quernel_cpu.emission.text import Unit
from quernel_cpu.emission.values import float_literal

__all__ = ["cosine", "sine"]

_SINE = (-0.00019507878459990025, 0.008332106284797192, -0.16666653752326965)
_COSINE = (2.4432092686765827e-05, -0.0013887308305129409, 0.04166664555668831)

_SINGLE_PARTS = (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15)
"""pi/2 in three f32, each cut off, so that no part is negative."""
_DOUBLE_PARTS = (1.5707963267341256, 6.077100506506192e-11)
"""pi/2 in f64: 33 digits, which an integer of 16 digits multiplies exactly, and the rest."""
_TWO_BY_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBB
"""2/pi, in units of 2**-240."""
_LARGE = 65536.0
_FIRST_EXPONENT = 16
_NEAREST_INTEGER = 1.5 * 2.0**23
_NEAREST_INTEGER_WIDE = 1.5 * 2.0**52
_SIGN = -0x80000000


def sine(formula: Formula, x: Term) -> Term:
    """Within 1.7 units."""
    return _of_any_size(formula, x, is_cosine=False)


def cosine(formula: Formula, x: Term) -> Term:
    """Within 1.7 units."""
    return _of_any_size(formula, x, is_cosine=True)


def _of_any_size(formula: Formula, x: Term, *, is_cosine: bool) -> Term:
    size = formula.intrinsic("fabs", x)
    usual = _signed(formula, x, *_reduced(formula, size), is_cosine=is_cosine)
    name = "q.cos.large.f32" if is_cosine else "q.sin.large.f32"

    def large(formula: Formula, x: Term) -> Term:
        return _signed(formula, x, *_reduced_by_table(formula, x), is_cosine=is_cosine)

    is_large = size.is_("oge", _LARGE) & size.is_("olt", math.inf)
    symbol = defined(formula.unit, name, formula.lanes, large, is_inlined=False)
    return formula.replaced_where(is_large, symbol, x, usual)


def _reduced(formula: Formula, size: Term) -> tuple[Term, Term]:
    """r, and the integer whose last two bits are those of n; NaN for infinities."""
    shifted = formula.multiply_add(size, 2 / math.pi, _NEAREST_INTEGER)
    n = shifted - _NEAREST_INTEGER
    if formula.has_fma:
        r = size
        for part in _SINGLE_PARTS:
            r = formula.multiply_add(n, -part, r)
    else:  # Products with more than 24 digits would be rounded.
        wide, wide_n = size.as_("double"), n.as_("double")
        for part in _DOUBLE_PARTS:
            wide = wide - wide_n * part
        r = wide.as_("float")
    return r, shifted.bits()


def _reduced_by_table(formula: Formula, x: Term) -> tuple[Term, Term]:
    """The same for sizes from 2**16 on; any numbers for others."""
    bits = x.bits() & 0x7FFFFFFF
    row = (bits >> 23) - (127 + _FIRST_EXPONENT)
    row = formula.intrinsic("smin", formula.intrinsic("smax", row, 0), 127 - _FIRST_EXPONENT)
    m = ((bits & 0x7FFFFF) | 0x800000).as_("double")
    table = _table(formula.unit)
    high = m * formula.element(table, row << 1)
    low = m * formula.element(table, (row << 1) + 1)
    shifted = (high + low) + _NEAREST_INTEGER_WIDE
    turns = (high - (shifted - _NEAREST_INTEGER_WIDE)) + low
    return (turns * (math.pi / 2)).as_("float"), shifted.bits().as_("i32")


def _signed(formula: Formula, x: Term, r: Term, n: Term, *, is_cosine: bool) -> Term:
    """The sine or cosine of x from those of r."""
    square = r * r
    of_sine = formula.multiply_add(r * square, formula.polynomial(square, _SINE), r)
    near_one = formula.multiply_add(square, -0.5, 1.0)
    of_cosine = formula.multiply_add(square * square, formula.polynomial(square, _COSINE), near_one)
    is_odd = (n & 1).is_("ne", 0)
    if is_cosine:
        value = formula.select(is_odd, of_sine, of_cosine)
        sign = ((n + 1) << 30) & _SIGN
    else:
        value = formula.select(is_odd, of_cosine, of_sine)
        sign = ((n << 30) ^ x.bits()) & _SIGN
    return (value.bits() ^ sign).as_bits()


def _table(unit: Unit) -> str:
    return unit.define("q.two.by.pi", _table_text)


def _table_text() -> str:
    rows = []
    for exponent in range(_FIRST_EXPONENT, 128):
        # In units of 2**-247, so that the first row's is shifted by none.
        rest = (_TWO_BY_PI << (exponent - _FIRST_EXPONENT)) % (4 << 247)
        high = rest >> 220
        rows += [high / 2**27, (rest - (high << 220)) / 2**247]
    listed = ", ".join(f"double {float_literal(value)}" for value in rows)
    return f"@q.two.by.pi = internal constant [{len(rows)} x double] [{listed}], align 64"
