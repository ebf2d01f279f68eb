"""Bounds checks: what is inserted where, and what a violation does."""

from __future__ import annotations

import attrs
import pytest
from tests.property.block_executor import Machine, arrays_of

from quernel.ir.nodes import Assert, Barrier, Load, Module, Return, Store
from quernel.ir.parser import parse_module
from quernel.ir.passes import insert_checks, optimize
from quernel.ir.printer import print_module
from quernel.ir.segments import segment
from quernel.ir.sites import SiteKind, sites
from quernel.ir.uniformity import check_uniformity
from quernel.ir.verifier import verify
from quernel.ir.walk import walk_expressions, walk_statements

HEAD = """\
kernel k(x: array<i64, 1>, y: array<i64, 1>, z: array<f32, 2>, n: i64) grid (4){options}:
    local i, j, u, v: i64
    local f: f32
"""
FUNCTIONS = """
func get(q: i64, x: array<i64, 1>) -> (i64):
    if q == 100:
        return -1
    return x[q]
"""


def module(*lines: str, options: str = " with checked") -> Module:
    text = HEAD.format(options=options) + "".join(f"    {line}\n" for line in lines)
    return parse_module(text + FUNCTIONS)


def checked(*lines: str) -> list[str]:
    """The lines of the checked kernel's body."""
    text = print_module(verify(insert_checks(verify(module(*lines)))))
    return [line[4:] for line in text.splitlines()[1:] if not line.startswith("    local")]


def launch(*lines: str, n: int = 0) -> Machine:
    """A run of the optimised checked kernel: two blocks of four threads, arrays of six elements."""
    made = verify(optimize(verify(module(*lines))))
    run = Machine(made, arrays_of(made, {"x": (6,), "y": (6,), "z": (2, 3)}), {"n": n})
    for where in run.arrays["y"].cells:
        run.arrays["y"].cells[where] = 0
    run.run()
    return run


def written(run: Machine) -> list[object]:
    return [run.arrays["y"].cells[(index,)] for index in range(6)]


def test_unchecked_kernel_loses_its_assertions_and_nothing_else() -> None:
    made = module("assert[0] n > 0", "y[n] = x[n]", options="")
    assert insert_checks(made) == module("y[n] = x[n]", options="")


def test_checks_are_inserted_once() -> None:
    once = insert_checks(module("y[n] = x[n]"))
    assert once.kernel.guarded
    assert insert_checks(once) is once
    assert "with checked, " not in print_module(once)
    assert parse_module(print_module(once)) == once


def test_loads_are_checked_in_the_order_in_which_they_happen() -> None:
    made = insert_checks(module("y[x[i]] = x[n + 1] + i64(z[j, 0])"))
    assert [site.array for site in sites(made)] == ["x", "z", "x", "y"]
    assert [line.strip() for line in checked("y[n + 1] = 1")] == [
        "index = n + 1",
        "if not ((0 <= index) & (index < y.shape[0])):",
        "assert[0] false, index, y.shape[0]",
        "return",
        "y[index] = 1",
    ]


def test_inner_load_is_checked_before_the_outer_one() -> None:
    made = insert_checks(module("v = x[x[n]]"))
    loads = [expr for expr in walk_expressions(made.kernel) if isinstance(expr, Load)]
    assert len(loads) == 2
    assert all(not isinstance(index, Load) for load in loads for index in load.place.indices)


def test_every_axis_is_checked_and_recorded() -> None:
    (site,) = sites(insert_checks(module("f = z[i, j]")))
    assert site.kind is SiteKind.BOUNDS
    assert len(site.types) == 4
    run = launch("if global_id(0) == 5:", "    f = z[1, n]", "    z[0, 0] = f", n=-1)
    assert [values for _, _, values in run.violations] == [(1, -1, 2, 3)]


def test_condition_keeps_its_short_circuit() -> None:
    run = launch("i = global_id(0)", "if i < 6:", "    if x[i] == x[i]:", "        y[i] = 1")
    assert run.violations == []
    assert written(run) == [1] * 6


def test_violating_thread_ends_and_others_go_on() -> None:
    run = launch("i = global_id(0)", "y[i - 2] = 5", "if i < 6:", "    x[i] = 99")
    assert [thread for _, thread, _ in run.violations] == [(0,), (1,)]
    assert written(run) == [5] * 6
    assert [run.arrays["x"].cells[(index,)] for index in range(6)] == [-3, 4, 99, 99, 99, 99]


