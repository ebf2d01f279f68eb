"""Instructions of AVX-512 that our own functions of f32 use, on vectors of any multiple of sixteen.

They save what other processors need several instructions for, above all of the kind that there are too few units for:
on Zen 4 products, comparisons and multiply-adds share theirs, while these run beside additions.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from quernel_cpu.emission.formulas import Formula, Term

__all__ = ["Kind", "Response", "exponent_of", "looked_up", "mantissa_of", "repaired", "scaled"]

_SIXTEEN = "<16 x float>"
_NOTHING = (_SIXTEEN, "poison")
_ALL = ("i16", "-1")
_ROUNDING_AS_IT_IS = ("i32", "4")


class Kind(enum.IntEnum):
    """What an f32 is, as `repaired` tells them apart."""

    QUIET_NAN = 0
    SIGNALING_NAN = 1
    ZERO = 2
    ONE = 3
    NEGATIVE_INFINITY = 4
    INFINITY = 5
    NEGATIVE = 6
    POSITIVE = 7


class Response(enum.IntEnum):
    """What `repaired` gives instead of a value."""

    VALUE = 0
    OPERAND = 2
    """The operand, a quiet NaN if it is one."""
    NAN = 3
    NEGATIVE_INFINITY = 4
    INFINITY = 5


def scaled(formula: Formula, x: Term, exponent: Term) -> Term:
    """`x * 2**floor(exponent)`, rounded once."""
    return formula.by_sixteen("mask.scalef.ps.512", (x, exponent, _NOTHING, _ALL, _ROUNDING_AS_IT_IS))


def exponent_of(formula: Formula, x: Term) -> Term:
    """The exponent of |x| as an f32, of subnormal numbers too; -inf of zero."""
    return formula.by_sixteen("mask.getexp.ps.512", (x, _NOTHING, _ALL, _ROUNDING_AS_IT_IS))


def mantissa_of(formula: Formula, x: Term) -> Term:
    """x without its exponent: its size is from 1 up to 2, of subnormal numbers too."""
    return formula.by_sixteen("mask.getmant.ps.512", (x, ("i32", "0"), _NOTHING, _ALL, _ROUNDING_AS_IT_IS))


def looked_up(formula: Formula, table: Iterable[float], index: Term) -> Term:
    """The number of a table of sixteen at the low four bits of an i32."""
    listed = ", ".join(f"float {formula.literal(number, 'float')}" for number in table)
    return formula.by_sixteen("permvar.sf.512", ((_SIXTEEN, f"<{listed}>"), index))


def repaired(formula: Formula, value: Term, x: Term, responses: Mapping[Kind, Response]) -> Term:
    """`value`, or what is said for the kind of number that the operand `x` is."""
    table = sum(response << 4 * kind for kind, response in responses.items())
    table -= (table & 1 << 31) << 1
    kinds = ("<16 x i32>", f"splat (i32 {table})")
    return formula.by_sixteen("mask.fixupimm.ps.512", (value, x, kinds, ("i32", "0"), _ALL, _ROUNDING_AS_IT_IS))
