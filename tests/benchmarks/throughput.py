"""Saxpy and a separable blur on all cores, beside numba's prange, on the same buffers, interleaved.

    python tests/benchmarks/throughput.py [--rounds N]

Prints each program's median time and the median, least and greatest of the pairwise ratios peer / Quernel. Results are
compared before anything is timed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import numba
import numpy as np

import quernel as qn


@qn.kernel
def saxpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def blur_rows(source: qn.Array2[qn.f32], taps: qn.Array1[qn.f32], target: qn.Array2[qn.f32]):
    row, column = qn.global_id()
    total = 0.0
    for k in range(len(taps)):
        total += taps[k] * source[row, column + k]
    target[row, column] = total


@qn.kernel
def blur_columns(source: qn.Array2[qn.f32], taps: qn.Array1[qn.f32], target: qn.Array2[qn.f32]):
    row, column = qn.global_id()
    total = 0.0
    for k in range(len(taps)):
        total += taps[k] * source[row + k, column]
    target[row, column] = total


@numba.njit(parallel=True)
def numba_saxpy(a, x, y):
    for i in numba.prange(len(x)):
        y[i] = a * x[i] + y[i]


@numba.njit(parallel=True)
def numba_rows(source, taps, target):
    for row in numba.prange(target.shape[0]):
        for column in range(target.shape[1]):
            total = np.float32(0)
            for k in range(len(taps)):
                total += taps[k] * source[row, column + k]
            target[row, column] = total


@numba.njit(parallel=True)
def numba_columns(source, taps, target):
    for row in numba.prange(target.shape[0]):
        for column in range(target.shape[1]):
            total = np.float32(0)
            for k in range(len(taps)):
                total += taps[k] * source[row + k, column]
            target[row, column] = total


def timed(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def burn_in(action: Callable[[], None]) -> None:
    until = time.perf_counter() + 0.15
    while time.perf_counter() < until:
        action()


def compare(name: str, ours: Callable[[], None], theirs: Callable[[], None], rounds: int) -> None:
    burn_in(ours)
    burn_in(theirs)
    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    mine, peer = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
    ratios = sorted(b / a for a, b in pairs)
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} – {ratios[-1]:.2f})"
    print(f"{name:28} {mine:11.2f} {peer:9.2f}   {spread}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args().rounds
    generator = np.random.default_rng(1)
    print(f"{numba.get_num_threads()} threads; peer: numba {numba.__version__} prange")
    print(f"{'':28} {'quernel ms':>11} {'numba ms':>9}   ratio: median (least – greatest)")

    for exponent in (16, 20, 24):
        x = generator.random(1 << exponent, np.float32)
        y = np.zeros_like(x)
        a = np.float32(0.5)
        ours = saxpy.over(len(x), device="cpu")
        ours(0.5, x, y)
        expected = y.copy()
        y[:] = 0
        numba_saxpy(a, x, y)
        np.testing.assert_allclose(y, expected, rtol=1e-6)
        compare(f"saxpy 2**{exponent}", partial(ours, 0.5, x, y), partial(numba_saxpy, a, x, y), rounds)

    size, taps = 2048, np.full(9, 1 / 9, np.float32)
    wide = generator.random((size, size + 8), np.float32)
    tall = generator.random((size + 8, size), np.float32)
    target = np.empty((size, size), np.float32)
    for name, ours_kernel, peer, source in (
        ("blur rows 2048x2048, 9", blur_rows, numba_rows, wide),
        ("blur columns 2048x2048, 9", blur_columns, numba_columns, tall),
    ):
        launcher = ours_kernel.over((size, size), device="cpu")
        launcher(source, taps, target)
        expected = target.copy()
        peer(source, taps, target)
        np.testing.assert_allclose(target, expected, rtol=1e-5)
        compare(name, partial(launcher, source, taps, target), partial(peer, source, taps, target), rounds)


if __name__ == "__main__":
    main()