def test_device_function_becomes_part_of_the_kernel_and_ends_the_thread() -> None:
    made = optimize(module("v = call get(global_id(0), &x)", "y[global_id(0)] = v + 1"))
    assert made.functions == ()
    run = launch("v = call get(global_id(0), &x)", "y[global_id(0)] = v + 1")
    assert [thread for _, thread, _ in run.violations] == [(6,), (7,)]
    assert written(run) == [-2, 5, 1, 8, 4, 0]


def test_index_that_is_sure_to_fit_costs_nothing() -> None:
    lines = ("private p: i64[3]", "p[2] = n", "if global_id(0) < 6:", "    y[0] = p[2]")
    made = optimize(module(*lines))
    assert [site.array for site in sites(made)] == ["y"]


def test_atomic_is_suppressed() -> None:
    run = launch("atomic.add(y[global_id(0) - 1], 1)")
    assert [thread for _, thread, _ in run.violations] == [(0,), (7,)]
    assert written(run) == [1] * 6


def test_failed_assertion_records_its_values_and_ends_the_thread() -> None:
    run = launch("i = global_id(0)", "assert[0] i < 3, i, n", "y[i] = 1", n=9)
    assert [values for _, _, values in run.violations] == [(i, 9) for i in range(3, 8)]
    assert written(run) == [1, 1, 1, 0, 0, 0]


def test_violation_in_a_loop_ends_it() -> None:
    run = launch("i = global_id(0)", "loop:", "    u = x[i]", "    i = i + 1", "    if i == 99:", "        break")
    assert len(run.violations) == 8


# --- threads that meet ------------------------------------------------------------------------------------------------

SHARED = ("shared s: i64[4]",)


def test_threads_that_meet_go_inactive_and_still_arrive() -> None:
    lines = ("v = local_id(0)", "s[v] = 0", "s[v * 2] = v", "barrier", "i = s[0] + 1", "barrier", "y[v] = i + v")
    run = launch(*SHARED, *lines)
    assert [thread for _, thread, _ in run.violations] == [(2,), (3,), (6,), (7,)]
    assert written(run) == [1, 2, 0, 0, 0, 0]


def test_run_without_barriers_stands_under_one_condition() -> None:
    body = checked(*SHARED, "v = local_id(0)", "s[v] = v", "y[v] = v", "barrier", "v = s[v]")
    assert [line for line in body if line and not line.startswith(" ")] == [
        "shared s: i64[4]",
        "active = true",
        "if active:",
        "barrier",
        "if active:",
    ]


def test_uniform_violation_returns_for_the_whole_block() -> None:
    lines = ("u = x[block_id(0) * 50]", "for i in range(0, u % 3, 1):", "    barrier", "y[global_id(0)] = 1")
    run = launch(*SHARED, *lines)
    assert {thread for _, thread, _ in run.violations} == {(4,), (5,), (6,), (7,)}
    assert written(run) == [1, 1, 1, 1, 0, 0]
    made = optimize(module(*lines))
    assert any(isinstance(stmt, Return) for stmt in walk_statements(made.kernel.body))
    check_uniformity(made)


def test_uniform_assignments_run_in_inactive_threads() -> None:
    lines = (
        "u = 0",
        "v = local_id(0)",
        "for i in range(0, 3, 1):",
        "    y[v - i] = 1",
        "    u = u + 1",
        "    if u == 2:",
        "        break",
        "    barrier",
    )
    run = launch(*SHARED, *lines)
    assert [thread for _, thread, _ in run.violations] == [(0,), (4,)]


def test_violation_inside_a_loop_of_a_run_leaves_the_whole_run() -> None:
    lines = (
        "v = local_id(0)",
        "for j in range(0, 3, 1):",
        "    for i in range(0, 3, 1):",
        "        s[v + i] = j",
        "y[v] = 7",
        "barrier",
        "y[v] = y[v] + 1",
    )
    run = launch(*SHARED, *lines)
    assert {thread for _, thread, _ in run.violations} == {(2,), (3,), (6,), (7,)}
    assert len(run.violations) == 4
    assert written(run) == [8, 8, 0, 0, 0, 0]


