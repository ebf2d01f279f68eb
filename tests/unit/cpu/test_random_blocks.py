"""Random kernels with barriers under random block-wide control, against the interpreter."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.cpu.harness import CONTIGUOUS, Built
from tests.unit.cpu.programs import module
from tests.unit.reference.builders import Interpreter

Lines = list[str]

HEAD = """\
kernel k(x: array<i64, 1>, out: array<i64, 2>, n: i64) grid (6):
    local l, v, w, u: i64
    local f: bool
    local h: f16
    local t0, t1, t2: i64
    shared ring: i64[6]
    shared sums: i32[2]
    private own: i64[3]
    l = local_id(0)
    v = x[l]
    w = l * 3 - block_id(0)
    u = n
    f = v > w
    h = f16(w)
    t0 = 0
    t1 = 0
    t2 = 0
    own[0] = v
    own[1] = w
    own[2] = 0
"""
TAIL = """\
    out[global_id(0), 0] = v
    out[global_id(0), 1] = w + own[0] * 3 + own[1] * 5 + own[2] * 7
    out[global_id(0), 2] = u * 2 + i64(f) + i64(h) * 10
"""

constants = st.integers(-7, 7)
varying = st.sampled_from(["v", "w", "l", "own[l % 3]", "i64(h)", "i64(f)", "x[(l + 1) % 6]"])
uniform = st.sampled_from(["u", "n", "block_id(0)", "2"])


@st.composite
def alone(draw: st.DrawFn) -> Lines:
    """What a thread does by itself."""
    one, other, number = draw(varying), draw(st.one_of(varying, uniform)), draw(constants)
    return draw(
        st.sampled_from(
            [
                [f"v = {one} + {other} * {number}"],
                [f"w = ({one} ^ {number}) % 1000"],
                [f"own[{number % 3}] = {one} - {other}"],
                [f"own[l % 3] = own[l % 3] + {number}"],
                [f"f = {one} < {other}"],
                [f"h = f16(({one}) % 50) + 0.5f16"],
                [f"u = (u * 3 + {number}) % 11"],
                [f"if {one} < {other}:", f"    v = v + {number}", "else:", f"    w = w - {number}"],
                [
                    f"for t2 in range(0, ({one}) % 3, 1):",
                    f"    if ({other}) % 2 == t2 % 2:",
                    "        continue",
                    "    v = v + t2",
                ],
            ]
        )
    )


@st.composite
def together(draw: st.DrawFn) -> Lines:
    """An exchange among the threads, between barriers."""
    one, shift = draw(varying), draw(st.integers(0, 5))
    exchange = ["barrier", f"ring[l] = {one}", "barrier", f"w = ring[(l + {shift}) % 6] + {draw(constants)}"]
    counting = [
        "barrier",
        "if l < 2:",
        "    sums[l] = 0i32",
        "barrier",
        f"atomic.add(sums[l % 2], i32(({one}) % 9))",
        "barrier",
        "v = v + i64(sums[1 - l % 2])",
    ]
    return draw(st.sampled_from([exchange, counting]))


def _indented(lines: Lines) -> Lines:
    return [f"    {line}" for line in lines]


@st.composite
def blocks(draw: st.DrawFn, depth: int = 0) -> Lines:
    """Statements of the block."""
    lines: Lines = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(
            st.sampled_from(["alone", "together", "together", "if", "for", "loop"] if depth < 2 else ["together"])
        )
        condition = f"({draw(uniform)} + {draw(constants)}) % 3 < {draw(st.integers(0, 3))}"
        match kind:
            case "alone":
                lines += draw(alone())
            case "together":
                lines += draw(together())
            case "if":
                lines += [f"if {condition}:", *_indented(draw(blocks(depth + 1)))]
                if draw(st.booleans()):
                    lines += ["else:", *_indented(draw(blocks(depth + 1)))]
            case "for":
                step = draw(st.sampled_from([1, 2, -1]))
                bounds = (
                    f"{draw(constants)} % 3, {draw(uniform)} % 4, 1" if step > 0 else f"{draw(uniform)} % 4, -1, {step}"
                )
                leave = draw(st.sampled_from([[], ["break"], ["continue"]]))
                guard = [f"if {condition}:", *_indented(leave)] if leave else []
                lines += [
                    f"for t{depth} in range({bounds}):",
                    *_indented([*draw(blocks(depth + 1)), *guard, *draw(together())]),
                ]
            case _:
                lines += [
                    f"t{depth} = 0",
                    "loop:",
                    *_indented([f"t{depth} = t{depth} + 1", f"if t{depth} > {draw(st.integers(0, 3))}:", "    break"]),
                    *_indented(draw(blocks(depth + 1))),
                ]
    return lines


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=blocks(), leave=st.sampled_from(["", "    if v % 3 == 0:\n        return\n"]), n=st.integers(-3, 5))
def test_random_kernels_with_barriers_equal_the_interpreter(body: Lines, leave: str, n: int) -> None:
    text = HEAD + "\n".join(_indented(body)) + "\n    barrier\n" + leave + TAIL
    made = module(text)
    x = np.array([4, -3, 12, 0, 7, -9])
    found, wanted = np.full((12, 3), -77), np.full((12, 3), -77)
    Interpreter().run(made, 2, x, wanted, n)
    Built(made, CONTIGUOUS).grid(2, x, found, n)
    assert found.tolist() == wanted.tolist(), text
