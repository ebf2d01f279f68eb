"""Streaming stores beside ordinary ones, by what a launch touches: `z = a * x + y` on all cores, same buffers.

    python tests/benchmarks/streaming.py [--rounds N] [--threads N]

Prints GB/s of both, and the median, least and greatest of the pairwise ratios ordinary / streaming.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

import quernel as qn
from quernel_cpu import device as cpu_device
from quernel_cpu.caches import last_level_cache_bytes


@qn.kernel
def triad(a: qn.f32, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32], z: qn.Array1[qn.f32]):
    i = qn.global_id()
    z[i] = a * x[i] + y[i]


def timed(action: Callable[[], None], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - start) / repeats


def prepared(streams: bool, size: int, *arguments: object) -> Callable[[], None]:
    """A bound launch of a kernel of its own that has run with streaming stores or without, and keeps to it."""
    bound = triad.options(block=128 if streams else 64).over(size, device="cpu").bind(*arguments)
    rule, cpu_device.streams = cpu_device.streams, lambda _footprint: streams
    try:
        bound()
    finally:
        cpu_device.streams = rule
    return bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.threads:
        os.environ["QUERNEL_NUM_THREADS"] = str(arguments.threads)
    print(f"last-level caches: {last_level_cache_bytes() / 2**20:.0f} MiB")
    print(f"{'MiB touched':>12} {'ordinary':>9} {'streaming':>10} GB/s  ratio: median (least - greatest)")
    for mebibytes in (3, 12, 24, 36, 48, 96, 192, 384):
        size = mebibytes * 2**20 // 12
        x, y = np.ones(size, np.float32), np.ones(size, np.float32)
        z = np.empty(size, np.float32)
        repeats = max(1, 96 // mebibytes)
        both = []
        for streams in (False, True):
            z[:] = 0
            both.append(prepared(streams, size, 2.0, x, y, z))
            assert np.all(z == 3)
        ordinary, streaming = both
        until = time.perf_counter() + 0.15
        while time.perf_counter() < until:
            ordinary()
            streaming()
        pairs = [(timed(ordinary, repeats), timed(streaming, repeats)) for _ in range(arguments.rounds)]
        rates = [12 * size / statistics.median(column) / 1e9 for column in zip(*pairs, strict=True)]
        ratios = sorted(a / b for a, b in pairs)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f})"
        print(f"{mebibytes:12} {rates[0]:9.1f} {rates[1]:10.1f}       {spread}")


if __name__ == "__main__":
    main()
