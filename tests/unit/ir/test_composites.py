"""Vectors and structs taken apart: names, order, what is worked out once."""

from __future__ import annotations

import pytest

from quernel.ir.parser import parse_module
from quernel.ir.passes import split_composites
from quernel.ir.printer import print_module
from quernel.ir.verifier import verify

STRUCT = "struct S(v: vec<f32, 2> at 0, n: i64 at 8) size 16 align 8\n\n"


def split(body: str, declared: str = "", more: str = "") -> list[str]:
    """The lines of a kernel's body, taken apart."""
    lines = "".join(f"    {line}\n" for line in (*declared.splitlines(), *body.splitlines()))
    head = "kernel k(s: array<struct<S>, 1>, x: array<vec<f32, 2>, 1>, c: array<bool, 1>) over (8):\n"
    module = verify(split_composites(verify(parse_module(f"{STRUCT}{head}{lines}{more}"))))
    text = print_module(module).split(" over (8):\n")[1].split("\nfunc")[0]
    return [line.strip() for line in text.splitlines() if not line.strip().startswith("local")]


def test_a_kernel_of_scalars_stays_the_same_object() -> None:
    module = parse_module("kernel k(x: array<f32, 1>) over (8):\n    x[0] = x[1]\n")
    assert split_composites(module) is module


def test_a_local_is_its_scalars() -> None:
    assert split("a = s[global_id(0)]\ns[0].n = a.n", "local a: struct<S>") == [
        "`a.v.0` = s[global_id(0)].v.0",
        "`a.v.1` = s[global_id(0)].v.1",
        "`a.n` = s[global_id(0)].n",
        "s[0].n = `a.n`",
    ]


def test_what_changes_places_is_worked_out_before() -> None:
    assert split("v = vec<f32, 2>(v.1, v.0)", "local v: vec<f32, 2>") == [
        "part = `v.1`",
        "`v.1` = `v.0`",
        "`v.0` = part",
    ]


def test_a_part_that_stays_is_not_assigned() -> None:
    assert split("v = vec<f32, 2>(v.0, 1.0f32)", "local v: vec<f32, 2>") == ["`v.1` = 1.0f32"]


def test_an_index_that_the_value_changes_is_read_before() -> None:
    assert split("a = s[a.n]", "local a: struct<S>") == [
        "`a.v.0` = s[`a.n`].v.0",
        "`a.v.1` = s[`a.n`].v.1",
        "`a.n` = s[`a.n`].n",
    ]
    struct = "struct S(n: i64 at 0, m: i64 at 8) size 16 align 8\n\n"
    text = "kernel k(s: array<struct<S>, 1>) over (8):\n    local a: struct<S>\n    a = s[a.n]\n"
    printed = print_module(verify(split_composites(parse_module(struct + text))))
    assert printed.endswith("part = s[`a.n`].n\n    `a.m` = s[`a.n`].m\n    `a.n` = part\n")


def test_an_index_of_several_parts_is_worked_out_once() -> None:
    assert split("v = x[global_id(0) * 3 + 1]", "local v: vec<f32, 2>") == [
        "part = global_id(0) * 3 + 1",
        "`v.0` = x[part].0",
        "`v.1` = x[part].1",
    ]


def test_a_condition_of_several_parts_is_worked_out_once() -> None:
    assert split("v = select(c[0], x[0], x[1])", "local v: vec<f32, 2>") == [
        "part = c[0]",
        "`v.0` = select(part, x[0].0, x[1].0)",
        "`v.1` = select(part, x[0].1, x[1].1)",
    ]


def test_one_part_needs_no_local_for_the_index() -> None:
    assert split("x[0].1 = x[global_id(0) + 1].0") == ["x[0].1 = x[global_id(0) + 1].0"]


def test_an_argument_is_stored_to_whole() -> None:
    assert split("s[0] = s[1]\ns[2].v = x[3]") == [
        "s[0] = struct<S>(vec<f32, 2>(s[1].v.0, s[1].v.1), s[1].n)",
        "s[2].v = vec<f32, 2>(x[3].0, x[3].1)",
    ]


def test_own_arrays_are_split_and_read_before_they_are_written() -> None:
    assert split("private p: vec<f32, 2>[3]\np[0] = vec<f32, 2>(p[1].1, p[1].0)\np[2].0 = x[0].0") == [
        "private `p.0`: f32[3]",
        "private `p.1`: f32[3]",
        "part = `p.1`[1]",
        "part_1 = `p.0`[1]",
        "`p.0`[0] = part",
        "`p.1`[0] = part_1",
        "`p.0`[2] = x[0].0",
    ]


def test_an_array_that_a_function_is_handed_stays_whole() -> None:
    function = "\nfunc f(a: array<vec<f32, 2>, 1>) -> ():\n    a[0].1 = 1.0f32\n"
    lines = split("shared p: vec<f32, 2>[3]\np[1] = x[0]\ncall f(&p)", more=function)
    assert lines == ["shared p: vec<f32, 2>[3]", "p[1] = vec<f32, 2>(x[0].0, x[0].1)", "call f(&p)"]


def test_functions_take_and_give_scalars() -> None:
    function = (
        "\nfunc f(a: struct<S>, b: vec<f32, 2>) -> (i64, vec<f32, 2>):\n    return a.n, vec<f32, 2>(b.1, a.v.0)\n"
    )
    module = parse_module(
        f"{STRUCT}kernel k(s: array<struct<S>, 1>) over (8):\n    local v: vec<f32, 2>\n    local n: i64\n"
        f"    n, v = call f(s[0], v)\n    s[1].v = v\n{function}"
    )
    text = print_module(verify(split_composites(module)))
    assert "n, `v.0`, `v.1` = call f(s[0].v.0, s[0].v.1, s[0].n, `v.0`, `v.1`)" in text
    assert "func f(`a.v.0`: f32, `a.v.1`: f32, `a.n`: i64, `b.0`: f32, `b.1`: f32) -> (i64, f32, f32):" in text
    assert "return `a.n`, `b.1`, `a.v.0`" in text


@pytest.mark.parametrize("taken", ["v.0", "part"])
def test_names_that_are_taken_are_left_alone(taken: str) -> None:
    text = (
        f"kernel k(x: array<vec<f32, 2>, 1>) over (8):\n    local v: vec<f32, 2>\n    local `{taken}`: i64\n"
        f"    `{taken}` = 5\n    v = x[`{taken}` + 1]\n    x[`{taken}`] = v\n"
    )
    verify(split_composites(parse_module(text)))
