"""Arithmetic that C leaves undefined or defines otherwise, as functions. Each is a pure function of values.

Division by zero and shifts beyond the width never reach the hardware.
"""

from __future__ import annotations

from typing import Final

from quernel.codegen.definitions import Definitions
from quernel.dtypes import DType, bf16, bool_, f16, f32, i64, u8, u16, u32, u64
from quernel.ir.nodes import MathFunction

__all__ = ["Arithmetic", "unsigned_of"]

_FMOD, _COPYSIGN, _FLOOR = MathFunction.FMOD, MathFunction.COPYSIGN, MathFunction.FLOOR
_UNSIGNED: Final = {8: u8, 16: u16, 32: u32, 64: u64}


def unsigned_of(dtype: DType) -> DType:
    """The unsigned type in which the arithmetic of an integer type is done: no narrower than `int`."""
    return u64 if dtype.bits == 64 else u32


class Arithmetic(Definitions):
    """What operators mean where the dialect's own do not."""

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
        return self.define(
            f"{word}_{dtype.name}",
            lambda name: (
                f"{self._head(dtype, name, (dtype, 'a'), (dtype, 'b'))}{{\n    return b {operator} a ? b : a;\n}}\n"
            ),
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

    def is_nan(self, dtype: DType) -> str:
        """Whether a float is no number: the one value that differs from itself."""
        return self.define(
            f"isnan_{dtype.name}",
            lambda name: f"{self._head(bool_, name, (dtype, 'x'))}{{\n    return x != x;\n}}\n",
        )
