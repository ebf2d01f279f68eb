"""Index narrowing: what becomes i32, and what must not."""

from __future__ import annotations

import pytest

from quernel.ir.parser import parse_module
from quernel.ir.passes import narrow_indices
from quernel.ir.printer import print_module
from quernel.ir.verifier import verify


def narrowed(*lines: str, form: str = "grid", types: str = "i, j: i64") -> list[str]:
    """The lines of the narrowed kernel's body, locals first."""
    head = (
        f"kernel k(x: array<i32, 1>, y: array<i32, 1>, n: i64, m: i64 weak in [1, 9]) {form} (64):\n    local {types}\n"
    )
    module = parse_module(head + "".join(f"    {line}\n" for line in lines))
    return [line.strip() for line in print_module(verify(narrow_indices(verify(module)))).splitlines()[1:]]


def test_sum_of_products_is_computed_in_low_halves() -> None:
    found = narrowed("y[global_id(0) * n + 3] = 1i32")
    assert found[-1] == "y[i64(i32(global_id(0)) * i32(n) + 3i32)] = 1i32"


@pytest.mark.parametrize("op", ["//", "%", ">>"])
def test_operator_on_whole_values_is_narrowed_where_ranges_prove_it(op: str) -> None:
    assert narrowed(f"y[global_id(0) {op} m] = 1i32")[-1] == f"y[i64(i32(global_id(0)) {op} i32(m))] = 1i32"


@pytest.mark.parametrize("op", ["//", "%", ">>"])
def test_operator_on_whole_values_stays_where_they_may_not_fit(op: str) -> None:
    assert narrowed(f"y[(n {op} m) + 1] = 1i32")[-1] == f"y[i64(i32(n {op} m) + 1i32)] = 1i32"


def test_shift_by_a_count_that_may_not_fit_stays() -> None:
    assert narrowed("y[m << n] = 1i32")[-1] == "y[i64(i32(m << n))] = 1i32"
    assert narrowed("y[n << m] = 1i32")[-1] == "y[i64(i32(n) << i32(m))] = 1i32"


def test_local_of_proven_range_becomes_i32_and_is_read_without_conversions() -> None:
    found = narrowed("i = global_id(0) // 2", "y[i + 1] = 1i32", "if i < y.shape[0]:", "    y[i] = 2i32")
    assert "local i: i32" in found
    assert "i = i32(global_id(0)) // 2i32" in found
    assert "y[i64(i + 1i32)] = 1i32" in found
    assert "if i < i32(y.shape[0]):" in found


def test_local_that_may_exceed_32_bits_stays() -> None:
    assert "local i, j: i64" in narrowed("i = global_id(0) * 2", "j = n", "y[i] = x[j]")


def test_counter_of_an_endless_loop_stays() -> None:
    assert "local i, j: i64" in narrowed("i = 0", "j = n", "loop:", "    i = i + 1", "    if i > j:", "        break")


def test_comparison_that_a_range_does_not_prove_stays() -> None:
    assert narrowed("if global_id(0) + n < m:", "    y[0] = 1i32")[-2] == "if global_id(0) + n < m:"


def test_global_id_of_an_extent_is_an_i32_that_may_be_negative() -> None:
    found = narrowed("if -global_id(0) < m:", "    y[global_id(0) % m] = 1i32", form="over")
    assert "if -global_id(0) < m:" in found  # -(-2**31) is no i32.
    assert "y[i64(i32(global_id(0)) % i32(m))] = 1i32" in found
    assert narrowed("y[global_id(0) + 1] = 1i32", form="over")[-1] == "y[i64(i32(global_id(0)) + 1i32)] = 1i32"


def test_value_that_is_there_in_64_bits_is_left_alone() -> None:
    assert narrowed("i = n", "y[i] = x[n]", types="i: i64")[-1] == "y[i] = x[n]"
