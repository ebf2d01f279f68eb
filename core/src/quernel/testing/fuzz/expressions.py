"""Random expressions of a wanted type, as text."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

import attrs
from hypothesis import strategies as st

import quernel as qn

__all__ = ["COMPUTED", "FLOATS", "NUMBERS", "SMALL", "WIDE", "Composite", "ExpressionWriter", "Scope"]

SMALL: Final[tuple[Any, ...]] = (qn.i8, qn.i16, qn.u8, qn.u16)
WIDE: Final[tuple[Any, ...]] = (qn.i32, qn.i64, qn.u32, qn.u64)
FLOATS: Final[tuple[Any, ...]] = (qn.f32, qn.f64, qn.f16, qn.bf16)
NUMBERS: Final = (*SMALL, *WIDE, *FLOATS)
COMPUTED: Final = (*WIDE, *FLOATS)
"""Types in which arithmetic computes; the small ones are loaded, cast and stored."""

_SMALL_INTEGERS = (0, 1, -1, 2, 3, 5, 7, 8, 31, 32, 63, 100, 127, 255, -128, 32767)
_INTEGERS: Final = (*_SMALL_INTEGERS, 2**31 - 1, -(2**31), 2**32 - 1, 2**62)
_REALS = ("0.0", "-0.0", "1.0", "0.5", "-2.5", "0.1", "3.0", "1e10", "-1e-8", "1e300", "math.inf", "math.nan")
_NARROWER: Final[dict[Any, tuple[Any, ...]]] = {
    qn.i32: SMALL,
    qn.i64: (*SMALL, qn.i32, qn.u32),
    qn.u32: (qn.u32,),
    qn.u64: (qn.u32, qn.u8, qn.u16),
    qn.f16: (*SMALL, *WIDE),
    qn.bf16: (*SMALL, *WIDE),
    qn.f32: (*SMALL, *WIDE, qn.f16, qn.bf16),
    qn.f64: (*SMALL, *WIDE, qn.f32, qn.f16, qn.bf16),
}
"""Types whose values leave an operation with the type that they meet."""


@attrs.define
class Scope:
    """What a statement may use.

    Attributes:
        locals: assigned locals, each with its type.
        counters: range variables and the thread's index: i64, never assigned.
        readable: arrays other than parameters whose every element may be read now, with element type, length and the
            part of an element that has this type.
        wholes: assigned locals that are vectors or structs.
    """

    locals: list[tuple[str, Any]]
    counters: list[str]
    readable: list[tuple[str, Any, int, str]] = attrs.field(factory=list)
    wholes: list[tuple[str, Composite]] = attrs.field(factory=list)

    def copy(self) -> Scope:
        """The same, to add to."""
        return Scope(list(self.locals), list(self.counters), list(self.readable), list(self.wholes))


@attrs.frozen
class Composite:
    """A vector or struct type of a random kernel.

    Attributes:
        described: as a `Program` describes it.
        made: what a value of it is made by.
        parts: the scalars in it, each with its type and the text behind a value that takes it.
        fields: how many values `made` takes of each type in turn: one scalar, or the components of a vector.
    """

    described: str
    made: str
    parts: tuple[tuple[Any, str], ...]
    fields: tuple[Any, ...]


class ExpressionWriter:
    """Writes random expressions, each of exactly the type that is asked for."""

    def __init__(self, draw: Callable[[Any], Any], arrays: dict[str, Any], length: int) -> None:
        self.draw = draw
        self.arrays = arrays
        self.elements = {name: dtype for name, dtype in arrays.items() if name != "cells"}
        self.composites: dict[str, Composite] = {}
        """Array parameters whose elements are vectors or structs."""
        self.length = length
        self.names = itertools.count()

    def pick(self, *choices: Any) -> Any:
        """One of the choices."""
        return choices[self.draw(st.integers(0, len(choices) - 1))]

    def of(self, dtype: Any, scope: Scope, depth: int) -> str:
        """An expression of exactly this type."""
        if depth <= 0:
            return self.leaf(dtype, scope)
        if dtype is qn.bool:
            return self.condition(scope, depth)
        forms: list[Callable[[Any, Scope, int], str]] = [self._leaf, self._cast, self._choice]
        if dtype in COMPUTED:
            forms += [self._arithmetic] * 3 + [
                self._extremum,
                self._negated,
                self._called,
                self._of_tuple,
                self._of_vector,
            ]
        if dtype in WIDE:
            forms += [self._shift, self._bits, self._of_alike]
        if dtype in FLOATS:
            forms += [self._function, self._fused]
        return str(self.pick(*forms)(dtype, scope, depth - 1))

    def leaf(self, dtype: Any, scope: Scope) -> str:
        """A local, an element, a counter, or a value made of whatever there is."""
        named = [name for name, type_ in scope.locals if type_ is dtype]
        named += scope.counters if dtype is qn.i64 else []
        named += [f"{name}{part}" for name, of in scope.wholes for type_, part in of.parts if type_ is dtype]
        elements = [name for name, type_ in self.elements.items() if type_ is dtype]
        within = [(name, length, part) for name, type_, length, part in scope.readable if type_ is dtype]
        inside = [(name, part) for name, of in self.composites.items() for type_, part in of.parts if type_ is dtype]
        number = self.pick(*range(len(named) + len(elements) + len(within) + len(inside) + 1))
        if number < len(named):
            return str(named[-1 - number])
        number -= len(named)
        if number < len(elements):
            return self.element(elements[number], scope)
        number -= len(elements)
        if number < len(within):
            name, within_length, part = within[number]
            return f"{self._anywhere(name, within_length, scope)}{part}"
        number -= len(within)
        if number < len(inside):
            name, part = inside[number]
            return f"{self.element(name, scope)}{part}"
        return self._made(dtype, scope)

    def element(self, name: str, scope: Scope) -> str:
        """An element of a parameter; this thread's own, or, of those that are not written, also others."""
        if name.startswith(("out", "p0", "s0")) or self.pick(0, 1):
            return f"{name}[i]"
        counter = self.pick(*scope.counters)
        own = (f"({counter} * 3 + 1) % {self.length}", f"({counter} - 5) % {self.length}")
        return f"{name}[{self.pick(*own, '0', f'count % {self.length}')}]"

    def operand(self, dtype: Any, scope: Scope, depth: int) -> str:
        """A side that leaves an operation in `dtype`: of that type, a literal, or of a narrower type."""
        kind = self.pick("same", "same", "literal", "narrower")
        if kind == "literal":
            if dtype in FLOATS:
                return str(self.pick("0.5", "2", "3.0", "(-1.25)", "1e-3", "7", "ratio", "count"))
            return str(self.pick("count", f"({self._literal(dtype)})", f"({self._literal(dtype)})"))
        if kind == "narrower":
            return self.of(self.pick(*_NARROWER[dtype]), scope, depth)
        return self.of(dtype, scope, depth)

    def condition(self, scope: Scope, depth: int) -> str:
        """An expression of bool."""
        form = self.pick("compare", "compare", "chain", "and", "or", "not", "leaf", "isnan")
        compare = functools.partial(self.pick, "<", "<=", ">", ">=", "==", "!=")
        if form == "leaf" or depth <= 0:
            return self.leaf(qn.bool, scope)
        if form == "not":
            return f"(not {self.condition(scope, depth - 1)})"
        if form in ("and", "or"):
            return f"({self.condition(scope, depth - 1)} {form} {self.condition(scope, depth - 1)})"
        if form == "isnan":
            return f"math.{self.pick('isnan', 'isinf', 'isfinite')}({self.of(self.pick(*FLOATS), scope, depth - 1)})"
        left, right = (self.of(self.pick(*NUMBERS), scope, depth - 1) for _ in range(2))
        if form == "chain":
            return f"({left} {compare()} {right} {compare()} {self.of(self.pick(*NUMBERS), scope, depth - 1)})"
        return f"({left} {compare()} {self.pick(right, '3', '0.5', '(-1)')})"

    def whole(self, of: Composite, scope: Scope, depth: int) -> str:
        """A vector or struct: another one of its type, or made of values."""
        others = [name for name, other in scope.wholes if other is of]
        others += [self.element(name, scope) for name, other in self.composites.items() if other is of]
        form = self.pick("other", "made", "made", "choice") if others else "made"
        if form == "other":
            return str(self.pick(*others))
        made = f"{of.made}({', '.join(self._of_field(field, scope, depth) for field in of.fields)})"
        if form == "choice":
            return f"({self.pick(*others)} if {self.condition(scope, depth)} else {made})"
        return made

    def _of_field(self, field: Any, scope: Scope, depth: int) -> str:
        return self.whole(field, scope, depth) if isinstance(field, Composite) else self.of(field, scope, depth)

    # --- the forms ----------------------------------------------------------------------------------------------------

    def _leaf(self, dtype: Any, scope: Scope, depth: int) -> str:
        return self.leaf(dtype, scope)

    def _anywhere(self, name: str, length: int, scope: Scope) -> str:
        counter = self.pick(*scope.counters)
        return f"{name}[{self.pick(f'{counter} % {length}', f'({counter} * 5 + 2) % {length}', '0')}]"

    def _made(self, dtype: Any, scope: Scope) -> str:
        """A value of a type of which nothing may be at hand: a literal, or a cast of whatever there is."""
        others = [name for name, type_ in self.elements.items() if type_ is not qn.bool]
        if dtype is qn.bool:
            left = self.element(self.pick(*others), scope) if others else "i"
            return f"({left} > {self.pick('0', '1', '-3')})"
        if not others or self.pick(*range(4)) == 0:
            return f"qn.{dtype.name}({self._literal(dtype)})"
        return f"qn.{dtype.name}({self.element(self.pick(*others), scope)})"

    def _literal(self, dtype: Any) -> str:
        if dtype in FLOATS:
            return str(self.pick(*_REALS))
        return str(self.pick(*[value for value in _INTEGERS if dtype.min <= value <= dtype.max]))

    def _arithmetic(self, dtype: Any, scope: Scope, depth: int) -> str:
        operators = ("+", "-", "*", "/", "//", "%") if dtype in FLOATS else ("+", "-", "*", "//", "%")
        sides = [self.of(dtype, scope, depth), self.operand(dtype, scope, depth)]
        if self.draw(st.booleans()):
            sides.reverse()
        return f"({sides[0]} {self.pick(*operators)} {sides[1]})"

    def _bits(self, dtype: Any, scope: Scope, depth: int) -> str:
        form = self.pick("& | ^", "~", "count", "**", "bitcast")
        x = self.of(dtype, scope, depth)
        if form == "~":
            return f"(~{x})"
        if form == "count":
            return f"qn.{dtype.name}(qn.{self.pick('popcount', 'clz', 'ctz')}({x}))"
        if form == "**":
            return f"({x} ** {self.pick('2', '3', '5')})"
        if form == "bitcast":
            other = self.pick(*(type_ for type_ in WIDE if type_.bits == dtype.bits))
            return f"qn.bitcast({self.of(other, scope, depth)}, qn.{dtype.name})"
        return f"({x} {self.pick('&', '|', '^')} {self.of(dtype, scope, depth)})"

    def _shift(self, dtype: Any, scope: Scope, depth: int) -> str:
        count = self.pick("1", "7", "40", "(-3)", "")
        count = count or self.of(self.pick(*SMALL, *WIDE), scope, depth)
        return f"({self.of(dtype, scope, depth)} {self.pick('<<', '>>')} {count})"

    def _extremum(self, dtype: Any, scope: Scope, depth: int) -> str:
        a, b = self.of(dtype, scope, depth), self.of(dtype, scope, depth)
        if self.pick(0, 1, 2) == 0:
            return f"qn.clamp({a}, {b}, {self.of(dtype, scope, 0)})"
        return f"{self.pick('min', 'max')}({a}, {b})"

    def _of_alike(self, dtype: Any, scope: Scope, depth: int) -> str:
        """The lesser or greater of integers that are alike in all threads, complements among them."""
        named = [name for name, type_ in self.elements.items() if type_ is dtype and not name.startswith("out")]
        indexed = [f"{name}[{self.pick('0', f'count % {self.length}')}]" for name in named]
        x, y = (self.pick(*indexed, f"qn.{dtype.name}(count)") for _ in range(2))
        made = f"{self.pick('min', 'max')}({self.pick(f'~{x}', f'{y} - {x} - 1', f'-{x} - 1', x)}, {y})"
        return str(self.pick(made, f"(~{made})", f"({made} - {x} - 1)"))

    def _negated(self, dtype: Any, scope: Scope, depth: int) -> str:
        return f"{self.pick('abs', '-', '+')}({self.of(dtype, scope, depth)})"

    def _cast(self, dtype: Any, scope: Scope, depth: int) -> str:
        source = self.pick(qn.bool, *NUMBERS)
        inner = self.of(source, scope, depth)
        if dtype is qn.i64 and source in FLOATS:
            return f"{self.pick('int', 'qn.i64', 'round', 'math.floor', 'math.ceil', 'math.trunc')}({inner})"
        return f"qn.{dtype.name}({inner})"

    def _choice(self, dtype: Any, scope: Scope, depth: int) -> str:
        then, otherwise = self.of(dtype, scope, depth), self.of(dtype, scope, depth)
        return f"({then} if {self.condition(scope, depth)} else {otherwise})"

    def _function(self, dtype: Any, scope: Scope, depth: int) -> str:
        if self.pick(0, 1, 2) == 0:  # The sign comes from an integer, as that of a NaN is not promised.
            sign = self.of(self.pick(*SMALL, *WIDE), scope, depth)
            return f"math.copysign({self.of(dtype, scope, depth)}, qn.{dtype.name}({sign}))"
        name = self.pick("math.sqrt", "qn.floor", "qn.ceil", "qn.trunc", "qn.rint")
        return f"{name}({self.of(dtype, scope, depth)})"

    def _fused(self, dtype: Any, scope: Scope, depth: int) -> str:
        return f"qn.fma({', '.join(self.of(dtype, scope, depth) for _ in range(3))})"

    def _called(self, dtype: Any, scope: Scope, depth: int) -> str:
        name = self.pick("mixed", "stepped", "generic")
        return f"{name}({self.of(dtype, scope, depth)}, {self.of(dtype, scope, depth)})"

    def _of_tuple(self, dtype: Any, scope: Scope, depth: int) -> str:
        a, b = self.of(dtype, scope, depth), self.of(dtype, scope, depth)
        forms = [f"({a}, {b})[{self.pick('0', '-1')}]", f"swapped(({a}, {b}))[0]"]
        if dtype in WIDE:
            forms += [f"divmod({a}, {b})[0]", f"divmod({a}, {b})[1]"]
        if dtype is qn.u64:
            forms += [f"qn.random.philox({a}, {b})[{self.pick(0, 1, 2, 3)}]"]
        if dtype in (qn.f32, qn.i64):
            field, other = ("first", "qn.i64(0)") if dtype is qn.f32 else ("second", "qn.f32(0)")
            forms += [f"Pair({f'{a}, {other}' if dtype is qn.f32 else f'{other}, {a}'}).{field}"]
        return str(self.pick(*forms))

    def _of_vector(self, dtype: Any, scope: Scope, depth: int) -> str:
        """A component of a vector, made or computed."""
        parts = [self.of(dtype, scope, depth) for _ in range(3)]
        made = f"qn.vec(qn.{dtype.name}, 2)({parts[0]}, {parts[1]})"
        if self.pick(0, 1):
            made = (
                f"({made} {self.pick('+', '-', '*')} {self.pick(parts[2], f'qn.vec(qn.{dtype.name}, 2)({parts[2]})')})"
            )
        return f"{made}.{self.pick('x', 'y')}"
