"""Functions of f32 on one core: our own, the C library's vector forms, and numba's, on the same buffers, interleaved.

    python tests/benchmarks/mathematics.py [--rounds N]

Prints our own time per element and the medians, least and greatest of the pairwise ratios peer / own. Results are
compared before anything is timed. The buffers (2**16 elements) fit the core's cache.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import llvmlite
import numba
import numpy as np

import quernel as qn
from quernel.runtime.devices import Device
from quernel_cpu.plugin import CpuBackend

NAMES = ("exp", "log", "sin", "cos", "tanh", "erf", "pow")
NUM_ELEMENTS = 1 << 16


def device_with(mathematics: str) -> Device:
    """A CPU device whose kernels call our own functions or the library's."""
    os.environ["QUERNEL_CPU_MATHEMATICS"] = mathematics
    backend = CpuBackend()
    return Device(backend.open(backend.devices()[0]), backend=backend)


def kernel_of(name: str) -> Any:
    called = getattr(math, name)
    if name == "pow":

        @qn.kernel
        def of_two(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32], out: qn.Array1[qn.f32]):
            i = qn.global_id()
            out[i] = called(x[i], y[i])

        return of_two

    @qn.kernel
    def of_one(x: qn.Array1[qn.f32], out: qn.Array1[qn.f32]):
        i = qn.global_id()
        out[i] = called(x[i])

    return of_one


def numba_loop(name: str) -> Any:
    called = getattr(math, name)
    if name == "pow":

        @numba.njit
        def of_two(x, y, out):
            for i in range(len(x)):
                out[i] = called(x[i], y[i])

        return of_two

    @numba.njit
    def of_one(x, out):
        for i in range(len(x)):
            out[i] = called(x[i])

    return of_one


def timed(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(name: str, devices: dict[str, Device], rounds: int) -> None:
    generator = np.random.default_rng(1)
    operands = [generator.uniform(0.1, 5, NUM_ELEMENTS).astype(np.float32) for _ in range(1 + (name == "pow"))]
    out = np.empty_like(operands[0])
    actions: list[Callable[[], Any]] = []
    for mathematics, device in devices.items():
        os.environ["QUERNEL_CPU_MATHEMATICS"] = mathematics
        actions.append(kernel_of(name).over(NUM_ELEMENTS, device=device).bind(*operands, out))
    loop = numba_loop(name)
    actions.append(lambda: loop(*operands, out))
    expected = None
    for action in actions:
        out[:] = np.nan
        action()
        expected = out.copy() if expected is None else expected
        np.testing.assert_allclose(out, expected, rtol=2e-6)
    until = time.perf_counter() + 0.2
    while time.perf_counter() < until:
        for action in actions:
            action()
    times = [[timed(action) for action in actions] for _ in range(rounds)]
    own = statistics.median(row[0] for row in times) / NUM_ELEMENTS * 1e9
    columns = []
    for peer in (1, 2):
        ratios = sorted(row[peer] / row[0] for row in times)
        columns.append(f"{statistics.median(ratios):5.2f} ({ratios[0]:.2f} – {ratios[-1]:.2f})")
    print(f"{name:5} {own:6.3f} ns   {columns[0]:24} {columns[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=101)
    rounds = parser.parse_args().rounds
    os.environ["QUERNEL_NUM_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    devices = {mathematics: device_with(mathematics) for mathematics in ("own", "library")}
    print(f"llvmlite {llvmlite.__version__}, numba {numba.__version__}")
    print("      own         library / own            numba / own")
    for name in NAMES:
        measure(name, devices, rounds)


if __name__ == "__main__":
    main()
