"""What a target does not have is refused by name at its place, and nothing else is."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from quernel.capabilities import Capabilities, Limits, TargetInfo
from quernel.errors import ValidationError
from quernel.ir.nodes import Module
from quernel.ir.parser import parse_module
from quernel.ir.validation import check_target
from quernel.ir.walk import map_bodies
from quernel.locations import Location

ALL = Capabilities(
    f64=True, f16=True, bf16=True, int64_atomics=True, f64_atomics=True, barriers=True, subgroups=True, checked=True
)
LIMITS = Limits()
HEAD = """\
kernel k(x: array<i32, 1>, q: array<i64, 1>, y: array<{element}, 1>, a: {scalar}) grid ({block}):
    local t: i32
    local u: i64
    shared s: i32[64]
"""


def module(line: str, element: str = "f32", scalar: str = "i32", block: str = "64") -> Module:
    return parse_module(HEAD.format(element=element, scalar=scalar, block=block) + f"    {line}\n")


def target(capabilities: Capabilities, limits: Limits = LIMITS) -> TargetInfo:
    return TargetInfo("mine", "one", "digest", capabilities, limits)


def without(capability: str) -> Capabilities:
    claimed: dict[str, Any] = {**attrs.asdict(ALL), capability: False}
    return Capabilities(**claimed)


@pytest.mark.parametrize(
    ("capability", "given", "named"),
    [
        ("barriers", module("barrier"), "barriers"),
        ("subgroups", module("t = subgroup.sum(a)"), "subgroup.sum"),
        ("subgroups", module("u = subgroup_lane(0)"), "subgroups, so no subgroup_lane"),
        ("int64_atomics", module("atomic.add(q[0], 1)"), "atomic.add of i64"),
        ("f64_atomics", module("atomic.add(y[0], 1.0)", element="f64"), "atomic.add of f64"),
        ("f64", module("t = a", element="f64"), "f64"),
        ("f64", module("t = a", element="vec<f64, 2>"), "f64"),
        ("f64", module("t = a", scalar="f64"), "f64"),
        ("f16", module("t = a", element="f16"), "f16 arrays"),
        ("bf16", module("t = a", element="bf16"), "bf16 arrays"),
        ("checked", module("print[0] a"), "print"),
    ],
)
def test_what_a_capability_stands_for_is_refused_without_it_alone(capability: str, given: Module, named: str) -> None:
    check_target(given, target(ALL))
    with pytest.raises(ValidationError, match="has no") as raised:
        check_target(given, target(without(capability)))
    assert raised.value.what == f"the target mine:one has no {named}"
    assert raised.value.fix


def test_a_small_value_that_is_in_no_array_needs_no_capability() -> None:
    check_target(module("t = a", scalar="f16"), target(Capabilities()))


def test_atomics_of_small_elements_are_refused_everywhere() -> None:
    with pytest.raises(ValidationError, match=r"atomic\.add of i8"):
        check_target(module("atomic.add(y[0], 1i8)", element="i8"), target(ALL))


def test_a_block_and_shared_memory_beyond_the_limits_are_refused() -> None:
    check_target(module("t = a"), target(ALL, Limits(max_block_threads=64, max_shared_bytes=256)))
    with pytest.raises(ValidationError, match=r"block \(64,\) has 64 threads; mine:one allows 63 in all"):
        check_target(module("t = a"), target(ALL, Limits(max_block_threads=63)))
    with pytest.raises(ValidationError, match="takes 256 bytes of shared memory; mine:one allows 255"):
        check_target(module("t = a"), target(ALL, Limits(max_shared_bytes=255)))


def test_a_checked_kernel_is_refused_where_launches_do_not_check() -> None:
    given = module("t = a")
    options = attrs.evolve(given.kernel.options, checked=True)
    checked = attrs.evolve(given, kernel=attrs.evolve(given.kernel, options=options))
    check_target(checked, target(ALL))
    with pytest.raises(ValidationError, match="checked launches") as raised:
        check_target(checked, target(attrs.evolve(ALL, checked=False)))
    assert "interpret=True" in str(raised.value.fix)


def test_a_refusal_names_the_place() -> None:
    where = Location("user.py", 3, 5, 3, 17)
    given = module("barrier")
    placed = map_bodies(given, lambda body: tuple(attrs.evolve(stmt, loc=where) for stmt in body))
    with pytest.raises(ValidationError, match="barriers") as raised:
        check_target(placed, target(attrs.evolve(ALL, barriers=False)))
    assert raised.value.where == where
