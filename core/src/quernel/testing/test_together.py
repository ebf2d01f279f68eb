"""Threads that work together: shared memory, barriers and collectives of a block, at awkward sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import KernelSyntaxError, OutOfBoundsError, ValidationError
from quernel.testing.fuzz.programs import kernel_of
from quernel.testing.launching import on

pytestmark = pytest.mark.quernel_needs("barriers", "f64")
BLOCKS = (1, 2, 3, 7, 32, 33, 100, 256)
SHARED = (qn.bool, qn.i8, qn.u16, qn.i32, qn.i64, qn.u64, qn.f16, qn.bf16, qn.f32, qn.f64)


def launch(kernel: Any, device: Any, grid: Any, block: Any, *arguments: Any) -> None:
    on(device, kernel)[grid, block](*arguments)


# --- whole algorithms -------------------------------------------------------------------------------------------------


@qn.kernel
def tree_sum(x, out, size: qn.Const[int]):
    t = qn.local_id()
    i = qn.global_id()
    tile = qn.shared(size, x.dtype)
    tile[t] = x[i] if i < len(x) else 0
    width = size
    while width > 1:
        half = (width + 1) // 2
        qn.barrier()
        if t + half < width:
            tile[t] = tile[t] + tile[t + half]
        width = half
    qn.barrier()
    if t == 0:
        out[qn.block_id()] = tile[0]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("dtype", [qn.i64, qn.f32, qn.f16], ids=str)
def test_a_tree_reduction_in_shared_memory_sums_a_block(quernel_device: Any, block: int, dtype: Any) -> None:
    count = 3 * block - block // 2
    x = (np.arange(count) % 5).astype(dtype.numpy)
    if dtype is qn.i64:
        x += 2**40
    out = np.zeros(3, dtype.numpy)
    launch(tree_sum, quernel_device, 3, block, x, out, block)
    expected = [sum(x[start : start + block].tolist()) for start in (0, block, 2 * block)]
    assert out.tolist() == expected


@qn.kernel
def multiply(a, b, c, tile: qn.Const[int]):
    row, column = qn.global_id()
    y, x = qn.local_id()
    left = qn.shared((tile, tile), a.dtype)
    right = qn.shared((tile, tile), a.dtype)
    total = a.dtype(0)
    for step in range(qn.cdiv(a.shape[1], tile)):
        k = step * tile
        left[y, x] = a[row, k + x] if row < a.shape[0] and k + x < a.shape[1] else 0
        right[y, x] = b[k + y, column] if k + y < b.shape[0] and column < b.shape[1] else 0
        qn.barrier()
        for j in range(tile):
            total += left[y, j] * right[j, x]
        qn.barrier()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (5, 7, 3), (16, 16, 16), (33, 17, 20)])
@pytest.mark.parametrize("dtype", [qn.f32, qn.i64], ids=str)
def test_a_tiled_matrix_product_is_the_product(quernel_device: Any, m: int, k: int, n: int, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-9, 9, (m, k)).astype(dtype.numpy), rng.integers(-9, 9, (k, n)).astype(dtype.numpy)
    c = np.zeros((m, n), dtype.numpy)
    launch(multiply, quernel_device, (qn.cdiv(m, 4), qn.cdiv(n, 4)), (4, 4), a, b, c, 4)
    assert np.array_equal(c, a @ b)


@qn.kernel
def transpose(a, b):
    y, x = qn.local_id()
    by, bx = qn.block_id()
    tile = qn.shared((8, 9), a.dtype)
    if by * 8 + y < a.shape[0] and bx * 8 + x < a.shape[1]:
        tile[y, x] = a[by * 8 + y, bx * 8 + x]
    qn.barrier()
    if bx * 8 + y < b.shape[0] and by * 8 + x < b.shape[1]:
        b[bx * 8 + y, by * 8 + x] = tile[x, y]


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (13, 21), (3, 40)])
def test_a_transpose_through_shared_memory_is_the_transpose(quernel_device: Any, shape: tuple[int, int]) -> None:
    a = np.arange(shape[0] * shape[1], dtype=np.int16).reshape(shape)
    b = np.zeros(shape[::-1], np.int16)
    launch(transpose, quernel_device, (qn.cdiv(shape[0], 8), qn.cdiv(shape[1], 8)), (8, 8), a, b)
    assert np.array_equal(b, a.T)


@qn.kernel
def histogram(x, bins):
    t = qn.local_id()
    tally = qn.shared(10, qn.u32)
    for k in range(t, 10, qn.block_dim()):
        tally[k] = 0
    qn.barrier()
    for i in range(qn.global_id(), len(x), qn.global_dim()):
        qn.atomic.add(tally, x[i], 1)
    qn.barrier()
    for k in range(t, 10, qn.block_dim()):
        qn.atomic.add(bins, k, tally[k])


@pytest.mark.parametrize("block", [1, 7, 64])
def test_a_histogram_counts_every_element(quernel_device: Any, block: int) -> None:
    x = np.random.default_rng(2).integers(0, 10, 1003)
    bins = np.zeros(10, np.uint32)
    launch(histogram, quernel_device, 3, block, x, bins)
    assert bins.tolist() == np.bincount(x, minlength=10).tolist()


@qn.kernel
def running_sums(x, out, size: qn.Const[int]):
    t = qn.local_id()
    i = qn.global_id()
    tile = qn.shared(size, qn.i64)
    tile[t] = x[i]
    step = 1
    while step < size:
        qn.barrier()
        addend = tile[t - step] if t >= step else 0
        qn.barrier()
        tile[t] += addend
        step *= 2
    out[i] = tile[t]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_prefix_sum_in_shared_memory(quernel_device: Any, block: int) -> None:
    x = np.random.default_rng(3).integers(-100, 100, 2 * block)
    out = np.zeros(2 * block, np.int64)
    launch(running_sums, quernel_device, 2, block, x, out, block)
    assert np.array_equal(out.reshape(2, block), np.cumsum(x.reshape(2, block), axis=1))


@qn.kernel
def bitonic(x, size: qn.Const[int]):
    t = qn.local_id()
    tile = qn.shared(size, x.dtype)
    tile[t] = x[t] if t < len(x) else math.inf
    width = 2
    while width <= size:
        stride = width // 2
        while stride > 0:
            qn.barrier()
            other = t ^ stride
            if other > t:
                a = tile[t]
                b = tile[other]
                if (a > b) == (t & width == 0):
                    tile[t] = b
                    tile[other] = a
            stride //= 2
        width *= 2
    qn.barrier()
    if t < len(x):
        x[t] = tile[t]


@pytest.mark.parametrize("count", [1, 2, 3, 31, 64, 100])
def test_a_bitonic_sort_sorts(quernel_device: Any, count: int) -> None:
    x = np.random.default_rng(4).standard_normal(count)
    expected = np.sort(x)
    launch(bitonic, quernel_device, 1, 1 << (count - 1).bit_length(), x, 1 << (count - 1).bit_length())
    assert np.array_equal(x, expected)


@qn.kernel
def complements(x, y, out, first: int):
    i = qn.global_id()
    tile = qn.shared(16, x.dtype)
    tile[qn.local_id()] = x[i]
    qn.barrier()
    v = tile[first]
    w = tile[first + 1]
    pair = qn.vec(x.dtype, 2)(w, ~v)
    qn.barrier()
    tile[qn.local_id()] = y[i]
    out[0, i] = min(~v, v)
    out[1, i] = max(~v, w)
    out[2, i] = qn.clamp(y[i], ~v, v)
    out[3, i] = qn.clamp(v, ~w, w)
    out[4, i] = ~max(v, w)
    out[5, i] = min(w, w - v - 1)
    out[6, i] = (v if v < w else w) - 1 - y[i]
    out[7, i] = max(v, -w - 1)
    out[8, i] = min(pair.x, pair.y)
    out[9, i] = -max((pair - qn.vec(x.dtype, 2)(v, w)).x, v) - 1


@pytest.mark.parametrize("is_checked", [False, pytest.param(True, marks=pytest.mark.quernel_needs("checked"))])
@pytest.mark.parametrize("dtype", [qn.i32, qn.i64, qn.u32, qn.u64], ids=str)
def test_complements_of_what_all_threads_share_have_a_least_and_a_greatest(
    quernel_device: Any, dtype: Any, is_checked: bool
) -> None:
    x = np.array([0, 1, 5, dtype.max, dtype.min, dtype.max // 3, 100, dtype.max - 9] * 4, dtype.numpy)
    y = np.arange(32, dtype=dtype.numpy) * dtype.numpy.type(dtype.max // 31)
    kernel = complements.options(checked=is_checked)
    for first in range(7):
        out = np.zeros((10, 32), dtype.numpy)
        launch(kernel, quernel_device, 2, 16, x, y, out, first)
        v, w = x[first : first + 1], x[first + 1 : first + 2]
        expected = (
            np.minimum(~v, v), np.maximum(~v, w), np.minimum(np.maximum(y, ~v), v), np.minimum(np.maximum(v, ~w), w),
            ~np.maximum(v, w), np.minimum(w, w - v - 1), np.minimum(v, w) - 1 - y, np.maximum(v, -w - 1),
            np.minimum(w, ~v), -np.maximum(w - v, v) - 1,
        )  # fmt: skip
        for row, wanted in zip(out, expected, strict=True):
            assert row.tolist() == np.broadcast_to(wanted, 32).tolist()


# --- shared and private memory ----------------------------------------------------------------------------------------


@qn.kernel
def reverses(x, out):
    t = qn.local_id()
    tile = qn.shared(8, x.dtype)
    tile[t] = x[qn.global_id()]
    qn.barrier()
    out[qn.global_id()] = tile[7 - t]


@pytest.mark.parametrize("dtype", SHARED, ids=str)
def test_shared_memory_holds_every_type_whole(quernel_device: Any, dtype: Any) -> None:
    high = 2 if dtype is qn.bool else 100
    x = (np.arange(24) % high).astype(dtype.numpy)
    if dtype in (qn.i64, qn.u64):
        x[3] = dtype.max
    out = np.zeros(24, dtype.numpy)
    launch(reverses, quernel_device, 3, 8, x, out)
    assert out.tolist() == x.reshape(3, 8)[:, ::-1].ravel().tolist()


@qn.kernel
def lives_across(x, out, rounds: int):
    t = qn.local_id()
    i = qn.global_id()
    tile = qn.shared(4, qn.i64)
    own = qn.private(3, qn.i64)
    for k in range(3):
        own[k] = x[i] + k
    kept = x[i] * 2
    for r in range(rounds):
        tile[t] = kept + own[r % 3]
        qn.barrier()
        if r % 2 == 0:
            kept += tile[(t + 1) % 4]
        else:
            own[0] += tile[3 - t]
        qn.barrier()
    out[i] = kept * 1000 + own[0]


def test_private_values_live_across_barriers_in_loops(quernel_device: Any) -> None:
    x, out = np.arange(8), np.zeros(8, np.int64)
    launch(lives_across, quernel_device, 2, 4, x, out, 5)
    expected = []
    for start in (0, 4):
        values = x[start : start + 4].tolist()
        own = [[value, value + 1, value + 2] for value in values]
        kept = [2 * value for value in values]
        for r in range(5):
            tile = [kept[t] + own[t][r % 3] for t in range(4)]
            for t in range(4):
                if r % 2 == 0:
                    kept[t] += tile[(t + 1) % 4]
                else:
                    own[t][0] += tile[3 - t]
        expected += [kept[t] * 1000 + own[t][0] for t in range(4)]
    assert out.tolist() == expected


@qn.kernel
def barrier_in_uniform_branch(x, out, flag: int):
    t = qn.local_id()
    tile = qn.shared(4, qn.f32)
    tile[t] = x[t]
    if flag > 0:
        qn.barrier()
        value = tile[3 - t]
    else:
        value = -tile[t]
    out[t] = value


@pytest.mark.parametrize("flag", [0, 1])
def test_a_barrier_may_stand_in_a_branch_that_all_threads_take(quernel_device: Any, flag: int) -> None:
    x, out = np.array([1, 2, 3, 4], np.float32), np.zeros(4, np.float32)
    launch(barrier_in_uniform_branch, quernel_device, 1, 4, x, out, flag)
    assert out.tolist() == ([4, 3, 2, 1] if flag else [-1, -2, -3, -4])


@qn.func
def exchanged(tile, t, value):
    tile[t] = value
    qn.barrier()
    result = tile[t ^ 1]
    qn.barrier()
    return result


@qn.kernel
def barrier_in_a_function(x, out):
    t = qn.local_id()
    tile = qn.shared(4, qn.i32)
    first = exchanged(tile, t, x[t])
    out[t] = exchanged(tile, t, first * 10) + first


def test_a_barrier_may_stand_in_a_device_function(quernel_device: Any) -> None:
    x, out = np.array([1, 2, 3, 4], np.int32), np.zeros(4, np.int32)
    launch(barrier_in_a_function, quernel_device, 1, 4, x, out)
    assert out.tolist() == [12, 21, 34, 43]


@qn.kernel
def global_memory_between(x, out):
    t = qn.local_id()
    i = qn.global_id()
    x[i] = x[i] + t
    qn.barrier()
    out[i] = x[qn.block_id() * 4 + (t + 1) % 4]


def test_a_barrier_orders_global_memory_within_the_block(quernel_device: Any) -> None:
    x, out = np.zeros(8, np.int32), np.zeros(8, np.int32)
    launch(global_memory_between, quernel_device, 2, 4, x, out)
    assert out.tolist() == [1, 2, 3, 0] * 2


# --- wrong barriers ---------------------------------------------------------------------------------------------------

DIVERGENT = {
    "condition": ("if x[t] > 0:\n        qn.barrier()", "t"),
    "loop count": ("for _ in range(t):\n        qn.barrier()", "t"),
    "early return": ("if t > 2:\n        return\n    qn.barrier()", "t"),
    "break": ("while True:\n        if x[t] > 0:\n            break\n        qn.barrier()", "t"),
}


@pytest.mark.parametrize("name", DIVERGENT)
def test_a_barrier_that_some_threads_miss_is_refused_with_the_chain(quernel_device: Any, name: str) -> None:
    body, source = DIVERGENT[name]
    kernel = kernel_of(f"@qn.kernel\ndef k(x):\n    t = qn.local_id()\n    {body}\n    x[t] = 1\n")
    with pytest.raises(KernelSyntaxError, match="reached by some threads of a block and not by others") as caught:
        launch(kernel, quernel_device, 1, 4, np.ones(4))
    assert any(source in line for line in caught.value.chain)


@pytest.mark.parametrize(
    "call", ["qn.barrier()", "y = qn.shared(4, qn.f32)", "x[0] = qn.local_id()", "x[0] = qn.block.sum(x[0])"]
)
def test_what_needs_a_block_is_refused_over_an_extent_with_the_form_that_has_one(
    quernel_device: Any, call: str
) -> None:
    kernel = kernel_of(f"@qn.kernel\ndef k(x):\n    {call}\n    x[0] = 1\n")
    with pytest.raises(KernelSyntaxError, match="needs blocks") as caught:
        on(quernel_device, kernel).over(4)(np.ones(4))
    assert "kernel[qn.cdiv(extent, block), block]" in caught.value.fix


@pytest.mark.quernel_needs("checked")
def test_a_violation_among_threads_that_wait_raises_and_does_not_hang(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel(checked=True)\n"
        "def k(x):\n"
        "    t = qn.local_id()\n"
        "    if t == 3:\n"
        "        x[t + 100] = 1\n"
        "    qn.barrier()\n"
        "    x[t] = 2\n"
    )
    with pytest.raises(OutOfBoundsError, match="103"):
        launch(kernel, quernel_device, 1, 8, np.ones(8))


# --- collectives of a block -------------------------------------------------------------------------------------------


@qn.kernel
def collects(x, sums, least, greatest, running):
    i = qn.global_id()
    sums[i] = qn.block.sum(x[i])
    least[i] = qn.block.min(x[i])
    greatest[i] = qn.block.max(x[i])
    running[i] = qn.block.scan(x[i])


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("dtype", [qn.i8, qn.u16, qn.i32, qn.i64, qn.f32, qn.f64], ids=str)
def test_collectives_give_every_thread_the_blocks_value(quernel_device: Any, block: int, dtype: Any) -> None:
    x = (
        np.random.default_rng(block)
        .integers(-20 if dtype.is_float or dtype.is_signed else 0, 100, 2 * block)
        .astype(dtype.numpy)
    )
    outs = [np.zeros(2 * block, np.float64) for _ in range(4)]
    launch(collects, quernel_device, 2, block, x, *outs)
    rows = x.astype(np.float64).reshape(2, block)
    for out, wanted in zip(outs, (rows.sum(axis=1), rows.min(axis=1), rows.max(axis=1)), strict=False):
        assert np.array_equal(out.reshape(2, block), np.repeat(wanted[:, None], block, axis=1))
    assert np.array_equal(outs[3].reshape(2, block), np.cumsum(rows, axis=1))


@qn.kernel
def asks(p, anyone, everyone):
    i = qn.global_id()
    anyone[i] = qn.block.any(p[i])
    everyone[i] = qn.block.all(p[i])


def test_any_and_all_of_a_block(quernel_device: Any) -> None:
    p = np.array([True] * 5 + [False] * 5 + [True, False, True, True, True])
    anyone, everyone = np.zeros(15, bool), np.zeros(15, bool)
    launch(asks, quernel_device, 3, 5, p, anyone, everyone)
    assert anyone.tolist() == [True] * 5 + [False] * 5 + [True] * 5
    assert everyone.tolist() == [True] * 5 + [False] * 10


@qn.kernel
def collects_in_a_loop(x, out):
    total = 0
    for k in range(3):
        total = total * 10 + qn.block.max(x[qn.local_id(), k])
    out[qn.local_id()] = total


def test_collectives_may_stand_in_loops(quernel_device: Any) -> None:
    x, out = np.array([[1, 5, 2], [3, 4, 9]]), np.zeros(2, np.int64)
    launch(collects_in_a_loop, quernel_device, 1, 2, x, out)
    assert out.tolist() == [359, 359]


@qn.kernel
def plane(x, out):
    i, j = qn.global_id()
    out[i, j] = qn.block.sum(x[i, j])


def test_a_block_of_two_axes_is_one_block(quernel_device: Any) -> None:
    x, out = np.arange(48).reshape(6, 8), np.zeros((6, 8), np.int64)
    launch(plane, quernel_device, (2, 2), (3, 4), x, out)
    for i in (0, 3):
        for j in (0, 4):
            assert (out[i : i + 3, j : j + 4] == x[i : i + 3, j : j + 4].sum()).all()


CONTROL = {
    "branches": "if n > 2:\n    out[i] = qn.block.sum(x[i])\nelse:\n    out[i] = qn.block.max(x[i] * 2)",
    "a chain of branches": (
        "if n == 0:\n    r = qn.block.min(x[i])\nelif qn.block.any(x[i] == 9):\n    r = 1\n"
        "elif qn.block.all(x[i] > n):\n    r = qn.block.max(x[i])\nelse:\n    r = -qn.block.sum(x[i])\nout[i] = r"
    ),
    "a conditional": "out[i] = qn.block.sum(x[i]) if n > 2 else qn.block.min(x[i]) - qn.block.max(x[i])",
    "a short circuit": (
        "r = 0\nif n > 2 and qn.block.any(x[i] > 7):\n    r = 1\nelif n < 2 or qn.block.all(x[i] > 0):\n"
        "    r = 2\nout[i] = r"
    ),
    "a loop": "r = 0\nfor k in range(n):\n    r += qn.block.sum(x[i] * k)\nout[i] = r",
    "the range of a loop": (
        "r = 0\nfor k in range(qn.block.max(x[i]) - n):\n    r += k * qn.block.min(x[i])\nout[i] = r"
    ),
    "an unrolled loop": "r = 0\nfor k in qn.unroll(range(3)):\n    r += qn.block.max(x[i] * (k - 1))\nout[i] = r",
    "the condition of a while": (
        "v = x[i]\nr = 0\nwhile qn.block.any(v > n):\n    v = v // 2\n    r += 1\nout[i] = r * 100 + v"
    ),
    "a break and an else": (
        "r = 0\nfor k in range(9):\n    if qn.block.sum(x[i] + k) > 40:\n        break\n    r += k\n"
        "else:\n    r = -qn.block.sum(x[i])\nout[i] = r"
    ),
    "a continue": (
        "r = 0\nfor k in range(6):\n    if qn.block.max(x[i] + k) % 2 == 0:\n        continue\n"
        "    r += qn.block.scan(x[i] + k)\nout[i] = r"
    ),
    "an early return": "if qn.block.max(x[i]) > 7:\n    out[i] = 1\n    return\nout[i] = qn.block.scan(x[i])",
    "loops in loops": (
        "r = 0\nfor k in range(3):\n    v = x[i] + k\n    while qn.block.max(v) > n:\n"
        "        v = v - qn.block.max(v) // 2 - 1\n"
        "        if qn.block.all(v < 0):\n            break\n        r += qn.block.sum(v)\nout[i] = r"
    ),
    "collectives of collectives": (
        "out[i] = qn.block.sum(qn.block.max(x[i]) + x[i]) + qn.block.scan(qn.block.scan(x[i]))"
    ),
    "device functions": (
        "out[i] = picked(x[i], n) + picked(x[i] * 2, n + 1)",
        "def picked(v, n):\n    if qn.block.any(v > 12):\n        return qn.block.sum(v)\n    for k in range(n):\n"
        "        if qn.block.max(v + k) > 6:\n            return k + qn.block.min(v)\n    return -1\n",
    ),
}


class OneBlock:
    """`qn` for one block whose threads are the elements of an array; control does not differ between them."""

    class block:
        sum = staticmethod(lambda v: int(v.sum()))
        min = staticmethod(lambda v: int(v.min()))
        max = staticmethod(lambda v: int(v.max()))
        any = staticmethod(lambda v: bool(v.any()))
        all = staticmethod(lambda v: bool(v.all()))
        scan = staticmethod(np.cumsum)

    unroll = staticmethod(lambda values: values)


def expected_of(body: str, function: str, x: Any, block: int, n: int) -> list[int]:
    """What the threads of all blocks write, by NumPy."""
    names: dict[str, Any] = {"qn": OneBlock}
    exec(function + "def run(x, out, i, n):\n" + "".join(f"    {line}\n" for line in body.splitlines()), names)
    out = np.full(len(x), -99)
    for first in range(0, len(x), block):
        names["run"](x, out, np.arange(first, first + block), n)
    result: list[int] = out.tolist()
    return result


@pytest.mark.parametrize("is_checked", [False, pytest.param(True, marks=pytest.mark.quernel_needs("checked"))])
@pytest.mark.parametrize("name", CONTROL)
def test_collectives_may_stand_in_every_form_of_control(quernel_device: Any, name: str, is_checked: bool) -> None:
    known = CONTROL[name]
    body, function = (known, "") if isinstance(known, str) else known
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    helper = f"@qn.func\n{function}\n" if function else ""
    kernel = kernel_of(f"{helper}@qn.kernel\ndef k(x, out, n: int):\n    i = qn.global_id()\n{lines}")
    kernel = kernel.options(checked=is_checked)
    for block, top in ((1, 10), (7, 4), (7, 10)):
        x = np.random.default_rng(block * top).integers(0, top, 3 * block)
        for n in (0, 2, 5):
            out = np.full(len(x), -99)
            launch(kernel, quernel_device, 3, block, x, out, n)
            assert out.tolist() == expected_of(body, function, x, block, n)


@pytest.mark.parametrize("value", ["sum(x[i])", "min(x[i])", "max(x[i])", "any(x[i] > 0)", "all(x[i] > 0)"])
def test_the_whole_block_agrees_on_a_collective(quernel_device: Any, value: str) -> None:
    kernel = kernel_of(
        "@qn.kernel\ndef k(x, out):\n    i = qn.global_id()\n    tile = qn.shared(4, qn.i64)\n    tile[i] = i\n"
        f"    if qn.block.{value} > 0:\n        qn.barrier()\n        out[i] = tile[3 - i]\n"
    )
    for given, wanted in ((1, [3, 2, 1, 0]), (0, [-1] * 4)):
        out = np.full(4, -1)
        launch(kernel, quernel_device, 1, 4, np.full(4, given), out)
        assert out.tolist() == wanted


def test_a_barrier_that_a_scan_decides_is_refused_with_its_chain(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel\ndef k(x):\n    i = qn.global_id()\n    before = qn.block.scan(x[i])\n"
        "    if before > 2:\n        qn.barrier()\n"
    )
    with pytest.raises(KernelSyntaxError, match="a barrier is reached by some threads") as caught:
        launch(kernel, quernel_device, 1, 4, np.ones(4))
    assert caught.value.where.line == 6
    assert ":5" in caught.value.chain[0]
    assert any(":4" in line for line in caught.value.chain[1:])


# --- shared memory of device functions --------------------------------------------------------------------------------


@qn.func
def kept(value, thread):
    """What the neighbour kept, in memory of this call; the value as it was at the end of the call before it."""
    tile = qn.shared(4, qn.i64)
    tile[thread] = value
    qn.barrier()
    return tile[thread ^ 1]


@qn.func
def kept_twice(value, thread):
    return kept(value, thread), kept(value * 10, thread)


@qn.kernel
def each_call_shares_its_own(out):
    thread = qn.local_id()
    near, far = kept_twice(thread + 1, thread)
    other = kept(thread + 100, thread)
    out[thread, 0], out[thread, 1], out[thread, 2] = near, far, other


def test_each_call_of_a_function_has_shared_memory_of_its_own(quernel_device: Any) -> None:
    out = np.zeros((4, 3), np.int64)
    launch(each_call_shares_its_own, quernel_device, 1, 4, out)
    assert out.tolist() == [[2, 20, 101], [1, 10, 100], [4, 40, 103], [3, 30, 102]]


TAKES_IT_TWICE = """
@qn.func
def half_of_it(values, thread):
    big = qn.shared({size}, qn.i32)
    big[thread] = values[thread]
    qn.barrier()
    values[thread] = big[thread ^ 1]

