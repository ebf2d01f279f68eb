"""Neighbours that stay within an array by `max` and `min`, beside the same filter of inner points alone: interleaved.

    python tests/benchmarks/edges.py [--rounds N] [--threads N]

Prints the time of both, and the median, least and greatest of the pairwise ratios bounded / inner alone. Results are
compared with NumPy's before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import quernel as qn

Action = Callable[[], None]


@qn.kernel
def smoothed(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]


@qn.kernel
def smoothed_to_edges(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = 0.25 * x[max(i - 1, 0)] + 0.5 * x[i] + 0.25 * x[min(i + 1, len(x) - 1)]


@qn.kernel
def blurred(x: qn.Array2[qn.f32], y: qn.Array2[qn.f32]):
    row, column = qn.global_id()
    total = 0.0
    for d in range(-1, 2):
        total += x[row + d, column - 1] + x[row + d, column] + x[row + d, column + 1]
    y[row, column] = total / 9.0


@qn.kernel
def blurred_to_edges(x: qn.Array2[qn.f32], y: qn.Array2[qn.f32]):
    row, column = qn.global_id()
    height, width = x.shape
    left = max(column - 1, 0)
    right = column + 1 if column + 1 < width else width - 1
    total = 0.0
    for d in range(-1, 2):
        near = min(max(row + d, 0), height - 1)
        total += x[near, left] + x[near, column] + x[near, right]
    y[row, column] = total / 9.0


def line(size: int, generator: np.random.Generator) -> tuple[Action, Action]:
    """Both filters of so many points, checked."""
    x, y, other = generator.random(size, np.float32), np.zeros(size, np.float32), np.zeros(size, np.float32)
    inner = partial(smoothed.over(range(1, size - 1), device="cpu"), x, other)
    whole = partial(smoothed_to_edges.over(size, device="cpu"), x, y)
    whole()
    wide = np.pad(x, 1, mode="edge")
    np.testing.assert_allclose(y, 0.25 * wide[:-2] + 0.5 * x + 0.25 * wide[2:], rtol=1e-5)
    return inner, whole


def image(size: int, generator: np.random.Generator) -> tuple[Action, Action]:
    """Both filters of a square image, checked."""
    x, y, other = generator.random((size, size), np.float32), *np.zeros((2, size, size), np.float32)
    inner = partial(blurred.over((range(1, size - 1),) * 2, device="cpu"), x, other)
    whole = partial(blurred_to_edges.over((size, size), device="cpu"), x, y)
    whole()
    wide = np.pad(x, 1, mode="edge")
    expected = sum(wide[row : row + size, column : column + size] for row in range(3) for column in range(3)) / 9
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    return inner, whole


def timed(action: Action, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - start) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    os.environ["QUERNEL_NUM_THREADS"] = str(chosen.threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.threads])
    generator = np.random.default_rng(1)
    for make, sizes in ((line, (1 << 12, 1 << 15, 1 << 22)), (image, (128, 512, 2048))):
        for size in sizes:
            inner, whole = make(size, generator)
            repeats = max(1, 100_000 // size ** (1 if make is line else 2))
            times = [(timed(inner, repeats), timed(whole, repeats)) for _ in range(chosen.rounds + 2)][2:]
            ratios = [b / a for a, b in times]
            least = " and ".join(f"{min(column) * 1e6:.1f}" for column in zip(*times, strict=True))
            print(
                f"{make.__name__} {size}: least {least} us, ratio {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} - {max(ratios):.2f})"
            )


if __name__ == "__main__":
    main()
