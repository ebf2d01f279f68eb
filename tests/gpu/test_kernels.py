"""What CUDA alone does with kernels: rows of blocks, several points, warps, shared memory, fast mathematics."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest

import quernel as qn


@qn.kernel
def saxpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def shifted(x: qn.Array2[qn.f64], y: qn.Array2[qn.f64]):
    i, j = qn.global_id()
    y[i, j] = x[i, j] + i * 1000 + j


@qn.kernel
def marked(y: qn.Array3[qn.i64]):
    i, j, k = qn.global_id()
    y[i, j, k] = (i * 1000 + j) * 1000 + k


@pytest.mark.parametrize("several", ["0", "1"])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 255, 256, 257, 1023, 1024, 1025, 100_003])
def test_every_point_runs_once(gpu: Any, monkeypatch: pytest.MonkeyPatch, several: str, length: int) -> None:
    monkeypatch.setenv("QUERNEL_SEVERAL_POINTS", several)
    fresh = saxpy.options(block=64 if several == "0" else 128)
    x = np.arange(length, dtype=np.float32)
    gx, gy = gpu.array(x), gpu.full(length + 8, 1.0, qn.f32)
    fresh.over(length)(2.0, gx, gy)
    found = gy.numpy()
    assert np.array_equal(found[:length], 2 * x + 1)
    assert np.array_equal(found[length:], np.ones(8, np.float32))


@qn.kernel
def summed_inside(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    if i == 0 or i == y.shape[0] - 1:
        return
    total = qn.f32(0)
    for k in range(3):
        total += x[i - 1 + k]
        if total > 10.0:
            break
    y[i] = total


@pytest.mark.parametrize("several", ["0", "1"])
@pytest.mark.parametrize("length", [1, 2, 5, 256, 257, 1023, 1024, 1025, 100_003])
def test_points_whose_threads_return_leave_the_others_alone(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, several: str, length: int
) -> None:
    monkeypatch.setenv("QUERNEL_SEVERAL_POINTS", several)
    fresh = summed_inside.options(block=128 if several == "0" else 256)
    x = np.random.default_rng(length).integers(0, 8, length).astype(np.float32)
    gy = gpu.full(length + 8, -1.0, qn.f32)
    fresh.over(length)(gpu.array(x), gy[:length])
    expected = np.full(length + 8, -1.0, np.float32)
    for i in range(1, length - 1):
        first, second = x[i - 1], x[i - 1] + x[i]
        expected[i] = first if first > 10 else second if second > 10 else second + x[i + 1]
    assert np.array_equal(gy.numpy(), expected)


def test_a_range_starts_where_it_says(gpu: Any) -> None:
    gx, gy = gpu.full(100, 1.0, qn.f32), gpu.zeros(100, qn.f32)
    saxpy.over(range(7, 31))(3.0, gx, gy)
    expected = np.zeros(100, np.float32)
    expected[7:31] = 3
    assert np.array_equal(gy.numpy(), expected)


@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (9, 128), (3, 130), (600_000, 3)])
def test_rows_of_blocks_cover_two_axes(gpu: Any, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).random(shape)
    gy = gpu.zeros(shape, qn.f64)
    shifted.over(shape)(gpu.array(x), gy)
    i, j = np.ogrid[: shape[0], : shape[1]]
    assert np.array_equal(gy.numpy(), x + i * 1000 + j)


@pytest.mark.parametrize("shape", [(2, 3, 5), (5, 9, 33), (140_000, 2, 3)])
def test_rows_of_blocks_cover_three_axes(gpu: Any, shape: tuple[int, int, int]) -> None:
    gy = gpu.zeros(shape, qn.i64)
    marked.over(shape)(gy)
    i, j, k = np.ogrid[: shape[0], : shape[1], : shape[2]]
    assert np.array_equal(gy.numpy(), (i * 1000 + j) * 1000 + k)


def test_strided_and_unaligned_arrays(gpu: Any) -> None:
    base = np.arange(401, dtype=np.float32)
    gx, gy = gpu.array(base), gpu.zeros(401, qn.f32)
    saxpy.over(100)(1.0, gx[1:101], gy[3:103])
    saxpy.over(50)(1.0, gx[::2], gy[201:301:2])
    expected = np.zeros(401, np.float32)
    expected[3:103] = base[1:101]
    expected[201:301:2] += base[:100:2]
    assert np.array_equal(gy.numpy(), expected)


@qn.kernel
def of_warps(x: qn.Array1[qn.i32], out: qn.Array2[qn.i64]):
    t = qn.local_id()
    v = x[t]
    out[0, t] = qn.subgroup.shuffle(v, 3)
    out[1, t] = qn.subgroup.shuffle_xor(v, 1)
    out[2, t] = qn.subgroup.shuffle_up(v, 2)
    out[3, t] = qn.subgroup.shuffle_down(v, 2)
    out[4, t] = qn.subgroup.sum(v)
    out[5, t] = qn.subgroup.min(v)
    out[6, t] = qn.subgroup.max(v)
    out[7, t] = qn.subgroup.scan(v)
    out[8, t] = qn.subgroup.broadcast(v, 5)


@pytest.mark.parametrize("block", [32, 64, 70, 100])
def test_warps_do_as_the_reference_says(gpu: Any, block: int) -> None:
    x = np.random.default_rng(2).integers(-1000, 1000, block).astype(np.int32)
    out = gpu.zeros((9, block), qn.i64)
    of_warps[1, block](gpu.array(x), out)
    found = out.numpy()
    for first in range(0, block, 32):
        v = x[first : first + 32].astype(np.int64)
        n, lane = len(v), np.arange(len(v))

        def taken(wanted: np.ndarray, v: np.ndarray = v, n: int = n, lane: np.ndarray = lane) -> np.ndarray:
            return np.where((wanted >= 0) & (wanted < n), v[np.clip(wanted, 0, n - 1)], v[lane])

        expected = [
            taken(np.full(n, 3)),
            taken(lane ^ 1),
            taken(lane - 2),
            taken(lane + 2),
            np.full(n, v.sum()),
            np.full(n, v.min()),
            np.full(n, v.max()),
            np.cumsum(v),
            taken(np.full(n, 5)),
        ]
        for row, wanted in enumerate(expected):
            assert np.array_equal(found[row, first : first + n], wanted), f"operation {row}"


@qn.kernel
def large_shared(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    a = qn.shared(20_000, qn.f32)
    b = qn.shared(20_000, qn.u8)
    t = qn.local_id()
    a[19_999 - t] = x[t]
    b[19_999 - t] = qn.u8(t)
    qn.barrier()
    y[t] = a[19_999 - (255 - t)] + qn.f32(b[19_999 - t])


def test_more_than_48_kib_of_shared_memory(gpu: Any) -> None:
    x = np.arange(256, dtype=np.float32)
    gy = gpu.zeros(256, qn.f32)
    large_shared[1, 256](gpu.array(x), gy)
    assert np.array_equal(gy.numpy(), x[::-1] + x)


@qn.kernel
def counted(total: qn.Array1[qn.i32], largest: qn.Array1[qn.u64], real: qn.Array1[qn.f64]):
    i = qn.global_id()
    qn.atomic.add(total, 0, 1)
    qn.atomic.max(largest, 0, qn.u64(i))
    qn.atomic.add(real, 0, 0.5)


def test_atomics_lose_nothing(gpu: Any) -> None:
    total, largest, real = gpu.zeros(1, qn.i32), gpu.zeros(1, qn.u64), gpu.zeros(1, qn.f64)
    counted.over(100_000)(total, largest, real)
    assert (total.numpy()[0], largest.numpy()[0], real.numpy()[0]) == (100_000, 99_999, 50_000.0)


@qn.kernel(fast_math=True)
def powers(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = x[i] ** qn.f32(3)


def test_fast_mathematics_keeps_powers_of_negative_numbers(gpu: Any) -> None:
    x = np.array([-2.0, -0.5, 3.0], np.float32)
    gy = gpu.zeros(3, qn.f32)
    powers.over(3)(gpu.array(x), gy)
    assert np.allclose(gy.numpy(), x**3, rtol=1e-5)


@qn.kernel
def roots(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = math.sqrt(x[i]) / x[i] + math.sin(x[i])


def test_mathematics_is_precise_unless_asked_otherwise(gpu: Any) -> None:
    x = np.random.default_rng(3).random(10_000).astype(np.float32) * 100 + 1e-3
    gy = gpu.zeros(10_000, qn.f32)
    roots.over(10_000)(gpu.array(x), gy)
    wide = x.astype(np.float64)
    assert np.abs(gy.numpy() - (np.sqrt(wide) / wide + np.sin(wide))).max() < 4e-6


@qn.kernel
def beyond(x: qn.Array1[qn.f32]):
    i = qn.global_id()
    x[i + 1] = 1.0


def test_a_checked_launch_names_the_line(gpu: Any) -> None:
    x = gpu.zeros(100, qn.f32)
    with pytest.raises(IndexError, match="index 100 is outside"):
        beyond.options(checked=True).over(100)(x)
    assert x.numpy()[1:].sum() == 99


@qn.kernel
def talking(x: qn.Array1[qn.i32]):
    i = qn.global_id()
    print(i, x[i])


def test_prints_are_shown_when_the_device_is_waited_for(gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    talking.over(3)(gpu.array(np.array([7, 8, 9], np.int32)))
    gpu.synchronize()
    assert capsys.readouterr().out == "0 7\n1 8\n2 9\n"


def test_threads_launch_one_kernel_with_values_of_their_own(gpu: Any) -> None:
    """The cells of arguments are each thread's own; shared ones would mix the values up."""
    arrays = [(gpu.full(1000, 1.0, qn.f32), gpu.zeros(1000, qn.f32)) for _ in range(8)]
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        x, y = arrays[number]
        launcher = saxpy.over(1000)
        for _ in range(500):
            launcher(float(number + 1), x, y)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (_, y) in enumerate(arrays):
        assert np.array_equal(y.numpy(), np.full(1000, 500.0 * (number + 1), np.float32))