@qn.kernel
def k(values):
    thread = qn.local_id()
    half_of_it(values, thread)
    half_of_it(values, thread)
"""


def test_shared_memory_of_each_call_counts(quernel_device: Any) -> None:
    limit = quernel_device.target_info.limits.max_shared_bytes
    kernel = kernel_of(TAKES_IT_TWICE.format(size=limit * 5 // 8 // 4))
    with pytest.raises(ValidationError, match=r"shared"):
        launch(kernel, quernel_device, 1, 4, np.zeros(4, np.int32))


NEGATED = (
    "-v",
    "v * -1.0",
    "v / -1.0",
    "-0.0 - v",
    "math.floor(-v)",
    "qn.i64(-v)",
    "max(-v, -100)",
    "-abs(v)",
    "one * v",
)


@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("block", [3, 8, 32, 40])
@pytest.mark.parametrize("dtype", [qn.f32, qn.f64, qn.f16], ids=str)
@pytest.mark.parametrize("negated", NEGATED)
def test_a_negated_value_is_each_threads_own_behind_a_barrier(
    quernel_device: Any, negated: str, dtype: Any, block: int
) -> None:
    kernel = kernel_of(
        "@qn.kernel\ndef k(x, out):\n    i = qn.global_id()\n    v = x[i] + 1\n    one = 1.0\n    one = -one\n"
        f"    w = {negated}\n    qn.barrier()\n    out[i] = w\n"
    )
    x = np.arange(2 * block).astype(dtype.numpy)
    out = np.zeros_like(x)
    launch(kernel, quernel_device, 2, block, x, out)
    assert out.tolist() == [-value for value in (x + 1).tolist()]


@pytest.mark.quernel_needs("exact_f32")
@pytest.mark.parametrize("block", [8, 32])
@pytest.mark.parametrize("change", ["^", "|", "+"])
def test_a_sign_set_in_the_bits_is_each_threads_own_behind_a_barrier(
    quernel_device: Any, change: str, block: int
) -> None:
    kernel = kernel_of(
        "@qn.kernel\ndef k(x, out):\n    i = qn.global_id()\n"
        f"    v = qn.bitcast(qn.bitcast(x[i] + 1, qn.u32) {change} qn.u32(2**31), qn.f32)\n"
        "    qn.barrier()\n    out[i] = v\n"
    )
    x = np.arange(block, dtype=np.float32)
    out = np.zeros_like(x)
    launch(kernel, quernel_device, 1, block, x, out)
    assert out.tolist() == (-(x + 1)).tolist()
