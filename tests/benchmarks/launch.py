"""Host time of one small launch on the CPU and through OpenCL, beside numba and pyopencl, in turns. Prints µs.

    python tests/benchmarks/launch.py [--rounds N] [--size N] [--only cpu|opencl]

Each program runs the same saxpy on the same buffers; results are compared before anything is timed. Medians, and in
brackets the least and greatest round; the ratio is the median of the rounds' own ratios to the peer's time (below 1:
Quernel is quicker).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import quernel as qn

LAUNCHES = 400


@qn.kernel
def saxpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def combine(a: qn.Array1[qn.f32], b: qn.Array1[qn.f32], c: qn.Array1[qn.f32], s: qn.f32, n: qn.i32):
    i = qn.global_id()
    if i < n:
        c[i] = a[i] + s * b[i]


Launch = Callable[[], object]


def on_cpu(size: int) -> tuple[str, dict[str, Launch]]:
    """Programs on NumPy arrays, and the peer's name."""
    x, y = np.ones(size, np.float32), np.zeros(size, np.float32)
    cpu = qn.device("cpu")
    shared_x, shared_y = cpu.asarray(x), cpu.asarray(y)
    launcher = saxpy.over(size)
    for _ in range(4):
        launcher(2.0, x, y)
        launcher(2.0, shared_x, shared_y)
    assert y.tolist() == [16.0] * size
    programs: dict[str, Launch] = {
        "quernel kernel.over(n)(a, x, y)": lambda: saxpy.over(size)(2.0, x, y),
        "quernel kept over(…)": lambda: launcher(2.0, x, y),
        "quernel kept over(…), device arrays": lambda: launcher(2.0, shared_x, shared_y),
        "quernel bind()": launcher.bind(2.0, x, y),
    }
    try:
        import numba
    except ImportError:
        print("numba: not installed")
        return "", programs

    def plain(a: Any, x: Any, y: Any) -> None:
        for i in range(x.shape[0]):
            y[i] = a * x[i] + y[i]

    def spread(a: Any, x: Any, y: Any) -> None:
        for i in numba.prange(x.shape[0]):
            y[i] = a * x[i] + y[i]

    alone, parallel = numba.njit(plain), numba.njit(parallel=True)(spread)
    number = np.float32(2.0)
    y[:] = 0.0
    alone(number, x, y)
    parallel(number, x, y)
    assert y.tolist() == [4.0] * size
    programs["numba prange"] = lambda: parallel(number, x, y)
    programs["numba njit"] = lambda: alone(number, x, y)
    return "numba prange", programs


def on_opencl(size: int) -> tuple[str, dict[str, Launch]]:
    """Launches that nobody waits for, as a queue takes them; the queue is emptied between rounds."""
    import pyopencl as cl

    device = qn.device("opencl")
    a, b, c = (device.full(size, 1.0, qn.f32) for _ in range(3))
    grid = -(-size // 256)
    for _ in range(4):
        combine[grid, 256](a, b, c, 0.5, size)
    assert c.numpy().tolist() == [1.5] * size
    launcher = combine[grid, 256]
    platforms = [found for platform in cl.get_platforms() for found in platform.get_devices()]
    names = {one.name.strip(): one for one in platforms}
    found = names.get(device.info.name.strip(), platforms[0])
    print(f"quernel on {device.info.name}, pyopencl on {found.name}")
    context = cl.Context([found])
    queue = cl.CommandQueue(context)
    text = (
        "kernel void combine(global const float *a, global const float *b, global float *c, float s, int n)"
        "{ int i = get_global_id(0); if (i < n) c[i] = a[i] + s * b[i]; }"
    )
    kernel = cl.Kernel(cl.Program(context, text).build(), "combine")
    kernel.set_scalar_arg_dtypes([None, None, None, np.float32, np.int32])
    one = np.ones(size, np.float32)
    buffers = [cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=one) for _ in range(3)]
    out = np.empty_like(one)
    kernel(queue, (grid * 256,), (256,), *buffers, 0.5, size)
    cl.enqueue_copy(queue, out, buffers[2])
    assert out.tolist() == [1.5] * size

    def typed() -> None:
        kernel(queue, (grid * 256,), (256,), *buffers, 0.5, size)

    def settle() -> None:
        queue.finish()
        device.synchronize()

    typed.settle = settle  # type: ignore[attr-defined]
    return "pyopencl typed call", {
        "quernel kernel[grid, block](…)": lambda: combine[grid, 256](a, b, c, 0.5, size),
        "quernel kept launcher(…)": lambda: launcher(a, b, c, 0.5, size),
        "quernel bind()": launcher.bind(a, b, c, 0.5, size),
        "pyopencl typed call": typed,
    }


def contest(title: str, peer: str, programs: dict[str, Launch], rounds: int, launches: int) -> None:
    """Runs the programs in turns and prints what each took."""
    settle = next((getattr(run, "settle", None) for run in programs.values() if hasattr(run, "settle")), None)
    times: dict[str, list[float]] = {name: [] for name in programs}
    until = time.perf_counter() + 0.2
    while time.perf_counter() < until:
        for run in programs.values():
            run()
    for _ in range(rounds):
        for name, run in programs.items():
            if settle is not None:
                settle()
            for _ in range(10):
                run()
            started = time.perf_counter()
            for _ in range(launches):
                run()
            times[name].append((time.perf_counter() - started) / launches * 1e6)
    print(title)
    for name, taken in times.items():
        ratio = ""
        if peer:
            ratio = f"   {statistics.median(map(lambda a, b: a / b, taken, times[peer])):5.2f} x {peer}"
        print(f"  {name:36} {statistics.median(taken):8.2f} ({min(taken):.2f} .. {max(taken):.2f}){ratio}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--only", choices=("cpu", "opencl"))
    given = parser.parse_args()
    if given.only != "opencl":
        contest(f"cpu, {given.size} elements", *on_cpu(given.size), given.rounds, LAUNCHES)
        contest("cpu, 65536 elements", *on_cpu(1 << 16), given.rounds, LAUNCHES // 4)
    if given.only != "cpu":
        try:
            import pyopencl  # noqa: F401 — the peer, and what the backend stands on
        except ImportError:
            print("opencl: pyopencl is not installed")
            return
        contest(f"opencl, {given.size} elements", *on_opencl(given.size), given.rounds, LAUNCHES // 8)


if __name__ == "__main__":
    main()
