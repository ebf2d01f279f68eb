"""Atomics on global and shared memory: all threads count, and each gets an old value of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built
from tests.unit.cpu.programs import module
from tests.unit.reference.builders import Interpreter

from quernel.ir.semantics import same_value

KINDS: dict[str, Any] = {
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
}
FLOATS = ("f32", "f64")
NUM_BLOCKS, THREADS = 64, 256


def launch(text: str, grid: Any, *arguments: Any) -> None:
    Built(module(text), CONTIGUOUS).grid(grid, *arguments)


@pytest.mark.parametrize("dtype", KINDS)
def test_16384_threads_that_add_one_get_every_old_value_once(dtype: str) -> None:
    text = f"""\
kernel k(sum: array<{dtype}, 1>, old: array<{dtype}, 1>) grid ({THREADS}):
    local r: {dtype}
    r = atomic.add(sum[0], {dtype}(1))
    old[global_id(0)] = r
"""
    total, old = np.zeros(1, KINDS[dtype]), np.zeros(NUM_BLOCKS * THREADS, KINDS[dtype])
    launch(text, NUM_BLOCKS, total, old)
    assert total[0] == NUM_BLOCKS * THREADS
    assert np.array_equal(np.sort(old), np.arange(NUM_BLOCKS * THREADS))


CASES = [
    *[(op, dtype) for op in ("add", "sub", "min", "max", "exchange") for dtype in KINDS],
    *[(op, dtype) for op in ("and", "or", "xor") for dtype in KINDS if dtype not in FLOATS],
]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_an_atomic_changes_its_place_and_gives_the_old_value_as_the_interpreter_does(
    op: str, dtype: str, space: str
) -> None:
    place, before, after = "a[i]", "pass", "pass"
    shared = ""
    if space == "shared":
        place, before, after = "own[i % 8]", "own[i % 8] = a[i]", "a[i] = own[i % 8]"
        shared = f"    shared own: {dtype}[8]\n"
    text = f"""\
kernel k(a: array<{dtype}, 1>, x: array<{dtype}, 1>, old: array<{dtype}, 1>) grid (8):
    local i: i64
    local r: {dtype}
{shared}    i = global_id(0)
    {before}
    r = atomic.{op}({place}, x[i])
    old[i] = r
    {after}
"""
    text = text.replace("    pass\n", "")
    special = [math.nan, 1.0, 1.0, math.nan, -0.0, 0.0, 3.5, math.inf]
    if dtype in FLOATS:
        a = np.array([*special, *reversed(special)], KINDS[dtype])
        x = np.array([*special[1:], 2.0, *special], KINDS[dtype])
    else:
        info = np.iinfo(KINDS[dtype])
        values = [info.min, info.max, 0, 1, 77, info.max // 2, 5, info.max - 3]
        a = np.array([*values, *reversed(values)], KINDS[dtype])
        x = np.array([*values[1:], 3, *values], KINDS[dtype])
    found, wanted = [a.copy(), x, np.zeros_like(a)], [a.copy(), x, np.zeros_like(a)]
    launch(text, 2, *found)
    Interpreter().run(module(text), 2, *wanted)
    for one, other in ((found[0], wanted[0]), (found[2], wanted[2])):
        assert all(map(same_value, one.tolist(), other.tolist())), (one, other)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_compare_exchange_exchanges_only_what_it_expected(dtype: str, space: str) -> None:
    shared = f"    shared own: {dtype}[4]\n" if space == "shared" else ""
    place = "own[i]" if shared else "a[i]"
    before, after = ("    own[i] = a[i]\n", "    a[i] = own[i]\n") if shared else ("", "")
    text = f"""\
kernel k(a: array<{dtype}, 1>, old: array<{dtype}, 1>) grid (4):
    local i: i64
    local r: {dtype}
{shared}    i = global_id(0)
{before}    r = atomic.compare_exchange({place}, {dtype}(2), {dtype}(i + 10))
    old[i] = r
{after}"""
    a, old = np.array([1, 2, 3, 2], KINDS[dtype]), np.zeros(4, KINDS[dtype])
    launch(text, 1, a, old)
    assert a.tolist() == [1, 11, 3, 13]
    assert old.tolist() == [1, 2, 3, 2]


def test_compare_exchange_of_floats_compares_values() -> None:
    text = """\
kernel k(a: array<f32, 1>, e: array<f32, 1>, old: array<f32, 1>) grid (3):
    local i: i64
    local r: f32
    i = global_id(0)
    r = atomic.compare_exchange(a[i], e[i], 5.0f32)
    old[i] = r
"""
    a, e = np.array([-0.0, math.nan, 0.0], np.float32), np.array([0.0, math.nan, -0.0], np.float32)
    old = np.zeros(3, np.float32)
    launch(text, 1, a, e, old)
    assert all(map(same_value, a.tolist(), [5.0, math.nan, 5.0]))
    assert all(map(same_value, old.tolist(), [-0.0, math.nan, 0.0]))


def test_a_lock_free_maximum_by_compare_exchange_ends_and_is_right() -> None:
    text = f"""\
kernel k(x: array<i64, 1>, best: array<i64, 1>) grid ({THREADS}):
    local seen, now: i64
    seen = best[0]
    loop:
        if x[global_id(0)] <= seen:
            break
        now = atomic.compare_exchange(best[0], seen, x[global_id(0)])
        if now == seen:
            break
        seen = now
"""
    x = np.random.default_rng(1).integers(0, 1 << 40, NUM_BLOCKS * THREADS)
    best = np.zeros(1, np.int64)
    launch(text, NUM_BLOCKS, x, best)
    assert best[0] == x.max()


def test_threads_of_a_block_that_add_to_one_shared_cell_all_count() -> None:
    """A loop over the threads is not taken apart into lanes that would lose each other's sums."""
    text = f"""\
kernel k(x: array<i32, 1>, out: array<i32, 1>) grid ({THREADS}):
    shared own: i32[3]
    if local_id(0) < 3:
        own[local_id(0)] = 0i32
    barrier
    atomic.add(own[local_id(0) % 2], x[global_id(0)])
    own[2] = own[2] | own[0]
    barrier
    if local_id(0) < 2:
        out[block_id(0) * 2 + local_id(0)] = own[local_id(0)]
"""
    x = np.arange(4 * THREADS, dtype=np.int32)
    out = np.zeros(8, np.int32)
    launch(text, 4, x, out)
    assert out.tolist() == x.reshape(4, THREADS // 2, 2).sum(1).reshape(-1).tolist()


def test_atomics_work_over_an_extent_and_in_device_functions() -> None:
    text = """\
kernel k(x: array<u8, 1>, counts: array<u32, 1>) over (64):
    call count(&counts, i64(x[global_id(0)]))

func count(counts: array<u32, 1>, i: i64) -> ():
    atomic.add(counts[i], 1u32)
"""
    x = np.random.default_rng(2).integers(0, 255, 300_001).astype(np.uint8)
    counts = np.zeros(256, np.uint32)
    Built(module(text), CONTIGUOUS).over(len(x), x, counts)
    assert counts.tolist() == np.bincount(x, minlength=256).tolist()
