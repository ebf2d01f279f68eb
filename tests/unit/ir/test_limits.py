"""Limits by one constant that a NaN passes and that none does, in one kernel."""

from __future__ import annotations

import itertools
import math
import struct

import pytest
from tests.unit.ir.test_passes import body_after, module

from quernel.dtypes import bf16, f16, f32, f64
from quernel.ir.nodes import Assign, Binary, Const, Expr, Local, Unary, UnaryOp
from quernel.ir.passes import keep_limits_apart, optimize
from quernel.ir.passes.limits import _next
from quernel.ir.semantics import binary, unary

BEYOND_2 = "2.0000002f32"
BELOW_2 = "1.9999999f32"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("min(2.0f32, min(s, 2.0f32))", f"min(min({BEYOND_2}, min(s, 2.0f32)), 2.0f32)"),
        ("max(2.0f32, max(s, 2.0f32))", f"max(max({BELOW_2}, max(s, 2.0f32)), 2.0f32)"),
        ("min(2.0f32, select(2.0f32 < s, 2.0f32, s))", f"min(min({BEYOND_2}, select(2.0f32 < s, 2.0f32, s)), 2.0f32)"),
        ("select(t <= 2.0f32, t, 2.0f32) + min(s, 2.0f32)", f"min(min({BEYOND_2}, t), 2.0f32) + min(s, 2.0f32)"),
        ("select(2.0f32 > t, t, 2.0f32) + min(s, 2.0f32)", f"min(min({BEYOND_2}, t), 2.0f32) + min(s, 2.0f32)"),
        ("max(0.0f32, max(s, 0.0f32))", "max(max(-1e-45f32, max(s, 0.0f32)), 0.0f32) + 0.0f32"),
        ("max(0.0f32, max(s, -0.0f32))", "max(max(-1e-45f32, max(s, -0.0f32)), 0.0f32) + 0.0f32"),
        ("max(-0.0f32, max(s, 0.0f32))", "-(-max(max(-1e-45f32, max(s, 0.0f32)), -0.0f32) + 0.0f32)"),
    ],
)
def test_a_limit_that_no_nan_passes_takes_two_steps(before: str, after: str) -> None:
    assert body_after(keep_limits_apart, f"s = {before}\n") == f"s = {after}"
    assert body_after(lambda made: keep_limits_apart(keep_limits_apart(made)), f"s = {before}\n") == f"s = {after}"


def test_a_value_with_a_name_is_one_too() -> None:
    found = body_after(keep_limits_apart, "t = min(s, 2.0f32)\ns = min(2.0f32, t)\n")
    assert found == f"t = min(s, 2.0f32)\ns = min(min({BEYOND_2}, t), 2.0f32)"


def test_a_constant_beyond_that_limits_too_is_passed_over() -> None:
    found = body_after(keep_limits_apart, f"s = min(2.0f32, min(min(s, 2.0f32), {BEYOND_2}))\n")
    assert found == f"s = min(min(2.0000005f32, min(min(s, 2.0f32), {BEYOND_2})), 2.0f32)"


@pytest.mark.parametrize(
    "text",
    [
        "min(2.0f32, min(2.0f32, s))",
        "min(min(s, 2.0f32), 2.0f32)",
        "min(min(2.0f32, s), 3.0f32)",
        "min(2.0f32, max(s, 2.0f32))",
        "min(3.0f32, min(s, 2.0f32))",
        "min(a, min(s, a))",
        "select(s <= 0.0f32, s, 0.0f32) + min(t, 0.0f32)",
        "f32(min(2, min(i, 2)))",
    ],
)
def test_other_limits_stay(text: str) -> None:
    made = module(f"s = {text}\n")
    assert keep_limits_apart(made) is made


TINY = 2.0**-149
VALUES = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, TINY, -TINY, 2 * TINY, -2 * TINY, 2.0, -2.0, 3.0)


def value_of(expr: Expr, s: float) -> float:
    match expr:
        case Const():
            return float(expr.value)
        case Local():
            return s
        case Unary(op=UnaryOp.NEG):
            return float(unary(expr.op, value_of(expr.operand, s), f32))
        case Binary():
            return float(binary(expr.op, value_of(expr.left, s), value_of(expr.right, s), f32))
    raise AssertionError(expr)


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("limit", [2.0, -2.0, 0.0, -0.0, TINY, -TINY, 2.0**127 * (2 - 2.0**-23)])
def test_two_steps_give_the_bits_of_one(op: str, limit: float) -> None:
    given = module(f"s = {op}({limit!r}f32, s)\nt = {op}(t, {limit!r}f32)\n")
    one, several = (made.kernel.body[0] for made in (given, keep_limits_apart(given)))
    assert isinstance(one, Assign)
    assert isinstance(several, Assign)
    assert one != several
    for s in VALUES:
        assert struct.pack("d", value_of(several.value, s)) == struct.pack("d", value_of(one.value, s)), s


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64], ids=str)
def test_next_floats_have_none_between_them(dtype) -> None:
    smallest = _next(0.0, dtype, up=True)
    assert smallest > 0.0
    assert _next(smallest, dtype, up=False) == 0.0
    for value in (1.0, -1.0, 1.5, -smallest, 2.0):
        above = _next(value, dtype, up=True)
        assert above > value
        assert _next(above, dtype, up=False) == value
    assert _next(2.0, f64, up=True) == math.nextafter(2.0, math.inf)


def test_optimizing_twice_changes_nothing_more() -> None:
    for outer, inner in itertools.product(("0.0f32", "1.5f32", BEYOND_2), ("0.0f32", "1.5f32", "2.0f32")):
        once = optimize(module(f"x[0] = min({outer}, min(s, {inner}))\nx[1] = min(min(2.0f32, t), {outer})\n"))
        assert optimize(once) == once
