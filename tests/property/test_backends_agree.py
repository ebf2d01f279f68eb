"""Random kernels give the same bits on every backend: the interpreter is the oracle.

Kernels are made as source text, so the frontend takes part. They use exact operations alone and never look at the bits
of a NaN. `FUZZ_EXAMPLES=5000 pytest tests/property/test_backends_agree.py` searches for longer.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import math
import os
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import quernel as qn

NUM_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "40"))
DEVICES = [
    f"{info.backend}:{info.index}"
    for backend in qn.backends()
    if backend.ok and backend.name != "reference"
    for info in qn.devices(backend.name)
]

SMALL = (qn.i8, qn.i16, qn.u8, qn.u16)
WIDE = (qn.i32, qn.i64, qn.u32, qn.u64)
FLOATS = (qn.f32, qn.f64)
NUMBERS = (*SMALL, *WIDE, *FLOATS)
COMPUTED = (*WIDE, *FLOATS)
"""Types in which arithmetic computes; the small ones are loaded, cast and stored."""

INTEGER_LITERALS = (
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    8,
    31,
    32,
    63,
    100,
    127,
    255,
    -128,
    32767,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**62,
)
FLOAT_LITERALS = ("0.0", "-0.0", "1.0", "0.5", "-2.5", "0.1", "3.0", "1e10", "-1e-8", "1e300", "math.inf", "math.nan")


@attrs.define
class Scope:
    """What a statement may use."""

    locals: list[tuple[str, Any]]
    """Assigned locals, each with its type."""
    counters: list[str]
    """Range variables and the thread's index: i64, never assigned."""

    def copy(self) -> Scope:
        return Scope(list(self.locals), list(self.counters))


