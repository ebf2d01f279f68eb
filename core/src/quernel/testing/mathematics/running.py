"""All of a function's operands, in processes that take parts of them."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from quernel.ir.nodes import MathFunction
from quernel.testing.bounds import bound_of
from quernel.testing.mathematics.checking import NUM_PARTS, PART_BITS, Worst, operands_of, worst_of
from quernel.testing.mathematics.references import WHOLE, exact_results, precise_result

__all__ = ["check"]

_TRIAL_PARTS = range(15, NUM_PARTS, 128)
_REFERENCE_TOLERANCE = 2.0**-44


def check(functions: list[MathFunction], device: str, samples: int | None, workers: int, largest_angle: float) -> int:
    """Checks the functions one after the other, and says beforehand about how long that takes."""
    seconds = sum(_estimated_seconds(function, device, _per_part(function, samples)) for function in functions)
    print(f"about {seconds / workers:.0f} s on {workers} processes", flush=True)
    failures = 0
    start = time.perf_counter()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as executor:
        for function in functions:
            per_part = _per_part(function, samples)
            angle = min(largest_angle, 1e5) if function is MathFunction.TAN else largest_angle
            tasks = list(_tasks(per_part))
            size = max(1, min(16, len(tasks) // (4 * workers)))
            found = executor.map(
                _part, repeat(function), repeat(device), tasks, repeat(per_part), repeat(angle), chunksize=size
            )
            worst = max(found, key=lambda worst: worst.ulps)
            failures += _report(function, per_part, worst)
    print(f"{time.perf_counter() - start:.0f} s; {'all' if not failures else 'not all'} within their bounds")
    return 1 if failures else 0


def _per_part(function: MathFunction, samples: int | None) -> int | None:
    """Random operands of each part; `None` for all there are."""
    if samples is None and function in WHOLE:
        return None
    return -(-(samples or 10**8) // NUM_PARTS)


def _tasks(per_part: int | None) -> Iterator[range]:
    """Parts that go to a process together: about 2**20 operands."""
    step = 1 if per_part is None else max(1, min(64, (1 << PART_BITS) // per_part))
    return (range(first, min(first + step, NUM_PARTS)) for first in range(0, NUM_PARTS, step))


def _part(function: MathFunction, device: str, parts: range, per_part: int | None, largest_angle: float) -> Worst:
    return worst_of(function, device, operands_of(function, parts, per_part), largest_angle)


def _estimated_seconds(function: MathFunction, device: str, per_part: int | None) -> float:
    _part(function, device, _TRIAL_PARTS, 1, 1e5)  # Compiles.
    start = time.perf_counter()
    _part(function, device, _TRIAL_PARTS, 4096, 1e5)
    return (time.perf_counter() - start) * (NUM_PARTS * (per_part or 1 << PART_BITS)) / (len(_TRIAL_PARTS) * 4096)


def _report(function: MathFunction, per_part: int | None, worst: Worst) -> bool:
    """Prints a function's line; whether it fails."""
    bound = bound_of(function)
    fails = not worst.ulps <= bound + 1e-6  # The exact results are rounded to f64.
    count = "2**32" if per_part is None else f"{(per_part + 3) * NUM_PARTS:.1e}"
    print(
        f"{function.value:8} {worst.ulps:7.3f} of {bound:<4} ulp, {count} operands; worst at "
        f"{', '.join(float(x).hex() for x in worst.operands)} = {', '.join(map(repr, worst.operands))}: "
        f"{worst.result!r} for {worst.exact!r}{_confirmed(function, worst)}{'  FAILS' if fails else ''}",
        flush=True,
    )
    return fails


def _confirmed(function: MathFunction, worst: Worst) -> str:
    """What mpmath says of the worst case, and of a sample of the f64 results."""
    precise = precise_result(function, worst.operands)
    own = "" if precise is None else f" ({abs(worst.exact / precise - 1):.0e} from mpmath's)" if precise else ""
    operands = [x[:: len(x) // 300] for x in operands_of(function, range(0, NUM_PARTS, 13), 1)]
    exact = exact_results(function, *operands)
    for values, result in zip(zip(*operands, strict=True), exact, strict=True):
        precise = precise_result(function, tuple(map(float, values))) if math.isfinite(result) else None
        limit = _REFERENCE_TOLERANCE * max(abs(result), 2.0**-126, function is MathFunction.LGAMMA)
        if precise is not None and abs(precise - result) > limit:
            return f"{own}; the f64 result at {values} is off"
    return own
