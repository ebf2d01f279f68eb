"""Process start to a checked saxpy on a GPU, cold and warm, beside peers, in turns. Prints seconds: median (least ..).

python tests/benchmarks/cuda_start.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


def run(name: str, environment: dict[str, str], *arguments: str) -> float:
    started = time.perf_counter()
    command = [sys.executable, str(PROGRAMS / name), *arguments]
    ran = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else f"exit {ran.returncode}")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
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
        print(f"{name:20} {kind}  {statistics.median(seconds_of):.3f} ({min(seconds_of):.3f} .. {max(seconds_of):.3f})")


if __name__ == "__main__":
    main()
