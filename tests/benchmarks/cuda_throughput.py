"""Throughput on one GPU beside peers, on the same buffers where they can be lent, in turns. Prints medians and spread.

    python tests/benchmarks/cuda_throughput.py [--rounds N] [--only NAME]

Results are checked before anything is timed. Times are the device's own, between two events.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import quernel as qn

Action = Callable[[], object]
N = 1 << 28
SIDE = 8192
MATRIX = 4096
float4 = qn.vec(qn.f32, 4)


@qn.kernel
def saxpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def copied(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = x[i]


@qn.kernel(block=256)
def block_sum(x: qn.Array1[qn.vec(qn.f32, 4)], out: qn.Array1[qn.f32]):
    a = qn.f32(0)
    b = qn.f32(0)
    for i in range(qn.global_id(), x.shape[0], qn.global_dim()):
        v = x[i]
        a += v.x + v.y
        b += v.z + v.w
    total = qn.block.sum(a + b)
    if qn.local_id() == 0:
        qn.atomic.add(out, 0, total)


@qn.kernel(block=(8, 32))
def transposed(x: qn.Array2[qn.f32], y: qn.Array2[qn.f32]):
    tile = qn.shared((32, 33), qn.f32)
    by, bx = qn.block_id()
    ty, tx = qn.local_id()
    for k in qn.unroll(range(4)):
        tile[ty + 8 * k, tx] = x[by * 32 + ty + 8 * k, bx * 32 + tx]
    qn.barrier()
    for k in qn.unroll(range(4)):
        y[bx * 32 + ty + 8 * k, by * 32 + tx] = tile[tx, ty + 8 * k]


@qn.kernel(block=(32, 32))
def shared_sgemm(a: qn.Array2[qn.f32], b: qn.Array2[qn.f32], c: qn.Array2[qn.f32], n: int):
    ta = qn.shared((32, 32), qn.f32)
    tb = qn.shared((32, 32), qn.f32)
    row, column = qn.global_id()
    ty, tx = qn.local_id()
    acc = qn.f32(0)
    for start in range(0, n, 32):
        ta[ty, tx] = a[row, start + tx]
        tb[ty, tx] = b[start + ty, column]
        qn.barrier()
        for k in qn.unroll(range(32)):
            acc += ta[ty, k] * tb[k, tx]
        qn.barrier()
    c[row, column] = acc


@qn.kernel(block=256)
def blocked_sgemm(a: qn.Array2[float4], b: qn.Array2[float4], c: qn.Array2[float4], n: int):
    """Each block makes 128 x 128 elements, each thread 8 x 8 of them, eight columns of `a` at a time.

    The next eight columns are asked for before the ones at hand are multiplied.
    """
    ta = qn.shared((8, 132), qn.f32)
    tb = qn.shared((8, 32), float4)
    ra = qn.private(8, qn.f32)
    rb = qn.private(8, qn.f32)
    acc = qn.private(64, qn.f32)
    t = qn.local_id()
    blocks = n // 128
    by = qn.block_id() // blocks * 128
    bx = qn.block_id() % blocks * 32
    ty = t // 16
    tx = t % 16
    for k in qn.unroll(range(64)):
        acc[k] = 0.0
    va = a[by + t // 2, t % 2]
    vb = b[t // 32, bx + t % 32]
    for start in range(8, n + 8, 8):
        for i in qn.unroll(range(4)):
            ta[t % 2 * 4 + i, t // 2] = va[i]
        tb[t // 32, t % 32] = vb
        qn.barrier()
        if start < n:
            va = a[by + t // 2, start // 4 + t % 2]
            vb = b[start + t // 32, bx + t % 32]
        for k in qn.unroll(range(8)):
            left = tb[k, tx]
            right = tb[k, 16 + tx]
            for i in qn.unroll(range(4)):
                ra[i] = ta[k, ty * 4 + i]
                ra[i + 4] = ta[k, 64 + ty * 4 + i]
                rb[i] = left[i]
                rb[i + 4] = right[i]
            for i in qn.unroll(range(8)):
                for j in qn.unroll(range(8)):
                    acc[i * 8 + j] = acc[i * 8 + j] + ra[i] * rb[j]
        qn.barrier()
    for i in qn.unroll(range(8)):
        for j in qn.unroll(range(2)):
            o = i * 8 + j * 4
            made = float4(acc[o], acc[o + 1], acc[o + 2], acc[o + 3])
            c[by + i // 4 * 64 + ty * 4 + i % 4, bx + j * 16 + tx] = made


class Timer:
    """Times work by events of the stream that everyone here is made to use: the legacy one, and ours behind it."""

    def __init__(self, gpu: Any) -> None:
        from cuda.bindings import driver

        self.gpu, self.driver = gpu, driver
        driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(gpu.info.index)[1])[1])
        self.events = [driver.cuEventCreate(0)[1] for _ in range(2)]

    def seconds(self, action: Action, times: int) -> float:
        self.gpu.synchronize()
        self.driver.cuEventRecord(self.events[0], 0)
        for _ in range(times):
            action()
        self.driver.cuEventRecord(self.events[1], 0)
        self.driver.cuEventSynchronize(self.events[1])
        self.gpu.synchronize()
        status, milliseconds = self.driver.cuEventElapsedTime(*self.events)
        assert not int(status), status
        return float(milliseconds) / 1e3 / times


def peer(name: str, make: Callable[[], Action]) -> dict[str, Action]:
    try:
        action = make()
        action()
        return {name: action}
    except Exception as error:
        print(f"  {name}: not measured ({type(error).__name__}: {str(error)[:120]})")
        return {}


def single_points(kernel: Any) -> Any:
    """The kernel with one point per thread, whatever the default is."""
    return kernel.options(block=256)


def saxpy_contest(gpu: Any) -> tuple[dict[str, Action], float, str]:
    x, y, z = gpu.full(N, 1.0, qn.f32), gpu.full(N, 2.0, qn.f32), gpu.zeros(N, qn.f32)
    saxpy.over(N)(3.0, x, y)
    assert y[:1000].numpy().tolist() == [5.0] * 1000
    assert y[N - 3 :].numpy().tolist() == [5.0] * 3
    actions: dict[str, Action] = {
        "copy by the driver (2/3 of the bytes)": lambda: z.copy_from(x),
        "quernel copy, over": lambda: copied.over(N)(x, z),
        "quernel saxpy, over": lambda: saxpy.over(N)(3.0, x, y),
    }
    one = single_points(saxpy)
    os.environ["QUERNEL_SEVERAL_POINTS"] = "0"
    one.over(N)(3.0, x, y)
    del os.environ["QUERNEL_SEVERAL_POINTS"]
    actions["quernel saxpy, one point per thread"] = lambda: one.over(N)(3.0, x, y)

    def cupy_action() -> Action:
        import cupy

        kernel = cupy.RawKernel(
            'extern "C" __global__ void s(float a, const float *x, float *y, long long n)'
            "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }",
            "s",
        )
        a, b = cupy.ones(N, cupy.float32), cupy.ones(N, cupy.float32)
        return lambda: kernel((N // 256,), (256,), (np.float32(3), a, b, np.int64(N)))

    def triton_action() -> Action:
        import torch
        import triton
        import triton.language as tl

        @triton.jit
        def s(a, x, y, n, SIZE: tl.constexpr):
            i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
            inside = i < n
            tl.store(y + i, a * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)

        p, q = torch.ones(N, device="cuda"), torch.ones(N, device="cuda")
        return lambda: s[(N // 1024,)](3.0, p, q, N, SIZE=1024)

    def torch_action() -> Action:
        import torch

        p, q = torch.ones(N, device="cuda"), torch.ones(N, device="cuda")
        return lambda: torch.add(q, p, alpha=3.0, out=q)

    def numba_action() -> Action:
        from numba import cuda

        @cuda.jit
        def s(a, x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] = a * x[i] + y[i]

        p, q = cuda.to_device(np.ones(N, np.float32)), cuda.to_device(np.ones(N, np.float32))
        return lambda: s[N // 256, 256](np.float32(3), p, q)

    for name, make in (
        ("CuPy RawKernel, one element per thread", cupy_action),
        ("Triton", triton_action),
        ("PyTorch add", torch_action),
        ("numba-cuda", numba_action),
    ):
        actions |= peer(name, make)
    return actions, 12.0 * N / 1e9, "GB/s"


def sum_contest(gpu: Any) -> tuple[dict[str, Action], float, str]:
    x, out = gpu.full(N, 0.5, qn.f32), gpu.zeros(1, qn.f32)
    vectors = x.reshape(N // 4, 4)
    grid = 132 * 32
    block_sum[grid](vectors, out)
    assert abs(out.numpy()[0] / (N * 0.5) - 1) < 1e-4
    actions: dict[str, Action] = {"quernel block sum": lambda: block_sum[grid](vectors, out)}

    def cupy_action() -> Action:
        import cupy

        a = cupy.ones(N, cupy.float32)
        return lambda: a.sum()

    def torch_action() -> Action:
        import torch

        a = torch.ones(N, device="cuda")
        return lambda: a.sum()

    actions |= peer("CuPy sum", cupy_action) | peer("PyTorch sum", torch_action)
    return actions, 4.0 * N / 1e9, "GB/s"


def transpose_contest(gpu: Any) -> tuple[dict[str, Action], float, str]:
    host = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
    x, y = gpu.array(host), gpu.zeros((SIDE, SIDE), qn.f32)
    grid = (SIDE // 32, SIDE // 32)
    transposed[grid, (8, 32)](x, y)
    assert np.array_equal(y.numpy(), host.T)
    actions: dict[str, Action] = {
        "copy by the driver": lambda: y.copy_from(x),
        "quernel transpose": lambda: transposed[grid, (8, 32)](x, y),
    }

    def torch_action() -> Action:
        import torch

        a, b = torch.ones((SIDE, SIDE), device="cuda"), torch.ones((SIDE, SIDE), device="cuda")
        return lambda: b.copy_(a.t())

    actions |= peer("PyTorch copy_(x.t())", torch_action)
    return actions, 8.0 * SIDE * SIDE / 1e9, "GB/s"


def sgemm_contest(gpu: Any) -> tuple[dict[str, Action], float, str]:
    n = MATRIX
    rng = np.random.default_rng(1)
    ha, hb = rng.random((n, n), np.float32), rng.random((n, n), np.float32)
    a, b, c = gpu.array(ha), gpu.array(hb), gpu.zeros((n, n), qn.f32)
    expected = ha[:64].astype(np.float64) @ hb
    shared = (n // 32, n // 32)
    blocked = (n // 128) ** 2
    va, vb, vc = (array.reshape(n, n // 4, 4) for array in (a, b, c))
    actions: dict[str, Action] = {
        "quernel shared 32 x 32": lambda: shared_sgemm[shared, (32, 32)](a, b, c, n),
        "quernel 128 x 128, 8 x 8 per thread": lambda: blocked_sgemm[blocked, 256](va, vb, vc, n),
    }
    for name, action in actions.items():
        c.fill(0)
        action()
        worst = np.abs(c[:64].numpy() / expected - 1).max()
        assert worst < 1e-4, f"{name} is wrong by {worst}"
        assert c[n - 1 :].numpy().min() > 0

    def torch_action() -> Action:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        p, q = torch.ones((n, n), device="cuda"), torch.ones((n, n), device="cuda")
        r = torch.empty((n, n), device="cuda")
        return lambda: torch.matmul(p, q, out=r)

    actions |= peer("cuBLAS through PyTorch", torch_action)
    return actions, 2.0 * n**3 / 1e12, "TFLOP/s"


CONTESTS = {"saxpy": saxpy_contest, "sum": sum_contest, "transpose": transpose_contest, "sgemm": sgemm_contest}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", choices=sorted(CONTESTS))
    options = parser.parse_args()
    gpu = qn.device("cuda")
    timer = Timer(gpu)
    for name, contest in CONTESTS.items():
        if options.only not in (None, name):
            continue
        print(f"{name}:", flush=True)
        try:
            actions, work, unit = contest(gpu)
        except Exception as error:
            print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
            continue
        times: dict[str, list[float]] = {action: [] for action in actions}
        for _ in range(options.rounds):
            for label, action in actions.items():
                timer.seconds(action, 1)
                times[label].append(timer.seconds(action, 5))
        for label, taken in times.items():
            rates = sorted(work / seconds for seconds in taken)
            if "2/3" in label or "copy, over" in label:
                rates = [rate * 2 / 3 for rate in rates]
            print(
                f"  {label:40} {statistics.median(rates):9.1f} {unit} ({rates[0]:.1f} .. {rates[-1]:.1f})", flush=True
            )


if __name__ == "__main__":
    main()
