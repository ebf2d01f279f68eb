"""Uniformity: each rule of the lattice, and the chain that a refusal shows."""

from __future__ import annotations

import attrs
import pytest

from quernel.errors import KernelSyntaxError
from quernel.ir.nodes import Assign, Barrier, Module, Stmt
from quernel.ir.parser import parse_module
from quernel.ir.uniformity import Level, analyse_uniformity, check_uniformity
from quernel.ir.walk import map_bodies, map_statements
from quernel.locations import Location

HEAD = """\
kernel k(x: array<i64, 1>, y: array<i64, 1>, a: i64) {form} ({block}):
    local i, j, u, v, t: i64
    local b: bool
    local m: u64
    shared s: i64[64]
    private p: i64[4]
"""
FUNCTIONS = """
func same(q: i64, z: array<i64, 1>) -> (i64):
    return z[q]

func meet(q: i64) -> (i64):
    barrier
    return q

func parted(q: i64) -> (i64):
    if q > 2:
        return 1
    return 2
"""


def module(*lines: str, form: str = "grid", block: str = "64") -> Module:
    text = HEAD.format(form=form, block=block) + "".join(f"    {line}\n" for line in lines)
    return parse_module(text + FUNCTIONS)


def level(*lines: str, form: str = "grid", block: str = "64") -> Level:
    """The level of `v` after the statements."""
    return analyse_uniformity(module(*lines, form=form, block=block)).locals["v"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3", Level.GRID),
        ("a + 1", Level.GRID),
        ("x.shape[0]", Level.GRID),
        ("global_dim(0) * block_dim(0) + grid_dim(0)", Level.GRID),
        ("block_id(0)", Level.BLOCK),
        ("subgroup_id(0)", Level.SUBGROUP),
        ("local_id(0)", Level.VARYING),
        ("global_id(0)", Level.VARYING),
        ("subgroup_lane(0)", Level.VARYING),
        ("x[a]", Level.GRID),
        ("x[block_id(0)]", Level.BLOCK),
        ("x[local_id(0)]", Level.VARYING),
        ("s[0]", Level.BLOCK),
        ("p[0]", Level.VARYING),
        ("uniform(local_id(0))", Level.BLOCK),
        ("uniform(local_id(0)) + global_id(0)", Level.VARYING),
        ("select(local_id(0) > 1, 2, 2)", Level.VARYING),
        ("block_id(0) + subgroup_id(0)", Level.SUBGROUP),
    ],
)
def test_value_has_the_level_of_its_worst_part(value: str, expected: Level) -> None:
    assert level(f"v = {value}") is expected


def test_id_on_an_axis_of_one_thread_is_equal_in_the_block() -> None:
    assert level("v = local_id(0)", block="1, 64") is Level.GRID
    assert level("v = global_id(0)", block="1, 64") is Level.BLOCK
    assert level("v = global_id(1)", block="1, 64") is Level.VARYING
    # Over an extent the framework maps points to threads as it likes.
    assert level("v = global_id(0)", block="1, 64", form="over") is Level.VARYING


def test_array_changed_by_atomics_is_read_with_different_results() -> None:
    assert level("v = x[0]", "atomic.add(x[1], 1)") is Level.VARYING
    assert level("v = x[0]", "atomic.add(y[1], 1)") is Level.GRID


def test_old_value_of_an_atomic_differs() -> None:
    assert level("v = atomic.add(y[0], 1)") is Level.VARYING


@pytest.mark.parametrize(
    ("op", "expected"), [("sum", Level.SUBGROUP), ("max", Level.SUBGROUP), ("scan", Level.VARYING)]
)
def test_reduction_is_equal_in_the_subgroup_and_a_scan_is_not(op: str, expected: Level) -> None:
    assert level(f"v = subgroup.{op}(local_id(0))") is expected


def test_shuffle_differs_and_a_broadcast_does_not() -> None:
    assert level("v = subgroup.shuffle(local_id(0), 0)") is Level.VARYING
    assert level("v = subgroup.broadcast(local_id(0), 0)") is Level.SUBGROUP


def test_local_takes_the_condition_under_which_it_is_assigned() -> None:
    assert level("v = 1", "if local_id(0) > 3:", "    v = 2") is Level.VARYING
    assert level("v = 1", "if block_id(0) > 3:", "    v = 2") is Level.BLOCK


def test_local_takes_what_a_later_trip_brings() -> None:
    assert level("v = 0", "u = 0", "for i in range(0, 4, 1):", "    v = u", "    u = local_id(0)") is Level.VARYING


def test_range_variable_takes_the_range() -> None:
    assert level("for v in range(0, a, 1):", "    pass") is Level.GRID
    assert level("for v in range(0, local_id(0), 1):", "    pass") is Level.VARYING
    assert level("for v in range(block_id(0), 99, 1):", "    pass") is Level.BLOCK


def test_behind_a_varying_break_locals_of_the_loop_differ() -> None:
    lines = ("v = 0", "for i in range(0, 4, 1):", "    v = i", "    if x[local_id(0)] > i:", "        break")
    assert level(*lines) is Level.VARYING


def test_behind_a_varying_continue_the_rest_of_the_body_differs() -> None:
    lines = ("for i in range(0, 4, 1):", "    u = i", "    if local_id(0) > i:", "        continue", "    v = i")
    assert level(*lines) is Level.VARYING
    assert analyse_uniformity(module(*lines)).locals["u"] is Level.GRID


