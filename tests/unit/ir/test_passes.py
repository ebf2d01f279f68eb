from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from quernel.ir.nodes import Module
from quernel.ir.parser import parse_module
from quernel.ir.passes import contract, guard_edge, optimize, remove_dead_code
from quernel.ir.printer import print_module
from quernel.ir.verifier import verify

HEAD = "kernel k(x: array<f32, 1>, h: array<f16, 1>, a: f32, b: f32, n: i64) over (4) with contract:\n"
LOCALS = "    local i, j: i64\n    local s, t: f32\n"


def module(body: str, *, head: str = HEAD, local: str = LOCALS, rest: str = "") -> Module:
    return verify(parse_module(head + local + textwrap.indent(textwrap.dedent(body), "    ") + rest))


def body_after(transform: Callable[[Module], Module], body: str, **parts: str) -> str:
    lines = print_module(verify(transform(module(body, **parts)))).splitlines()[1:]
    return textwrap.dedent("\n".join(line for line in lines if not line.startswith("    local")))


# --- contraction ---


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a * b + s", "fma(a, b, s)"),
        ("s + a * b", "fma(a, b, s)"),
        ("a * b - s", "fma(a, b, -s)"),
        ("s - a * b", "fma(-a, b, s)"),
        ("a * b - -s", "fma(a, b, s)"),
        ("s - -a * b", "fma(a, b, s)"),
        ("a * b - 2.0f32", "fma(a, b, -2.0f32)"),
        ("2.0f32 - -1.5f32 * b", "fma(1.5f32, b, 2.0f32)"),
        ("a * b + s * t", "fma(s, t, a * b)"),
        ("a * b - s * t", "fma(-s, t, a * b)"),
        ("a * b + s * t + a * t", "fma(a, t, fma(s, t, a * b))"),
        ("(a * b + s) * t + a", "fma(fma(a, b, s), t, a)"),
        ("(a + b) * s", "(a + b) * s"),
        ("-(a * b) + s", "-(a * b) + s"),
        ("x[n * n + i]", "x[n * n + i]"),
        ("f32(h[0] * h[1] + h[2])", "f32(h[0] * h[1] + h[2])"),
    ],
)
def test_contract_fuses_a_product_with_a_sum(before: str, after: str) -> None:
    assert body_after(contract, f"s = {before}\n") == f"s = {after}"


def test_contract_leaves_products_alone_when_the_options_say_so() -> None:
    unfused = module("s = a * b + s\n", head=HEAD.replace(" with contract", ""))
    assert contract(unfused) is unfused


def test_contract_does_not_look_beyond_one_expression() -> None:
    text = "t = a * b\ns = t + a"
    assert body_after(contract, text) == text


def test_constants_are_folded_before_products_are_fused() -> None:
    assert body_after(optimize, "x[0] = 2.0f32 * 3.0f32 + a\n") == "x[0] = 6.0f32 + a"


# --- dead code ---


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if true:\n    x[0] = a\nelse:\n    x[0] = b\n", "x[0] = a"),
        ("if false:\n    x[0] = a\nelif n < 3:\n    x[0] = b\n", "if n < 3:\n    x[0] = b"),
        ("if n < 3:\n    pass\n", "pass"),
        ("if n < 3:\n    i = 4\nelse:\n    j = i\n", "pass"),
        ("return\nx[0] = a\n", "return"),
        ("loop:\n    break\n    x[0] = a\n", "loop:\n    break"),
        ("loop:\n    x[0] = a\nx[1] = a\n", "loop:\n    x[0] = a"),
        (
            "loop:\n    if n < 3:\n        break\n    x[0] = a\nx[1] = a\n",
            "loop:\n    if n < 3:\n        break\n    x[0] = a\nx[1] = a",
        ),
        (
            "loop:\n    for i in range(0, n, 1):\n        break\nx[1] = a\n",
            "loop:\n    for i in range(0, n, 1):\n        break",
        ),
        ("if n < 3:\n    return\nelse:\n    return\nx[0] = a\n", "if n < 3:\n    return\nelse:\n    return"),
        ("if n < 3:\n    return\nx[0] = a\n", "if n < 3:\n    return\nx[0] = a"),
        ("for i in range(5, 5, 1):\n    x[0] = a\n", "pass"),
        ("for i in range(0, 5, -1):\n    x[0] = a\n", "pass"),
        ("for i in range(0, n, 0):\n    x[0] = a\n", "pass"),
        ("for i in range(5, 0, -9):\n    x[0] = a\n", "for i in range(5, 0, -9):\n    x[0] = a"),
        ("for i in range(0, n, 1):\n    j = i\n", "pass"),
        ("for i in range(0, n, 1):\n    j = j\nx[i] = a\n", "for i in range(0, n, 1):\n    pass\nx[i] = a"),
        ("i = n\ni = i + 1\n", "pass"),
        ("i = n\nj = i + 1\nx[j] = a\n", "i = n\nj = i + 1\nx[j] = a"),
        ("s = atomic.add(x[0], a)\n", "atomic.add(x[0], a)"),
        ("s = atomic.add(x[0], a)\nx[1] = s\n", "s = atomic.add(x[0], a)\nx[1] = s"),
        (
            "shared q: f32[4]\nprivate p: f32[4]\nif false:\n    q[0] = a\nx[0] = p[1]\n",
            "private p: f32[4]\nx[0] = p[1]",
        ),
        ("assert[3] true\nassert[4] n < 3\n", "assert[4] n < 3"),
    ],
)
def test_remove_dead_code_leaves(before: str, after: str) -> None:
    assert body_after(remove_dead_code, before) == after


