"""The IR's operators on scalars as LLVM instructions, with the meanings that `quernel.ir.nodes` states.

Integer instructions carry no `nsw` or `nuw`, as integers wrap. Whatever LLVM leaves undefined (division by zero, shifts
beyond the width, conversions out of range) is kept from happening, or its result is not selected.
"""

from __future__ import annotations

from typing import assert_never

from quernel.dtypes import DType
from quernel.ir.nodes import BinaryOp, CompareOp, UnaryOp
from quernel_cpu.emission.narrow import bits_to_float, float_to_bits, integer_to_narrow, rounded, to_narrow
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import float_literal, is_narrow, memory_type, register_type, zero

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
_ORDER = {CompareOp.LT: "lt", CompareOp.LE: "le", CompareOp.GT: "gt", CompareOp.GE: "ge"}


class Arithmetic:
    """The operators, written into the code of one function."""

    def __init__(self, unit: Unit, code: Code, *, fast_math: bool) -> None:
        self._unit = unit
        self._code = code
        self.flags = FAST_FLAGS if fast_math else ""

    # --- unary --------------------------------------------------------------------------------------------------------

    def unary(self, op: UnaryOp, dtype: DType, x: str) -> str:
        """`op x`."""
        code, llvm = self._code, register_type(dtype)
        match op:
            case UnaryOp.UNIFORM:
                return x
            case _ if dtype.is_bool:
                return code.value(f"xor i1 {x}, true")
            case UnaryOp.NEG if dtype.is_float:
                return code.value(f"fneg {llvm} {x}")
            case UnaryOp.NEG:
                return code.value(f"sub {llvm} 0, {x}")
            case UnaryOp.INVERT | UnaryOp.NOT:
                return code.value(f"xor {llvm} {x}, -1")
            case UnaryOp.ABS if dtype.is_float:
                return self.intrinsic("fabs", llvm, x)
            case UnaryOp.ABS if dtype.is_signed:
                absolute = self._unit.declare(llvm, f"llvm.abs.{llvm}", llvm, "i1")
                return code.value(f"call {llvm} {absolute}({llvm} {x}, i1 false)")
            case UnaryOp.ABS:
                return x
            case _:
                assert_never(op)

    # --- binary -------------------------------------------------------------------------------------------------------

    def binary(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        """`a op b`."""
        if dtype.is_float:
            return self._float_binary(op, dtype, a, b)
        if dtype.is_bool:
            op = {BinaryOp.MIN: BinaryOp.AND, BinaryOp.MAX: BinaryOp.OR}.get(op, op)
            return self._code.value(f"{_INTEGER[op]} i1 {a}, {b}")
        return self._integer_binary(op, dtype, a, b)

    def _integer_binary(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        code, llvm = self._code, register_type(dtype)
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
        code, llvm = self._code, register_type(dtype)
        if _constant(b) not in (None, 0, -1):
            return b
        unsafe = code.value(f"icmp eq {llvm} {b}, 0")
        if dtype.is_signed:
            unsafe = code.value(f"or i1 {unsafe}, {code.value(f'icmp eq {llvm} {b}, -1')}")
        return code.value(f"select i1 {unsafe}, {llvm} 1, {llvm} {b}")

    def _floordiv(self, dtype: DType, a: str, b: str) -> str:
        code, llvm, constant = self._code, register_type(dtype), _constant(b)
        if constant is not None and constant > 0 and constant.bit_count() == 1:
            return code.value(f"{'ashr' if dtype.is_signed else 'lshr'} {llvm} {a}, {constant.bit_length() - 1}")
        safe = self._safe_divisor(dtype, b)
        if dtype.is_signed:
            quotient = code.value(f"sdiv {llvm} {a}, {safe}")
            remainder = code.value(f"srem {llvm} {a}, {safe}")
            below = self._differs_in_sign(llvm, remainder, safe)
            quotient = code.value(f"sub {llvm} {quotient}, {code.value(f'zext i1 {below} to {llvm}')}")
            if constant is None or constant == -1:
                negated = code.value(f"sub {llvm} 0, {a}")
                is_negation = code.value(f"icmp eq {llvm} {b}, -1")
                quotient = code.value(f"select i1 {is_negation}, {llvm} {negated}, {llvm} {quotient}")
        else:
            quotient = code.value(f"udiv {llvm} {a}, {safe}")
        if constant is None or constant == 0:
            is_zero = code.value(f"icmp eq {llvm} {b}, 0")
            quotient = code.value(f"select i1 {is_zero}, {llvm} 0, {llvm} {quotient}")
        return quotient

    def _mod(self, dtype: DType, a: str, b: str) -> str:
        code, llvm, constant = self._code, register_type(dtype), _constant(b)
        if constant is not None and constant > 0 and constant.bit_count() == 1:
            return code.value(f"and {llvm} {a}, {constant - 1}")
        safe = self._safe_divisor(dtype, b)  # A remainder by 1 is the 0 that is asked for.
        if not dtype.is_signed:
            return code.value(f"urem {llvm} {a}, {safe}")
        remainder = code.value(f"srem {llvm} {a}, {safe}")
        below = self._differs_in_sign(llvm, remainder, safe)
        raised = code.value(f"add {llvm} {remainder}, {safe}")
        return code.value(f"select i1 {below}, {llvm} {raised}, {llvm} {remainder}")

    def _differs_in_sign(self, llvm: str, remainder: str, divisor: str) -> str:
        """Whether a remainder is not zero and has the other sign than the divisor."""
        code = self._code
        is_inexact = code.value(f"icmp ne {llvm} {remainder}, 0")
        signs = code.value(f"xor {llvm} {remainder}, {divisor}")
        return code.value(f"and i1 {is_inexact}, {code.value(f'icmp slt {llvm} {signs}, 0')}")

    def _shift(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        code, llvm, bits = self._code, register_type(dtype), dtype.bits
        instruction = "shl" if op is BinaryOp.SHL else "ashr" if dtype.is_signed else "lshr"
        constant = _constant(b)
        if constant is not None and 0 <= constant < bits:
            return code.value(f"{instruction} {llvm} {a}, {constant}")
        count = self.intrinsic("smax", llvm, b, "0") if dtype.is_signed else b
        bounded = self.intrinsic("umin", llvm, count, str(bits - 1))
        shifted = code.value(f"{instruction} {llvm} {a}, {bounded}")
        if instruction == "ashr":
            return shifted
        is_within = code.value(f"icmp ult {llvm} {count}, {bits}")
        return code.value(f"select i1 {is_within}, {llvm} {shifted}, {llvm} 0")

    def _power(self, dtype: DType, a: str, b: str) -> str:
        code, llvm, constant = self._code, register_type(dtype), _constant(b)
        if constant is None:
            name = f"q.pow.{'s' if dtype.is_signed else 'u'}{dtype.bits}"
            power = self._unit.define(name, lambda: _integer_power(name, llvm, signed=dtype.is_signed))
            return code.value(f"call {llvm} {power}({llvm} {a}, {llvm} {b})")
        result, square, exponent = "1", a, max(constant, 0)
        while exponent:
            if exponent & 1:
                result = square if result == "1" else code.value(f"mul {llvm} {result}, {square}")
            exponent >>= 1
            if exponent:
                square = code.value(f"mul {llvm} {square}, {square}")
        return result

    def _float_binary(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        code, llvm = self._code, register_type(dtype)
        match op:
            case BinaryOp.MIN | BinaryOp.MAX:
                is_other = code.value(f"fcmp {'olt' if op is BinaryOp.MIN else 'ogt'} {llvm} {b}, {a}")
                return code.value(f"select i1 {is_other}, {llvm} {b}, {llvm} {a}")
            case BinaryOp.FLOORDIV | BinaryOp.MOD:
                name = f"q.{op.value}.{llvm}"
                make = _float_floordiv if op is BinaryOp.FLOORDIV else _float_mod
                function = self._unit.define(name, lambda: make(self._unit, name, llvm))
                result = code.value(f"call {llvm} {function}({llvm} {a}, {llvm} {b})")
            case _:
                result = code.value(f"{_FLOAT[op]} {self.flags}{llvm} {a}, {b}")
        return rounded(self._unit, code, dtype, result)

    def fma(self, dtype: DType, a: str, b: str, c: str) -> str:
        """`a * b + c`, rounded once."""
        llvm = register_type(dtype)
        return rounded(self._unit, self._code, dtype, self.intrinsic("fma", llvm, a, b, c))

    # --- comparing and converting -------------------------------------------------------------------------------------

    def compare(self, op: CompareOp, dtype: DType, a: str, b: str) -> str:
        """`a op b`, as an `i1`."""
        llvm = register_type(dtype)
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
            return self.compare(CompareOp.NE, source, x, zero(source))
        if target.is_float:
            return self._to_float(source, target, x)
        return self._saturated(source, target, x) if source.is_float else self._wrapped(source, target, x)

    def _to_float(self, source: DType, target: DType, x: str) -> str:
        code, before, after = self._code, register_type(source), register_type(target)
        if is_narrow(target):
            if source.is_float:
                return to_narrow(self._unit, code, source, target, x)
            return integer_to_narrow(self._unit, code, source, target, x)
        if source.is_float:
            if before == after:
                return x
            return code.value(f"{'fpext' if after == 'double' else 'fptrunc'} {before} {x} to {after}")
        return code.value(f"{'sitofp' if source.is_signed else 'uitofp'} {before} {x} to {after}")

    def _wrapped(self, source: DType, target: DType, x: str) -> str:
        before, after = register_type(source), register_type(target)
        source_bits = 1 if source.is_bool else source.bits
        if source_bits == target.bits:
            return x
        if source_bits > target.bits:
            return self._code.value(f"trunc {before} {x} to {after}")
        return self._code.value(f"{'sext' if source.is_signed else 'zext'} {before} {x} to {after}")

    def _saturated(self, source: DType, target: DType, x: str) -> str:
        # Spelled with selects, because LLVM takes the vector form of its saturating conversion apart into scalars.
        code, before, after = self._code, register_type(source), register_type(target)
        beyond = float_literal(float(1 << (target.bits - target.is_signed)))
        converted = code.value(f"{'fptosi' if target.is_signed else 'fptoui'} {before} {x} to {after}")
        is_above = code.value(f"fcmp oge {before} {x}, {beyond}")
        bounded = code.value(f"select i1 {is_above}, {after} {target.max}, {after} {converted}")
        if not target.is_signed:
            is_positive = code.value(f"fcmp ogt {before} {x}, {float_literal(0.0)}")
            return code.value(f"select i1 {is_positive}, {after} {bounded}, {after} 0")
        is_within = code.value(f"fcmp oge {before} {x}, {float_literal(float(target.min))}")
        saturated = code.value(f"select i1 {is_within}, {after} {bounded}, {after} {target.min}")
        is_nan = code.value(f"fcmp uno {before} {x}, {x}")
        return code.value(f"select i1 {is_nan}, {after} 0, {after} {saturated}")

    def bitcast(self, source: DType, target: DType, x: str) -> str:
        """`x` with its bits taken as another type."""
        return self.from_bits(target, self.to_bits(source, x))

    def to_bits(self, dtype: DType, x: str) -> str:
        """`x` in the integer of its width."""
        if dtype.is_bool:
            return self._code.value(f"zext i1 {x} to i8")
        if is_narrow(dtype):
            return float_to_bits(self._unit, self._code, dtype, x)
        if dtype.is_float:
            return self._code.value(f"bitcast {register_type(dtype)} {x} to i{dtype.bits}")
        return x

    def from_bits(self, dtype: DType, bits: str) -> str:
        """The value that an integer of the type's width holds."""
        if dtype.is_bool:
            return self._code.value(f"icmp ne i8 {bits}, 0")
        if is_narrow(dtype):
            return bits_to_float(self._unit, self._code, dtype, bits)
        if dtype.is_float:
            return self._code.value(f"bitcast i{dtype.bits} {bits} to {register_type(dtype)}")
        return bits

    # --- memory -------------------------------------------------------------------------------------------------------

    def load(self, dtype: DType, address: str, metadata: str, alignment: int = 0) -> str:
        """The value in memory at an address, aligned as its type is unless `alignment` says otherwise."""
        llvm = memory_type(dtype)
        loaded = self._code.value(f"load {llvm}, ptr {address}, align {alignment or dtype.alignment}{metadata}")
        return loaded if llvm == register_type(dtype) else self.from_bits(dtype, loaded)

    def store(self, dtype: DType, address: str, value: str, metadata: str, alignment: int = 0) -> None:
        """Writes a value to memory; the alignment is as for a load."""
        llvm = memory_type(dtype)
        stored = value if llvm == register_type(dtype) else self.to_bits(dtype, value)
        self._code.do(f"store {llvm} {stored}, ptr {address}, align {alignment or dtype.alignment}{metadata}")

    def intrinsic(self, name: str, llvm: str, *operands: str) -> str:
        """An intrinsic of operands of one type, in that type."""
        suffix = {"float": "f32", "double": "f64"}.get(llvm, llvm)
        symbol = self._unit.declare(llvm, f"llvm.{name}.{suffix}", *[llvm] * len(operands))
        flags = self.flags if llvm in ("float", "double") else ""
        listed = ", ".join(f"{llvm} {operand}" for operand in operands)
        return self._code.value(f"call {flags}{llvm} {symbol}({listed})")


def _constant(operand: str) -> int | None:
    """The integer that an operand is a literal of."""
    return int(operand) if operand.lstrip("-").isdigit() else None


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
