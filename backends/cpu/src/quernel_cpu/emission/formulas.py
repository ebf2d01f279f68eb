"""Functions of our own as formulas: operators on terms become LLVM instructions, of single values or of vectors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeAlias

import attrs

from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import float_literal, splat, type_suffix, wide

__all__ = ["Formula", "Term", "defined"]

Operand: TypeAlias = "Term | float"

_SIXTEEN = 16


@attrs.frozen(eq=False)
class Term:
    """A value of a formula. A Python number beside it takes its type: in f32, the nearest one."""

    formula: Formula
    text: str
    single: str
    """The LLVM type of one lane."""

    def __add__(self, other: Operand) -> Term:
        return self.formula.binary("add", self, other)

    def __sub__(self, other: Operand) -> Term:
        return self.formula.binary("sub", self, other)

    def __mul__(self, other: Operand) -> Term:
        return self.formula.binary("mul", self, other)

    def __truediv__(self, other: Operand) -> Term:
        return self.formula.binary("div", self, other)

    def __and__(self, other: Operand) -> Term:
        return self.formula.binary("and", self, other)

    def __or__(self, other: Operand) -> Term:
        return self.formula.binary("or", self, other)

    def __xor__(self, other: Operand) -> Term:
        return self.formula.binary("xor", self, other)

    def __lshift__(self, count: int) -> Term:
        return self.formula.binary("shl", self, count)

    def __rshift__(self, count: int) -> Term:
        """Shifts copies of the sign in."""
        return self.formula.binary("ashr", self, count)

    def is_(self, relation: str, other: Operand) -> Term:
        """A comparison by LLVM's name for it: `olt`, `uno`, `eq`, …"""
        return self.formula.compared(relation, self, other)

    def as_(self, single: str) -> Term:
        """The number in another floating-point type, an integer as a float, or an integer's low bits."""
        match self.single, single:
            case ("float", "double"):
                instruction = "fpext"
            case ("double", "float"):
                instruction = "fptrunc"
            case ("i64", "i32"):
                instruction = "trunc"
            case _:
                instruction = "sitofp"
        return self.formula.converted(instruction, self, single)

    def bits(self) -> Term:
        """The bits of a float as an integer."""
        return self.formula.converted("bitcast", self, "i32" if self.single == "float" else "i64")

    def as_bits(self) -> Term:
        """The float whose bits these are."""
        return self.formula.converted("bitcast", self, "float" if self.single == "i32" else "double")