def test_remove_dead_code_drops_locals_and_functions_that_nothing_mentions() -> None:
    functions = "".join(
        f"\nfunc {name}(x: array<f32, 1>) -> ():\n    {does}\n"
        for name, does in (("f", "call g(&x)"), ("g", "x[0] = 1.0f32"), ("h", "x[1] = 2.0f32"))
    )
    cleaned = remove_dead_code(module("j = n\nx[j] = a\nif false:\n    call h(&x)\ncall f(&x)\n", rest=functions))
    assert [variable.name for variable in cleaned.kernel.locals] == ["j"]
    assert [function.name for function in cleaned.functions] == ["f", "g"]


CALLEES = {
    "a value": ("return p + 1.0f32", True),
    "a load": ("return x[0] + p", True),
    "a loop of known trips": ("for j in range(0, 4, 1):\n    s = s + p\nreturn s", True),
    "an early return": ("if p < 1.0f32:\n    return p\nreturn -p", True),
    "private memory": ("private q: f32[2]\nq[0] = p\nreturn q[0]", True),
    "shared memory": ("shared q: f32[2]\nq[0] = p\nreturn p", False),
    "a store": ("x[0] = p\nreturn p", False),
    "an atomic": ("atomic.add(x[0], p)\nreturn p", False),
    "a print": ("print[0] p\nreturn p", False),
    "a loop that may not end": ("loop:\n    if p < s:\n        break\n    s = s + p\nreturn p", False),
    "a call of it": ("s = call g(&x, p)\nreturn s", False),
}


@pytest.mark.parametrize("name", CALLEES)
def test_remove_dead_code_drops_an_unread_call_that_only_returns(name: str) -> None:
    does, is_pure = CALLEES[name]
    head = "func {}(x: array<f32, 1>, p: f32) -> (f32):\n    local j: i64\n    local s: f32\n"
    lines = textwrap.indent(does, "    ")
    rest = f"\n{head.format('f')}{lines}\n\n{head.format('g')}    x[1] = p\n    return p\n"
    before = module("s = call f(&x, a)\nt = s + b\nx[0] = b\n", rest=rest)
    text = print_module(verify(remove_dead_code(before)))
    assert ("call f" in text) is not is_pure
    assert ("func f" in text) is not is_pure
    used = module("s = call f(&x, a)\nx[0] = s\n", rest=rest)
    assert "call f" in print_module(verify(remove_dead_code(used)))


def test_remove_dead_code_keeps_the_arguments_of_a_call_that_matters() -> None:
    rest = "\nfunc f(p: f32) -> (f32, f32):\n    return p, -p\n"
    before = "i = n\ns = a\ns, t = call f(s)\nx[i] = t\n"
    assert textwrap.indent(before, "    ") in print_module(verify(remove_dead_code(module(before, rest=rest))))


def test_remove_dead_code_follows_a_long_chain_of_branches() -> None:
    chain = "if n == 0:\n    x[0] = a\n" + "".join(f"elif n == {k}:\n    x[{k}] = a\n" for k in range(1, 3000))
    assert body_after(remove_dead_code, chain + "else:\n    i = 1\n") == chain.rstrip("\n")


# --- the edge of an extent ---


def test_guard_edge_runs_threads_inside_the_extent_only() -> None:
    head = "kernel k(x: array<f32, 3>) over (1, 8, 32):\n"
    text = "private p: f32[4]\nx[global_id(0), 0, 0] = p[0]\n"
    assert body_after(guard_edge, text, head=head, local="").splitlines() == [
        "private p: f32[4]",
        "if (block_id(0) < global_dim(0)) & (block_id(1) * 8 + local_id(1) < global_dim(1))"
        " & (block_id(2) * 32 + local_id(2) < global_dim(2)):",
        "    x[global_id(0), 0, 0] = p[0]",
    ]


def test_guard_edge_leaves_a_grid_alone() -> None:
    grid = module("x[0] = a\n", head=HEAD.replace("over", "grid"))
    assert guard_edge(grid) is grid


@pytest.mark.parametrize(
    "before", [" + ".join(["a"] * 5000), " * ".join(["s"] * 5000) + " + a", "-(" * 999 + "s" + ")" * 999]
)
def test_long_chains_of_operators_are_verified_and_optimized(before: str) -> None:
    assert print_module(optimize(module(f"s = {before}\nx[0] = s\n"))).count("\n") == 4
