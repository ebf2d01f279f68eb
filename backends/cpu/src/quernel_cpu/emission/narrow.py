"""f16 and bf16 in integer code: bits to f32 and back, and rounding once from wider numbers.

Without hardware LLVM would call run-time functions for these conversions that are nowhere to be found. A target with
half-precision instructions uses them for f16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quernel.dtypes import DType, f16, f64
from quernel_cpu.emission.text import Unit
from quernel_cpu.emission.values import float_literal, is_narrow, register_type

if TYPE_CHECKING:
    from quernel_cpu.emission.arithmetic import Arithmetic

__all__ = ["bits_to_float", "float_to_bits", "integer_to_narrow", "rounded", "to_narrow"]


def bits_to_float(arithmetic: Arithmetic, dtype: DType, bits: str) -> str:
    """The `float` that 16 bits of the narrow type stand for."""
    if dtype is f16:
        if _has_half(arithmetic):
            half = arithmetic.convert("bitcast", "i16", bits, "half")
            return arithmetic.convert("fpext", "half", half, "float")
        return arithmetic.called("float", "q.float_of_f16", _float_of_f16, "i16", bits)
    return arithmetic.called("float", "q.float_of_bf16", _float_of_bf16, "i16", bits)


def float_to_bits(arithmetic: Arithmetic, dtype: DType, value: str) -> str:
    """The 16 bits of a `float` rounded to the narrow type; a NaN stays one, whatever its bits."""
    if dtype is f16:
        if _has_half(arithmetic):
            half = arithmetic.convert("fptrunc", "float", value, "half")
            return arithmetic.convert("bitcast", "half", half, "i16")
        return arithmetic.called("i16", "q.f16_of_float", _f16_of_float, "float", value)
    return arithmetic.called("i16", "q.bf16_of_float", _bf16_of_float, "float", value)


def rounded(arithmetic: Arithmetic, dtype: DType, value: str) -> str:
    """A result as the type's register form: narrow types round a `float`, the others pass."""
    if not is_narrow(dtype):
        return value
    return bits_to_float(arithmetic, dtype, float_to_bits(arithmetic, dtype, value))


def to_narrow(arithmetic: Arithmetic, source: DType, target: DType, value: str) -> str:
    """A float of another type, rounded once to the narrow type."""
    if source is f64:
        make = lambda: _float_to_odd(arithmetic.unit)  # noqa: E731 — one expression, used once
        value = arithmetic.called("float", "q.float_to_odd", make, "double", value)
    elif source is target:
        return value
    return rounded(arithmetic, target, value)


def integer_to_narrow(arithmetic: Arithmetic, source: DType, target: DType, value: str) -> str:
    """An integer rounded once to the narrow type, by way of a double that remembers what it dropped."""
    signed = source.is_signed
    if source.bits == 64:
        name = "q.sticky_s64" if signed else "q.sticky_u64"
        value = arithmetic.called("i64", name, lambda: _sticky(name, signed=signed), "i64", value)
    convert = "sitofp" if signed else "uitofp"
    double = arithmetic.convert(convert, register_type(source), value, "double")
    return to_narrow(arithmetic, f64, target, double)


def _has_half(arithmetic: Arithmetic) -> bool:
    return "half" in arithmetic.features


_INLINE = "alwaysinline nounwind willreturn memory(none)"


def _float_of_f16() -> str:
    # A subnormal's bits are a subnormal float too, so one multiplication serves it and the normal numbers alike.
    return f"""define internal float @q.float_of_f16(i16 %bits) {_INLINE} {{
  %wide = zext i16 %bits to i32
  %magnitude = and i32 %wide, 32767
  %sign.low = and i32 %wide, 32768
  %sign = shl i32 %sign.low, 16
  %shifted = shl i32 %magnitude, 13
  %as.float = bitcast i32 %shifted to float
  %scaled = fmul float %as.float, {float_literal(2.0**112)}
  %scaled.bits = bitcast float %scaled to i32
  %special.bits = or i32 %shifted, 2139095040
  %special = icmp uge i32 %magnitude, 31744
  %unsigned = select i1 %special, i32 %special.bits, i32 %scaled.bits
  %result.bits = or i32 %unsigned, %sign
  %result = bitcast i32 %result.bits to float
  ret float %result
}}
"""


