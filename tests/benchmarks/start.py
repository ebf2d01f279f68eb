"""Process start to a checked saxpy, cold and warm, beside numba and pyopencl: whole processes in interleaved pairs.

    python tests/benchmarks/start.py [--pairs N] [PEER ...]

Cold: an empty store and an empty cache of the peer before each run. Warm: the second and later runs with the same ones;
pyopencl's program loads its binary from a file by hand. Prints each program's median, and the median, least and
greatest of the pairwise ratios peer / Quernel, of the time from start to end and of the processor's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).parent / "programs"


OURS = {
    "saxpy_numba.py": "saxpy_quernel.py",
    "saxpy_numba_prange.py": "saxpy_quernel.py",
    "saxpy_pyopencl.py": "saxpy_quernel_opencl.py",
}
"""The program that is measured beside each peer's."""


class Taken(NamedTuple):
    """Seconds of one process."""

    wall: float
    processor: float


def run(program: str, cache: Path) -> Taken:
    environment = {
        **os.environ,
        "QUERNEL_ENVIRONMENT": str(cache / "quernel"),
        "NUMBA_CACHE_DIR": str(cache / "numba"),
        "PYOPENCL_KEPT_BINARY": str(cache / "pyopencl.bin"),
    }
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, PROGRAMS / program], env=environment)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, program)
    return Taken(wall, used.ru_utime + used.ru_stime)


def measure(peer: str, pairs: int, *, warm: bool) -> list[tuple[Taken, Taken]]:
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        if warm:
            run(OURS[peer], cache)
            run(peer, cache)
        results = []
        for _ in range(pairs):
            times = []
            for program in (OURS[peer], peer):
                if not warm:
                    shutil.rmtree(cache)
                    cache.mkdir()
                times.append(run(program, cache))
            results.append((times[0], times[1]))
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", metavar="PEER", nargs="*", help=f"of {', '.join(OURS)}; by default all")
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    print(f"{'peer':24} {'':5} {'':9} {'quernel s':>10} {'peer s':>8}   ratio: median (least – greatest)")
    for peer in arguments.peers or OURS:
        for warm in (False, True):
            results = measure(peer, arguments.pairs, warm=warm)
            for what in Taken._fields:
                pairs = [(getattr(ours, what), getattr(theirs, what)) for ours, theirs in results]
                our_s, peer_s = (statistics.median(column) for column in zip(*pairs, strict=True))
                ratios = sorted(theirs / ours for ours, theirs in pairs)
                spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} – {ratios[-1]:.2f})"
                print(f"{peer:24} {'warm' if warm else 'cold':5} {what:9} {our_s:10.3f} {peer_s:8.3f}   {spread}")


if __name__ == "__main__":
    main()
