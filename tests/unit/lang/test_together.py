"""Threads working together: memory, barriers and atomics, from Python through the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.lang.kernels import array, kernel_of, launch, lowered

from quernel.geometry import LaunchForm
from quernel.ir import nodes


def test_tree_reduction_in_shared_memory() -> None:
    kernel = kernel_of(
        """
def kernel(x, out):
    tile = qn.shared(qn.cdiv(16, 2) * 2, qn.i64)
    i = qn.local_id()
    tile[i] = x[qn.global_id()]
    qn.barrier()
    step = len(tile) // 2
    while step > 0:
        if i < step:
            tile[i] += tile[i + step]
        qn.barrier()
        step //= 2
    if i == 0:
        out[qn.block_id()] = tile[0]
"""
    )
    x, out = np.arange(48) ** 2, np.zeros(3, np.int64)

    launch(kernel, 3, 16, x, out)

    assert out.tolist() == x.reshape(3, 16).sum(axis=1).tolist()


def test_transpose_through_a_padded_tile_of_a_device_function() -> None:
    kernel = kernel_of(
        """
@qn.func
def turned(tile, i, j):
    qn.barrier()
    return tile[j, i]

def kernel(x, out):
    tile = qn.shared((4, 5), qn.f32)
    i, j = qn.local_id()
    tile[i, j] = x[i, j]
    out[i, j] = turned(tile, i, j) + tile.shape[1] + tile.size * 0
"""
    )
    x, out = np.arange(16, dtype=np.float32).reshape(4, 4), np.zeros((4, 4), np.float32)

    launch(kernel, (1, 1), (4, 4), x, out)

    assert np.array_equal(out, x.T + 5)


def test_private_memory_is_one_threads_and_reaches_device_functions() -> None:
    kernel = kernel_of(
        """
@qn.func
def total(values):
    acc = 0.0
    for k in range(len(values)):
        acc += values[k]
    return acc

def kernel(x):
    mine = qn.private((3,), x.dtype)
    i = qn.global_id()
    for k in range(3):
        mine[k] = x[i] * (k + 1)
    x[i] = total(mine)
"""
    )
    x = np.arange(5, dtype=np.float32)

    launch(kernel, 1, 5, x)

    assert x.tolist() == [0, 6, 12, 18, 24]


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("add", "3", 13),
        ("sub", "3", 7),
        ("min", "3", 3),
        ("max", "30", 30),
        ("and_", "6", 2),
        ("or_", "5", 15),
        ("xor", "3", 9),
        ("exchange", "4", 4),
        ("cas", "10, 5", 5),
        ("cas", "9, 5", 10),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_atomic_gives_the_old_value_and_keeps_the_new_one(name: str, operands: str, expected: int, dtype: str) -> None:
    kernel = kernel_of(f"def kernel(a, old):\n    old[0] = qn.atomic.{name}(a, (0, 1), {operands})\n")
    a, old = np.array([[0, 10]], dtype), np.zeros(1, dtype)

    launch(kernel, 1, 1, a, old)

    assert (a[0, 1], old[0]) == (expected, 10)


def test_atomic_operand_wraps_and_rounds_like_a_store() -> None:
    kernel = kernel_of("def kernel(u, f):\n    qn.atomic.add(u, 0, -1)\n    qn.atomic.add(f, 0, qn.f64(0.1))\n")
    u, f = np.array([5], np.uint32), np.array([0], np.float32)

    launch(kernel, 1, 1, u, f)

    assert u.tolist() == [4]
    assert f.tolist() == [np.float32(0.1)]


def test_discarded_result_of_an_atomic_is_no_local() -> None:
    from quernel.lang import expand

    kernel = kernel_of("def kernel(n):\n    qn.atomic.add(n, qn.global_id() % 2, 1)\n")
    module, _ = expand(
        kernel, name="kernel", parameter_types={"n": array("int32")}, constants={}, form=LaunchForm.OVER, block=(256,)
    )

    assert module.kernel.locals == ()
    (statement,) = module.kernel.body
    assert isinstance(statement, nodes.Atomic)
    assert statement.result is None


def test_loads_left_of_an_atomic_are_read_before_it() -> None:
    kernel = kernel_of("def kernel(n):\n    n[1] = n[0] + qn.atomic.add(n, 0, 5) * 10 + n[0] * 100\n")
    n = np.array([2, 0], np.int64)

    launch(kernel, 1, 1, n)

    assert n.tolist() == [7, 2 + 20 + 700]


def test_allocations_stand_first_in_the_body() -> None:
    module = lowered(
        kernel_of("def kernel(x):\n    i = qn.local_id()\n    a = qn.shared(4, qn.f32)\n    a[i] = x[i]\n"),
        form=LaunchForm.GRID,
    ).module

    assert isinstance(module.kernel.body[0], nodes.Alloc)


def test_uniform_barriers_are_accepted() -> None:
    kernel = kernel_of(
        """
def kernel(x, n):
    if n > 3:
        qn.barrier()
    for k in range(n):
        qn.barrier()
    if qn.block_id() == 0:
        qn.barrier()
    x[qn.global_id()] = n
"""
    )
    x = np.zeros(8, np.float32)

    launch(kernel, 2, 4, x, 5)

    assert x.tolist() == [5] * 8
