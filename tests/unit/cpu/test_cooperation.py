"""Threads that work together: programs against NumPy, and every kind of control round a barrier literally."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.cpu import programs
from tests.unit.cpu.harness import CONTIGUOUS, STRIDED, Built, lowered
from tests.unit.cpu.programs import module
from tests.unit.reference.builders import Interpreter

from quernel.errors import KernelSyntaxError, ValidationError
from quernel.ir.nodes import Module
from quernel.ir.semantics import same_value

RNG = np.random.default_rng(5)


def run(made: Module, grid: Any, *arguments: Any) -> None:
    Built(made, CONTIGUOUS).grid(grid, *arguments)


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 31, 64, 65, 1000, 4099])
@pytest.mark.parametrize("dtype", ["f32", "i64", "f64", "i32"])
def test_block_sums_are_those_of_numpy(size: int, dtype: str) -> None:
    kind = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32}[dtype]
    x = RNG.integers(-50, 50, size).astype(kind)
    blocks = -(-size // 64)
    out = np.zeros(blocks, kind)
    run(programs.reduction(64, dtype), blocks, x, out, size)
    assert out.tolist() == [x[first : first + 64].sum() for first in range(0, size, 64)]


@pytest.mark.parametrize("size", [1, 127, 128, 129, 1000])
def test_prefix_sums_are_those_of_numpy(size: int) -> None:
    x = RNG.integers(-50, 50, size).astype(np.int32)
    out = np.zeros_like(x)
    run(programs.prefix_sum(128), -(-size // 128), x, out, size)
    wanted = np.concatenate([np.cumsum(x[first : first + 128]) for first in range(0, size, 128)])
    assert out.tolist() == wanted.tolist()


@pytest.mark.parametrize("shape", [(1, 1), (16, 16), (17, 33), (100, 61), (3, 200)], ids=str)
@pytest.mark.parametrize("variant", [CONTIGUOUS, STRIDED], ids=["contiguous", "strided"])
def test_a_transpose_turns_the_matrix(shape: tuple[int, int], variant: Any) -> None:
    x = RNG.random(shape, np.float32)
    x = x if variant is CONTIGUOUS else np.asfortranarray(x)
    out = np.zeros(shape[::-1], np.float32)
    Built(programs.transpose(), variant).grid((-(-shape[0] // 16), -(-shape[1] // 16)), x, out)
    assert np.array_equal(out, x.T)


@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 16, 16), (33, 17, 45), (5, 100, 64)], ids=str)
def test_a_tiled_product_is_that_of_numpy(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    a = RNG.integers(-9, 9, (rows, inner)).astype(np.float32)
    b = RNG.integers(-9, 9, (inner, columns)).astype(np.float32)
    out = np.zeros((rows, columns), np.float32)
    run(programs.matmul(), (-(-rows // 16), -(-columns // 16)), a, b, out)
    assert np.array_equal(out, a @ b)


@pytest.mark.parametrize("size", [0, 1, 999, 100_003])
def test_a_histogram_counts_every_element(size: int) -> None:
    x = RNG.integers(0, 255, size).astype(np.uint8)
    counts = np.zeros(100, np.int32)
    run(programs.histogram(64, 100), 7, x, counts)
    assert counts.tolist() == np.bincount(x % 100, minlength=100).tolist()


@pytest.mark.parametrize("size", [1, 128, 200, 1000])
def test_bitonic_sort_sorts_each_block(size: int) -> None:
    x = RNG.random(size, np.float32)
    wanted = np.concatenate([np.sort(x[first : first + 128]) for first in range(0, size, 128)])
    run(programs.bitonic_sort(128), -(-size // 128), x)
    assert np.array_equal(x, wanted)


# --- control round barriers -------------------------------------------------------------------------------------------

ROTATE = """\
kernel k(out: array<i64, 2>, n: i64) grid (5):
    local l, value, trip: i64
    shared ring: i64[5]
    l = local_id(0)
    value = l * 10 + block_id(0)
"""
CONTROL = {
    "for": """\
    for trip in range(0, n, 1):
        ring[l] = value + trip
        barrier
        value = ring[(l + 1) % 5]
        barrier
""",
    "for downwards": """\
    for trip in range(n, -3, -2):
        ring[l] = value + trip
        barrier
        value = ring[(l + 1) % 5]
        barrier
    value = value + trip * 1000
