"""Programs in which threads work together, on all cores, beside the same OpenCL C on PoCL, on the same buffers.

    pip install pyopencl pocl-binary-distribution
    python tests/benchmarks/cooperation.py [--rounds N] [--only NAME]

Results are compared with NumPy's before anything is timed; the two sides are timed in turns. Prints each program's
median times and the median, least and greatest of the pairwise ratios PoCL / Quernel.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyopencl as cl

_ROOT = Path(__file__).parents[2]


def examples() -> Any:
    """The kernels, which are an example of the documentation."""
    spec = spec_from_file_location("cooperation_example", _ROOT / "docs" / "examples" / "cooperation.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


Action = Callable[[], None]


@attrs.frozen
class Contest:
    """One program on both sides: what runs it, and what must hold afterwards."""

    name: str
    ours: Action
    theirs: Action
    check: Callable[[], bool]
    reset: Action = lambda: None


class Pocl:
    """A context on PoCL's device, whose buffers are the arrays themselves."""

    def __init__(self) -> None:
        platforms = [platform for platform in cl.get_platforms() if "Portable" in platform.name]
        if not platforms:
            raise SystemExit("PoCL is not installed: pip install pocl-binary-distribution")
        self._kept: list[Any] = []
        self._context = cl.Context(platforms[0].get_devices()[:1])
        self._queue = cl.CommandQueue(self._context)
        source = (Path(__file__).parent / "programs" / "cooperation.cl").read_text()
        self._program = cl.Program(self._context, source).build()

    def launch(self, name: str, threads: tuple[int, ...], block: tuple[int, ...], *arguments: Any) -> Action:
        """What launches a kernel once and waits. Sizes in array order."""
        kernel = cl.Kernel(self._program, name)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        given = [
            cl.Buffer(self._context, flags, hostbuf=argument) if isinstance(argument, np.ndarray) else argument
            for argument in arguments
        ]
        kernel.set_args(*given)
        self._kept += given  # A kernel does not keep its buffers.

        def action() -> None:
            cl.enqueue_nd_range_kernel(self._queue, kernel, threads[::-1], block[::-1])
            self._queue.finish()

        return action


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that starts at a multiple of 4096 bytes, so that no side has to copy it."""
    raw = np.empty(array.nbytes + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    made: np.ndarray[Any, Any] = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def contests(pocl: Pocl) -> list[Contest]:
    """The programs, with sizes that no block divides."""
    own = examples()
    rng = np.random.default_rng(0)
    made = []

    size = 20_000_003
    x = aligned(rng.integers(-9, 9, size).astype(np.float32))
    num_blocks = -(-size // 256)
    sums = aligned(np.zeros(num_blocks, np.float32))
    padded = np.zeros(num_blocks * 256, np.float32)
    padded[:size] = x
    wanted_sums = padded.reshape(-1, 256).sum(1)
    made.append(
        Contest(
            "block reduction",
            own.reduction[num_blocks].bind(x, sums, size),
            pocl.launch("reduction", (num_blocks * 256,), (256,), x, sums, np.int64(size)),
            lambda: np.array_equal(sums, wanted_sums),
            lambda: sums.fill(0),
        )
    )

    counted = aligned(rng.integers(-9, 9, size).astype(np.int32))
    scanned = aligned(np.zeros(size, np.int32))
    whole = np.zeros(num_blocks * 256, np.int32)
    whole[:size] = counted
    wanted_scan = np.cumsum(whole.reshape(-1, 256), 1, dtype=np.int32).reshape(-1)[:size]
    made.append(
        Contest(
            "prefix sum",
            own.prefix_sum[num_blocks].bind(counted, scanned, size),
            pocl.launch("prefix_sum", (num_blocks * 256,), (256,), counted, scanned, np.int64(size)),
            lambda: np.array_equal(scanned, wanted_scan),
            lambda: scanned.fill(0),
        )
    )

    rows, columns = 3001, 4005
    image = aligned(rng.random((rows, columns), np.float32))
    turned = aligned(np.zeros((columns, rows), np.float32))
    grid = (-(-rows // 32), -(-columns // 32))
    made.append(
        Contest(
            "transpose",
            own.transpose[grid, (8, 32)].bind(image, turned),
            pocl.launch(
                "transpose", (grid[0] * 8, grid[1] * 32), (8, 32), image, turned, np.int64(rows), np.int64(columns)
            ),
            lambda: np.array_equal(turned, image.T),
            lambda: turned.fill(0),
        )
    )

    n, inner, m = 1001, 1003, 999
    a = aligned(rng.integers(-3, 3, (n, inner)).astype(np.float32))
    b = aligned(rng.integers(-3, 3, (inner, m)).astype(np.float32))
    product = aligned(np.zeros((n, m), np.float32))
    wanted_product = a @ b
    tiles = (-(-n // 16), -(-m // 16))
    made.append(
        Contest(
            "tiled product",
            own.matmul[tiles, (16, 16)].bind(a, b, product),
            pocl.launch(
                "matmul", (tiles[0] * 16, tiles[1] * 16), (16, 16), a, b, product, *map(np.int64, (n, inner, m))
            ),
            lambda: np.array_equal(product, wanted_product),
            lambda: product.fill(0),
        )
    )

    bytes_ = aligned(rng.integers(0, 256, size).astype(np.uint8))
    counts = aligned(np.zeros(256, np.int32))
    wanted_counts = np.bincount(bytes_, minlength=256)
    made.append(
        Contest(
            "histogram",
            own.histogram[512].bind(bytes_, counts),
            pocl.launch("histogram", (512 * 256,), (256,), bytes_, counts, np.int64(size)),
            lambda: np.array_equal(counts, wanted_counts),
            lambda: counts.fill(0),
        )
    )

    keys = rng.random(2_000_003, np.float32)
    sorted_ = aligned(keys)
    key_blocks = -(-len(keys) // 512)
    filled = np.full(key_blocks * 512, np.inf, np.float32)
    filled[: len(keys)] = keys
    wanted_keys = np.sort(filled.reshape(-1, 512), 1).reshape(-1)[: len(keys)]
    made.append(
        Contest(
            "bitonic sort",
            own.bitonic[key_blocks].bind(sorted_),
            pocl.launch("bitonic", (key_blocks * 512,), (512,), sorted_, np.int64(len(keys))),
            lambda: np.array_equal(sorted_, wanted_keys),
            lambda: np.copyto(sorted_, keys),
        )
    )
    return made


def timed(contest: Contest, action: Action) -> float:
    contest.reset()
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for contest in contests(Pocl()):
        if options.only not in contest.name:
            continue
        for side, action in (("Quernel", contest.ours), ("PoCL", contest.theirs)):
            for _ in range(3):
                contest.reset()
                action()
            if not contest.check():
                raise SystemExit(f"{contest.name}: {side} is wrong")
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(timed(contest, contest.ours))
            theirs.append(timed(contest, contest.theirs))
        ratios = sorted(their / our for our, their in zip(ours, theirs, strict=True))
        print(
            f"{contest.name:16} Quernel {statistics.median(ours) * 1e3:8.2f} ms   "
            f"PoCL {statistics.median(theirs) * 1e3:8.2f} ms   "
            f"ratio {statistics.median(ratios):5.2f} ({ratios[0]:.2f} … {ratios[-1]:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
