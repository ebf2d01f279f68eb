"""Conversions that C leaves undefined or devices do not have, as functions. Each is a pure function of values.

No value out of range is ever converted by the hardware.
"""

from __future__ import annotations

from quernel.codegen.definitions import Definitions
from quernel.dtypes import DType, f16, f32, f64, u16, u32, u64

__all__ = ["Conversions"]


class Conversions(Definitions):
    """What casts mean where the dialect's own do not."""

    def saturated(self, source: DType, target: DType) -> str:
        """A float as an integer: truncated, saturated, NaN as 0. Comparisons, as some `convert_…_sat` are wrong."""
        source = f64 if source is f64 else f32
        return self.define(f"{target.name}_of_{source.name}", lambda name: self._saturated(name, source, target))

    def _saturated(self, name: str, source: DType, target: DType) -> str:
        c_type = self._type(target)
        beyond = self._float(float(1 << (target.bits - target.is_signed)), source)
        most = self._int(target.max, target)
        head = self._head(target, name, (source, "x"))
        cut = f"({c_type})x"
        if self._dialect.truncated:
            self.features["own"] = None
            cut = self._dialect.truncated.format(cut)
        if not target.is_signed:
            zero = self._float(0.0, source)
            return f"{head}{{\n    return x >= {beyond} ? {most} : x > {zero} ? {cut} : 0;\n}}\n"
        least = self._float(float(target.min), source)
        bounded = f"x >= {beyond} ? {most} : x >= {least} ? {cut} : {self._int(target.min, target)}"
        return f"{head}{{\n    return x != x ? 0 : {bounded};\n}}\n"

    def of_bits(self, dtype: DType) -> str:
        """The f32 that the 16 bits of an f16 or bf16 stand for."""
        return self.define(f"f32_of_{dtype.name}", self._f32_of_f16 if dtype is f16 else self._f32_of_bf16)

    def to_bits(self, dtype: DType) -> str:
        """The 16 bits of an f32 rounded to f16 or bf16, ties to even."""
        return self.define(f"{dtype.name}_of_f32", self._f16_of_f32 if dtype is f16 else self._bf16_of_f32)

    def rounded(self, dtype: DType) -> str:
        """An f32 rounded to f16 or bf16, as an f32."""
        return self.define(
            f"round_{dtype.name}",
            lambda name: (
                f"{self._head(f32, name, (f32, 'x'))}{{\n"
                f"    return {self.of_bits(dtype)}({self.to_bits(dtype)}(x));\n}}\n"
            ),
        )

    def _f32_of_f16(self, name: str) -> str:
        wide = self._type(u32)
        # A subnormal is its digits times 2**-24; counting them needs no subnormal f32, which a device may flush.
        return f"""{self._head(f32, name, (u16, "bits"))}{{
    const {wide} magnitude = bits & 0x7fffu;
    const {wide} normal = (magnitude << 13) + 0x38000000u;
    const {wide} special = (magnitude << 13) | 0x7f800000u;
    const {wide} small = {self._bits(u32, f"(({self._type(f32)})magnitude * {self._float(2.0**-24, f32)})")};
    const {wide} result = magnitude < 0x400u ? small : magnitude < 0x7c00u ? normal : special;
    return {self._bits(f32, "(result | ((bits & 0x8000u) << 16))")};
}}
"""

    def _f16_of_f32(self, name: str) -> str:
        wide = self._type(u32)
        # Adding 0.5 to a number below 2**-14 leaves its digits as a subnormal, rounded to even, in the sum's low bits.
        return f"""{self._head(u16, name, (f32, "x"))}{{
    const {wide} bits = {self._bits(u32, "x")};
    const {wide} magnitude = bits & 0x7fffffffu;
    const {wide} small = {self._bits(u32, f"({self._bits(f32, 'magnitude')} + {self._float(0.5, f32)})")} - 0x3f000000u;
    const {wide} normal = (magnitude - 0x37fff001u + ((magnitude >> 13) & 1u)) >> 13;
    const {wide} finite = magnitude < 0x38800000u ? small : normal;
    const {wide} bounded = magnitude >= 0x47800000u ? 0x7c00u : finite;
    const {wide} result = magnitude > 0x7f800000u ? 0x7e00u : bounded;
    return ({self._type(u16)})(result | ((bits >> 16) & 0x8000u));
}}
"""

    def _f32_of_bf16(self, name: str) -> str:
        bits = f"(({self._type(u32)})bits << 16)"
        return f"{self._head(f32, name, (u16, 'bits'))}{{\n    return {self._bits(f32, bits)};\n}}\n"

    def _bf16_of_f32(self, name: str) -> str:
        wide, narrow = self._type(u32), self._type(u16)
        return f"""{self._head(u16, name, (f32, "x"))}{{
    const {wide} bits = {self._bits(u32, "x")};
    return x != x ? ({narrow})0x7fc0 : ({narrow})((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}}
"""

    def odd_of_double(self) -> str:
        """An f64 rounded to an f32 whose last bit says "inexact": a second rounding is as good as the only one."""
        return self.define("odd_f32_of_f64", self._odd_of_double)

    def _odd_of_double(self, name: str) -> str:
        wide, double, single = self._type(u32), self._type(f64), self._type(f32)
        fabs = self._dialect.fabs
        above = f"{self._math(fabs, f64, 'back')} > {self._math(fabs, f64, 'x')}"
        return f"""{self._head(f32, name, (f64, "x"))}{{
    const {single} nearest = ({single})x;
    const {double} back = ({double})nearest;
    const {wide} bits = {self._bits(u32, "nearest")};
    const {wide} odd = ({above} ? bits - 1u : bits) | 1u;
    return back == x || x != x ? nearest : {self._bits(f32, "odd")};
}}
"""

    def odd_of_integer(self, dtype: DType) -> str:
        """An integer as an f32 whose last bit says "inexact"."""
        return self.define(f"odd_f32_of_{dtype.name}", lambda name: self._odd_of_integer(name, dtype))

    def _odd_of_integer(self, name: str, dtype: DType) -> str:
        wide, single = self._type(u64), self._type(f32)
        magnitude = f"a < 0 ? ({wide})0 - ({wide})a : ({wide})a" if dtype.is_signed else f"({wide})a"
        shift = f"{self._dialect.clz[64].format('magnitude')}"
        sign = "a < 0 ? -size : size" if dtype.is_signed else "size"
        # 24 digits are exact in an f32, and twice two to the power of the shift, below 2**41, too.
        return f"""{self._head(f32, name, (dtype, "a"))}{{
    const {wide} magnitude = {magnitude};
    const {wide} zeros = {shift};
    const {wide} shift = zeros < 40 ? 40 - zeros : 0;
    const {wide} kept = magnitude >> shift;
    const {wide} is_inexact = (kept << shift) != magnitude ? 1 : 0;
    const {single} size = ({single})(kept | is_inexact) * ({single})(({wide})1 << shift);
    return {sign};
}}
"""

    def double_bits(self) -> str:
        """The bits of an f32 as an f64, for devices without f64 too."""
        return self.define("f64_bits_of_f32", self._double_bits)

    def _double_bits(self, name: str) -> str:
        wide, bits_type = self._type(u64), self._type(u32)
        zeros = f"{self._dialect.clz[32].format('magnitude')} - 8"
        return f"""{self._head(u64, name, (f32, "x"))}{{
    const {bits_type} bits = {self._bits(u32, "x")};
    const {bits_type} magnitude = bits & 0x7fffffffu;
    const {bits_type} zeros = magnitude == 0 ? 0 : {zeros};
    const {wide} sign = ({wide})(bits >> 31) << 63;
    const {wide} digits = ({wide})((magnitude << zeros) & 0x7fffffu) << 29;
    const {wide} small = magnitude == 0 ? 0 : digits | ({wide})(897 - zeros) << 52;
    const {wide} normal = (({wide})magnitude << 29) + (({wide})896 << 52);
    const {wide} special = (({wide})magnitude << 29) | (({wide})0x7ff << 52);
    return sign | (magnitude < 0x800000u ? small : magnitude < 0x7f800000u ? normal : special);
}}
"""
