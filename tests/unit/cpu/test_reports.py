"""Violations and prints: the records that kernels leave in the diagnostics buffer."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built
from tests.unit.cpu.programs import module

from quernel import diagnostics
from quernel.diagnostics import Diagnostics
from quernel.ir.passes import optimize
from quernel.ir.sites import SiteKind, sites


def reported(text: str, shape: Any, *arguments: Any, print_cells: int = 1000) -> Diagnostics:
    made = module(text)
    built = Built(made, CONTIGUOUS)
    buffer = np.frombuffer(diagnostics.empty_buffer(print_cells), np.uint8)
    (built.over if " over (" in text else built.grid)(shape, *arguments, buffer)
    return diagnostics.decode(buffer.tobytes(), made.kernel.ndim)


VALUES = """\
kernel k(x: array<f32, 2>) over (2, 8):
    print[0] global_id(1) == 2, i8(-3), u8(200), -5i32, u32(-1), 1.5f16, 2.5bf16, x[global_id(0), global_id(1)], 0.1
    print[1]
"""


def test_a_print_keeps_values_of_every_type_and_its_thread() -> None:
    made = module(VALUES)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = reported(VALUES, (3, 4), x)
    assert found.lost == 0
    assert found.violation is None
    assert len(found.prints) == 24
    site = sites(made)[0]
    shown = {record.global_id: site.values(record.values) for record in found.prints if record.site == 0}
    assert shown[1, 2] == (True, -3, 200, -5, 4294967295, 1.5, 2.5, 6.0, 0.1)
    assert shown[2, 3] == (False, -3, 200, -5, 4294967295, 1.5, 2.5, 11.0, 0.1)
    assert sorted(record.global_id for record in found.prints if record.site == 1) == sorted(shown)


def test_prints_that_do_not_fit_are_counted() -> None:
    text = "kernel k() grid (64):\n    print[0] global_id(0)\n"
    found = reported(text, 100, print_cells=52)
    assert len(found.prints) == 10
    assert found.lost == 6390
    assert all(record.values == (record.global_id[0],) for record in found.prints)


def test_a_device_function_prints_the_thread_that_called_it() -> None:
    text = """\
kernel k(x: array<i64, 1>) over (8):
    call outer(x[global_id(0)])

func outer(a: i64) -> ():
    call inner(a * 2)

func inner(a: i64) -> ():
    if a > 4:
        print[0] a
"""
    found = reported(text, 5, np.arange(5))
    assert sorted((record.global_id, record.values) for record in found.prints) == [((3,), (6,)), ((4,), (8,))]


CHECKED = """\
kernel k(x: array<i64, 1>, y: array<i64, 1>) over (64) with checked:
    local i: i64
    i = global_id(0)
    y[i] = x[i + 3]
"""


def needs_checks() -> None:
    checked = optimize(module(CHECKED))
    if not sites(checked):
        pytest.skip("needs the core's pass that inserts checks")


def test_an_index_beyond_the_end_is_recorded_and_suppressed() -> None:
    needs_checks()
    x, y = np.arange(100), np.full(100, -1)
    found = reported(CHECKED, range(98), x, y)
    assert found.violation is not None
    assert found.violation.global_id == (97,)
    assert found.violation.values == (100, 100)
    assert y[97:].tolist() == [-1, -1, -1]
    assert all(
        value in (-1, index + 3) for index, value in enumerate(y.tolist())
    )  # The launch may end before others ran.
    assert sites(optimize(module(CHECKED)))[found.violation.site].kind is SiteKind.BOUNDS


def test_a_checked_launch_without_violations_reports_nothing() -> None:
    needs_checks()
    x, y = np.arange(10_000), np.zeros(9_997, np.int64)
    found = reported(CHECKED, 9_997, x, y)
    assert found == Diagnostics(None, (), 0)
    assert np.array_equal(y, x[3:])


def test_a_launch_ends_soon_after_a_violation() -> None:
    needs_checks()
    text = """\
kernel k(x: array<f64, 1>, y: array<f64, 1>) grid (64) with checked:
    local i, t: i64
    local total: f64
    total = 0.0
    for t in range(0, 20000, 1):
        total = sin(total + x[local_id(0)])
    y[global_id(0)] = total
"""
    y = np.zeros(640_000)
    started = time.perf_counter()
    found = reported(text, 10_000, np.zeros(63), y)
    assert time.perf_counter() - started < 20  # All of it would take minutes.
    assert found.violation is not None
    assert found.violation.values == (63, 63)


def test_a_violation_in_a_block_with_barriers_does_not_stop_the_others_at_the_barrier() -> None:
    needs_checks()
    text = """\
kernel k(x: array<i64, 1>, y: array<i64, 1>) grid (8) with checked:
    shared own: i64[8]
    own[local_id(0)] = x[local_id(0)]
    barrier
    y[global_id(0)] = own[7 - local_id(0)]
"""
    y = np.full(8, -1)
    found = reported(text, 1, np.arange(7), y)
    assert found.violation is not None
    assert (found.violation.global_id, found.violation.values) == ((7,), (7, 7))
    assert y[1:].tolist() == [6, 5, 4, 3, 2, 1, -1]


def test_an_assertion_that_fails_names_its_site_and_values() -> None:
    needs_checks()
    text = """\
kernel k(x: array<f32, 1>) over (8) with checked:
    assert[0] x[global_id(0)] < 3.0f32, x[global_id(0)]
"""
    found = reported(text, 4, np.arange(4, dtype=np.float32))
    assert found.violation is not None
    site = sites(optimize(module(text)))[found.violation.site]
    assert site.kind is SiteKind.ASSERT
    assert site.values(found.violation.values) == (3.0,)
    assert found.violation.global_id == (3,)