def test_continue_of_a_trip_does_not_reach_the_next_one() -> None:
    lines = ("for i in range(0, 4, 1):", "    v = i", "    if block_id(0) == 1:", "        break")
    assert level(*lines, "    if local_id(0) > i:", "        continue", "    u = i") is Level.BLOCK


def test_behind_a_varying_return_everything_differs() -> None:
    assert level("if local_id(0) > a:", "    return", "v = 1") is Level.VARYING
    assert level("if block_id(0) > a:", "    return", "v = 1") is Level.BLOCK


def test_break_of_a_loop_of_one_trip_spares_what_stands_before_it() -> None:
    lines = ("loop:", "    v = 1", "    if local_id(0) > 2:", "        break", "    u = 1", "    break")
    assert level(*lines) is Level.GRID
    assert analyse_uniformity(module(*lines)).locals["u"] is Level.VARYING


def test_call_takes_arguments_arrays_and_returns_under_conditions() -> None:
    assert level("v = call same(0, &x)") is Level.GRID
    assert level("v = call same(local_id(0), &x)") is Level.VARYING
    assert level("v = call same(0, &s)") is Level.BLOCK
    assert level("v = call same(0, &p)") is Level.VARYING
    assert level("v = call parted(block_id(0))") is Level.BLOCK
    assert level("v = call parted(local_id(0))") is Level.VARYING


@pytest.mark.parametrize(
    "lines",
    [
        ("if local_id(0) > 2:", "    barrier"),
        ("for i in range(0, local_id(0), 1):", "    barrier"),
        ("if local_id(0) > 2:", "    return", "barrier"),
        ("for i in range(0, 3, 1):", "    barrier", "    if x[local_id(0)] > 2:", "        break"),
        ("for i in range(0, 3, 1):", "    if x[local_id(0)] > 2:", "        continue", "    barrier"),
        ("if local_id(0) > 2:", "    v = call meet(1)"),
        ("if subgroup_id(0) > 2:", "    barrier"),
        ("loop:", "    if local_id(0) > 2:", "        break", "    barrier", "    break"),
    ],
)
def test_barrier_that_some_threads_miss_is_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(KernelSyntaxError, match="a barrier is reached by some threads of a block and not by others"):
        check_uniformity(module(*lines))


@pytest.mark.parametrize(
    "lines",
    [
        ("if block_id(0) > 2:", "    barrier"),
        ("for i in range(0, x[0], 1):", "    barrier"),
        ("if a > 2:", "    return", "barrier"),
        ("for i in range(0, 3, 1):", "    barrier", "    if local_id(0) > 2:", "        continue", "    y[0] = 1"),
        ("barrier", "if local_id(0) > 2:", "    return", "y[0] = 1"),
        ("if uniform(local_id(0)) > 2:", "    barrier"),
        ("for i in range(0, local_id(0), 1):", "    pass", "barrier"),
        ("if subgroup_id(0) > 2:", "    v = subgroup.sum(a)"),
        ("v = call meet(1)",),
        ("loop:", "    barrier", "    if local_id(0) > 2:", "        break", "    y[0] = 1", "    break", "barrier"),
    ],
)
def test_barrier_that_all_threads_reach_is_taken(lines: tuple[str, ...]) -> None:
    check_uniformity(module(*lines))


def test_subgroup_operation_needs_its_subgroup_only() -> None:
    with pytest.raises(KernelSyntaxError, match="a subgroup operation is reached by some threads of a subgroup"):
        check_uniformity(module("if local_id(0) > 2:", "    v = subgroup.sum(a)"))


def test_one_statement_in_two_places_has_the_worse_control() -> None:
    shared = Barrier()
    made = module("if local_id(0) > 2:", "    barrier", "barrier")

    def same(stmt: Stmt) -> Stmt:
        return shared if isinstance(stmt, Barrier) else stmt

    with pytest.raises(KernelSyntaxError, match="a barrier is reached"):
        check_uniformity(map_bodies(made, lambda body: map_statements(body, same)))


def _placed(made: Module) -> Module:
    """The kernel with its statements at lines of a file, in order."""
    lines = iter(range(1, 100))

    def put(stmt: Stmt) -> Stmt:
        stmt = attrs.evolve(stmt, loc=Location("k.py", next(lines)))
        if isinstance(stmt, Assign):
            stmt = attrs.evolve(stmt, value=attrs.evolve(stmt.value, loc=stmt.loc))
        return stmt

    return attrs.evolve(made, kernel=attrs.evolve(made.kernel, body=map_statements(made.kernel.body, put)))


def test_refusal_shows_the_way_from_the_condition_to_the_thread_index() -> None:
    made = _placed(module("u = local_id(0)", "v = u * 2", "t = v", "if t == 4:", "    barrier"))
    with pytest.raises(KernelSyntaxError, match="this condition decides") as caught:
        check_uniformity(made)
    told = [line.split(": ", 1)[1] for line in caught.value.chain]
    assert told[0] == "this condition decides"
    assert [line for line in told if "assigned here" in line] == [
        "t is assigned here",
        "v is assigned here",
        "u is assigned here",
    ]
    assert told[-1] == "local_id differs between threads"
    assert caught.value.fix is not None
    assert "qn.uniform(x)" in caught.value.fix


def test_refusal_behind_a_return_shows_the_return() -> None:
    made = _placed(module("if local_id(0) > 2:", "    return", "barrier"))
    with pytest.raises(KernelSyntaxError, match="a return ends some threads before") as caught:
        check_uniformity(made)
    assert any("a return ends some threads before" in line for line in caught.value.chain)
