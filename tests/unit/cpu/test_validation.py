from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cpu.harness import compiler_for, lowered
from tests.unit.ir_by_hand import array, const, global_id, kernel, load, place, store

from quernel.dtypes import ScalarType, StructField, StructType, i8, i16, i64
from quernel.errors import CompilationError, DeviceError, ValidationError
from quernel.geometry import LaunchForm
from quernel.ir.nodes import (
    Alloc,
    Atomic,
    AtomicOp,
    Compare,
    CompareOp,
    If,
    IndexKind,
    Parameter,
    Place,
    Root,
    RootKind,
    Space,
    Stmt,
    Subgroup,
    SubgroupOp,
    ThreadIndex,
)
from quernel.locations import Location
from quernel_cpu.targets import host_target, named_target

HERE = Location("kernels.py", 12, 4)
PACKED = StructType("S", (StructField("a", i8, 0), StructField("b", i64, 1)), 9, 1)
LATER: list[tuple[Any, str]] = [
    (
        Subgroup(op=SubgroupOp.SUM, operands=(const(1),), result="s", loc=HERE),
        r"has no subgroup operations such as subgroup\.sum",
    ),
    (store("out", ThreadIndex(kind=IndexKind.SUBGROUP_ID, axis=0, loc=HERE)), "has no subgroups, so no subgroup_id"),
    (
        Atomic(op=AtomicOp.ADD, place=place("small", i16), operands=(const(1, i16),), loc=HERE),
        "has no atomic operations on i16",
    ),
    (
        Atomic(
            op=AtomicOp.ADD,
            place=Place(root=Root(RootKind.PARAM, "packed"), indices=(global_id(),), type=i64, view=("b",)),
            operands=(const(1),),
            loc=HERE,
        ),
        r"has no atomic operations on a i64 that is not aligned in struct<S>",
    ),
]


@pytest.mark.parametrize(("statement", "message"), LATER, ids=[message for _, message in LATER])
def test_a_construct_that_the_target_has_not_is_refused_at_its_place(statement: Any, message: str) -> None:
    params = (array("out", i64), array("small", i16), array("packed", PACKED))
    module = kernel(params, (statement,), form=LaunchForm.GRID, variables={"s": i64})
    with pytest.raises(ValidationError, match=message) as refusal:
        lowered(module, using=compiler_for("scalar"))
    assert refusal.value.where == HERE
    assert refusal.value.fix == "write the kernel without it"


def test_subgroups_are_refused_where_threads_cannot_run_as_lanes() -> None:
    statement = Subgroup(op=SubgroupOp.SUM, operands=(const(1),), result="s", loc=HERE)
    deep: tuple[Stmt, ...] = (store("out", const(1), const(0)),)
    for _ in range(100):
        deep = (If(condition=Compare(op=CompareOp.GE, left=load("out", i64), right=const(0)), then=deep),)
    module = kernel((array("out", i64),), (*deep, statement), form=LaunchForm.GRID, variables={"s": i64})
    with pytest.raises(ValidationError, match=r"subgroup\.sum as lanes of vectors, and this one cannot") as refusal:
        lowered(module, using=compiler_for("spmd"))
    assert refusal.value.where == HERE


def test_the_refusal_shows_file_line_and_column() -> None:
    statement = Subgroup(op=SubgroupOp.SUM, operands=(const(1),), result="s", loc=HERE)
    module = kernel((array("out", i64),), (statement,), form=LaunchForm.GRID, variables={"s": i64})
    with pytest.raises(ValidationError, match=r"^kernels\.py:12:5: the target cpu:\S+ has no subgroup operations"):
        lowered(module, using=compiler_for("scalar"))


@pytest.mark.parametrize(
    "kind", [IndexKind.LOCAL_ID, IndexKind.BLOCK_ID, IndexKind.GRID_DIM], ids=lambda kind: kind.value
)
def test_over_has_no_blocks(kind: IndexKind) -> None:
    module = kernel((array("out", i64),), (store("out", ThreadIndex(kind=kind, axis=0, loc=HERE)),))
    with pytest.raises(ValidationError, match=rf"has no blocks, so no {kind.value}") as refusal:
        lowered(module)
    assert refusal.value.where == HERE
    assert refusal.value.fix == "launch it as kernel[qn.cdiv(extent, block), block]"


@pytest.mark.parametrize("block", [(2048,), (64, 64), (1025, 1, 1)], ids=str)
def test_too_large_a_block_is_refused_with_one_that_fits(block: tuple[int, ...]) -> None:
    ids = tuple(global_id(axis) for axis in range(len(block)))
    module = kernel((array("out", i64, len(block)),), (store("out", const(1), *ids),), block=block)
    with pytest.raises(ValidationError, match=r"allows 1024 in all") as refusal:
        lowered(module)
    example = (*(1,) * (len(block) - 1), 1024)
    assert refusal.value.fix == f"use a block of at most 1024 threads, e.g. {example}"


def test_more_private_memory_than_a_stack_holds_is_refused() -> None:
    own = Alloc(name="own", space=Space.PRIVATE, element=i64, shape=(1000, 33), loc=HERE)
    use = store("own", const(1), global_id(), const(0), kind=RootKind.PRIVATE)
    with pytest.raises(ValidationError, match="k has 264000 bytes of private memory") as refusal:
        lowered(kernel((array("out", i64),), (own, use)))
    assert refusal.value.where == HERE


def test_a_struct_cannot_be_passed_by_value() -> None:
    param = Parameter(name="s", type=ScalarType(PACKED), loc=HERE)
    with pytest.raises(ValidationError, match=r"has no parameters of type struct<S>") as refusal:
        lowered(kernel((array("out", i64), param), (store("out", const(1)),)))
    assert refusal.value.where == HERE


def test_targets_have_fingerprints_of_their_own() -> None:
    host = host_target()
    assert named_target("") is named_target("host") is named_target(host.name) is host
    if host.detail("triple").startswith("x86_64"):
        fingerprints = {host.fingerprint, *(named_target(name).fingerprint for name in ("x86-64", "x86-64-v3"))}
        assert len(fingerprints) == 3


def test_an_unknown_target_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(DeviceError, match="no cpu target 'sm_90'") as refusal:
        named_target("sm_90")
    assert refusal.value.fix is not None
    assert refusal.value.fix.startswith("use one of host, ")


def test_an_object_that_is_none_is_refused_by_the_loader() -> None:
    from quernel_cpu._toolchain import load_object

    with pytest.raises((DeviceError, CompilationError), match="does not link"):
        load_object(b"no object", "quernel_entry", None)
