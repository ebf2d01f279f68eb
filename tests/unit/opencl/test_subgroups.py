"""Subgroups, on devices that have them: the reference interpreter's answers are the right ones."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.ir_by_hand import array, const, index, load, local, store
from tests.unit.opencl.harness import Built, kernel

from quernel.dtypes import DType, bool_, f32, f64, i32, i64, u64
from quernel.errors import ValidationError
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Binary, BinaryOp, Cast, Compare, CompareOp, Expr, IndexKind, Subgroup, SubgroupOp
from quernel.reference.subgroups import Meeting, answers
from quernel_opencl.device import OpenclDevice


@pytest.fixture
def grouped(device: OpenclDevice) -> OpenclDevice:
    if not device.target.compiler.target_info.capabilities.subgroups:
        pytest.skip("needs a device with subgroups, for example pip install quernel-opencl[intel]")
    return device


def expected(op: SubgroupOp, dtype: DType, values: list, lanes: list[int] | None, size: int) -> list:
    found: list = []
    for first in range(0, len(values), size):
        meetings = [
            Meeting(0, op, dtype, (values[n],) if lanes is None else (values[n], lanes[n]))
            for n in range(first, min(first + size, len(values)))
        ]
        found += answers(meetings)
    return found


OPS = [
    (SubgroupOp.SUM, None),
    (SubgroupOp.MIN, None),
    (SubgroupOp.MAX, None),
    (SubgroupOp.SCAN, None),
    (SubgroupOp.SHUFFLE, "random"),
    (SubgroupOp.SHUFFLE_XOR, 3),
    (SubgroupOp.SHUFFLE_UP, 2),
    (SubgroupOp.SHUFFLE_DOWN, 5),
    (SubgroupOp.SHUFFLE_UP, -1),
    (SubgroupOp.BROADCAST, 4),
]


@pytest.mark.parametrize("dtype", [i32, u64, f32, f64], ids=str)
@pytest.mark.parametrize(("op", "lane"), OPS, ids=lambda case: getattr(case, "value", str(case)))
def test_threads_of_a_subgroup_get_what_the_interpreter_gives(
    grouped: OpenclDevice, op: SubgroupOp, lane: object, dtype: DType
) -> None:
    block = (40,) if dtype.bits == 32 else (2, 32)
    size = grouped.target.compiler.target_info.subgroup_size
    rng = np.random.default_rng(5)
    values = rng.integers(0, 100, int(np.prod(block))).astype(dtype.numpy)
    lanes = rng.integers(-3, 20, len(values)) if lane == "random" else np.full(len(values), lane or 0, np.int64)
    at: Expr = index()
    if len(block) == 2:
        at = Binary(
            op=BinaryOp.ADD,
            left=Binary(op=BinaryOp.MUL, left=index(axis=0), right=const(block[1])),
            right=index(axis=1),
        )
    operands: tuple[Expr, ...] = (load("x", dtype, at),)
    if lane is not None:
        operands = (*operands, load("lanes", i64, at))
    body = (Subgroup(op=op, operands=operands, result="r"), store("y", local("r", dtype), at))
    made = kernel(
        (array("x", dtype), array("lanes", i64), array("y", dtype)),
        body,
        variables={"r": dtype},
        block=block,
        form=LaunchForm.GRID,
    )
    y = np.zeros_like(values)
    Built(grouped, made).grid((1,) * len(block), values, lanes, y)
    wanted = expected(op, dtype, values.tolist(), None if lane is None else lanes.tolist(), size)
    assert y.tolist() == wanted


@pytest.mark.parametrize("op", [SubgroupOp.ANY, SubgroupOp.ALL, SubgroupOp.BALLOT])
def test_threads_vote(grouped: OpenclDevice, op: SubgroupOp) -> None:
    size = grouped.target.compiler.target_info.subgroup_size
    x = np.array([0] * 16 + [1] * 16 + [0, 1, 1, 0, 1, 0, 0, 1], np.int32)
    vote = Compare(op=CompareOp.NE, left=load("x", i32), right=const(0, i32))
    result = u64 if op is SubgroupOp.BALLOT else bool_
    body = (Subgroup(op=op, operands=(vote,), result="r"), store("y", Cast(operand=local("r", result), type=u64)))
    made = kernel((array("x", i32), array("y", u64)), body, variables={"r": result}, block=(40,), form=LaunchForm.GRID)
    y = np.zeros(40, np.uint64)
    Built(grouped, made).grid(1, x, y)
    assert y.tolist() == [int(value) for value in expected(op, bool_, [bool(v) for v in x], None, size)]


def test_a_thread_knows_its_lane_subgroup_and_their_size(grouped: OpenclDevice) -> None:
    size = grouped.target.compiler.target_info.subgroup_size
    kinds = (IndexKind.SUBGROUP_LANE, IndexKind.SUBGROUP_ID, IndexKind.SUBGROUP_SIZE)
    body = tuple(store("y", index(kind), index(), const(n)) for n, kind in enumerate(kinds))
    y = np.zeros((40, 3), np.int64)
    Built(grouped, kernel((array("y", i64, 2),), body, block=(40,), form=LaunchForm.GRID)).grid(1, y)
    assert y.tolist() == [[n % size, n // size, size] for n in range(40)]


def test_a_block_whose_rows_end_within_a_subgroup_is_refused(grouped: OpenclDevice) -> None:
    body = (store("y", index(IndexKind.SUBGROUP_LANE), const(0)),)
    made = kernel((array("y", i64),), body, block=(4, 8), form=LaunchForm.GRID)
    with pytest.raises(ValidationError, match="do not fill the rows"):
        Built(grouped, made)
