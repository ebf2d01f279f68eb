"""Hypothesis strategies of kernels whose threads meet: barriers under block-wide control, and what surrounds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

BLOCK = 4
NUM_BLOCKS = 2
LENGTH = BLOCK * NUM_BLOCKS

_HEADER = f"""\
kernel k(x: array<i64, 1>, y: array<i64, 1>, z: array<i64, 1>, n: i64) grid ({BLOCK}){{options}}:
    local u0, u1, v0, v1, a, k0, k1, k2, k3, k4, c0, c1, c2, c3, c4: i64
    shared s: i64[{BLOCK}]
    private p: i64[3]
    u0 = n
    u1 = block_id(0)
    v0 = local_id(0)
    v1 = global_id(0)
    a = 0
    s[local_id(0)] = v1
    p[0] = 1
    p[1] = v0
    p[2] = n
"""

_FUNCTIONS = f"""
func meet(v: i64, u: i64, s: array<i64, 1>, p: array<i64, 1>) -> (i64):
    local t, i: i64
    s[local_id(0)] = v
    barrier
    if u == 1:
        return v + 1
    t = s[(local_id(0) + u) % {BLOCK}]
    for i in range(0, 2, 1):
        barrier
        s[local_id(0)] = t + i
        barrier
        t = t + s[i]
    barrier
    if t % 2 == 0:
        return t
    p[1] = t
    if t > 5:
        t = t - 1
        return t
    t = t + 100
    return t

func plain(v: i64, x: array<i64, 1>) -> (i64):
    if v % 3 == 0:
        return x[v % {LENGTH}]
    return v
