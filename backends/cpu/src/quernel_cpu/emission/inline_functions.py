"""Our own f32 functions, in straight-line code that vectors run as single values do.

They are faster than the C library's vector forms, and more exact. The polynomials and the splitting of ln 2 are those
of the Cephes library (S. Moshier, "Methods and Programs for Mathematical Functions", 1989). `exp` is within 1.1 units
in the last place and `log` within 1.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from quernel.ir.nodes import MathFunction
from quernel_cpu.emission.text import Unit
from quernel_cpu.emission.values import float_literal

__all__ = ["inline_function"]

_ATTRIBUTES = "alwaysinline nounwind willreturn memory(none)"


def inline_function(function: MathFunction, unit: Unit, llvm: str) -> tuple[str, Callable[[], str]] | None:
    """The name and the maker of a function of one operand, where there is one for this type."""
    make = {MathFunction.EXP: _exp, MathFunction.LOG: _log}.get(function)
    if make is None or llvm != "float":
        return None
    name = f"q.{function.value}.f32"
    return name, lambda: make(unit, name)


def _polynomial(x: str, coefficients: tuple[float, ...], fused: str, result: str) -> str:
    """Horner's scheme, the highest power first."""
    lines, before = [], _f32(coefficients[0])
    for number, coefficient in enumerate(coefficients[1:]):
        name = result if number == len(coefficients) - 2 else f"{result}.{number}"
        lines.append(f"  {name} = call float {fused}(float {before}, float {x}, float {_f32(coefficient)})")
        before = name
    return "\n".join(lines)


def _f32(value: float) -> str:
    """A literal of the nearest f32."""
    return float_literal(float(struct.unpack("<f", struct.pack("<f", value))[0]))


_EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4


_HALVES = """  %half = ashr i32 %exponent, 1
  %rest = sub i32 %exponent, %half
  %half.biased = add i32 %half, 127
  %rest.biased = add i32 %rest, 127
  %half.bits = shl i32 %half.biased, 23
  %rest.bits = shl i32 %rest.biased, 23
  %half.power = bitcast i32 %half.bits to float
  %rest.power = bitcast i32 %rest.bits to float
  %partial = fmul float %value, %half.power
  %result = fmul float %partial, %rest.power"""
"""The power of two in two halves, so that results which underflow gradually are rounded once."""


def _exp(unit: Unit, name: str) -> str:
    scaling = _HALVES
    if "avx512f" in unit.features:  # Where one instruction multiplies by a power of two.
        power = unit.declare("float", "llvm.ldexp.f32.i32", "float", "i32")
        scaling = f"  %result = call float {power}(float %value, i32 %exponent)"
    fused = unit.declare("float", "llvm.fmuladd.f32", "float", "float", "float")
    nearest = unit.declare("float", "llvm.rint.f32", "float")
    return f"""define internal float @{name}(float %x) {_ATTRIBUTES} {{
  %too.large = fcmp ogt float %x, {_f32(89.0)}
  %bounded.above = select i1 %too.large, float {_f32(89.0)}, float %x
  %too.small = fcmp olt float %bounded.above, {_f32(-104.0)}
  %bounded = select i1 %too.small, float {_f32(-104.0)}, float %bounded.above
  %scaled = fmul float %bounded, {_f32(1.44269504088896341)}
  %n = call float {nearest}(float %scaled)
  %r.high = call float {fused}(float %n, float {_f32(-_LN2_HIGH)}, float %bounded)
  %r = call float {fused}(float %n, float {_f32(-_LN2_LOW)}, float %r.high)
{_polynomial("%r", _EXP, fused, "%p")}
  %square = fmul float %r, %r
  %tail = call float {fused}(float %p, float %square, float %r)
  %value = fadd float %tail, {_f32(1.0)}
  %is.nan = fcmp uno float %x, %x
  %n.safe = select i1 %is.nan, float {_f32(0.0)}, float %n
  %exponent = fptosi float %n.safe to i32
{scaling}
  ret float %result
}}
"""


def _log(unit: Unit, name: str) -> str:
    # The mantissa is taken between sqrt(1/2) and sqrt(2); a subnormal is scaled into the normal range before.
    fused = unit.declare("float", "llvm.fmuladd.f32", "float", "float", "float")
    return f"""define internal float @{name}(float %x) {_ATTRIBUTES} {{
  %is.tiny = fcmp olt float %x, {_f32(2.0**-126)}
  %raised = fmul float %x, {_f32(2.0**23)}
  %normal = select i1 %is.tiny, float %raised, float %x
  %bias = select i1 %is.tiny, float {_f32(-23.0)}, float {_f32(0.0)}
  %bits = bitcast float %normal to i32
  %from.root = sub i32 %bits, 1060439283
  %exponent = ashr i32 %from.root, 23
  %exponent.bits = shl i32 %exponent, 23
  %mantissa.bits = sub i32 %bits, %exponent.bits
  %mantissa = bitcast i32 %mantissa.bits to float
  %e.raw = sitofp i32 %exponent to float
  %e = fadd float %e.raw, %bias
  %f = fsub float %mantissa, {_f32(1.0)}
  %square = fmul float %f, %f
{_polynomial("%f", _LOG, fused, "%p")}
  %cube = fmul float %square, %f
  %high.terms = fmul float %p, %cube
  %with.low = call float {fused}(float %e, float {_f32(_LN2_LOW)}, float %high.terms)
  %with.square = call float {fused}(float %square, float {_f32(-0.5)}, float %with.low)
  %near = fadd float %f, %with.square
  %finite = call float {fused}(float %e, float {_f32(_LN2_HIGH)}, float %near)
  %is.special = fcmp ueq float %x, {float_literal(float("inf"))}
  %above = select i1 %is.special, float %x, float %finite
  %is.negative = fcmp olt float %x, {_f32(0.0)}
  %checked = select i1 %is.negative, float {float_literal(float("nan"))}, float %above
  %is.zero = fcmp oeq float %x, {_f32(0.0)}
  %result = select i1 %is.zero, float {float_literal(float("-inf"))}, float %checked
  ret float %result
}}
"""
