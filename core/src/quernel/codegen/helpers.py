"""The functions that a text brings along, each only where it is used: what C leaves undefined, spelled out.

Every one is a pure function of values. Division by zero, shifts beyond the width and conversions out of range never
reach the hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quernel.codegen.dialect import Dialect
from quernel.codegen.literals import float_literal, integer_literal
from quernel.codegen.names import HELPER_PREFIX
from quernel.codegen.text import Binding
from quernel.dtypes import DType, bf16, bool_, f16, f32, f64, i64, u8, u16, u32, u64
from quernel.ir.nodes import MathFunction

__all__ = ["Helpers", "unsigned_of"]

_FMOD, _COPYSIGN, _FLOOR = MathFunction.FMOD, MathFunction.COPYSIGN, MathFunction.FLOOR
_UNSIGNED: Final = {8: u8, 16: u16, 32: u32, 64: u64}


def unsigned_of(dtype: DType) -> DType:
    """The unsigned type in which the arithmetic of an integer type is done: no narrower than `int`."""
    return u64 if dtype.bits == 64 else u32


class Helpers:
    """The functions used so far, those that others call first."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._texts: dict[str, str] = {}
        self.features: dict[str, None] = {}
        """What the text uses that may need a line of its own at the start."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The definitions, in an order in which each stands before its users."""
        return tuple(self._texts.values())

    def define(self, name: str, make: Callable[[str], str]) -> str:
        """The full name of a function, whose text `make(full name)` gives when it is first asked for."""
        full = HELPER_PREFIX + name
        if full not in self._texts:
            given = self._dialect.helpers.get(name)
            text = make(full) if given is None else given.format(name=full, function=self._dialect.function)
            self._texts[full] = text
        return full

    def note(self, *dtypes: DType) -> None:
        """Remembers the features that values of such types are."""
        if f64 in dtypes:
            self.features["f64"] = None

    # --- shorthands ---------------------------------------------------------------------------------------------------

    def _type(self, dtype: DType) -> str:
        self.note(dtype)
        return self._dialect.types[dtype]

    def _head(self, result: DType, name: str, *params: tuple[DType, str]) -> str:
        listed = ", ".join(f"{self._type(dtype)} {param}" for dtype, param in params)
        return f"{self._dialect.function} {self._type(result)} {name}({listed})\n"

    def _int(self, value: int, dtype: DType) -> str:
        code = integer_literal(self._dialect, value, dtype)
        return code.text if code.binding >= Binding.UNARY else f"({code.text})"

    def _float(self, value: float, dtype: DType) -> str:
        return float_literal(self._dialect, value, dtype).text

    def _bits(self, to: DType, text: str) -> str:
        source = {f32: u32, u32: f32, f64: u64, u64: f64}[to]
        return self._dialect.bitcasts[source, to].format(text)

    def _math(self, template: str, dtype: DType, *operands: str) -> str:
        return template.format(*operands, f=self._dialect.math_suffix if dtype is f32 else "")

    # --- integers -----------------------------------------------------------------------------------------------------

    def floordiv(self, dtype: DType) -> str:
        """`a // b`: floors; 0 for a zero divisor."""
        if dtype.is_float:
            return self.define(f"floordiv_{dtype.name}", lambda name: self._float_floordiv(name, dtype))
        return self.define(f"floordiv_{dtype.name}", lambda name: self._integer_floordiv(name, dtype))

    def mod(self, dtype: DType) -> str:
        """`a % b`: has the sign of `b`; 0 for a zero divisor."""
        if dtype.is_float:
            return self.define(f"mod_{dtype.name}", lambda name: self._float_mod(name, dtype))
        return self.define(f"mod_{dtype.name}", lambda name: self._integer_mod(name, dtype))

    def _integer_floordiv(self, name: str, dtype: DType) -> str:
        c_type = self._type(dtype)
        head = self._head(dtype, name, (dtype, "a"), (dtype, "b"))
        if not dtype.is_signed:
            return f"{head}{{\n    return b == 0 ? 0 : a / (b == 0 ? 1 : b);\n}}\n"
        wide = self._type(unsigned_of(dtype))
        return f"""{head}{{
    const {c_type} divisor = b == 0 || b == -1 ? 1 : b;
    const {c_type} quotient = a / divisor;
    const {c_type} rest = a % divisor;
    const {c_type} negated = ({c_type})(({wide})0 - ({wide})a);
    return b == 0 ? 0 : b == -1 ? negated : rest != 0 && (rest ^ divisor) < 0 ? quotient - 1 : quotient;
}}
"""

    def _integer_mod(self, name: str, dtype: DType) -> str:
        c_type = self._type(dtype)
        head = self._head(dtype, name, (dtype, "a"), (dtype, "b"))
        if not dtype.is_signed:
            return f"{head}{{\n    return a % (b == 0 ? 1 : b);\n}}\n"
        return f"""{head}{{
    const {c_type} divisor = b == 0 || b == -1 ? 1 : b;
    const {c_type} rest = a % divisor;
    return rest != 0 && (rest ^ divisor) < 0 ? rest + divisor : rest;
}}
"""

    def shift(self, dtype: DType, *, left: bool) -> str:
        """`a << b` or `a >> b`: over-shifts give 0 or the sign, negative counts shift by 0."""
        return self.define(f"{'shl' if left else 'shr'}_{dtype.name}", lambda name: self._shift(name, dtype, left=left))

    def _shift(self, name: str, dtype: DType, *, left: bool) -> str:
        c_type, wide = self._type(dtype), self._type(unsigned_of(dtype))
        count = f"b < 0 ? 0 : ({wide})b" if dtype.is_signed else "b"
        if left:
            result = f"count < {dtype.bits} ? ({c_type})(({wide})a << count) : ({c_type})0"
        elif dtype.is_signed:
            result = f"({c_type})(a >> (count < {dtype.bits} ? count : {dtype.bits - 1}))"
        else:
            result = f"count < {dtype.bits} ? ({c_type})(a >> count) : ({c_type})0"
        head = self._head(dtype, name, (dtype, "a"), (dtype, "b"))
        return f"{head}{{\n    const {wide} count = {count};\n    return {result};\n}}\n"

    def power(self, dtype: DType) -> str:
        """`a ** b` of integers, which wraps; a negative exponent counts as 0."""
        return self.define(f"pow_{dtype.name}", lambda name: self._power(name, dtype))

    def _power(self, name: str, dtype: DType) -> str:
        c_type, wide = self._type(dtype), self._type(unsigned_of(dtype))
        exponent = f"b > 0 ? ({wide})b : 0" if dtype.is_signed else "b"
        return f"""{self._head(dtype, name, (dtype, "a"), (dtype, "b"))}{{
    {wide} result = 1;
    {wide} square = ({wide})a;
    for ({wide} rest = {exponent}; rest != 0; rest >>= 1) {{
        result = (rest & 1) != 0 ? result * square : result;
        square *= square;
    }}
    return ({c_type})result;
}}
"""

    def absolute(self, dtype: DType) -> str:
        """The magnitude of a signed integer; the least one is its own."""
        c_type, wide = self._type(dtype), self._type(unsigned_of(dtype))
        return self.define(
            f"abs_{dtype.name}",
            lambda name: (
                f"{self._head(dtype, name, (dtype, 'a'))}{{\n"
                f"    return a < 0 ? ({c_type})(({wide})0 - ({wide})a) : a;\n}}\n"
            ),
        )

    def least(self, dtype: DType) -> str:
        """`b if b < a else a`."""
        return self._chosen("min", "<", dtype)

    def greatest(self, dtype: DType) -> str:
        """`b if b > a else a`."""
        return self._chosen("max", ">", dtype)

    def _chosen(self, word: str, operator: str, dtype: DType) -> str:
        dtype = f32 if dtype in (f16, bf16) else dtype
        chosen = self._dialect.select(dtype, f"b {operator} a", "b", "a") or f"b {operator} a ? b : a"
        return self.define(
            f"{word}_{dtype.name}",
            lambda name: f"{self._head(dtype, name, (dtype, 'a'), (dtype, 'b'))}{{\n    return {chosen};\n}}\n",
        )

    def bit_count(self, word: str, dtype: DType) -> str:
        """`popcount`, `clz` or `ctz`; zeros before or behind the ones of 0 count the width."""
        return self.define(f"{word}_{dtype.name}", lambda name: self._bit_count(name, word, dtype))

    def _bit_count(self, name: str, word: str, dtype: DType) -> str:
        c_type, wide = self._type(dtype), self._type(unsigned_of(dtype))
        wide_bits = unsigned_of(dtype).bits
        bits = f"({wide})a" if dtype.bits == wide_bits else f"({wide})({self._type(_UNSIGNED[dtype.bits])})a"
        if word == "popcount":
            result = self._dialect.popcount[wide_bits].format(bits)
        elif word == "clz":
            excess = wide_bits - dtype.bits
            result = self._dialect.clz[wide_bits].format(bits) + (f" - {excess}" if excess else "")
        else:
            below = self._dialect.popcount[wide_bits].format("~bits & (bits - 1)")
            head = self._head(dtype, name, (dtype, "a"))
            return f"""{head}{{
    const {wide} bits = {bits};
    return bits == 0 ? ({c_type}){dtype.bits} : ({c_type}){below};
}}
"""
        return f"{self._head(dtype, name, (dtype, 'a'))}{{\n    return ({c_type})({result});\n}}\n"

    def trip_count(self) -> str:
        """How often a `For` runs: exact for distances of up to 2**64 - 1."""
        return self.define("trip_count", self._trip_count)

    def _trip_count(self, name: str) -> str:
        signed, wide = self._type(i64), self._type(u64)
        head = self._head(u64, name, (i64, "start"), (i64, "stop"), (i64, "step"))
        return f"""{head}{{
    const {signed} low = step < 0 ? stop : start;
    const {signed} high = step < 0 ? start : stop;
    const {wide} size = step < 0 ? ({wide})0 - ({wide})step : ({wide})step;
    return size == 0 || low >= high ? 0 : (({wide})high - ({wide})low - 1) / size + 1;
}}
"""

    # --- floats -------------------------------------------------------------------------------------------------------

    # Some compilers take fmod's result for no NaN where its first operand is finite, so NaNs are told apart first.

    def _float_mod(self, name: str, dtype: DType) -> str:
        c_type, zero = self._type(dtype), self._float(0.0, dtype)
        return f"""{self._head(dtype, name, (dtype, "a"), (dtype, "b"))}{{
    const {c_type} rest = {self._math(self._dialect.math[_FMOD], dtype, "a", "b")};
    const {c_type} signed_zero = {self._math(self._dialect.math[_COPYSIGN], dtype, zero, "b")};
    const {c_type} whole = rest == {zero} ? signed_zero : (rest < {zero}) != (b < {zero}) ? rest + b : rest;
    return a != a || b != b ? {self._dialect.nan[dtype]} : whole;
}}
"""

    def _float_floordiv(self, name: str, dtype: DType) -> str:
        c_type, zero, one = self._type(dtype), self._float(0.0, dtype), self._float(1.0, dtype)
        copysign = self._dialect.math[_COPYSIGN]
        direction = self._math(copysign, dtype, one, "b")
        return f"""{self._head(dtype, name, (dtype, "a"), (dtype, "b"))}{{
    const {c_type} rest = {self._math(self._dialect.math[_FMOD], dtype, "a", "b")};
    const {c_type} divided = (a - rest) / b;
    const {c_type} quotient = rest != {zero} && (rest < {zero}) != (b < {zero}) ? divided - {one} : divided;
    const {c_type} whole = {self._math(self._dialect.math[_FLOOR], dtype, "quotient")};
    const {c_type} nearest = quotient - whole > {self._float(0.5, dtype)} ? whole + {one} : whole;
    const {c_type} signed_zero = {self._math(copysign, dtype, zero, f"a * {direction}")};
    return a != a || b != b || b == {zero} ? {self._dialect.nan[dtype]} : quotient == {zero} ? signed_zero : nearest;
}}
"""

    def function(self, function: MathFunction, dtype: DType) -> str:
        """A function that the dialect spells out itself."""
        text = self._dialect.functions[function]
        return self.define(
            f"{function.value}_{dtype.name}",
            lambda name: text.format(name=name, type=self._type(dtype), function=self._dialect.function),
        )

    def is_nan(self, dtype: DType) -> str:
        """Whether a float is no number: the one value that differs from itself."""
        return self.define(
            f"isnan_{dtype.name}",
            lambda name: f"{self._head(bool_, name, (dtype, 'x'))}{{\n    return x != x;\n}}\n",
        )

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

    # --- conversions --------------------------------------------------------------------------------------------------

    def saturated(self, source: DType, target: DType) -> str:
        """A float as an integer: truncated, saturated, NaN as 0. Comparisons, as some `convert_…_sat` are wrong."""
        source = f64 if source is f64 else f32
        return self.define(f"{target.name}_of_{source.name}", lambda name: self._saturated(name, source, target))

    def _saturated(self, name: str, source: DType, target: DType) -> str:
        c_type = self._type(target)
        beyond = self._float(float(1 << (target.bits - target.is_signed)), source)
        most = self._int(target.max, target)
        head = self._head(target, name, (source, "x"))
        if not target.is_signed:
            zero = self._float(0.0, source)
            return f"{head}{{\n    return x >= {beyond} ? {most} : x > {zero} ? ({c_type})x : 0;\n}}\n"
        least = self._float(float(target.min), source)
        bounded = f"x >= {beyond} ? {most} : x >= {least} ? ({c_type})x : {self._int(target.min, target)}"
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
