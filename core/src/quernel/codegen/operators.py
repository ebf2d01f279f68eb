"""The IR's operators on scalars as C expressions, with the meanings that `quernel.ir.nodes` states.

Signed integers add, subtract, multiply and shift in their unsigned type, as C leaves their overflow undefined. f16 and
bf16 are values of f32, rounded after each operation.
"""

from __future__ import annotations

from typing import Final, assert_never

import attrs

from quernel.codegen.arithmetic import unsigned_of
from quernel.codegen.dialect import Dialect
from quernel.codegen.helpers import Helpers
from quernel.codegen.literals import float_literal, integer_literal, negative
from quernel.codegen.text import Binding, Code, call, infix, inside, primary, unary
from quernel.codegen.types import NARROW
from quernel.dtypes import DType, f32, f64, i32, i64, u16, u32, u64
from quernel.ir.math_functions import PREDICATES
from quernel.ir.nodes import BinaryOp, CompareOp, MathFunction, UnaryOp

__all__ = ["Operators"]

_WRAPPING: Final = {
    BinaryOp.ADD: ("+", Binding.SUM),
    BinaryOp.SUB: ("-", Binding.SUM),
    BinaryOp.MUL: ("*", Binding.PRODUCT),
}
_FLOAT: Final = {**_WRAPPING, BinaryOp.DIV: ("/", Binding.PRODUCT)}
_BITS: Final = {
    BinaryOp.AND: ("&", Binding.BIT_AND),
    BinaryOp.OR: ("|", Binding.BIT_OR),
    BinaryOp.XOR: ("^", Binding.BIT_XOR),
}
_BOOL: Final = {
    BinaryOp.AND: ("&&", Binding.AND),
    BinaryOp.MIN: ("&&", Binding.AND),
    BinaryOp.OR: ("||", Binding.OR),
    BinaryOp.MAX: ("||", Binding.OR),
    BinaryOp.XOR: ("!=", Binding.EQUALITY),
}
_COMPARE: Final = {
    CompareOp.EQ: ("==", Binding.EQUALITY),
    CompareOp.NE: ("!=", Binding.EQUALITY),
    CompareOp.LT: ("<", Binding.RELATION),
    CompareOp.LE: ("<=", Binding.RELATION),
    CompareOp.GT: (">", Binding.RELATION),
    CompareOp.GE: (">=", Binding.RELATION),
}


