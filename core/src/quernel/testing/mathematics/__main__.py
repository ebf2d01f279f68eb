"""`python -m quernel.testing.mathematics`: every mathematical function of f32 against its bound, on all cores."""

from __future__ import annotations

import argparse
import math
import os
import sys

from quernel.ir.nodes import MathFunction
from quernel.testing.mathematics.references import MEASURED, WHOLE
from quernel.testing.mathematics.running import check


def main() -> int:
    """Reads the command line and runs; the exit status is 0 if every function keeps its bound."""
    parser = argparse.ArgumentParser(
        prog="python -m quernel.testing.mathematics",
        description="Every mathematical function of f32 on a device, against f64: the worst operand of each.",
    )
    parser.add_argument("--device", default="cpu", help="the device under test (cpu)")
    parser.add_argument("--functions", default="", help="names with commas between (all of them)")
    parser.add_argument(
        "--samples", type=int, help=f"operands per function; all for {_names(WHOLE)} if left out, 10**8 for the others"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument("--largest-angle", type=float, default=math.inf, help="of sin and cos (any; tan's is 1e5)")
    options = parser.parse_args()
    functions = [MathFunction(name) for name in options.functions.split(",") if name] or list(MEASURED)
    os.environ["QUERNEL_NUM_THREADS"] = "1"  # One process per core, each with one thread.
    return check(functions, options.device, options.samples, options.workers, options.largest_angle)


def _names(functions: tuple[MathFunction, ...]) -> str:
    return " ".join(function.value for function in functions)


if __name__ == "__main__":
    sys.exit(main())
