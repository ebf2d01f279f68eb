"""The IR's operators as LLVM instructions, on scalars or on vectors of lanes, as `quernel.ir.nodes` defines them.

Integer instructions carry no `nsw` or `nuw`, as integers wrap. Whatever LLVM leaves undefined (division by zero, shifts
beyond the width, conversions out of range) is kept from happening, or its result is not selected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from quernel.dtypes import DType, f64
from quernel.ir.nodes import BinaryOp, CompareOp, UnaryOp
from quernel_cpu.emission.narrow import bits_to_float, float_to_bits, integer_to_narrow, rounded, to_narrow
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import (
    constant_of,
    float_literal,
    is_narrow,
    memory_type,
    register_type,
    splat,
    type_suffix,
    wide,
    zero,
)
from quernel_cpu.emission.wide_integers import WideIntegers
from quernel_cpu.emission.widening import lanewise, widened

__all__ = ["FAST_FLAGS", "Arithmetic"]

FAST_FLAGS = "reassoc arcp afn "
"""What `fast_math` allows; never `nnan` or `ninf`."""

_INTEGER = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
    BinaryOp.XOR: "xor",
}
_FLOAT = {BinaryOp.ADD: "fadd", BinaryOp.SUB: "fsub", BinaryOp.MUL: "fmul", BinaryOp.DIV: "fdiv"}
_EXACT_IN_DOUBLE = 1 << 51
_ORDER = {CompareOp.LT: "lt", CompareOp.LE: "le", CompareOp.GT: "gt", CompareOp.GE: "ge"}


class Arithmetic:
    """The operators, written into the code of one function.

    With `lanes`, operands are vectors of that many values, and `number` writes constants; without, single values.
    """

    def __init__(self, unit: Unit, code: Code, *, fast_math: bool, lanes: int = 0) -> None:
        self._unit = unit
        self._code = code
        self.lanes = lanes
        self.flags = FAST_FLAGS if fast_math else ""
        self.bool = wide("i1", lanes)

    def type(self, dtype: DType) -> str:
        """The LLVM type of an operand."""
        return wide(register_type(dtype), self.lanes)

    def number(self, dtype: DType, value: float) -> str:
        """A constant as an operand of the type."""
        text = float_literal(value) if dtype.is_float else str(int(value))
        return splat(register_type(dtype), text, self.lanes)

    # --- unary --------------------------------------------------------------------------------------------------------

    def unary(self, op: UnaryOp, dtype: DType, x: str) -> str:
        """`op x`."""
        code, llvm = self._code, self.type(dtype)
        match op:
            case UnaryOp.UNIFORM:
                return x
            case _ if dtype.is_bool:
                return self.inverted(x)
            case UnaryOp.NEG if dtype.is_float:
                return code.value(f"fneg {llvm} {x}")
            case UnaryOp.NEG:
                return code.value(f"sub {llvm} {self.number(dtype, 0)}, {x}")
            case UnaryOp.INVERT | UnaryOp.NOT:
                return code.value(f"xor {llvm} {x}, {self.number(dtype, -1)}")
            case UnaryOp.ABS if dtype.is_float:
                return self.intrinsic("fabs", llvm, x)
            case UnaryOp.ABS if dtype.is_signed:
                absolute = self._unit.declare(llvm, f"llvm.abs.{type_suffix(llvm)}", llvm, "i1")
                return code.value(f"call {llvm} {absolute}({llvm} {x}, i1 false)")
            case UnaryOp.ABS:
                return x
            case _:
                assert_never(op)

    def inverted(self, x: str) -> str:
        """The complement of an `i1`."""
        return self._code.value(f"xor {self.bool} {x}, {splat('i1', 'true', self.lanes)}")

    # --- binary -------------------------------------------------------------------------------------------------------

    def binary(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        """`a op b`."""
        if dtype.is_float:
            return self._float_binary(op, dtype, a, b)
        if dtype.is_bool:
            op = {BinaryOp.MIN: BinaryOp.AND, BinaryOp.MAX: BinaryOp.OR}.get(op, op)
            return self._code.value(f"{_INTEGER[op]} {self.bool} {a}, {b}")
        return self._integer_binary(op, dtype, a, b)

    def _integer_binary(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        code, llvm = self._code, self.type(dtype)
        match op:
            case BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL | BinaryOp.AND | BinaryOp.OR | BinaryOp.XOR:
                return code.value(f"{_INTEGER[op]} {llvm} {a}, {b}")
            case BinaryOp.FLOORDIV:
                return self._floordiv(dtype, a, b)
            case BinaryOp.MOD:
                return self._mod(dtype, a, b)
            case BinaryOp.SHL | BinaryOp.SHR:
                return self._shift(op, dtype, a, b)
            case BinaryOp.MIN | BinaryOp.MAX:
                name = f"{'s' if dtype.is_signed else 'u'}{op.value}"
                return self.intrinsic(name, llvm, a, b)
            case BinaryOp.POW:
                return self._power(dtype, a, b)
            case BinaryOp.DIV:
                raise AssertionError("true division of integers")
            case _:
                assert_never(op)

    def _safe_divisor(self, dtype: DType, b: str) -> str:
        """`b`, or 1 where the hardware's division by `b` could trap."""
        code, llvm = self._code, self.type(dtype)
        if constant_of(b) not in (None, 0, -1):
            return b
        unsafe = code.value(f"icmp eq {llvm} {b}, {self.number(dtype, 0)}")
        if dtype.is_signed:
            is_minus_one = code.value(f"icmp eq {llvm} {b}, {self.number(dtype, -1)}")
            unsafe = code.value(f"or {self.bool} {unsafe}, {is_minus_one}")
        return self.select(unsafe, llvm, self.number(dtype, 1), b)

    def _divided(self, dtype: DType, a: str, b: str) -> tuple[str, str]:
        """Quotient towards zero, and remainder, by a divisor that is neither 0 nor -1.

        Processors divide no vectors of integers. A quotient of floats of more than twice their digits, rounded to
        nearest and then cut off, is the same: a quotient is at least 1 / b away from the next integer above it.
        """
        code, llvm, sign = self._code, self.type(dtype), "s" if dtype.is_signed else "u"
        if not self.lanes or (dtype.bits < 64 and constant_of(b) is not None):
            quotient = code.value(f"{sign}div {llvm} {a}, {b}")
        elif dtype.bits == 64:
            quotient = self._divided_wide(dtype, a, b)
        else:
            quotient = self._divided_as_floats(dtype, "double" if dtype.bits == 32 else "float", a, b)
        return quotient, code.value(f"sub {llvm} {a}, {code.value(f'mul {llvm} {quotient}, {b}')}")

    def _divided_as_floats(self, dtype: DType, single: str, a: str, b: str) -> str:
        code, llvm, sign, floats = (
            self._code,
            self.type(dtype),
            "s" if dtype.is_signed else "u",
            wide(single, self.lanes),
        )
        if dtype.bits == 64 and self._has_no_wide_conversions:
            integers = WideIntegers(code, self.lanes)
            left, right = integers.small_as_doubles(a), integers.small_as_doubles(b)
            ratio = code.value(f"fdiv {floats} {left}, {right}")
            return integers.whole_as_integers(self.intrinsic("trunc", floats, ratio))
        left, right = (code.value(f"{sign}itofp {llvm} {x} to {floats}") for x in (a, b))
        ratio = code.value(f"fdiv {floats} {left}, {right}")
        return code.value(f"fpto{sign}i {floats} {ratio} to {llvm}")

    @property
    def _has_no_wide_conversions(self) -> bool:
        """Whether 64-bit integers become floats lane by lane, though all that `WideIntegers` needs is there."""
        return "avx2" in self._unit.features and "avx512dq" not in self._unit.features

    def _floor_by_products(self, dtype: DType, a: str, divisor: int) -> str:
        llvm = self.type(dtype)
        name = f"q.{'s' if dtype.is_signed else 'u'}floor{divisor}.{type_suffix(llvm)}"

        def make(mark: str) -> str:
            code = Code()
            quotient = WideIntegers(code, self.lanes).floor_by_constant("%x", divisor, signed=dtype.is_signed)
            code.end(f"ret {llvm} {quotient}")
            return code.function(f"internal {llvm} @{name}({llvm} %x) {mark} nounwind willreturn memory(none)")

        return self._code.value(f"call {llvm} {self._unit.define_shared(name, make)}({llvm} {a})")

    def _divided_by_lanes(self, dtype: DType) -> str:
        """The symbol of a function that divides lane by lane, which is long and rarely called."""
        llvm, sign = self.type(dtype), "s" if dtype.is_signed else "u"
        name = f"q.{sign}div.{type_suffix(llvm)}"
        lines = (
            f"define internal {llvm} @{name}({llvm} %left, {llvm} %right) noinline cold nounwind memory(none) {{",
            f"  %ratio = {sign}div {llvm} %left, %right",
            f"  ret {llvm} %ratio",
            "}\n",
        )
        return self._unit.define(name, lambda: "\n".join(lines))

    def _is_divided_by_products(self, dtype: DType, divisor: int) -> bool:
        return bool(self.lanes) and dtype.bits == 64 and divisor > 1 and self._has_no_wide_conversions

    def _divided_wide(self, dtype: DType, a: str, b: str) -> str:
        """64-bit integers: as doubles where all of them are below 2**51, which indices are, else lane by lane."""
        code, llvm, integers = self._code, self.type(dtype), wide("i64", self.lanes)
        sizes = []
        for x in (a, b):
            constant = constant_of(x)
            if constant is not None and abs(constant) < _EXACT_IN_DOUBLE:
                continue
            sign = code.value(f"ashr {integers} {x}, {self.number(dtype, 63)}") if dtype.is_signed else ""
            sizes.append(code.value(f"xor {integers} {x}, {sign}") if sign else x)
        if not sizes:
            return self._divided_as_floats(dtype, "double", a, b)
        together = sizes[0]
        for size in sizes[1:]:
            together = code.value(f"or {integers} {together}, {size}")
        union = self._unit.declare("i64", f"llvm.vector.reduce.or.{type_suffix(integers)}", integers)
        is_small = code.value(
            f"icmp ult i64 {code.value(f'call i64 {union}({integers} {together})')}, {_EXACT_IN_DOUBLE}"
        )
        slot = code.allocate(llvm)
        small, large, done = code.label("small"), code.label("large"), code.label("divided")
        code.branch_if(is_small, small, large)
        code.place(small)
        code.do(f"store {llvm} {self._divided_as_floats(dtype, 'double', a, b)}, ptr {slot}")
        code.branch(done)
        code.place(large)
        if self._has_no_wide_conversions:
            by_lane = code.value(f"call {llvm} {self._divided_by_lanes(dtype)}({llvm} {a}, {llvm} {b})")
        else:
            by_lane = code.value(f"{'s' if dtype.is_signed else 'u'}div {llvm} {a}, {b}")
        code.do(f"store {llvm} {by_lane}, ptr {slot}")
        code.place(done)
        return code.value(f"load {llvm}, ptr {slot}")

    def _floordiv(self, dtype: DType, a: str, b: str) -> str:
        code, llvm, constant = self._code, self.type(dtype), constant_of(b)
        if constant is not None and constant > 0 and constant.bit_count() == 1:
            count = self.number(dtype, constant.bit_length() - 1)
            return code.value(f"{'ashr' if dtype.is_signed else 'lshr'} {llvm} {a}, {count}")
        if constant is not None and self._is_divided_by_products(dtype, constant):
            return self._floor_by_products(dtype, a, constant)
        safe = self._safe_divisor(dtype, b)
        quotient, remainder = self._divided(dtype, a, safe)
        if dtype.is_signed:
            below = self._differs_in_sign(dtype, remainder, safe)
            quotient = code.value(f"sub {llvm} {quotient}, {code.value(f'zext {self.bool} {below} to {llvm}')}")
            if constant is None or constant == -1:
                negated = code.value(f"sub {llvm} {self.number(dtype, 0)}, {a}")
                is_negation = code.value(f"icmp eq {llvm} {b}, {self.number(dtype, -1)}")
                quotient = self.select(is_negation, llvm, negated, quotient)
        if constant is None or constant == 0:
            is_zero = code.value(f"icmp eq {llvm} {b}, {self.number(dtype, 0)}")
            quotient = self.select(is_zero, llvm, self.number(dtype, 0), quotient)
        return quotient

    def _mod(self, dtype: DType, a: str, b: str) -> str:
        code, llvm, constant = self._code, self.type(dtype), constant_of(b)
        if constant is not None and constant > 0 and constant.bit_count() == 1:
            return code.value(f"and {llvm} {a}, {self.number(dtype, constant - 1)}")
        if constant is not None and self._is_divided_by_products(dtype, constant):
            quotient = self._floor_by_products(dtype, a, constant)
            return code.value(f"sub {llvm} {a}, {code.value(f'mul {llvm} {quotient}, {b}')}")
        safe = self._safe_divisor(dtype, b)  # A remainder by 1 is the 0 that is asked for.
        _, remainder = self._divided(dtype, a, safe)
        if not dtype.is_signed:
            return remainder
        below = self._differs_in_sign(dtype, remainder, safe)
        raised = code.value(f"add {llvm} {remainder}, {safe}")
        return self.select(below, llvm, raised, remainder)

    def _differs_in_sign(self, dtype: DType, remainder: str, divisor: str) -> str:
        """Whether a remainder is not zero and has the other sign than the divisor."""
        code, llvm, zero_ = self._code, self.type(dtype), self.number(dtype, 0)
        is_inexact = code.value(f"icmp ne {llvm} {remainder}, {zero_}")
        signs = code.value(f"xor {llvm} {remainder}, {divisor}")
        return code.value(f"and {self.bool} {is_inexact}, {code.value(f'icmp slt {llvm} {signs}, {zero_}')}")

    def _shift(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        code, llvm, bits = self._code, self.type(dtype), dtype.bits
        instruction = "shl" if op is BinaryOp.SHL else "ashr" if dtype.is_signed else "lshr"
        constant = constant_of(b)
        if constant is not None and 0 <= constant < bits:
            return code.value(f"{instruction} {llvm} {a}, {self.number(dtype, constant)}")
        count = self.intrinsic("smax", llvm, b, self.number(dtype, 0)) if dtype.is_signed else b
        bounded = self.intrinsic("umin", llvm, count, self.number(dtype, bits - 1))
        shifted = code.value(f"{instruction} {llvm} {a}, {bounded}")
        if instruction == "ashr":
            return shifted
        is_within = code.value(f"icmp ult {llvm} {count}, {self.number(dtype, bits)}")
        return self.select(is_within, llvm, shifted, self.number(dtype, 0))

    def _power(self, dtype: DType, a: str, b: str) -> str:
        code, llvm, constant = self._code, self.type(dtype), constant_of(b)
        if constant is None:
            name, scalar = f"q.pow.{'s' if dtype.is_signed else 'u'}{dtype.bits}", register_type(dtype)
            power = self._unit.define(name, lambda: _integer_power(name, scalar, signed=dtype.is_signed))
            if self.lanes:
                power = lanewise(self._unit, name, scalar, 2, self.lanes)
            return code.value(f"call {llvm} {power}({llvm} {a}, {llvm} {b})")
        result, square, exponent = "", a, max(constant, 0)
        while exponent:
            if exponent & 1:
                result = code.value(f"mul {llvm} {result}, {square}") if result else square
            exponent >>= 1
            if exponent:
                square = code.value(f"mul {llvm} {square}, {square}")
        return result or self.number(dtype, 1)

    def _float_binary(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        code, llvm = self._code, self.type(dtype)
        match op:
            case BinaryOp.MIN | BinaryOp.MAX:
                is_other = code.value(f"fcmp {'olt' if op is BinaryOp.MIN else 'ogt'} {llvm} {b}, {a}")
                return self.select(is_other, llvm, b, a)
            case BinaryOp.FLOORDIV | BinaryOp.MOD:
                scalar = register_type(dtype)
                name = f"q.{op.value}.{scalar}"
                make = _float_floordiv if op is BinaryOp.FLOORDIV else _float_mod
                function = self.function(name, lambda: make(self._unit, name, scalar))
                result = code.value(f"call {llvm} {function}({llvm} {a}, {llvm} {b})")
            case _:
                result = code.value(f"{_FLOAT[op]} {self.flags}{llvm} {a}, {b}")
        return rounded(self, dtype, result)

    def fma(self, dtype: DType, a: str, b: str, c: str) -> str:
        """`a * b + c`, rounded once."""
        return rounded(self, dtype, self.intrinsic("fma", self.type(dtype), a, b, c))

    # --- choosing, comparing and converting ---------------------------------------------------------------------------

    def select(self, condition: str, llvm: str, then: str, otherwise: str) -> str:
        """`then if condition else otherwise`, both of the LLVM type."""
        return self._code.value(f"select {self.bool} {condition}, {llvm} {then}, {llvm} {otherwise}")

    def compare(self, op: CompareOp, dtype: DType, a: str, b: str) -> str:
        """`a op b`, as an `i1`."""
        llvm = self.type(dtype)
        if dtype.is_float:
            predicate = "une" if op is CompareOp.NE else f"o{op.value}"
            return self._code.value(f"fcmp {predicate} {llvm} {a}, {b}")
        order = _ORDER.get(op)
        predicate = op.value if order is None else f"{'s' if dtype.is_signed else 'u'}{order}"
        return self._code.value(f"icmp {predicate} {llvm} {a}, {b}")

    def cast(self, source: DType, target: DType, x: str) -> str:
        """`x` converted by value."""
        if source is target:
            return x
        if target.is_bool:
            return self.compare(CompareOp.NE, source, x, splat(register_type(source), zero(source), self.lanes))
        if target.is_float:
            return self._to_float(source, target, x)
        return self._saturated(source, target, x) if source.is_float else self._wrapped(source, target, x)

    def _to_float(self, source: DType, target: DType, x: str) -> str:
        code, before, after = self._code, self.type(source), self.type(target)
        if is_narrow(target):
            if source.is_float:
                return to_narrow(self, source, target, x)
            return integer_to_narrow(self, source, target, x)
        if source.is_float:
            if before == after:
                return x
            return code.value(f"{'fpext' if target is f64 else 'fptrunc'} {before} {x} to {after}")
        return code.value(f"{'sitofp' if source.is_signed else 'uitofp'} {before} {x} to {after}")

    def _wrapped(self, source: DType, target: DType, x: str) -> str:
        before, after = self.type(source), self.type(target)
        source_bits = 1 if source.is_bool else source.bits
        if source_bits == target.bits:
            return x
        if source_bits > target.bits:
            return self._code.value(f"trunc {before} {x} to {after}")
        return self._code.value(f"{'sext' if source.is_signed else 'zext'} {before} {x} to {after}")

    def _saturated(self, source: DType, target: DType, x: str) -> str:
        # Spelled with selects, because LLVM takes the vector form of its saturating conversion apart into scalars.
        code, before, after = self._code, self.type(source), self.type(target)
        beyond = self.number(source, float(1 << (target.bits - target.is_signed)))
        converted = code.value(f"{'fptosi' if target.is_signed else 'fptoui'} {before} {x} to {after}")
        is_above = code.value(f"fcmp oge {before} {x}, {beyond}")
        bounded = self.select(is_above, after, self.number(target, target.max), converted)
        if not target.is_signed:
            is_positive = code.value(f"fcmp ogt {before} {x}, {self.number(source, 0.0)}")
            return self.select(is_positive, after, bounded, self.number(target, 0))
        is_within = code.value(f"fcmp oge {before} {x}, {self.number(source, float(target.min))}")
        saturated = self.select(is_within, after, bounded, self.number(target, target.min))
        is_nan = code.value(f"fcmp uno {before} {x}, {x}")
        return self.select(is_nan, after, self.number(target, 0), saturated)

    def bitcast(self, source: DType, target: DType, x: str) -> str:
        """`x` with its bits taken as another type."""
        return self.from_bits(target, self.to_bits(source, x))

    def to_bits(self, dtype: DType, x: str) -> str:
        """`x` in the integer of its width."""
        integer = wide(f"i{dtype.bits}", self.lanes)
        if dtype.is_bool:
            return self._code.value(f"zext {self.bool} {x} to {integer}")
        if is_narrow(dtype):
            return float_to_bits(self, dtype, x)
        if dtype.is_float:
            return self._code.value(f"bitcast {self.type(dtype)} {x} to {integer}")
        return x

    def from_bits(self, dtype: DType, bits: str) -> str:
        """The value that an integer of the type's width holds."""
        integer = wide(f"i{dtype.bits}", self.lanes)
        if dtype.is_bool:
            return self._code.value(f"icmp ne {integer} {bits}, {splat('i8', '0', self.lanes)}")
        if is_narrow(dtype):
            return bits_to_float(self, dtype, bits)
        if dtype.is_float:
            return self._code.value(f"bitcast {integer} {bits} to {self.type(dtype)}")
        return bits

    # --- memory -------------------------------------------------------------------------------------------------------

    def from_memory(self, dtype: DType, loaded: str) -> str:
        """The register form of what was loaded in the type's memory form."""
        return loaded if memory_type(dtype) == register_type(dtype) else self.from_bits(dtype, loaded)

    def to_memory(self, dtype: DType, value: str) -> str:
        """The memory form of a value."""
        return value if memory_type(dtype) == register_type(dtype) else self.to_bits(dtype, value)

    def load(self, dtype: DType, address: str, metadata: str, alignment: int = 0) -> str:
        """The value in memory at an address, or the values side by side from there on.

        Memory is aligned as the type is, unless `alignment` says otherwise.
        """
        llvm = wide(memory_type(dtype), self.lanes)
        loaded = self._code.value(f"load {llvm}, ptr {address}, align {alignment or dtype.alignment}{metadata}")
        return self.from_memory(dtype, loaded)

    def store(self, dtype: DType, address: str, value: str, metadata: str, alignment: int = 0) -> None:
        """Writes a value to memory, or values side by side from there on; the alignment is as for a load."""
        llvm = wide(memory_type(dtype), self.lanes)
        stored = self.to_memory(dtype, value)
        self._code.do(f"store {llvm} {stored}, ptr {address}, align {alignment or dtype.alignment}{metadata}")

    # --- functions ----------------------------------------------------------------------------------------------------

    def intrinsic(self, name: str, llvm: str, *operands: str) -> str:
        """An intrinsic of operands of one type, in that type."""
        symbol = self._unit.declare(llvm, f"llvm.{name}.{type_suffix(llvm)}", *[llvm] * len(operands))
        flags = self.flags if "float" in llvm or "double" in llvm else ""
        listed = ", ".join(f"{llvm} {operand}" for operand in operands)
        return self._code.value(f"call {flags}{llvm} {symbol}({listed})")

    def function(self, name: str, make: Callable[[], str]) -> str:
        """The symbol of a helper function, made for single values, or of its form for vectors of these lanes."""
        if not self.lanes:
            return self._unit.define(name, make)
        return self._unit.define(f"{name}.v{self.lanes}", lambda: widened(self._unit, make(), self.lanes))

    def called(self, result: str, name: str, make: Callable[[], str], operand: str, x: str) -> str:
        """The call of a helper function of one operand; `result` and `operand` are types of single values."""
        function = self.function(name, make)
        return self._code.value(f"call {wide(result, self.lanes)} {function}({wide(operand, self.lanes)} {x})")

    def convert(self, instruction: str, before: str, x: str, after: str) -> str:
        """A conversion between LLVM types of single values."""
        return self._code.value(f"{instruction} {wide(before, self.lanes)} {x} to {wide(after, self.lanes)}")

    @property
    def features(self) -> frozenset[str]:
        """The target's features that are on."""
        return self._unit.features

    @property
    def no(self) -> str:
        """The `i1` that is false."""
        return splat("i1", "false", self.lanes)

    @property
    def code(self) -> Code:
        """The code that instructions go to."""
        return self._code

    @property
    def unit(self) -> Unit:
        """The module that helper functions go to."""
        return self._unit


def _integer_power(name: str, llvm: str, *, signed: bool) -> str:
    runs = "sgt" if signed else "ne"
    return f"""define internal {llvm} @{name}({llvm} %base, {llvm} %exponent) nounwind willreturn memory(none) {{
entry:
  br label %head
head:
  %result = phi {llvm} [ 1, %entry ], [ %result.next, %step ]
  %square = phi {llvm} [ %base, %entry ], [ %square.next, %step ]
  %rest = phi {llvm} [ %exponent, %entry ], [ %rest.next, %step ]
  %more = icmp {runs} {llvm} %rest, 0
  br i1 %more, label %step, label %done
step:
  %bit = and {llvm} %rest, 1
  %is.odd = icmp ne {llvm} %bit, 0
  %factor = select i1 %is.odd, {llvm} %square, {llvm} 1
  %result.next = mul {llvm} %result, %factor
  %square.next = mul {llvm} %square, %square
  %rest.next = lshr {llvm} %rest, 1
  br label %head
done:
  ret {llvm} %result
}}
"""


# Not as a builtin: of a dividend that is never infinite and a divisor that is never zero, LLVM takes the remainder to
# be no NaN, and forgets that either may be one.
_DIVMOD_START = """  %no.divisor = fcmp oeq {llvm} %right, 0x0000000000000000
  %remainder = call {llvm} {fmod}({llvm} %left, {llvm} %right) nobuiltin
  %is.exact = fcmp oeq {llvm} %remainder, 0x0000000000000000
  %divisor.negative = fcmp olt {llvm} %right, 0x0000000000000000
  %remainder.negative = fcmp olt {llvm} %remainder, 0x0000000000000000
  %differ = xor i1 %divisor.negative, %remainder.negative
  %inexact = xor i1 %is.exact, true
  %below = and i1 %differ, %inexact
"""


def _fmod(unit: Unit, llvm: str) -> str:
    return unit.pure_function(llvm, "fmodf" if llvm == "float" else "fmod", 2)


def _float_mod(unit: Unit, name: str, llvm: str) -> str:
    # A NaN or infinite dividend and a NaN divisor make `fmod` NaN, as does a zero divisor.
    suffix = "f32" if llvm == "float" else "f64"
    copysign = unit.declare(llvm, f"llvm.copysign.{suffix}", llvm, llvm)
    return f"""define internal {llvm} @{name}({llvm} %left, {llvm} %right) nounwind willreturn memory(none) {{
{_DIVMOD_START.format(llvm=llvm, fmod=_fmod(unit, llvm))}  %raised = fadd {llvm} %remainder, %right
  %adjusted = select i1 %below, {llvm} %raised, {llvm} %remainder
  %signed.zero = call {llvm} {copysign}({llvm} 0x0000000000000000, {llvm} %right)
  %result = select i1 %is.exact, {llvm} %signed.zero, {llvm} %adjusted
  ret {llvm} %result
}}
"""


def _float_floordiv(unit: Unit, name: str, llvm: str) -> str:
    suffix = "f32" if llvm == "float" else "f64"
    copysign = unit.declare(llvm, f"llvm.copysign.{suffix}", llvm, llvm)
    floor = unit.declare(llvm, f"llvm.floor.{suffix}", llvm)
    return f"""define internal {llvm} @{name}({llvm} %left, {llvm} %right) nounwind willreturn memory(none) {{
{_DIVMOD_START.format(llvm=llvm, fmod=_fmod(unit, llvm))}  %multiple = fsub {llvm} %left, %remainder
  %divided = fdiv {llvm} %multiple, %right
  %lowered = fsub {llvm} %divided, 0x3FF0000000000000
  %quotient = select i1 %below, {llvm} %lowered, {llvm} %divided
  %floor = call {llvm} {floor}({llvm} %quotient)
  %rest = fsub {llvm} %quotient, %floor
  %is.far = fcmp ogt {llvm} %rest, 0x3FE0000000000000
  %next = fadd {llvm} %floor, 0x3FF0000000000000
  %nearest = select i1 %is.far, {llvm} %next, {llvm} %floor
  %unit = call {llvm} {copysign}({llvm} 0x3FF0000000000000, {llvm} %right)
  %direction = fmul {llvm} %left, %unit
  %signed.zero = call {llvm} {copysign}({llvm} 0x0000000000000000, {llvm} %direction)
  %is.zero = fcmp oeq {llvm} %quotient, 0x0000000000000000
  %chosen = select i1 %is.zero, {llvm} %signed.zero, {llvm} %nearest
  %result = select i1 %no.divisor, {llvm} 0x7FF8000000000000, {llvm} %chosen
  ret {llvm} %result
}}
"""
