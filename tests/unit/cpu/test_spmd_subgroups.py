"""Subgroup operations on the lanes of every target, against the interpreter's answers for the same subgroups."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built, compiler_for
from tests.unit.cpu.test_spmd import module_of

import quernel as qn
from quernel.dtypes import ArrayType, DType
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Assign, Local, Subgroup, SubgroupOp
from quernel.reference.subgroups import Meeting, answers

LEVELS = {"host": "", "avx2": "x86-64-v3", "sse": "x86-64-v2"}
BLOCKS = [(64,), (40,), (3, 5), (2, 32), (4, 1, 7)]
OF_ONE = ("sum", "min", "max", "scan")
LANE_OF: dict[str, str] = {
    "shuffle": "(lane * 7 + 3) % 19",
    "shuffle_xor": "5",
    "shuffle_up": "2",
    "shuffle_down": "3",
    "broadcast": "1",
}
TESTS = {"any": "v > 90", "all": "v > 5", "ballot": "v > 40"}


def launched(name: str, level: str, block: tuple[int, ...], values: np.ndarray, dtype: DType) -> np.ndarray:
    """What each thread of two blocks gets, in array order."""
    using = compiler_for("spmd", "on", level)
    ids, number = "abc"[: len(block)], "a"
    for axis in range(1, len(block)):
        number = f"({number}) * {block[axis]} + {ids[axis]}"
    result = {"any": qn.bool, "all": qn.bool, "ballot": qn.u64}.get(name, dtype)
    body = f"""
{", ".join(ids)} = qn.local_id()
n = {number}
lane = n % {using.target_info.subgroup_size}
at = {"qn.block_id()" if len(block) == 1 else "qn.block_id(0)"} * {math.prod(block)} + n
v = x[at]
test = {TESTS.get(name, "v > 0")}
wanted = qn.i64({LANE_OF.get(name, "0")})
result = qn.{result.name}(v) if test else qn.{result.name}(wanted)
out[at] = result
"""
    module = module_of(body, LaunchForm.GRID, block, x=ArrayType(dtype, 1), out=ArrayType(result, 1))
    types = {local.name: local.type for local in module.kernel.locals}
    names = ("test",) if name in TESTS else ("v", "wanted") if name in LANE_OF else ("v",)
    operation = Subgroup(
        op=SubgroupOp(name), operands=tuple(Local(name=n, type=types[n]) for n in names), result="result"
    )
    statements = tuple(
        operation if isinstance(stmt, Assign) and stmt.name == "result" else stmt for stmt in module.kernel.body
    )
    module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=statements))
    out = np.zeros(len(values), result.numpy)
    Built(module, CONTIGUOUS, using).grid((2, *(1,) * (len(block) - 1)), values, out)
    return out


def expected(name: str, values: np.ndarray, size: int, num_lanes: int, dtype: DType) -> list[Any]:
    found: list[Any] = []
    op = SubgroupOp(name)
    for first in range(0, len(values), size):
        block = values[first : first + size].tolist()
        for start in range(0, size, num_lanes):
            part = block[start : start + num_lanes]
            if name in TESTS:
                meetings = [Meeting(0, op, qn.bool, (eval(TESTS[name], {"v": v}),)) for v in part]
            elif name in LANE_OF:
                meetings = [
                    Meeting(0, op, dtype, (v, eval(LANE_OF[name], {"lane": lane}))) for lane, v in enumerate(part)
                ]
            else:
                meetings = [Meeting(0, op, dtype, (v,)) for v in part]
            found += answers(meetings)
    return found


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [*OF_ONE, *LANE_OF, *TESTS])
def test_a_subgroup_operation_gives_each_lane_the_interpreters_answer(
    name: str, level: str, block: tuple[int, ...]
) -> None:
    size = int(np.prod(block))
    for dtype in (qn.i32, qn.i64, qn.f32) if name not in TESTS else (qn.i32,):
        values = np.random.default_rng(3).integers(0, 100, 2 * size).astype(dtype.numpy)
        num_lanes = compiler_for("spmd", "on", LEVELS[level]).target_info.subgroup_size
        out = launched(name, LEVELS[level], block, values, dtype)
        assert out.tolist() == expected(name, values, size, num_lanes, dtype), dtype
