"""Ranges: every value lies within, and where it is easy the range is as small as can be."""

from __future__ import annotations

import itertools

import pytest

from quernel.dtypes import i32, i64
from quernel.geometry import LaunchForm
from quernel.ir import semantics
from quernel.ir.bounds import Interval, Ranges
from quernel.ir.nodes import Assign, Binary, BinaryOp
from quernel.ir.parser import parse_module

EDGES = (-4, -1, 0, 1, 3)


def of(
    value: str, *lines: str, n: tuple[int, int] = (0, 9), m: tuple[int, int] = (0, 9), form: str = "grid"
) -> Interval:
    """The range of a value of the parameters `n` and `m`, of locals and of indices."""
    params = f"x: array<u8, 1>, n: i64 weak in [{n[0]}, {n[1]}], m: i64 weak in [{m[0]}, {m[1]}], w: i32"
    body = "".join(f"    {line}\n" for line in (*lines, f"v = {value}"))
    module = parse_module(f"kernel k({params}) {form} (8):\n    local i, j, v: i64\n{body}")
    last = module.kernel.body[-1]
    assert isinstance(last, Assign)
    found = Ranges(module, module.kernel, index32=True).of(last.value)
    assert found is not None
    return found


OPS = [op for op in BinaryOp if op not in (BinaryOp.DIV, BinaryOp.POW)]


@pytest.mark.parametrize("op", OPS)
def test_every_result_of_an_operator_lies_within_its_range(op: BinaryOp) -> None:
    params = "kernel k(n: i64 weak in [{}, {}], m: i64 weak in [{}, {}]) grid (8):\n    local v: i64\n    v = n + m\n"
    intervals = [(a, b) for a, b in itertools.product(EDGES, repeat=2) if a <= b]
    for n, m in itertools.product(intervals, repeat=2):
        module = parse_module(params.format(*n, *m))
        (assign,) = module.kernel.body
        assert isinstance(assign, Assign)
        assert isinstance(assign.value, Binary)
        expr = Binary(op=op, left=assign.value.left, right=assign.value.right)
        found = Ranges(module, module.kernel).of(expr)
        assert found is not None
        for left, right in itertools.product(range(n[0], n[1] + 1), range(m[0], m[1] + 1)):
            assert found.least <= int(semantics.binary(op, left, right, i64)) <= found.greatest, (n, m)


@pytest.mark.parametrize(
    ("value", "least", "greatest"),
    [
        ("n + m", 0, 18),
        ("n - m", -9, 9),
        ("n * -3", -27, 0),
        ("n % 4", 0, 3),
        ("n % -4", -3, 0),
        ("n // 4", 0, 2),
        ("n & 3", 0, 3),
        ("-n & 3", 0, 3),
        ("n | m", 0, 15),
        ("n << 2", 0, 36),
        ("n >> 1", 0, 4),
        ("min(n, 4)", 0, 4),
        ("max(n - 20, 0)", 0, 0),
        ("abs(n - 5)", 0, 5),
        ("~n", -10, -1),
        ("select(n > m, n, 40)", 0, 40),
        ("i64(w)", i32.min, i32.max),
        ("i64(x[0])", 0, 255),
        ("local_id(0)", 0, 7),
        ("block_dim(0)", 8, 8),
        ("x.shape[0]", 0, i32.max),
        ("global_id(0)", 0, i32.max),
        ("uniform(n)", 0, 9),
        ("popcount(n)", 0, 64),
    ],
)
def test_range_of_a_value(value: str, least: int, greatest: int) -> None:
    assert of(value) == Interval(least, greatest)


def test_what_may_wrap_is_any_value() -> None:
    assert of("n + m", n=(0, i64.max), m=(1, 1)) == Interval.of(i64)
    assert of("-n", n=(i64.min, 0)) == Interval.of(i64)


def test_global_id_over_an_extent_may_be_negative() -> None:
    assert of("global_id(0)", form=LaunchForm.OVER.value) == Interval.of(i32)


def test_range_variable_lies_between_start_and_stop() -> None:
    assert of("i", "for i in range(2, n, 1):", "    j = 0") == Interval(2, 8)
    assert of("i", "for i in range(9, m, -2):", "    j = 0") == Interval(1, 9)


def test_local_lies_between_its_assignments() -> None:
    assert of("i", "i = 3", "if n > 2:", "    i = -7") == Interval(-7, 3)
    assert of("j", "i = n", "loop:", "    j = i & 7", "    i = i + 1", "    if j == 2:", "        break") == Interval(
        0, 7
    )
    assert of("i", "i = n", "loop:", "    i = i + 1", "    if i == 2:", "        break") == Interval.of(i64)