def test_continue_behind_the_last_barrier_keeps_its_loop() -> None:
    lines = (
        "v = local_id(0)",
        "for i in range(0, 3, 1):",
        "    barrier",
        "    if v == i:",
        "        continue",
        "    y[v] = y[v] + x[v + i]",
    )
    run = launch(*SHARED, *lines)
    expected = launch(*SHARED, *lines[:-1], "    if v + i < 6:", "        y[v] = y[v] + x[v + i]")
    assert written(run) == written(expected)
    assert run.violations == []


def test_loop_that_waits_for_an_inactive_thread_ends() -> None:
    lines = (
        "v = local_id(0)",
        "s[v] = 1",
        "barrier",
        "loop:",
        "    u = s[0]",
        "    barrier",
        "    if u == 0:",
        "        break",
        "    if v == 0:",
        "        y[n] = 1",
        "        s[0] = 0",
        "    barrier",
        "y[v] = 5",
    )
    assert written(launch(*SHARED, *lines, n=5))[:4] == [5, 5, 5, 5]
    run = launch(*SHARED, *lines, n=6)
    assert {thread for _, thread, _ in run.violations} == {(0,), (4,)}
    assert written(run) == [0] * 6


def test_loop_that_counts_by_itself_spares_the_other_threads() -> None:
    lines = ("u = 2", "v = local_id(0)", "loop:", "    if u == 0:", "        break", "    u = u - 1", "    barrier")
    made = optimize(module(*SHARED, *lines, "    s[v + 1] = v", "barrier", "y[v] = 3"))
    assert sum(isinstance(stmt, Barrier) for stmt in walk_statements(made.kernel.body)) == 2
    run = launch(*SHARED, *lines, "    s[v + 1] = v", "barrier", "y[v] = 3")
    assert written(run)[:4] == [3, 3, 3, 0]


def test_kernel_that_meets_but_has_nothing_to_check_stays_as_it_is() -> None:
    made = module("v = n", "barrier", "u = v", "for i in range(0, u, 1):", "    barrier")
    result = insert_checks(made)
    assert result.kernel.body == made.kernel.body
    assert result.kernel.locals == made.kernel.locals


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["y[i] = {n}", "if x[i] == {n}:\n        y[i] = {n}"])
def test_long_kernel_is_checked_in_time_linear_in_its_length(statement: str) -> None:
    lines = [statement.format(n=number) for number in range(1000)]
    made = optimize(module("i = global_id(0)", *lines))
    assert sum(isinstance(stmt, Store) for stmt in walk_statements(made.kernel.body)) == 1000


def test_long_chain_of_conditions_with_loads_does_not_nest() -> None:
    lines = ["i = global_id(0)", "if x[0] == -5:", "    y[i] = -5"]
    for number in range(700):
        lines += [f"elif x[{number % 6}] == {number}:", f"    y[i % 6] = {number}"]
    lines += ["else:", "    y[i % 6] = -7"]
    made = verify(optimize(module(*lines)))
    run = Machine(made, arrays_of(made, {"x": (6,), "y": (6,), "z": (2, 3)}), {"n": 0})
    for index in range(6):
        run.arrays["x"].cells[(index,)] = 500
    run.arrays["x"].cells[(4,)] = 4
    run.run()
    assert [run.arrays["y"].cells[(index,)] for index in range(6)] == [4] * 6


def test_checked_kernel_with_barriers_has_segments() -> None:
    made = optimize(module(*SHARED, "v = local_id(0)", "s[v * 2] = v", "barrier", "y[v] = s[3 - v]"))
    kernel = segment(made)
    assert "active" in {local.name for local in kernel.carried}
    plain = [attrs.evolve(stmt) for stmt in walk_statements(made.kernel.body) if isinstance(stmt, Assert)]
    assert len(plain) == 3


def test_what_subgroups_combine_starts_at_zero_where_only_active_threads_give_it() -> None:
    lines = checked("u = 1", "i = x[n + local_id(0)]", "v = subgroup.sum(i)", "v = subgroup.sum(u)", "y[n] = v")
    active = lines.index("active = true")
    assert sorted(lines[:active]) == ["i = 0", "u = 0"]
    assert checked("i = x[n]", "barrier", "y[n] = i").count("i = 0") == 0