""",
    "if": """\
    if (n + block_id(0)) % 2 == 0:
        ring[l] = value
        barrier
        value = ring[4 - l]
        barrier
    else:
        value = -value
    ring[l] = value
    barrier
    value = value + ring[(l + 2) % 5]
""",
    "loop with continue and break": """\
    trip = 0
    loop:
        trip = trip + 1
        if trip > n:
            break
        if trip % 2 == 0:
            continue
        ring[l] = value + trip
        barrier
        value = ring[(l + 1) % 5]
        barrier
""",
    "returns of the block": """\
    ring[l] = value
    barrier
    if block_id(0) == 1:
        out[block_id(0), l] = -1
        return
    value = ring[(l + 3) % 5]
    barrier
    ring[l] = value + 1
    barrier
    value = value + ring[0]
""",
    "a varying return after the last barrier": """\
    ring[l] = value
    barrier
    if l % 2 == 0:
        return
    value = ring[(l + 3) % 5] + 7
""",
    "a varying continue after the barrier of a trip": """\
    for trip in range(0, n, 1):
        barrier
        ring[l] = value
        barrier
        if (l + trip) % 3 == 0:
            continue
        value = value + ring[(l + 1) % 5]
""",
    "a barrier in both ways": """\
    if n > 3:
        ring[l] = value
        barrier
        value = ring[(l + 1) % 5]
    else:
        ring[4 - l] = value
        barrier
        value = ring[(l + 1) % 5] + 1
""",
    "nested loops": """\
    for trip in range(0, n, 1):
        loop:
            ring[l] = value + trip
            barrier
            value = ring[(l + 1) % 5] + 1
            if ring[0] % 7 < 4:
                break
            barrier
        barrier
""",
}


@pytest.mark.parametrize("name", CONTROL)
@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_control_round_barriers_means_what_the_interpreter_says(name: str, n: int) -> None:
    made = module(ROTATE + CONTROL[name] + "    out[block_id(0), l] = value\n")
    found, wanted = np.zeros((3, 5), np.int64), np.zeros((3, 5), np.int64)
    Interpreter().run(made, 3, wanted, n)
    run(made, 3, found, n)
    assert found.tolist() == wanted.tolist()


def test_a_rotation_by_three_gives_each_thread_its_third_neighbour() -> None:
    made = module(ROTATE + CONTROL["for"] + "    out[block_id(0), l] = value\n")
    out = np.zeros((1, 5), np.int64)
    run(made, 1, out, 3)
    assert out.tolist() == [[33, 43, 3, 13, 23]]


def test_private_values_of_every_type_survive_a_barrier() -> None:
    made = module("""\
struct Pair(a: f32 at 0, v: vec<f16, 2> at 4) size 8 align 4

kernel k(x: array<f64, 1>, out: array<f64, 2>) grid (6):
    local l: i64
    local flag: bool
    local small: i8
    local half: f16
    local brain: bf16
    local big: f64
    local v: vec<i32, 4>
    local p: struct<Pair>
    l = local_id(0)
    flag = x[l] > 0.0
    small = i8(x[l])
    half = f16(x[l])
    brain = bf16(x[l])
    big = x[l]
    v = vec<i32, 4>(i32(l), i32(l) * 2i32, i32(l) * 3i32, -1i32)
    p = struct<Pair>(f32(x[l]), vec<f16, 2>(f16(l), f16(x[l])))
    barrier
    out[l, 0] = f64(flag)
    out[l, 1] = f64(small)
    out[l, 2] = f64(half)
    out[l, 3] = f64(brain)
    out[l, 4] = big
    out[l, 5] = f64(v.2)
    out[l, 6] = f64(p.a) + f64(p.v.1)
""")
    x = np.array([-3.1, 0.0, 1.7, 100.3, -128.0, 2.5])
    out = np.zeros((6, 7))
    run(made, 1, x, out)
    assert out[:, 0].tolist() == [0, 0, 1, 1, 0, 1]
    assert out[:, 1].tolist() == [-3, 0, 1, 100, -128, 2]
    assert out[:, 2].tolist() == x.astype(np.float16).astype(float).tolist()
    assert out[:, 3].tolist() == [-3.09375, 0, 1.703125, 100.5, -128, 2.5]
    assert out[:, 4].tolist() == x.tolist()
    assert out[:, 5].tolist() == [0, 3, 6, 9, 12, 15]
    halves = x.astype(np.float32).astype(np.float16)
    assert out[:, 6].tolist() == (x.astype(np.float32).astype(float) + halves.astype(float)).tolist()


@pytest.mark.parametrize("block", ["7", "3, 5", "2, 3, 4"])
def test_private_arrays_survive_barriers_in_blocks_of_every_rank(block: str) -> None:
    sizes = [int(size) for size in block.split(",")]
    number = " + ".join(f"local_id({axis}) * {math.prod(sizes[axis + 1 :])}" for axis in range(len(sizes)))
    made = module(f"""\
