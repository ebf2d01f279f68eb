"""`python -m quernel.testing.fuzz`: random kernels, interpreter against a backend, in parallel processes."""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from pathlib import Path

from quernel.testing.fuzz.running import SHRINK_SECONDS, fuzz, work


def main() -> int:
    """Reads the command line and runs; the exit status is 0 if no kernel failed."""
    parser = argparse.ArgumentParser(
        prog="python -m quernel.testing.fuzz",
        description="Random kernels, the reference interpreter against a backend. Failures are shrunk and kept.",
    )
    parser.add_argument("--examples", type=int, default=10_000, help="kernels in all (10000)")
    parser.add_argument("--backend", default="cpu", help="the backend under test (cpu)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument("--seed", type=int, default=None, help="of the first process; random if left out")
    parser.add_argument(
        "--keep", type=Path, default=Path("tests/fuzz/found"), help="folder for kernels that fail (tests/fuzz/found)"
    )
    parser.add_argument(
        "--shrink-seconds",
        type=_seconds,
        default=SHRINK_SECONDS,
        metavar="S",
        help="for how long a kernel that fails, which is kept at once, is made smaller (120)",
    )
    parser.add_argument(
        "--setting",
        action="append",
        type=_setting,
        metavar="NAME=VALUE,…",
        help="environment variables; given several times, the same kernels run under each of them",
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    if options.worker:
        return work(options.backend, options.examples, seed, options.keep, shrink_seconds=options.shrink_seconds)
    settings = tuple(options.setting or ({},))
    return fuzz(
        options.backend,
        options.examples,
        options.workers,
        seed,
        options.keep,
        settings,
        shrink_seconds=options.shrink_seconds,
    )


def _seconds(text: str) -> float:
    """A duration that is not negative."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, 0 or more")
    return seconds


def _setting(text: str) -> dict[str, str]:
    """`A=1,B=2` as environment variables."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE,NAME=VALUE,…")
    return {name: value for name, _, value in pairs}


if __name__ == "__main__":
    sys.exit(main())