def test_an_own_source_is_launched(gpu: Any) -> None:
    text = """
    template <typename T> __global__ void scaled(
        T a, const T *x, long long n, long long sx, T *y, long long m, long long sy)
    {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < n) y[i * sy] = a * x[i * sx];
    }
    """
    params = {"a": qn.f32, "x": qn.Array1[qn.f32], "y": qn.Array1[qn.f32]}
    scaled = qn.source_kernel("cuda-c++", text, entry="scaled<float>", params=params, writes=["y"])
    x = np.arange(100, dtype=np.float32)
    gy = gpu.zeros(100, qn.f32)
    scaled[1, 128](2.0, gpu.array(x), gy)
    assert np.array_equal(gy.numpy(), 2 * x)


def test_a_ready_made_source_runs_unchanged(gpu: Any) -> None:
    text = """
    extern "C" __global__ void saxpy(float a, const float *x, float *y, long long n)
    {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < n) y[i] = a * x[i] + y[i];
    }
    """
    params = {"a": qn.f32, "x": qn.Array[qn.f32], "y": qn.Array[qn.f32], "n": qn.i64}
    kernel = qn.source_kernel("cuda-c++", text, entry="saxpy", params=params, writes=["y"])
    for shape in ((1000,), (10, 100)):
        x, y = np.arange(1000, dtype=np.float32).reshape(shape), gpu.full(shape, 1.0, qn.f32)
        for _ in range(3):
            kernel[qn.cdiv(1000, 128), 128](2.0, gpu.array(x), y, 1000)
        assert np.array_equal(y.numpy(), 6 * x + 1)
    with pytest.raises(qn.errors.LaunchError, match="not C-contiguous"):
        kernel[1, 128](2.0, gpu.zeros((10, 10), qn.f32)[:, ::2], y, 50)


def test_statistics_say_registers_and_spills(gpu: Any) -> None:
    made = saxpy.options(device="cuda").specialize()
    assert made.registers > 0
    assert made.spills == 0
    assert "saxpy" in made.asm