"""


class _Writer:
    """Draws the lines of one kernel. `wild`: indices may be out of bounds."""

    def __init__(self, draw: Callable[..., Any], *, wild: bool, calls: bool) -> None:
        self.draw = draw
        self.wild = wild
        self.calls = calls
        self.lines: list[str] = []
        self.depth = 0
        self.budget = 22

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def put(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    # --- expressions ---

    def uniform(self) -> str:
        small = self.draw(st.integers(-2, 5))
        return self.pick("u0", "u1", "n", str(small), f"u0 + {small}", "u0 * u1", f"u1 % {small}", self.load("u0"))

    def varying(self) -> str:
        small = self.draw(st.integers(-2, 5))
        options = ["v0", "v1", "a", "u0", "local_id(0)", f"v0 * {small} + u1", f"v1 - {small}", "y[global_id(0)]"]
        return self.pick(*options, f"p[{abs(small) % 3}]", self.load("v0"), self.load("v1"), f"v0 // {small}")

    def load(self, index: str) -> str:
        return f"x[{index}]" if self.wild and self.pick(True, False) else f"x[{index} % {LENGTH}]"

    def index(self, index: str, length: int) -> str:
        return index if self.wild and self.pick(True, False, False) else f"{index} % {length}"

    def condition(self, value: str) -> str:
        return f"{value} {self.pick('<', '==', '>')} {self.draw(st.integers(-1, 4))}"

    # --- statements ---

    def block(self, loop: int, *, is_last: bool) -> None:
        """Statements that all threads of the block run; `is_last`: no barrier follows in any trip."""
        start = len(self.lines)
        for _ in range(self.draw(st.integers(1, 4))):
            self.together(loop)
        if is_last and self.pick(True, False):
            self.tail(loop)
        if len(self.lines) == start:
            self.put("pass")

    def together(self, loop: int) -> None:
        self.budget -= 1
        nested = ("if", "for", "loop", "return") if self.depth < 3 and self.budget > 0 else ()
        ends = ("end",) if loop >= 0 else ()
        calls = ("meet", "plain") if self.calls else ()
        kind = self.pick("own", "own", "uniform", "uniform", "barrier", "exchange", "agree", *nested, *ends, *calls)
        match kind:
            case "own":
                self.own(-1, 0)
            case "uniform":
                self.put(f"{self.pick('u0', 'u1')} = {self.uniform()}")
            case "barrier":
                self.put("barrier")
            case "exchange":
                self.exchange(self.pick("v0", "v1"), f"(local_id(0) + {self.pick(1, 2, 3)}) % {BLOCK}")
            case "agree":
                self.exchange(self.pick("u0", "u1"), self.index("u1", BLOCK))
            case "if":
                self.put(f"if {self.condition('u0' if self.wild else self.uniform())}:")
                self.inside(loop)
                if self.pick(True, False):
                    self.put("else:")
                    self.inside(loop)
            case "for":
                variable, stop = f"k{self.depth}", self.pick("2", "3", "u0 % 3", "n % 4")
                self.put(f"for {variable} in range(0, {stop}, 1):")
                self.depth += 1
                if self.pick(True, False):
                    self.put("barrier")
                if self.pick(True, False, False):
                    self.put(f"{variable} = {variable} + v0")
                self.block(self.depth, is_last=True)
                self.depth -= 1
            case "loop":
                counter = f"c{self.depth}"
                self.put(f"{counter} = 0")
                self.put("loop:")
                self.depth += 1
                self.put(f"if {counter} >= {self.pick(1, 2, 3)}:")
                self.put("    break")
                self.put(f"{counter} = {counter} + 1")
                if self.pick(True, False):
                    self.put("barrier")
                self.block(self.depth, is_last=True)
                self.depth -= 1
            case "return":
                self.put(f"if u0 == {self.draw(st.integers(-3, 9))}:")
                self.put("    return")
            case "end":
                self.put(f"if {self.condition(self.pick('u0', 'u1'))}:")
                self.put(f"    {self.pick('break', 'continue')}")
            case "meet":
                self.put("barrier")
                result = self.pick("v0", "v1")
                self.put(f"{result} = call meet({self.varying()}, {self.pick('u0', 'u1', '1')}, &s, &p)")
                self.put("barrier")
            case "plain":
                self.put(f"{self.pick('v0', 'v1')} = call plain({self.varying()}, &x)")

    def inside(self, loop: int) -> None:
        self.depth += 1
        self.block(loop, is_last=False)
        self.depth -= 1

    def exchange(self, target: str, index: str) -> None:
        self.put("barrier")
        self.put(f"{target} = s[{index}]")
        self.put("barrier")

    def tail(self, loop: int) -> None:
        """Behind the last barrier of the kernel or of a trip threads may part."""
        for _ in range(self.draw(st.integers(1, 2))):
            self.put(f"if {self.condition(self.varying())}:")
            self.depth += 1
            self.own(-1, 1)
            self.put("continue" if loop >= 0 else "return")
            self.depth -= 1
            self.own(-1, 1)

    def own(self, loop: int, depth: int) -> None:
        """A statement that a thread runs by itself."""
        nested = ("if", "for", "for") if depth < 2 else ()
        ends = ("end",) if loop >= 0 else ()
        kind = self.pick("assign", "assign", "y", "s", "p", "atomic", *nested, *ends)
        match kind:
            case "assign":
                self.put(f"{self.pick('v0', 'v1', 'a')} = {self.varying()}")
            case "y":
                self.put(f"y[global_id(0)] = {self.varying()}")
            case "s":
                self.put(f"s[local_id(0)] = {self.varying()}")
            case "p":
                self.put(f"p[{self.index(self.pick('v0', 'v1'), 3)}] = {self.varying()}")
            case "atomic":
                # The old value of a cell that several threads add to depends on their order; that of a thread's own
                # cell does not.
                if self.pick(True, False):
                    self.put(f"a = atomic.add(y[global_id(0)], {self.varying()})")
                else:
                    self.put(f"atomic.add(z[{self.index('v1', LENGTH)}], {self.varying()})")
            case "if":
                self.put(f"if {self.condition(self.varying())}:")
                self.depth += 1
                self.own(loop, depth + 1)
                self.depth -= 1
                if self.pick(True, False):
                    self.put("else:")
                    self.depth += 1
                    self.own(loop, depth + 1)
                    self.depth -= 1
            case "for":
                variable = f"k{self.depth}"
                self.put(f"for {variable} in range(0, {self.pick('v0 % 3', '2', 'v1')}, 1):")
                self.depth += 1
                self.own(self.depth, depth + 1)
                self.own(self.depth, depth + 1)
                self.depth -= 1
            case "end":
                self.put(f"if {self.condition(self.varying())}:")
                self.put(f"    {self.pick('break', 'continue')}")


@st.composite
def block_kernels(draw: Callable[..., Any], *, wild: bool = False, calls: bool = True) -> str:
    """The text of a kernel in one-dimensional blocks whose control round barriers is equal in the block.

    Threads read each other's elements of `s` between two barriers only, so that there are no races.
    """
    writer = _Writer(draw, wild=wild, calls=calls)
    writer.block(-1, is_last=False)
    for variable in ("u0", "v0", "v1", "a"):
        writer.put(f"y[global_id(0)] = y[global_id(0)] * 31 + {variable}")
    if draw(st.booleans()):
        writer.tail(-1)
    options = " with checked" if wild else ""
    return _HEADER.format(options=options) + "\n".join(writer.lines) + "\n" + (_FUNCTIONS if calls else "")