kernel k(out: array<i64, 2>) grid ({block}):
    local t, i, total: i64
    private own: i32[3, 4]
    shared sums: i64[{math.prod(sizes)}]
    t = {number}
    for i in range(0, 12, 1):
        own[i // 4, i % 4] = i32(t * 100 + i)
    barrier
    total = 0
    for i in range(0, 12, 1):
        total = total + i64(own[i // 4, i % 4])
    own[0, 0] = 5i32
    sums[t] = total
    barrier
    out[t, 0] = sums[{math.prod(sizes) - 1} - t]
    out[t, 1] = i64(own[0, 0]) + i64(own[2, 3])
""")
    num_threads = math.prod(sizes)
    out = np.zeros((num_threads, 2), np.int64)
    run(made, (1,) * len(sizes), out)
    threads = np.arange(num_threads)
    assert out[:, 0].tolist() == (threads[::-1] * 1200 + 66).tolist()
    assert out[:, 1].tolist() == (5 + threads * 100 + 11).tolist()


def test_blocks_do_not_see_each_others_memory_on_any_number_of_cores() -> None:
    made = module("""\
kernel k(out: array<i64, 1>) grid (32):
    local i, total: i64
    shared own: i64[32]
    own[local_id(0)] = global_id(0)
    barrier
    total = 0
    for i in range(0, 32, 1):
        total = total + own[i]
    out[global_id(0)] = total
""")
    out = np.zeros(32 * 20_000, np.int64)
    built = Built(made, CONTIGUOUS)
    for _ in range(3):
        built.grid(20_000, out)
    blocks = np.arange(20_000, dtype=np.int64)
    assert np.array_equal(out, np.repeat(blocks * 1024 + 496, 32))


def test_a_promise_of_uniformity_is_read_from_the_first_thread() -> None:
    made = module("""\
kernel k(x: array<i64, 1>, out: array<i64, 1>) grid (4):
    local mine: i64
    shared own: i64[4]
    mine = x[local_id(0)]
    own[local_id(0)] = local_id(0)
    barrier
    if uniform(mine) == 3:
        barrier
        out[local_id(0)] = own[3 - local_id(0)]
""")
    out = np.zeros(4, np.int64)
    run(made, 1, np.full(4, 3), out)
    assert out.tolist() == [3, 2, 1, 0]


def test_a_function_with_a_barrier_becomes_part_of_its_caller() -> None:
    made = module("""\
kernel k(out: array<i64, 1>) grid (8):
    local r: i64
    r = call neighbour(local_id(0) * 3)
    r = call neighbour(r)
    out[global_id(0)] = r

func neighbour(x: i64) -> (i64):
    shared own: i64[8]
    own[local_id(0)] = x
    barrier
    return own[(local_id(0) + 1) % 8]
""")
    out = np.zeros(16, np.int64)
    run(made, 2, out)
    assert out.tolist() == [6, 9, 12, 15, 18, 21, 0, 3] * 2


def test_shared_memory_is_handed_to_device_functions() -> None:
    made = module("""\
kernel k(out: array<i32, 1>) grid (16):
    local old: i32
    shared own: i32[16]
    own[local_id(0)] = 0i32
    barrier
    old = call count(&own, local_id(0) % 2)
    barrier
    out[local_id(0)] = own[local_id(0)] * 100i32 + old

func count(a: array<i32, 1>, i: i64) -> (i32):
    local old: i32
    old = atomic.add(a[i], 1i32)
    return old
""")
    out = np.zeros(16, np.int32)
    run(made, 1, out)
    assert (out[:2] // 100).tolist() == [8, 8]
    assert sorted((out % 100).tolist()) == sorted([*range(8)] * 2)


def test_a_barrier_under_varying_control_is_refused() -> None:
    made = module("""\
kernel k(out: array<i64, 1>) grid (8):
    if local_id(0) < 4:
        barrier
""")
    with pytest.raises(KernelSyntaxError, match="barrier"):
        lowered(made)


def test_too_much_shared_memory_is_refused() -> None:
    made = module("""\
kernel k(out: array<i64, 1>) grid (8):
    shared own: i64[32769]
    own[local_id(0)] = 1
""")
    with pytest.raises(ValidationError, match=r"has 262208 bytes of shared memory; cpu:\S+ allows 262144"):
        lowered(made)


def test_more_than_threads_may_keep_across_barriers_is_refused() -> None:
    made = module("""\
kernel k(out: array<i64, 1>) grid (1024):
    private own: i64[16384]
    own[local_id(0)] = 1
    barrier
    out[local_id(0)] = own[local_id(0)]
""")
    with pytest.raises(ValidationError, match="keep 134217728 bytes across barriers"):
        lowered(made)


@pytest.mark.parametrize("line", ["barrier", "shared own: i64[4]"])
def test_over_has_neither_barriers_nor_shared_memory(line: str) -> None:
    use = "own[0]" if "own" in line else "1"
    made = module(f"kernel k(out: array<i64, 1>) over (8):\n    {line}\n    out[global_id(0)] = {use}\n")
    with pytest.raises(ValidationError, match="has no blocks") as refusal:
        lowered(made)
    assert refusal.value.fix == "launch it as kernel[qn.cdiv(extent, block), block]"


def test_the_header_says_what_a_launch_needs() -> None:
    header = Built(programs.reduction(64), CONTIGUOUS).header
    assert header.shared_bytes == 256
    assert header.features == ("scratch=256",)


def test_many_segments_become_functions_of_their_own() -> None:
    """LLVM's time grows with the square of a function's loops; what is passed on must still be the same."""
    steps = "".join(
        f"""\
    own[l, 0] = v
    kept[{step % 3}] = v
    barrier
    v = v + own[(l + {step}) % 6, 0] * scale + u
    u = u + x.shape[0] + block_id(0)
    total = total + kept[{(step + 1) % 3}]
    barrier
"""
        for step in range(40)
    )
    text = f"""\
kernel k(x: array<i64, 1>, out: array<i64, 2>, scale: i64) grid (6):
    local l, v, u, total: i64
    shared own: i64[6, 2]
    private kept: i64[3]
    l = local_id(0)
    v = x[l]
    u = scale
    total = 0
    kept[0] = 0
    kept[1] = 0
    kept[2] = 0
{steps}    out[global_id(0), 0] = v + u
    out[global_id(0), 1] = total
"""
    found, wanted = np.zeros((12, 2), np.int64), np.zeros((12, 2), np.int64)
    x = np.arange(6) * 7
    run(module(text), 2, x, found, 3)
    Interpreter().run(module(text), 2, x, wanted, 3)
    assert found.tolist() == wanted.tolist()
    assert "q.segment1" in lowered(module(text)).ir


def test_indices_are_worked_out_anew_and_not_kept() -> None:
    header = Built(programs.transpose(), CONTIGUOUS).header
    kept = [feature for feature in header.features if feature.startswith("scratch=")]
    assert kept == [f"scratch={-(-header.shared_bytes // 64) * 64}"]


# --- differential -----------------------------------------------------------------------------------------------------


def test_nans_and_zeros_pass_through_shared_memory_unchanged() -> None:
    made = module("""\
kernel k(x: array<f32, 1>, out: array<f32, 1>) grid (4):
    shared own: f32[4]
    own[local_id(0)] = x[local_id(0)]
    barrier
    out[local_id(0)] = own[3 - local_id(0)]
""")
    x = np.array([math.nan, -0.0, math.inf, 1e-45], np.float32)
    out = np.zeros(4, np.float32)
    run(made, 1, x, out)
    assert all(map(same_value, out.tolist(), x[::-1].tolist()))


def test_block_wide_control_may_read_a_private_array() -> None:
    made = module("""\
kernel k(x: array<i64, 1>, out: array<i64, 1>) grid (4):
    private own: i64[2]
    shared all: i64[4]
    own[1] = x[0]
    all[local_id(0)] = local_id(0)
    if uniform(own[1]) == 3:
        barrier
        out[local_id(0)] = all[3 - local_id(0)]
""")
    out = np.zeros(4, np.int64)
    run(made, 1, np.full(4, 3), out)
    assert out.tolist() == [3, 2, 1, 0]