class Formula:
    """The code of one function of our own, of single values (`lanes` 0) or of vectors of so many."""

    def __init__(self, unit: Unit, lanes: int) -> None:
        self.unit = unit
        self.lanes = lanes
        self.code = Code()

    @property
    def has_fma(self) -> bool:
        """Whether a product and a sum in one are rounded once, in one instruction."""
        return "fma" in self.unit.features

    def parameter(self, name: str, single: str = "float") -> Term:
        """A parameter of the function."""
        return Term(self, f"%{name}", single)

    def number(self, value: float, single: str) -> Term:
        """A constant, in every lane."""
        return Term(self, splat(single, self.literal(value, single), self.lanes), single)

    def literal(self, value: float, single: str) -> str:
        """A constant of one lane."""
        if single == "float":
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        return float_literal(float(value)) if single in ("float", "double") else str(int(value))

    def binary(self, name: str, left: Term, right: Operand) -> Term:
        """An instruction of two operands; `add` and the like of floats are `fadd` and the like."""
        single = left.single
        prefix = "f" if single in ("float", "double") else ""
        return self._made(single, f"{prefix}{name} {wide(single, self.lanes)} {left.text}, {self._text(right, single)}")

    def compared(self, relation: str, left: Term, right: Operand) -> Term:
        """An `i1`, by LLVM's name of the relation."""
        single = left.single
        name = "fcmp" if single in ("float", "double") else "icmp"
        vector = wide(single, self.lanes)
        return self._made("i1", f"{name} {relation} {vector} {left.text}, {self._text(right, single)}")

    def converted(self, instruction: str, x: Term, single: str) -> Term:
        """A conversion to another type."""
        before, after = wide(x.single, self.lanes), wide(single, self.lanes)
        return self._made(single, f"{instruction} {before} {x.text} to {after}")

    def select(self, condition: Term, yes: Term, no: Operand) -> Term:
        """`yes` where the condition holds, else `no`."""
        vector, mask = wide(yes.single, self.lanes), wide("i1", self.lanes)
        other = self._text(no, yes.single)
        return self._made(yes.single, f"select {mask} {condition.text}, {vector} {yes.text}, {vector} {other}")

    def intrinsic(self, name: str, x: Term, *others: Operand) -> Term:
        """An LLVM intrinsic whose operands and result are of one type."""
        vector = wide(x.single, self.lanes)
        symbol = self.unit.declare(vector, f"llvm.{name}.{type_suffix(vector)}", *[vector] * (1 + len(others)))
        operands = ", ".join(f"{vector} {self._text(operand, x.single)}" for operand in (x, *others))
        return self._made(x.single, f"call {vector} {symbol}({operands})")

    def multiply_add(self, x: Term, y: Operand, z: Operand) -> Term:
        """`x * y + z`, rounded once where the processor does that in one instruction."""
        return self.intrinsic("fmuladd", x, y, z)

    def polynomial(self, x: Term, coefficients: Iterable[float], last: Operand | None = None) -> Term:
        """Horner's scheme, the highest power first; `last`, where it is given, comes behind the coefficients."""
        first, *rest = coefficients
        value = self.number(first, x.single)
        for coefficient in (*rest, *(() if last is None else (last,))):
            value = self.multiply_add(value, x, coefficient)
        return value

    def times_power_of_two(self, x: Term, exponent: Term) -> Term:
        """`x * 2**exponent` of an f32 and an i32 of at most 252 in size, rounded once where `x` is near 1."""
        if "avx512f" in self.unit.features:  # There it is one instruction.
            vector, integers = wide("float", self.lanes), wide("i32", self.lanes)
            symbol = self.unit.declare(
                vector, f"llvm.ldexp.{type_suffix(vector)}.{type_suffix(integers)}", vector, integers
            )
            return self._made("float", f"call {vector} {symbol}({vector} {x.text}, {integers} {exponent.text})")
        half = exponent >> 1  # In two halves, so that results which underflow gradually are rounded once.
        for part in (half, exponent - half):
            x = x * ((part + 127) << 23).as_bits()
        return x

    @property
    def has_sixteens(self) -> bool:
        """Whether the vectors are of sixteens, and the processor has AVX-512's instructions for these."""
        return "avx512f" in self.unit.features and self.lanes > 0 and self.lanes % _SIXTEEN == 0

    def by_sixteen(self, name: str, operands: tuple[Term | tuple[str, str], ...]) -> Term:
        """An AVX-512 intrinsic that gives sixteen f32, for each sixteen lanes of the terms.

        Each call is given the constants among the operands, a type and a text, as they are.
        """
        piece, pieces = wide("float", _SIXTEEN), []
        types = [wide(operand.single, _SIXTEEN) if isinstance(operand, Term) else operand[0] for operand in operands]
        symbol = self.unit.declare(piece, f"llvm.x86.avx512.{name}", *types)
        for start in range(0, self.lanes, _SIXTEEN):
            texts = [self._sixteen(operand, start) if isinstance(operand, Term) else operand[1] for operand in operands]
            listed = ", ".join(f"{llvm} {text}" for llvm, text in zip(types, texts, strict=True))
            pieces.append(self.code.value(f"call {piece} {symbol}({listed})"))
        return Term(self, self.code.joined("float", _SIXTEEN, pieces), "float")

    def _sixteen(self, x: Term, start: int) -> str:
        return self.code.part(wide(x.single, self.lanes), x.text, range(start, start + _SIXTEEN))

    def element(self, table: str, index: Term) -> Term:
        """The f64 of a constant table at each lane's index, lane by lane, which beats a gather in the nearest cache."""
        result = Term(self, "poison", "double")
        vector, indices = wide("double", self.lanes), wide("i32", self.lanes)
        for lane in range(max(self.lanes, 1)):
            number = index.text
            if self.lanes:
                number = self.code.value(f"extractelement {indices} {index.text}, i64 {lane}")
            address = self.code.value(f"getelementptr double, ptr {table}, i32 {number}")
            loaded = self.code.value(f"load double, ptr {address}, align 8")
            if not self.lanes:
                return Term(self, loaded, "double")
            result = self._made("double", f"insertelement {vector} {result.text}, double {loaded}, i64 {lane}")
        return result

    def replaced_where(self, condition: Term, function: str, x: Term, value: Term) -> Term:
        """`function(x)` where the condition holds, else `value`; the function is called only if it holds somewhere."""
        is_any = condition.text
        if self.lanes:
            mask = self.code.value(f"bitcast {wide('i1', self.lanes)} {condition.text} to i{self.lanes}")
            is_any = self.code.value(f"icmp ne i{self.lanes} {mask}, 0")
        vector = wide("float", self.lanes)
        rare, usual, done = self.code.label("rare"), self.code.label("usual"), self.code.label("done")
        self.code.branch_if(is_any, rare, usual)
        self.code.place(rare)
        called = self._made("float", f"call {vector} {function}({vector} {x.text})")
        chosen = self.select(condition, called, value)
        self.code.branch(done)
        self.code.place(usual)
        self.code.branch(done)
        self.code.place(done)
        return self._made("float", f"phi {vector} [ {chosen.text}, %{rare} ], [ {value.text}, %{usual} ]")

    def _made(self, single: str, instruction: str) -> Term:
        return Term(self, self.code.value(instruction), single)

    def _text(self, operand: Operand, single: str) -> str:
        return operand.text if isinstance(operand, Term) else self.number(operand, single).text


def defined(
    unit: Unit,
    name: str,
    lanes: int,
    make: Callable[..., Term],
    parameters: tuple[str, ...] = ("x",),
    *,
    is_inlined: bool = True,
) -> str:
    """The symbol of the f32 function that `make` gives the result of, from a formula and its parameters."""
    symbol = f"{name}.v{lanes}" if lanes else name

    def text() -> str:
        formula = Formula(unit, lanes)
        result = make(formula, *(formula.parameter(parameter) for parameter in parameters))
        vector = wide("float", lanes)
        formula.code.end(f"ret {vector} {result.text}")
        listed = ", ".join(f"{vector} %{parameter}" for parameter in parameters)
        inlining = "alwaysinline" if is_inlined else "noinline"
        attributes = f"{inlining} nounwind willreturn memory(none) alignstack(64)"
        return formula.code.function(f"internal {vector} @{symbol}({listed}) {attributes}")

    return unit.define(symbol, text)
