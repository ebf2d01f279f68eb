"""Copies between two CUDA devices, beside PyTorch's: medians of interleaved rounds, both directions.

    python tests/benchmarks/cuda_peers.py [--bytes N] [--rounds N]

A round waits for both devices before and after. One line says which ways the machine has.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import quernel as qn


def ways() -> str:
    from cuda.bindings import driver

    found = [int(driver.cuDeviceCanAccessPeer(*pair)[1]) for pair in ((0, 1), (1, 0))]
    return f"device 0 reaches 1: {bool(found[0])}, device 1 reaches 0: {bool(found[1])}"


def copies(nbytes: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by name; each has run once and moved the right bytes."""
    first, second = qn.device("cuda:0"), qn.device("cuda:1")
    data = np.random.default_rng(1).integers(0, 256, nbytes, dtype=np.uint8)
    ours = first.array(data), second.zeros(nbytes, qn.u8)
    made: dict[str, Callable[[], Any]] = {
        "Quernel, 0 to 1": lambda: ours[1].copy_from(ours[0]),
        "Quernel, 1 to 0": lambda: ours[0].copy_from(ours[1]),
    }
    made["Quernel, 0 to 1"]()
    assert np.array_equal(ours[1].numpy(), data)
    try:
        import torch
    except ImportError:
        return made
    theirs = torch.from_numpy(data).to("cuda:0"), torch.zeros(nbytes, dtype=torch.uint8, device="cuda:1")
    made["PyTorch, 0 to 1"] = lambda: theirs[1].copy_(theirs[0])
    made["PyTorch, 1 to 0"] = lambda: theirs[0].copy_(theirs[1])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1 << 30, help="of each copy (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if len(qn.devices("cuda")) < 2:
        print("not measured: needs two CUDA devices")
        return
    print(ways())
    devices = qn.device("cuda:0"), qn.device("cuda:1")
    measured = copies(options.bytes)
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(options.rounds + 1):  # the first one warms up
        for name, copy in measured.items():
            for device in devices:
                device.synchronize()
            start = time.perf_counter()
            copy()
            for device in devices:
                device.synchronize()
            times[name].append(time.perf_counter() - start)
    for name, all_of in times.items():
        speeds = sorted(options.bytes / 1e9 / seconds for seconds in all_of[1:])
        print(f"{name:18} {statistics.median(speeds):6.1f} GB/s ({speeds[0]:.1f} - {speeds[-1]:.1f})")


if __name__ == "__main__":
    main()
