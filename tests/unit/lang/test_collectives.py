"""Reductions and scans of a block, subgroup operations, uniform promises and random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.lang.kernels import INT, array, kernel_of, launch, lowered, over

import quernel as qn
from quernel.geometry import LaunchForm
from quernel.ir import nodes
from quernel.ir.uniformity import check_uniformity
from quernel.ir.walk import walk_expressions, walk_statements

REDUCTIONS = {"sum": np.sum, "min": np.min, "max": np.max}
BLOCKS = [1, 2, 3, 5, 8, 13, 33, (2, 3), (3, 1, 5)]


def linear(block: int | tuple[int, ...]) -> str:
    """The place of a thread in its block, as the kernels write it."""
    if isinstance(block, int):
        return "qn.local_id()"
    return "i * 3 + j" if len(block) == 2 else "(i + j) * 5 + k"


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("block", BLOCKS)
def test_reduction_of_a_block_of_any_size(name: str, block: int | tuple[int, ...]) -> None:
    names = "" if isinstance(block, int) else "i, j, k"[: 3 * len(block) - 2] + " = qn.local_id()\n    "
    kernel = kernel_of(f"def kernel(x, out):\n    {names}t = {linear(block)}\n    out[t] = qn.block.{name}(x[t]) + 0\n")
    size = math.prod(block) if isinstance(block, tuple) else block
    x, out = np.random.default_rng(size).integers(-50, 50, size), np.zeros(size, np.int64)

    launch(kernel, 1 if isinstance(block, int) else (1,) * len(block), block, x, out)

    assert out.tolist() == [REDUCTIONS[name](x)] * size


@pytest.mark.parametrize("block", [1, 2, 3, 8, 13])
def test_scan_of_a_block_includes_the_thread_itself(block: int) -> None:
    kernel = kernel_of(
        "def kernel(x, out):\n    i = qn.global_id()\n    for k in range(2):\n        out[i] += qn.block.scan(x[i])\n"
    )
    x, out = np.arange(3 * block, dtype=np.int32) ** 2, np.zeros(3 * block, np.int32)

    launch(kernel, 3, block, x, out)

    assert out.tolist() == (2 * x.reshape(3, block).cumsum(axis=1)).ravel().tolist()


@pytest.mark.parametrize(
    ("element", "expected"), [("bool", "i32"), ("int8", "i32"), ("uint64", "u64"), ("float16", "f16")]
)
def test_sum_of_a_block_has_the_type_of_arithmetic(element: str, expected: str) -> None:
    kernel = kernel_of("def kernel(x):\n    total = qn.block.sum(x[0])\n    least = qn.block.min(x[0])\n")

    expanded = lowered(kernel, form=LaunchForm.GRID, x=array(element))

    assert expanded.type_of("total") == expected
    assert expanded.type_of("least") == str(array(element).element)


def test_any_and_all_take_the_truth_of_numbers() -> None:
    kernel = kernel_of(
        "def kernel(x, out):\n    out[qn.local_id()] = qn.block.any(x[qn.local_id()])\n"
        "    out[4 + qn.local_id()] = qn.block.all(x[qn.local_id()] + 1)\n"
    )
    out = np.zeros(8, np.bool_)

    launch(kernel, 1, 4, np.array([0, 0, 3, -1], np.float32), out)

    assert out.tolist() == [True] * 4 + [False] * 4


@pytest.mark.parametrize("name", ["sum", "min", "max", "any", "all"])
def test_reduction_of_a_block_is_uniform(name: str) -> None:
    module = lowered(
        kernel_of(f"def kernel(x):\n    if qn.block.{name}(x[qn.global_id()]):\n        qn.barrier()\n"),
        form=LaunchForm.GRID,
    ).module

    check_uniformity(module)


def test_collectives_of_one_type_share_their_memory() -> None:
    kernel = kernel_of("def kernel(x):\n    x[0] = qn.block.sum(x[0]) + qn.block.max(x[0]) + qn.block.sum(qn.f64(1))\n")
    module = lowered(kernel, form=LaunchForm.GRID).module

    allocations = [stmt for stmt in module.kernel.body if isinstance(stmt, nodes.Alloc)]
    assert [str(stmt.element) for stmt in allocations] == ["f32", "f64"]


# --- subgroups --------------------------------------------------------------------------------------------------------

SUBGROUP = [
    ("shuffle(x[0], 3)", "f32", 2),
    ("shuffle_xor(x[0], 1)", "f32", 2),
    ("shuffle_up(n, 1)", "i64", 2),
    ("shuffle_down(x[0], n)", "f32", 2),
    ("broadcast(x[0], 0)", "f32", 2),
    ("ballot(x[0] > 0)", "u64", 1),
    ("any(x[0])", "bool", 1),
    ("all(n)", "bool", 1),
    ("sum(x[0] > 0)", "i32", 1),
    ("min(x[0])", "f32", 1),
    ("max(n)", "i64", 1),
    ("scan(x[0])", "f32", 1),
]


@pytest.mark.parametrize(("call", "expected", "num_operands"), SUBGROUP)
def test_subgroup_operation_has_its_type(call: str, expected: str, num_operands: int) -> None:
    expanded = lowered(
        kernel_of(f"def kernel(x, n):\n    v = qn.subgroup.{call}\n"),
        form=LaunchForm.GRID,
        n=INT,
    )

    (operation,) = [stmt for stmt in walk_statements(expanded.module.kernel.body) if isinstance(stmt, nodes.Subgroup)]
    assert operation.op.value == call.split("(", maxsplit=1)[0]
    assert len(operation.operands) == num_operands
    assert expanded.type_of("v") == expected


def test_subgroup_indices_are_thread_indices() -> None:
    module = lowered(
        kernel_of("def kernel(x):\n    x[qn.subgroup.lane()] = qn.subgroup.id() * qn.subgroup.size()\n"),
        form=LaunchForm.GRID,
    ).module

    kinds = [expr.kind.value for expr in walk_expressions(module.kernel) if isinstance(expr, nodes.ThreadIndex)]
    assert kinds == ["subgroup_lane", "subgroup_id", "subgroup_size"]


# --- promises and random numbers --------------------------------------------------------------------------------------


def test_promised_value_is_uniform() -> None:
    kernel = kernel_of("def kernel(x):\n    if qn.uniform(x[qn.local_id()]) > 0:\n        qn.barrier()\n    x[0] = 1\n")
    x = np.ones(4, np.float32)

    launch(kernel, 1, 4, x)

    assert x.tolist() == [1] * 4


@pytest.mark.parametrize("seed", [0, 1, 12345, -1, 2**63 - 1])
def test_philox_is_numpys_bit_for_bit(seed: int) -> None:
    kernel = kernel_of(
        """
def kernel(out, seed, first):
    i = qn.global_id()
    a, b, c, d = qn.random.philox(seed, first + i)
    out[i, 0] = a
    out[i, 1] = b
    out[i, 2] = c
    out[i, 3] = d
"""
    )
    for first in (0, 2**40):
        out = np.zeros((4, 4), np.uint64)

        over(kernel, 4, out, seed, first)

        for i in range(4):
            counter = (first + i - 1) % 2**256
            drawn = np.random.Philox(key=seed % 2**64, counter=counter).random_raw(4)
            assert out[i].tolist() == drawn.tolist()
            assert list(qn.random.philox(seed, first + i)) == drawn.tolist()


def test_words_of_philox_give_numpys_uniform_floats() -> None:
    kernel = kernel_of(
        "def kernel(out, seed):\n    i = qn.global_id()\n"
        "    out[i] = (qn.random.philox(seed, i + 1)[0] >> 11) * 2.0**-53\n"
    )
    out = np.zeros(3)

    over(kernel, 3, out, 7)

    generator = np.random.Generator(np.random.Philox(key=7))
    assert out.tolist() == generator.random(12)[::4].tolist()
