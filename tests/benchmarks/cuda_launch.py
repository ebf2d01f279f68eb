"""Host time of one launch of three arrays and two scalars, beside peers, in turns. Prints µs: median and spread.

    python tests/benchmarks/cuda_launch.py [--rounds N]

The floor is C's: `cuLaunchKernel` in a loop of a small library that is compiled here where there is a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import quernel as qn

LAUNCHES = 2000
SIZE = 1024


@qn.kernel
def combine(a: qn.Array1[qn.f32], b: qn.Array1[qn.f32], c: qn.Array1[qn.f32], s: qn.f32, n: qn.i32):
    i = qn.global_id()
    if i < n:
        c[i] = a[i] + s * b[i]


SOURCE = """
extern "C" __global__ void combine(const float *a, const float *b, float *c, float s, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + s * b[i];
}
"""

FLOOR = """
typedef unsigned u;
typedef int (*launch_t)(void *, u, u, u, u, u, u, u, void *, void **, void **);
int floor_loop(launch_t launch, void *function, void *stream, void **arguments, int count)
{
    int status = 0;
    for (int i = 0; i < count && !status; i++)
        status = launch(function, 4, 1, 1, 256, 1, 1, 0, stream, arguments, 0);
    return status;
}
"""

Launch = Callable[[], object]


def c_floor(gpu: Any, arrays: list[Any]) -> Callable[[int], None]:
    """A loop of launches in C; gives a function that runs it."""
    from cuda.bindings import driver, nvrtc

    from quernel_cuda import _toolchain

    compiled = _toolchain.compile_text(SOURCE, (f"--gpu-architecture={gpu.target_info.name}",), "combine")
    assert nvrtc is not None
    device = driver.cuDeviceGet(gpu.info.index)[1]
    context = driver.cuDevicePrimaryCtxRetain(device)[1]
    driver.cuCtxSetCurrent(context)
    module = driver.cuModuleLoadData(compiled.payload)[1]
    function = driver.cuModuleGetFunction(module, b"combine")[1]
    stream = driver.cuStreamCreate(0)[1]
    folder = Path(tempfile.mkdtemp(prefix="quernel-floor-"))
    (folder / "floor.c").write_text(FLOOR)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "floor.so", folder / "floor.c"], check=True)
    loop = ctypes.CDLL(str(folder / "floor.so")).floor_loop
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    values = [*(ctypes.c_uint64(a) for a in arrays), ctypes.c_float(0.5), ctypes.c_int(SIZE)]
    pointers = (ctypes.c_void_p * 5)(*(ctypes.addressof(value) for value in values))

    def run(count: int) -> None:
        status = loop(
            ctypes.cast(launch, ctypes.c_void_p),
            ctypes.c_void_p(int(function)),
            ctypes.c_void_p(int(stream)),
            pointers,
            count,
        )
        assert not status, status
        assert values

    return run


def ours(gpu: Any) -> tuple[dict[str, Launch], list[int]]:
    a, b, c = (gpu.full(SIZE, 1.0, qn.f32) for _ in range(3))
    combine[4, 256](a, b, c, 0.5, SIZE)
    gpu.synchronize()
    assert np.array_equal(c.numpy(), np.full(SIZE, 1.5, np.float32))
    bound = combine[4, 256].bind(a, b, c, 0.5, SIZE)
    launcher = combine[4, 256]
    over = combine.over(SIZE)
    addresses = [array._allocation.memory.address for array in (a, b, c)]
    return {
        "quernel kernel[grid, block](…)": lambda: combine[4, 256](a, b, c, 0.5, SIZE),
        "quernel kept launcher(…)": lambda: launcher(a, b, c, 0.5, SIZE),
        "quernel kernel.over(n)(…)": lambda: combine.over(SIZE)(a, b, c, 0.5, SIZE),
        "quernel kept over(…)": lambda: over(a, b, c, 0.5, SIZE),
        "quernel bind()": bound,
    }, addresses


def of_cupy() -> dict[str, Launch]:
    import cupy

    kernel = cupy.RawKernel(SOURCE, "combine")
    a, b, c = (cupy.ones(SIZE, cupy.float32) for _ in range(3))
    s, n = np.float32(0.5), np.int32(SIZE)
    return {"CuPy RawKernel": lambda: kernel((4,), (256,), (a, b, c, s, n))}


def of_torch() -> dict[str, Launch]:
    import torch

    a, b, c = (torch.ones(SIZE, device="cuda") for _ in range(3))
    return {"PyTorch add(out=)": lambda: torch.add(a, b, alpha=0.5, out=c)}


def of_triton() -> dict[str, Launch]:
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(a, b, c, s, n, SIZE: tl.constexpr):
        i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        inside = i < n
        tl.store(c + i, tl.load(a + i, mask=inside) + s * tl.load(b + i, mask=inside), mask=inside)

    a, b, c = (torch.ones(SIZE, device="cuda") for _ in range(3))
    return {"Triton kernel[grid](…)": lambda: add[(4,)](a, b, c, 0.5, SIZE, SIZE=256)}


def of_numba() -> dict[str, Launch]:
    from numba import cuda

    @cuda.jit
    def add(a, b, c, s, n):
        i = cuda.grid(1)
        if i < n:
            c[i] = a[i] + s * b[i]

    a, b, c = (cuda.to_device(np.ones(SIZE, np.float32)) for _ in range(3))
    return {"numba-cuda kernel[grid, block](…)": lambda: add[4, 256](a, b, c, np.float32(0.5), SIZE)}


def of_jax() -> dict[str, Launch]:
    import jax

    add = jax.jit(lambda a, b: a + 0.5 * b)
    a, b = (jax.numpy.ones(SIZE, jax.numpy.float32) for _ in range(2))
    return {"JAX jit(…)": lambda: add(a, b)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    gpu = qn.device("cuda")
    contests, addresses = ours(gpu)
    for make in (of_cupy, of_torch, of_triton, of_numba, of_jax):
        try:
            made = make()
            next(iter(made.values()))()
            contests |= made
        except Exception as error:
            print(f"{make.__name__[3:]}: not measured ({type(error).__name__}: {str(error)[:100]})")
    try:
        floor = c_floor(gpu, addresses)
    except Exception as error:
        print(f"C floor: not measured ({type(error).__name__}: {str(error)[:200]})")
        floor = None
    times: dict[str, list[float]] = {name: [] for name in contests}
    bottom: list[float] = []
    for _ in range(rounds):
        if floor is not None:
            gpu.synchronize()
            started = time.perf_counter()
            floor(LAUNCHES // 4)
            bottom.append((time.perf_counter() - started) / (LAUNCHES // 4) * 1e6)
        for name, launch in contests.items():
            for _ in range(20):
                launch()
            gpu.synchronize()
            count = LAUNCHES // 4
            started = time.perf_counter()
            for _ in range(count):
                launch()
            times[name].append((time.perf_counter() - started) / count * 1e6)
            gpu.synchronize()
    base = statistics.median(bottom) if bottom else None
    if base is not None:
        print(f"{'C cuLaunchKernel':36} {base:7.2f} ({min(bottom):.2f} .. {max(bottom):.2f})")
    for name, taken in times.items():
        ratio = f"   {statistics.median(taken) / base:5.2f} x C" if base else ""
        print(f"{name:36} {statistics.median(taken):7.2f} ({min(taken):.2f} .. {max(taken):.2f}){ratio}")


if __name__ == "__main__":
    main()