class Writer:
    """Writes one random kernel, well typed by construction."""

    def __init__(self, draw: Callable[[Any], Any], arrays: dict[str, Any], length: int) -> None:
        self.draw = draw
        self.arrays = arrays
        self.length = length
        self.lines: list[str] = []
        self.names = itertools.count()

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    # --- expressions --------------------------------------------------------------------------------------------------

    def of(self, dtype: Any, scope: Scope, depth: int) -> str:
        """An expression of exactly this type."""
        if depth <= 0:
            return self.leaf(dtype, scope)
        if dtype is qn.bool:
            return self.condition(scope, depth)
        forms: list[Callable[[Any, Scope, int], str]] = [self.leaf_at, self.cast, self.choice]
        if dtype in COMPUTED:
            forms += [self.arithmetic, self.arithmetic, self.arithmetic, self.extremum, self.negated, self.called]
        if dtype in WIDE:
            forms += [self.shift, self.bits]
        if dtype in FLOATS:
            forms += [self.function, self.fused]
        return str(self.pick(*forms)(dtype, scope, depth - 1))

    def leaf_at(self, dtype: Any, scope: Scope, depth: int) -> str:
        return self.leaf(dtype, scope)

    def leaf(self, dtype: Any, scope: Scope) -> str:
        choices = [name for name, type_ in scope.locals if type_ is dtype]
        choices += [self.element(name, scope) for name, type_ in self.arrays.items() if type_ is dtype]
        if dtype is qn.i64:
            choices += scope.counters
        if not choices or self.pick(*range(6)) == 0:
            choices = [self.made(dtype, scope)]
        return str(self.pick(*choices))

    def made(self, dtype: Any, scope: Scope) -> str:
        """A value of a type of which nothing may be at hand: a literal, or a cast of whatever there is."""
        others = [self.element(name, scope) for name, type_ in self.arrays.items() if type_ is not qn.bool]
        if dtype is qn.bool:
            others = others or ["i"]
            return f"({self.pick(*others)} > {self.pick('0', '1', '-3', *others)})"
        if not others or self.pick(*range(4)) == 0:
            return f"qn.{dtype.name}({self.literal(dtype)})"
        return f"qn.{dtype.name}({self.pick(*others)})"

    def element(self, name: str, scope: Scope) -> str:
        """An element of an array; of those that are written, this thread's own."""
        counter = self.pick(*scope.counters)
        shuffled = (f"({counter} * 3 + 1) % {self.length}", f"({counter} - 5) % {self.length}")
        return f"{name}[{'i' if name.startswith('out') else self.pick('i', *shuffled)}]"

    def literal(self, dtype: Any) -> str:
        if dtype in FLOATS:
            return str(self.pick(*FLOAT_LITERALS))
        return str(self.pick(*[value for value in INTEGER_LITERALS if dtype.min <= value <= dtype.max]))

    def operand(self, dtype: Any, scope: Scope, depth: int) -> str:
        """A right or left side that leaves an operation in `dtype`: of that type, a literal, or of a narrower type."""
        kind = self.pick("same", "same", "literal", "narrower")
        if kind == "literal":
            if dtype in FLOATS:
                return str(self.pick("0.5", "2", "3.0", "(-1.25)", "1e-3", "7", "ratio", "count"))
            return str(self.pick("count", f"({self.literal(dtype)})", f"({self.literal(dtype)})"))
        if kind == "narrower":
            if dtype in FLOATS:
                narrower = (*SMALL, *WIDE, *((qn.f32,) if dtype is qn.f64 else ()))
            else:
                narrower = {
                    qn.i32: SMALL,
                    qn.i64: (*SMALL, qn.i32, qn.u32),
                    qn.u32: (qn.u32,),
                    qn.u64: (qn.u32, qn.u8, qn.u16),
                }[dtype]
            return self.of(self.pick(*narrower), scope, depth)
        return self.of(dtype, scope, depth)

    def arithmetic(self, dtype: Any, scope: Scope, depth: int) -> str:
        operators = ("+", "-", "*", "/", "//", "%") if dtype in FLOATS else ("+", "-", "*", "//", "%")
        sides = [self.of(dtype, scope, depth), self.operand(dtype, scope, depth)]
        if self.draw(st.booleans()):
            sides.reverse()
        return f"({sides[0]} {self.pick(*operators)} {sides[1]})"

    def bits(self, dtype: Any, scope: Scope, depth: int) -> str:
        form = self.pick("& | ^", "~", "count", "**")
        x = self.of(dtype, scope, depth)
        if form == "~":
            return f"(~{x})"
        if form == "count":
            return f"qn.{dtype.name}(qn.{self.pick('popcount', 'clz', 'ctz')}({x}))"
        if form == "**":
            return f"({x} ** {self.pick('2', '3', '5')})"
        return f"({x} {self.pick('&', '|', '^')} {self.of(dtype, scope, depth)})"

    def shift(self, dtype: Any, scope: Scope, depth: int) -> str:
        count = self.pick("1", "7", "40", "(-3)", self.of(self.pick(*SMALL, *WIDE), scope, depth))
        return f"({self.of(dtype, scope, depth)} {self.pick('<<', '>>')} {count})"

    def extremum(self, dtype: Any, scope: Scope, depth: int) -> str:
        return f"{self.pick('min', 'max')}({self.of(dtype, scope, depth)}, {self.of(dtype, scope, depth)})"

    def negated(self, dtype: Any, scope: Scope, depth: int) -> str:
        return f"{self.pick('abs', '-', '+')}({self.of(dtype, scope, depth)})"

    def cast(self, dtype: Any, scope: Scope, depth: int) -> str:
        source = self.pick(qn.bool, *NUMBERS)
        inner = self.of(source, scope, depth)
        if dtype is qn.i64 and source in FLOATS:
            return f"{self.pick('int', 'qn.i64')}({inner})"
        return f"qn.{dtype.name}({inner})"

    def choice(self, dtype: Any, scope: Scope, depth: int) -> str:
        then, otherwise = self.of(dtype, scope, depth), self.of(dtype, scope, depth)
        return f"({then} if {self.condition(scope, depth)} else {otherwise})"

    def function(self, dtype: Any, scope: Scope, depth: int) -> str:
        name = self.pick("math.sqrt", "qn.floor", "qn.ceil", "qn.trunc", "qn.rint")
        return f"{name}({self.of(dtype, scope, depth)})"

    def fused(self, dtype: Any, scope: Scope, depth: int) -> str:
        return f"qn.fma({', '.join(self.of(dtype, scope, depth) for _ in range(3))})"

    def called(self, dtype: Any, scope: Scope, depth: int) -> str:
        return f"{self.pick('mixed', 'stepped')}({self.of(dtype, scope, depth)}, {self.of(dtype, scope, depth)})"

    def condition(self, scope: Scope, depth: int) -> str:
        form = self.pick("compare", "compare", "chain", "and", "or", "not", "leaf", "isnan")
        compare = functools.partial(self.pick, "<", "<=", ">", ">=", "==", "!=")
        if form == "leaf" or depth <= 0:
            return self.leaf(qn.bool, scope)
        if form == "not":
            return f"(not {self.condition(scope, depth - 1)})"
        if form in ("and", "or"):
            return f"({self.condition(scope, depth - 1)} {form} {self.condition(scope, depth - 1)})"
        if form == "isnan":
            return f"math.isnan({self.of(self.pick(*FLOATS), scope, depth - 1)})"
        sides = [self.of(self.pick(*NUMBERS), scope, depth - 1) for _ in range(3)]
        if form == "chain":
            return f"({sides[0]} {compare()} {sides[1]} {compare()} {sides[2]})"
        return f"({sides[0]} {compare()} {self.pick(sides[1], '3', '0.5', '(-1)')})"

    # --- statements ---------------------------------------------------------------------------------------------------

    def write(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def block(self, indent: int, scope: Scope, depth: int, *, in_loop: bool) -> None:
        for _ in range(self.draw(st.integers(1, 3))):
            self.statement(indent, scope, depth, in_loop=in_loop)

    def statement(self, indent: int, scope: Scope, depth: int, *, in_loop: bool) -> None:
        forms = ["assign", "assign", "reassign", "store"]
        if depth > 0:
            forms += ["if", "for", "while", "accumulate"]
        if in_loop:
            forms += ["leave"]
        form = self.pick(*forms)
        if form == "reassign" and not scope.locals:
            form = "assign"
        if form == "assign":
            dtype = self.pick(*NUMBERS, qn.bool)
            name = f"v{next(self.names)}"
            self.write(indent, f"{name} = {self.of(dtype, scope, 3)}")
            scope.locals.append((name, dtype))
        elif form == "reassign":
            name, dtype = self.pick(*scope.locals)
            if dtype in COMPUTED and self.draw(st.booleans()):
                operator = self.pick("+", "-", "*", "//", "%")
                self.write(indent, f"{name} {operator}= {self.operand(dtype, scope, 2)}")
            else:
                self.write(indent, f"{name} = {self.of(dtype, scope, 3)}")
        elif form == "store":
            name = self.pick(*[name for name in self.arrays if name.startswith("out")])
            self.write(indent, f"{name}[i] = {self.of(self.arrays[name], scope, 3)}")
        elif form == "leave":
            self.write(indent, f"if {self.condition(scope, 2)}:")
            self.write(indent + 1, self.pick("break", "continue", "return"))
        elif form == "if":
            self.branch(indent, scope, depth, in_loop=in_loop)
        elif form == "while":
            self.while_loop(indent, scope, depth)
        elif form == "for":
            counter = f"j{next(self.names)}"
            bounds = self.pick("3", "2, 9, 3", "4, -3, -2", "i % 4", "i % 3, 5")
            self.write(indent, f"for {counter} in range({bounds}):")
            inner = scope.copy()
            inner.counters.append(counter)
            self.block(indent + 1, inner, depth - 1, in_loop=True)
        else:
            self.accumulation(indent, scope)

    def branch(self, indent: int, scope: Scope, depth: int, *, in_loop: bool) -> None:
        self.write(indent, f"if {self.condition(scope, 2)}:")
        self.block(indent + 1, scope.copy(), depth - 1, in_loop=in_loop)
        if self.draw(st.booleans()):
            self.write(indent, f"elif {self.condition(scope, 2)}:")
            self.block(indent + 1, scope.copy(), depth - 1, in_loop=in_loop)
        if self.draw(st.booleans()):
            self.write(indent, "else:")
            self.block(indent + 1, scope.copy(), depth - 1, in_loop=in_loop)

    def while_loop(self, indent: int, scope: Scope, depth: int) -> None:
        counter = f"w{next(self.names)}"
        self.write(indent, f"{counter} = qn.i64({self.pick(2, 4)})")
        self.write(indent, f"while {counter} > 0 and {self.condition(scope, 2)}:")
        self.write(indent + 1, f"{counter} -= 1")
        inner = scope.copy()
        inner.counters.append(counter)
        self.block(indent + 1, inner, depth - 1, in_loop=True)

    def accumulation(self, indent: int, scope: Scope) -> None:
        name, counter, dtype = f"v{next(self.names)}", f"j{next(self.names)}", self.pick(*COMPUTED)
        self.write(indent, f"{name} = {'0.0' if dtype in FLOATS else '0'}")
        self.write(indent, f"for {counter} in range(4):")
        inner = scope.copy()
        inner.counters.append(counter)
        self.write(indent + 1, f"{name} += {self.of(dtype, inner, 2)}")
        scope.locals.append((name, dtype))


PROLOGUE = """\
@qn.func
def mixed(x, y):
    if x < y:
        return y - x
    return x + y * 3


@qn.func
def stepped(x, y):
    total = x
    for k in range(3):
        if total > y:
            break
        total = total + y
    return total


@qn.kernel
"""


VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda base: base[: len(base) // 2],
    "shifted": lambda base: base[1 : len(base) // 2 + 1],
    "stepped": lambda base: base[::2],
    "reversed": lambda base: base[::-2],
}
"""Half of an array's elements, in one of the ways in which they can lie in memory."""


@attrs.frozen
class Program:
    """A random kernel: its text, its arrays' types, and how it is launched."""

    text: str
    arrays: dict[str, Any]
    length: int
    block: int
    contract: bool
    views: tuple[str, ...]


@st.composite
def programs(draw: Any) -> Program:
    length = draw(st.integers(1, 40))
    arrays = {name: draw(st.sampled_from((qn.bool, *NUMBERS))) for name in ("a", "b", "c")}
    arrays |= {name: draw(st.sampled_from((qn.bool, *NUMBERS))) for name in ("out0", "out1")}
    writer = Writer(draw, arrays, length)
    writer.write(0, f"def k({', '.join(arrays)}, count: int, ratio: float):")
    writer.write(1, "i = qn.global_id()")
    scope = Scope([], ["i"])
    writer.block(1, scope, 2, in_loop=False)
    for name in ("out0", "out1"):
        writer.write(1, f"{name}[i] = {writer.of(arrays[name], scope, 3)}")
    text = PROLOGUE + "\n".join(writer.lines) + "\n"
    views = tuple(draw(st.sampled_from(tuple(VIEWS))) for _ in arrays)
    return Program(text, arrays, length, draw(st.sampled_from((1, 4, 16, 256))), draw(st.booleans()), views)


numbers_of_kernels = itertools.count()


def kernel_of(text: str) -> Any:
    """The kernel of a source text, whose lines can be found as those of a notebook cell can."""
    name = f"<random kernel {next(numbers_of_kernels)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"qn": qn, "math": math, "__name__": "random_kernels"}
    exec(compile(text, name, "exec"), namespace)
    return namespace["k"]


def values_of(dtype: Any, length: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Edges and small numbers, more often than large ones."""
    if dtype is qn.bool:
        return rng.integers(0, 2, length).astype(bool)
    if dtype in FLOATS:
        special = np.array([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e-40, 3e38, 2.0**31, -(2.0**63)])
        chosen = np.where(rng.random(length) < 0.3, rng.choice(special, length), rng.normal(0, 50, length))
        return np.asarray(chosen, dtype.numpy)
    edges = [0, 1, 2, dtype.max, dtype.min, dtype.max - 1]
    limit = min(dtype.max, 100)
    return np.array(
        [
            edges[rng.integers(len(edges))] if rng.random() < 0.3 else int(rng.integers(max(dtype.min, -limit), limit))
            for _ in range(length)
        ],
        dtype.numpy,
    )


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array's bytes, NaNs all alike."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.view(np.uint8)


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NO_CACHE", "1")


@pytest.mark.parametrize("device", DEVICES)
@settings(
    max_examples=NUM_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(program=programs(), seed=st.integers(0, 2**32 - 1))
def test_random_kernels_give_the_same_bits_as_the_interpreter(device: str, program: Program, seed: int) -> None:
    note(program.text)
    kernel = kernel_of(program.text).options(contract=program.contract)
    rng = np.random.default_rng(seed)
    given_arrays = {name: values_of(dtype, 2 * program.length, rng) for name, dtype in program.arrays.items()}
    count, ratio = int(rng.integers(0, 100)), float(rng.normal(0, 3))
    results = []
    for name in ("reference", device):
        arrays = {key: value.copy() for key, value in given_arrays.items()}
        lent = {key: VIEWS[view](arrays[key]) for key, view in zip(arrays, program.views, strict=True)}
        kernel.over(program.length, block=program.block, device=name)(**lent, count=count, ratio=ratio)
        results.append(arrays)
    expected, actual = results
    for name in program.arrays:
        assert np.array_equal(bits(expected[name]), bits(actual[name])), (name, expected[name], actual[name])