def _float_of_bf16() -> str:
    return f"""define internal float @q.float_of_bf16(i16 %bits) {_INLINE} {{
  %wide = zext i16 %bits to i32
  %high = shl i32 %wide, 16
  %result = bitcast i32 %high to float
  ret float %result
}}
"""


def _f16_of_float() -> str:
    # Adding 0.5 to a number below 2**-14 leaves the subnormal's digits, rounded to even, in the low bits of the sum.
    return f"""define internal i16 @q.f16_of_float(float %value) {_INLINE} {{
  %bits = bitcast float %value to i32
  %magnitude = and i32 %bits, 2147483647
  %sign.high = lshr i32 %bits, 16
  %sign = and i32 %sign.high, 32768
  %positive = bitcast i32 %magnitude to float
  %raised = fadd float %positive, {float_literal(0.5)}
  %raised.bits = bitcast float %raised to i32
  %small = sub i32 %raised.bits, 1056964608
  %odd.high = lshr i32 %magnitude, 13
  %odd = and i32 %odd.high, 1
  %biased = add i32 %magnitude, -939520001
  %biased.even = add i32 %biased, %odd
  %normal = lshr i32 %biased.even, 13
  %is.small = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is.small, i32 %small, i32 %normal
  %is.large = icmp uge i32 %magnitude, 1199566848
  %bounded = select i1 %is.large, i32 31744, i32 %finite
  %is.nan = icmp ugt i32 %magnitude, 2139095040
  %unsigned = select i1 %is.nan, i32 32256, i32 %bounded
  %result.wide = or i32 %unsigned, %sign
  %result = trunc i32 %result.wide to i16
  ret i16 %result
}}
"""


def _bf16_of_float() -> str:
    return f"""define internal i16 @q.bf16_of_float(float %value) {_INLINE} {{
  %bits = bitcast float %value to i32
  %odd.high = lshr i32 %bits, 16
  %odd = and i32 %odd.high, 1
  %biased = add i32 %bits, 32767
  %biased.even = add i32 %biased, %odd
  %high = lshr i32 %biased.even, 16
  %is.nan = fcmp uno float %value, %value
  %chosen = select i1 %is.nan, i32 32704, i32 %high
  %result = trunc i32 %chosen to i16
  ret i16 %result
}}
"""


def _float_to_odd(unit: Unit) -> str:
    magnitude = unit.declare("double", "llvm.fabs.f64", "double")
    # Rounding to odd keeps one bit that says "inexact", so a second rounding, to 11 or 8 digits, is as good as one.
    return f"""define internal float @q.float_to_odd(double %value) {_INLINE} {{
  %nearest = fptrunc double %value to float
  %back = fpext float %nearest to double
  %back.size = call double {magnitude}(double %back)
  %size = call double {magnitude}(double %value)
  %bits = bitcast float %nearest to i32
  %is.above = fcmp ogt double %back.size, %size
  %lower.bits = sub i32 %bits, 1
  %toward.zero = select i1 %is.above, i32 %lower.bits, i32 %bits
  %odd = or i32 %toward.zero, 1
  %is.inexact = fcmp one double %back, %value
  %chosen = select i1 %is.inexact, i32 %odd, i32 %bits
  %result = bitcast i32 %chosen to float
  ret float %result
}}
"""


def _sticky(name: str, *, signed: bool) -> str:
    # Beyond 2**53 the low 11 bits become one bit above them: what is left fits a double's digits exactly.
    limit = 1 << 53
    outside = (
        f"""  %shifted = add i64 %value, {limit}
  %is.large = icmp ugt i64 %shifted, {2 * limit}"""
        if signed
        else f"  %is.large = icmp ugt i64 %value, {limit}"
    )
    return f"""define internal i64 @{name}(i64 %value) {_INLINE} {{
  %low = and i64 %value, 2047
  %has.low = icmp ne i64 %low, 0
  %bit = select i1 %has.low, i64 2048, i64 0
  %high = and i64 %value, -2048
  %kept = or i64 %high, %bit
{outside}
  %result = select i1 %is.large, i64 %kept, i64 %value
  ret i64 %result
}}
"""
