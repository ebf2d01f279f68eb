"""Sites: every assert and print has a number, and the number tells what it is."""

from __future__ import annotations

import attrs

from quernel.compiler.arguments import argument_slots
from quernel.compiler.artifacts import Slot, SlotKind
from quernel.diagnostics import Record
from quernel.dtypes import bool_, f32, i64, u64
from quernel.ir.nodes import Assert, Const, Module, Print
from quernel.ir.parser import parse_module
from quernel.ir.passes import optimize
from quernel.ir.printer import print_module
from quernel.ir.sites import SiteKind, has_diagnostics, num_sites, number_sites, sites, violation_error
from quernel.ir.walk import walk_statements
from quernel.locations import Location

HERE = Location("k.py", 3)
TEXT = """\
kernel k(x: array<f32, 1>, n: i64) grid (4) with checked:
    local i: i64
    print[0] n
    if n == 1:
        assert[0] n > 0, n
    elif n == 2:
        print[0]
    elif n == 3:
        assert[0] n > 0
    else:
        for i in range(0, n, 1):
            print[0] i, x[i]
    call f(n)

func f(a: i64) -> ():
    print[0] a
"""


def numbers(module: Module) -> list[int]:
    owners = (module.kernel, *module.functions)
    return [stmt.site for o in owners for stmt in walk_statements(o.body) if isinstance(stmt, Assert | Print)]


def test_sites_are_numbered_in_source_order_through_chains_and_functions() -> None:
    assert numbers(number_sites(parse_module(TEXT))) == [0, 1, 2, 3, 4, 5]


def test_numbering_twice_gives_the_same_object() -> None:
    once = number_sites(parse_module(TEXT))
    assert number_sites(once) is once


def test_one_node_in_two_places_takes_two_numbers() -> None:
    module = parse_module(TEXT)
    twice = Print(values=(), site=0)
    module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=(twice, twice)), functions=())
    assert numbers(number_sites(module)) == [0, 1]


def test_sites_stand_at_their_numbers() -> None:
    module = number_sites(parse_module(TEXT))
    found = sites(module)
    assert len(found) == num_sites(module) == 6
    kinds = [SiteKind.PRINT, SiteKind.ASSERT, SiteKind.PRINT, SiteKind.ASSERT, SiteKind.PRINT, SiteKind.PRINT]
    assert [site.kind for site in found] == kinds
    assert found[4].types == (i64, f32)


def test_site_of_a_bounds_check_names_the_array() -> None:
    false = Const(value=False, type=bool_)
    check = Assert(condition=false, site=0, array="x", loc=HERE)
    user = Assert(condition=false, site=0, message="positive", loc=HERE)
    module = parse_module(TEXT)
    module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=(check, user)), functions=())
    bounds, said = sites(module)
    assert (bounds.kind, bounds.array, bounds.loc) == (SiteKind.BOUNDS, "x", HERE)
    assert (said.kind, said.message) == (SiteKind.ASSERT, "positive")


def test_what_a_reader_is_told_is_outside_equality_and_text() -> None:
    false = Const(value=False, type=bool_)
    assert Assert(condition=false, site=1) == Assert(condition=false, site=1, message="m", array="x")
    assert Print(values=(), site=1) == Print(values=(), site=1, format=("m",))


def test_recorded_values_are_part_of_the_text() -> None:
    module = parse_module(TEXT)
    assert "assert[0] n > 0, n\n" in print_module(module)
    assert parse_module(print_module(module)) == module


def test_printed_text_has_the_values_in_their_types() -> None:
    (site,) = sites(number_sites(with_print(("a=", " b=", "!"))))
    half, minus = 0x3FB999999999999A, (1 << 64) - 3
    assert site.text((half, minus)) == "a=0.1 b=-3!"
    (site,) = sites(number_sites(with_print(())))
    assert site.text((half, minus)) == "0.1 -3"


def with_print(format_: tuple[str, ...]) -> Module:
    module = parse_module("kernel k(n: i64, a: f32) grid (4):\n    print[0] a, n\n")
    (stmt,) = module.kernel.body
    assert isinstance(stmt, Print)
    body = (attrs.evolve(stmt, format=format_),)
    return attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=body))


def test_module_that_reports_has_a_slot_for_the_buffer_behind_all_others() -> None:
    module = parse_module(TEXT)
    assert has_diagnostics(module)
    assert argument_slots(module)[-1] == Slot(SlotKind.DIAGNOSTICS, dtype=u64)
    silent = parse_module("kernel k(n: i64) grid (4):\n    pass\n")
    assert not has_diagnostics(silent)
    assert all(slot.kind is not SlotKind.DIAGNOSTICS for slot in argument_slots(silent))


def test_optimizing_numbers_sites_and_drops_assertions_where_nothing_is_checked() -> None:
    checked = optimize(parse_module(TEXT))
    assert numbers(checked) == [0, 1, 2, 3, 4, 5, 6]
    assert [site.array for site in sites(checked) if site.kind is SiteKind.BOUNDS] == ["x"]
    unchecked = optimize(parse_module(TEXT.replace(" with checked", "")))
    assert [site.kind for site in sites(unchecked)] == [SiteKind.PRINT] * 4
    assert numbers(unchecked) == [0, 1, 2, 3]


def test_violation_says_index_shape_place_and_thread() -> None:
    false = Const(value=False, type=bool_)
    values = tuple(Const(value=0, type=i64) for _ in range(4))
    check = Assert(condition=false, site=0, values=values, array="x", loc=HERE)
    module = parse_module(TEXT)
    module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=(check,)), functions=())
    error = violation_error(module, Record(0, (5,), ((1 << 64) - 1, 3, 10, 20)))
    assert isinstance(error, IndexError)
    assert "index (-1, 3) is outside x, whose shape is (10, 20) (in thread 5)" in str(error)
    assert error.where == HERE


def test_failed_assertion_says_message_thread_and_values() -> None:
    false = Const(value=False, type=bool_)
    said = Assert(condition=false, site=0, values=(Const(value=0, type=i64),), message="n is positive", loc=HERE)
    module = parse_module(TEXT)
    module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=(said,)), functions=())
    error = violation_error(module, Record(0, (1, 2), (7,)))
    assert isinstance(error, AssertionError)
    assert "n is positive; the values are 7 (in thread (1, 2))" in str(error)
