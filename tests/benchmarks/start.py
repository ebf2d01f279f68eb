"""Process start to a checked saxpy, cold and warm, beside numba: whole processes in interleaved pairs.

    python tests/benchmarks/start.py [--pairs N]

Cold: an empty store and an empty numba cache before each run. Warm: the second and later runs with the same ones.
Prints each program's median and the median, least and greatest of the pairwise ratios peer / Quernel.
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

PROGRAMS = Path(__file__).parent / "programs"


def run(program: str, cache: Path) -> float:
    environment = {
        **os.environ,
        "QUERNEL_ENVIRONMENT": str(cache / "quernel"),
        "NUMBA_CACHE_DIR": str(cache / "numba"),
    }
    start = time.perf_counter()
    subprocess.run([sys.executable, PROGRAMS / program], check=True, env=environment)
    return time.perf_counter() - start


def measure(peer: str, pairs: int, *, warm: bool) -> list[tuple[float, float]]:
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        if warm:
            run("saxpy_quernel.py", cache)
            run(peer, cache)
        results = []
        for _ in range(pairs):
            times = []
            for program in ("saxpy_quernel.py", peer):
                if not warm:
                    shutil.rmtree(cache / "quernel", ignore_errors=True)
                    shutil.rmtree(cache / "numba", ignore_errors=True)
                times.append(run(program, cache))
            results.append((times[0], times[1]))
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    print(f"{'peer':24} {'':5} {'quernel s':>10} {'peer s':>8}   ratio: median (least – greatest)")
    for peer in ("saxpy_numba.py", "saxpy_numba_prange.py"):
        for warm in (False, True):
            results = measure(peer, pairs, warm=warm)
            ours, theirs = (statistics.median(column) for column in zip(*results, strict=True))
            ratios = sorted(peer_s / our_s for our_s, peer_s in results)
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} – {ratios[-1]:.2f})"
            print(f"{peer:24} {'warm' if warm else 'cold':5} {ours:10.3f} {theirs:8.3f}   {spread}")


if __name__ == "__main__":
    main()
