"""Races for the same kernels, and kills of compiling processes, in numbers that CI has no time for.

    python tests/benchmarks/races.py [--processes 32] [--threads 64] [--kills 200] [--rounds 1]

Ends with status 0 only if each race compiled each of its 10 kernels exactly once, every result was right, and after
each kill the store was whole and the next process worked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.integration import races


def main() -> None:
    """Runs what the arguments say, and prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    expected = sorted(f"k{number}" for number in range(races.NUM_KERNELS))
    for number in range(given.rounds):
        for what, count, race in (
            ("processes", given.processes, races.race_of_processes),
            ("threads", given.threads, races.race_of_threads),
        ):
            if not count:
                continue
            with tempfile.TemporaryDirectory() as folder:
                start_s = time.monotonic()
                compiled = race(Path(folder), count)
                print(
                    f"round {number}: {count} {what}: {len(compiled)} compilations, {time.monotonic() - start_s:.1f} s"
                )
                if compiled != expected:
                    raise SystemExit(f"compiled {compiled}")
    if given.kills:
        with tempfile.TemporaryDirectory() as folder:
            kept = races.kill_compiling_processes(Path(folder), given.kills, given.seed).kept
        print(
            f"{len(kept)} kills: the store was whole each time; kernels kept by then: {sorted(Counter(kept).items())}"
        )


if __name__ == "__main__":
    main()
