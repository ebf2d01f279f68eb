"""Process start to a checked saxpy on a GPU, cold and warm, beside peers, in turns. Prints seconds: median (least ..).

    python tests/benchmarks/cuda_start.py [--rounds N] [--stand-in]

`--stand-in` puts a library in the driver's place that takes its time and does nothing, so that what Python does
meanwhile and besides can be measured without a GPU; it needs a C compiler. Ratios are those to the bindings alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def run(name: str, environment: dict[str, str], *arguments: str) -> float:
    started = time.perf_counter()
    command = [sys.executable, str(PROGRAMS / name), *arguments]
    ran = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else f"exit {ran.returncode}")
    return time.perf_counter() - started


@contextlib.contextmanager
def stand_in() -> Iterator[dict[str, str]]:
    """The variables with which a process finds the library that stands in for the driver, and checks no results."""
    with tempfile.TemporaryDirectory(prefix="quernel-driver-") as folder:
        library, source = f"{folder}/libcuda.so.1", str(PROGRAMS / "stand_in_driver.c")
        subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"], check=True)
        yield {"LD_LIBRARY_PATH": folder, "QUERNEL_BENCHMARK_UNCHECKED": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stand-in", action="store_true")
    arguments = parser.parse_args()
    with stand_in() if arguments.stand_in else contextlib.nullcontext({}) as variables:
        measure(arguments.rounds, variables)


def measure(rounds: int, variables: dict[str, str]) -> None:
    programs = {
        "quernel": "saxpy_quernel_cuda.py",
        "the bindings alone": "saxpy_cuda_bindings.py",
        "CuPy": "saxpy_cupy.py",
        "numba-cuda": "saxpy_numba_cuda.py",
    }
    taken: dict[tuple[str, str], list[float]] = {}
    lost: set[str] = set()
    for number in range(rounds):
        for name, program in programs.items():
            if name in lost:
                continue
            with tempfile.TemporaryDirectory(prefix="quernel-start-") as folder:
                environment = {
                    **variables,
                    "QUERNEL_ENVIRONMENT": f"{folder}/quernel",
                    "CUPY_CACHE_DIR": f"{folder}/cupy",
                    "CUDA_CACHE_PATH": f"{folder}/driver",
                }
                given = (f"{folder}/kept.cubin",) if name == "the bindings alone" else ()
                try:
                    for kind in ("cold", "warm"):
                        seconds = run(program, environment, *given)
                        if number:  # the first round fills the system's file cache
                            taken.setdefault((name, kind), []).append(seconds)
                except RuntimeError as error:
                    print(f"{name}: not measured ({str(error)[:150]})", flush=True)
                    lost.add(name)
    for (name, kind), seconds_of in taken.items():
        spread = f"{statistics.median(seconds_of):.3f} ({min(seconds_of):.3f} .. {max(seconds_of):.3f})"
        base = taken.get(("the bindings alone", kind), seconds_of)
        ratio = statistics.median(one / other for one, other in zip(seconds_of, base, strict=True))
        print(f"{name:20} {kind}  {spread}   {ratio:.2f} x the bindings")


if __name__ == "__main__":
    main()
