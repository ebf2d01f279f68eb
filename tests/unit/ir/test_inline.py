"""Inlining: which calls become bodies, and that the bodies do what the calls did."""

from __future__ import annotations

import pytest
from tests.property.block_executor import Machine, arrays_of

from quernel.ir.nodes import Barrier, Break, Call, Module
from quernel.ir.parser import parse_module
from quernel.ir.passes.inline import functions_to_inline, inline
from quernel.ir.printer import print_module
from quernel.ir.verifier import verify
from quernel.ir.walk import walk_statements

TEXT = """\
kernel k(x: array<i64, 1>, y: array<i64, 1>, n: i64) grid (4):
    local v, w, meet_t: i64
    shared s: i64[4]
    v = local_id(0)
{body}
    y[global_id(0)] = v

func meet(q: i64, z: array<i64, 1>) -> (i64):
    local t: i64
    private own: i64[2]
    own[0] = q
    z[local_id(0)] = q
    barrier
    t = z[(local_id(0) + 1) % z.shape[0]]
    if t == 2:
        return own[0] + 100
    return t

func outer(q: i64, z: array<i64, 1>) -> (i64, i64):
    local a, b: i64
    a = call meet(q, &z)
    b = call plain(a)
    barrier
    return a, b

func plain(q: i64) -> (i64):
    local i, j: i64
    for i in range(0, 5, 1):
        for j in range(0, 5, 1):
            if i * j == q:
                return i + 10 * j
    return -1

func swap(q: i64, r: i64) -> (i64, i64):
    return r, q

func nothing(q: i64, z: array<i64, 1>) -> ():
    if q == 1:
        return
    z[0] = q
"""


def module(*lines: str) -> Module:
    return verify(parse_module(TEXT.format(body="\n".join(f"    {line}" for line in lines) or "    pass")))


def result(made: Module) -> list[object]:
    run = Machine(made, arrays_of(made, {"x": (8,), "y": (8,)}), {"n": 3}, grid=(1,))
    run.run()
    return [run.arrays["y"].cells[(index,)] for index in range(4)]


def everything(made: Module) -> Module:
    return verify(inline(made, frozenset(function.name for function in made.functions)))


def test_functions_that_reach_a_barrier_or_an_allocation_are_inlined() -> None:
    made = module("v, w = call outer(v, &s)")
    assert functions_to_inline(made) == {"meet", "outer"}
    inlined = verify(inline(made))
    assert [function.name for function in inlined.functions] == ["plain", "swap", "nothing"]
    calls = [stmt.function for stmt in walk_statements(inlined.kernel.body) if isinstance(stmt, Call)]
    assert calls == ["plain"]


def test_module_without_such_functions_is_the_same_object() -> None:
    made = parse_module("kernel k(n: i64) grid (4):\n    pass\n")
    assert inline(made) is made


@pytest.mark.parametrize(
    "lines",
    [
        ("v = call plain(v)",),
        ("v = call meet(v, &s)",),
        ("v = call meet(v, &s)", "barrier", "w = call meet(v, &s)", "v = v + w * 7"),
        ("v, w = call outer(v, &s)", "v = v * 100 + w"),
        ("w = 5", "v, w = call swap(v, w)", "v = v * 100 + w"),
        ("for w in range(0, 3, 1):", "    v = call plain(v + w)"),
        ("if v > 1:", "    v = call plain(6)", "else:", "    v = call plain(99)"),
        ("s[v] = v", "call nothing(v, &s)", "barrier", "v = s[v] + s[0]"),
    ],
)
def test_inlined_kernel_does_what_the_calls_did(lines: tuple[str, ...]) -> None:
    made = module(*lines)
    assert result(everything(made)) == result(inline(made)) == result(made)


def test_names_of_the_kernel_are_left_alone() -> None:
    made = module("meet_t = 9", "v = call meet(v, &s)", "v = v * 10 + meet_t")
    assert result(everything(made)) == result(made)


def test_length_of_an_allocated_array_is_a_constant() -> None:
    inlined = print_module(everything(module("v = call meet(v, &s)")))
    assert "z.shape" not in inlined
    assert "% 4]" in inlined


def test_allocations_move_to_the_start_of_the_kernel() -> None:
    inlined = everything(module("if n > 0:", "    v = call meet(v, &s)"))
    text = print_module(inlined)
    assert "    private meet_own_0: i64[2]\n" in text


def test_each_copy_has_statements_of_its_own() -> None:
    inlined = everything(module("v = call meet(v, &s)", "barrier", "v = call meet(v, &s)"))
    meeting = [stmt for stmt in walk_statements(inlined.kernel.body) if isinstance(stmt, Barrier | Break)]
    assert len({id(stmt) for stmt in meeting}) == len(meeting)