class Operators:
    """The operators, written in one dialect."""

    def __init__(self, dialect: Dialect, helpers: Helpers, *, fast_math: bool) -> None:
        self._dialect = dialect
        self._helpers = helpers
        self._fast_math = fast_math

    # --- unary --------------------------------------------------------------------------------------------------------

    def unary(self, op: UnaryOp, dtype: DType, x: Code) -> Code:
        """`op x`."""
        match op:
            case UnaryOp.UNIFORM:
                return x
            case UnaryOp.NOT:
                return unary("!", x)
            case UnaryOp.INVERT:
                return self._narrowed(dtype, unary("~", x))
            case UnaryOp.NEG if dtype.is_float:
                return negative(self._dialect, x)
            case UnaryOp.NEG:
                zero = integer_literal(self._dialect, 0, unsigned_of(dtype))
                return self._from_unsigned(dtype, infix(Binding.SUM, "-", zero, self.as_unsigned(dtype, x)))
            case UnaryOp.ABS if dtype.is_float:
                return call(self._float_template(self._dialect.fabs, dtype), x)
            case UnaryOp.ABS if dtype.is_signed:
                return call(f"{self._helpers.absolute(dtype)}({{0}})", x)
            case UnaryOp.ABS:
                return x
            case _:
                assert_never(op)

    # --- binary -------------------------------------------------------------------------------------------------------

    def binary(self, op: BinaryOp, dtype: DType, a: Code, b: Code) -> Code:
        """`a op b`."""
        if dtype.is_float:
            return self._float_binary(op, dtype, a, b)
        if dtype.is_bool:
            operator, binding = _BOOL[op]
            return infix(binding, operator, a, b)
        return self._integer_binary(op, dtype, a, b)

    def _integer_binary(self, op: BinaryOp, dtype: DType, a: Code, b: Code) -> Code:
        match op:
            case BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL:
                operator, binding = _WRAPPING[op]
                wrapped = infix(binding, operator, self.as_unsigned(dtype, a), self.as_unsigned(dtype, b))
                return self._from_unsigned(dtype, wrapped)
            case BinaryOp.AND | BinaryOp.OR | BinaryOp.XOR:
                operator, binding = _BITS[op]
                return infix(binding, operator, a, b)
            case BinaryOp.FLOORDIV:
                return self._helped(self._helpers.floordiv(dtype), a, b)
            case BinaryOp.MOD:
                return self._helped(self._helpers.mod(dtype), a, b)
            case BinaryOp.SHL | BinaryOp.SHR:
                return self._shift(op, dtype, a, b)
            case BinaryOp.MIN:
                return self._helped(self._helpers.least(dtype), a, b)
            case BinaryOp.MAX:
                return self._helped(self._helpers.greatest(dtype), a, b)
            case BinaryOp.POW:
                return self._helped(self._helpers.power(dtype), a, b)
            case BinaryOp.DIV:
                raise AssertionError("true division of integers")
            case _:
                assert_never(op)

    def _float_binary(self, op: BinaryOp, dtype: DType, a: Code, b: Code) -> Code:
        match op:
            case BinaryOp.MIN:
                return self._helped(self._helpers.least(dtype), a, b)
            case BinaryOp.MAX:
                return self._helped(self._helpers.greatest(dtype), a, b)
            case BinaryOp.FLOORDIV:
                result = self._helped(self._helpers.floordiv(_computed(dtype)), a, b)
            case BinaryOp.MOD:
                result = self._helped(self._helpers.mod(_computed(dtype)), a, b)
            case _:
                operator, binding = _FLOAT[op]
                result = infix(binding, operator, a, b)
        return self.rounded(dtype, result)

    def _shift(self, op: BinaryOp, dtype: DType, a: Code, b: Code) -> Code:
        digits = b.text.rstrip("uUlL")
        if digits.isdigit() and int(digits) < dtype.bits:
            count = primary(digits)
            if op is BinaryOp.SHR:
                return infix(Binding.SHIFT, ">>", a, count)
            return self._from_unsigned(dtype, infix(Binding.SHIFT, "<<", self.as_unsigned(dtype, a), count))
        return self._helped(self._helpers.shift(dtype, left=op is BinaryOp.SHL), a, b)

    def fma(self, dtype: DType, a: Code, b: Code, c: Code) -> Code:
        """`a * b + c`, rounded once."""
        return self.rounded(dtype, call(self._float_template(self._dialect.fma, dtype), a, b, c))

    def compare(self, op: CompareOp, a: Code, b: Code) -> Code:
        """`a op b`; with a NaN only `!=` holds, as C has it."""
        operator, binding = _COMPARE[op]
        return infix(binding, operator, a, b)

    def select(self, condition: Code, then: Code, otherwise: Code) -> Code:
        """`then if condition else otherwise`."""
        depth = 1 + max(condition.depth, then.depth, otherwise.depth)
        parts = [inside(part, Binding.OR) for part in (condition, then, otherwise)]
        return Code(f"{parts[0]} ? {parts[1]} : {parts[2]}", Binding.CONDITIONAL, depth)

    # --- integers as unsigned -----------------------------------------------------------------------------------------

    def as_unsigned(self, dtype: DType, x: Code) -> Code:
        """An integer as a value of `unsigned_of(dtype)` with the same low bits."""
        if x.unsigned is not None:
            return x.unsigned
        wide = unsigned_of(dtype)
        return x if dtype is wide else self._cast_to(wide, x)

    def _from_unsigned(self, dtype: DType, wrapped: Code) -> Code:
        """A value of the type with the low bits of `wrapped`."""
        if dtype is unsigned_of(dtype):
            return wrapped
        cast = self._cast_to(dtype, wrapped)
        keeps_bits = dtype.bits == unsigned_of(dtype).bits
        return Code(cast.text, cast.binding, cast.depth, wrapped if keeps_bits else None)

    def _narrowed(self, dtype: DType, x: Code) -> Code:
        """A value that C made an `int` of, back in its own type."""
        return self._cast_to(dtype, x) if dtype.bits < 32 else x

    def _cast_to(self, dtype: DType, x: Code) -> Code:
        self._helpers.note(dtype)
        return unary(f"({self._dialect.types[dtype]})", x)

    # --- converting ---------------------------------------------------------------------------------------------------

    def cast(self, source: DType, target: DType, x: Code) -> Code:
        """`x` converted by value."""
        if source is target:
            return x
        if target.is_bool:
            zero = float_literal(self._dialect, 0.0, source) if source.is_float else primary("0")
            return infix(Binding.EQUALITY, "!=", x, zero)
        if target in NARROW:
            return self._to_narrow(source, target, x)
        if source.is_float and not target.is_float:
            return call(f"{self._helpers.saturated(source, target)}({{0}})", x)
        if target is f32 and source in NARROW:
            return x
        cast = self._cast_to(target, x)
        if target is i64 and source.is_integer and (source is i32 or source.bits < 32):
            return attrs.evolve(cast, narrow=self.cast(source, i32, x))
        return cast

    def _to_narrow(self, source: DType, target: DType, x: Code) -> Code:
        if source is f64:
            x = call(f"{self._helpers.odd_of_double()}({{0}})", x)
        elif source.is_integer and source.bits > 16:
            x = call(f"{self._helpers.odd_of_integer(source)}({{0}})", x)
        elif not source.is_float:
            x = self._cast_to(f32, x)
        return self.rounded(target, x)

    def rounded(self, dtype: DType, x: Code) -> Code:
        """A result in f32 rounded to f16 or bf16; other types pass."""
        return call(f"{self._helpers.rounded(dtype)}({{0}})", x) if dtype in NARROW else x

    def bitcast(self, source: DType, target: DType, x: Code) -> Code:
        """`x` with its bits taken as another type."""
        if source is target:
            return x
        unsigned = {16: u16, 32: u32, 64: u64}.get(source.bits)
        if source in NARROW:
            x = call(f"{self._helpers.to_bits(source)}({{0}})", x)
            source = u16
        elif source.is_float and unsigned is not None:
            self._helpers.note(source)
            x = call(self._dialect.bitcasts[source, unsigned], x)
            source = unsigned
        if target in NARROW:
            return call(f"{self._helpers.of_bits(target)}({{0}})", self.cast(source, u16, x))
        if target.is_float and unsigned is not None:
            self._helpers.note(target)
            return call(self._dialect.bitcasts[unsigned, target], self.cast(source, unsigned, x))
        return self.cast(source, target, x)

    # --- mathematics --------------------------------------------------------------------------------------------------

    def math(self, function: MathFunction, dtype: DType, operands: tuple[Code, ...]) -> Code:
        """The function of operands of `dtype`."""
        if function in (MathFunction.POPCOUNT, MathFunction.CLZ, MathFunction.CTZ):
            return call(f"{self._helpers.bit_count(function.value, dtype)}({{0}})", *operands)
        if function in PREDICATES:
            return self._predicate(function, dtype, operands[0])
        if function is MathFunction.RSQRT and not self._is_fast(function, dtype):
            root = call(self._float_template(self._dialect.math[MathFunction.SQRT], dtype), *operands)
            return self.rounded(dtype, infix(Binding.PRODUCT, "/", float_literal(self._dialect, 1.0, dtype), root))
        if function in self._dialect.functions and not self._is_fast(function, dtype):
            name = self._helpers.function(function, _computed(dtype))
            return self.rounded(dtype, call(f"{name}({{0}})", *operands))
        table = self._dialect.fast_math if self._is_fast(function, dtype) else self._dialect.math
        return self.rounded(dtype, call(self._float_template(table[function], dtype), *operands))

    def _is_fast(self, function: MathFunction, dtype: DType) -> bool:
        return self._fast_math and dtype is not f64 and function in self._dialect.fast_math

    def _predicate(self, function: MathFunction, dtype: DType, x: Code) -> Code:
        if function is MathFunction.ISNAN:
            return call(f"{self._helpers.is_nan(_computed(dtype))}({{0}})", x)
        infinity = primary(self._dialect.infinity[_computed(dtype)])
        size = call(self._float_template(self._dialect.fabs, dtype), x)
        if function is MathFunction.ISINF:
            return infix(Binding.EQUALITY, "==", size, infinity)
        return infix(Binding.RELATION, "<", size, infinity)

    def _float_template(self, template: str, dtype: DType) -> str:
        """A template whose `{f}` is filled, and whose operands are still open."""
        return template.replace("{f}", self._dialect.math_suffix if dtype is not f64 else "")

    def _helped(self, name: str, a: Code, b: Code) -> Code:
        return call(f"{name}({{0}}, {{1}})", a, b)


def _computed(dtype: DType) -> DType:
    """The float type in which one of `dtype` computes."""
    return f64 if dtype is f64 else f32
