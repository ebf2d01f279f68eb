"""One part of a function's operands on a device, against the exact results."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import attrs
import numpy as np

import quernel as qn
from quernel.ir.nodes import MathFunction
from quernel.testing.launching import on
from quernel.testing.mathematics.references import OF_TWO, Array, exact_results

__all__ = ["NUM_PARTS", "PART_BITS", "Worst", "errors_in_ulps", "operands_of", "worst_of"]

PART_BITS: Final = 20
NUM_PARTS: Final = 1 << (32 - PART_BITS)
"""Operands come in so many parts: those of one sign, one exponent and the same first digits."""
_PIECE: Final = 1 << 15
"""So many operands, results and errors fit a core's cache."""
_SMALLEST_NORMAL: Final = 2.0**-126
_LARGEST: Final = 2.0**128 - 2.0**104
_BEYOND: Final = 2.0**128


@attrs.frozen(order=False)
class Worst:
    """The operands whose result is farthest from the exact one, in units of the last place; infinitely far if it is of
    another kind (NaN, infinite, a zero of the other sign)."""

    ulps: float
    operands: tuple[float, ...]
    result: float
    exact: float


def operands_of(function: MathFunction, parts: range, samples: int | None) -> tuple[Array, ...]:
    """The operands of parts: all, or `samples` random ones of each part besides its first and last."""
    starts = np.array(parts, np.uint32) << PART_BITS
    generator = np.random.default_rng([parts.start, sum(function.value.encode())])
    if samples is None:
        low = np.arange(1 << PART_BITS, dtype=np.uint32)
        bits = (starts[:, None] | low).ravel()
    else:
        ends = np.array([0, 1, (1 << PART_BITS) - 1], np.uint32)
        low = generator.integers(0, 1 << PART_BITS, (len(parts), samples), np.uint32)
        bits = np.concatenate([(starts[:, None] | low).ravel(), (starts[:, None] | ends).ravel()])
    x = bits.view(np.float32)
    if function not in OF_TWO:
        return (x,)
    # The second operand: half of them any number, half of them one of the sizes that results depend on.
    y = generator.integers(0, 1 << 32, len(x), np.uint32)
    near = (y & 0x807FFFFF) | (generator.integers(115, 139, len(x), np.uint32) << np.uint32(23))
    return x, np.where(generator.random(len(x)) < 0.5, y, near).astype(np.uint32).view(np.float32)


def worst_of(function: MathFunction, device: str, operands: tuple[Array, ...], largest_angle: float) -> Worst:
    """The device's results for f32 operands, and how far the worst of them is from the exact one."""
    if function in (MathFunction.SIN, MathFunction.COS, MathFunction.TAN) and largest_angle < math.inf:
        operands = tuple(np.where(np.abs(x) <= np.float32(largest_angle), x, np.float32(0)) for x in operands)
    launch, unit = on(device, kernel_of(function)), 1.0 if function is MathFunction.LGAMMA else 0.0
    found = []
    for first in range(0, len(operands[0]), _PIECE):
        piece = tuple(x[first : first + _PIECE] for x in operands)
        result = np.empty_like(piece[0])
        launch.over(len(result))(*piece, result)
        exact = exact_results(function, *piece)
        errors = errors_in_ulps(result, exact, at_least=unit)
        worst = int(np.argmax(errors))
        given = tuple(float(x[worst]) for x in piece)
        found.append(Worst(float(errors[worst]), given, float(result[worst]), float(exact[worst])))
    return max(found, key=lambda worst: worst.ulps)


def errors_in_ulps(result: Array, exact: Array, *, at_least: float = 0.0) -> Array:
    """How far f32 results are from the exact f64 ones, in units of the exact one's last place as an f32.

    The unit is that of the smallest normal number or of `at_least` at the least. An infinite result stands for 2**128
    where the exact one is finite.
    """
    with np.errstate(all="ignore"):
        bounded = np.clip(exact, -_BEYOND, _BEYOND)
        _, exponents = np.frexp(np.clip(np.abs(exact), max(at_least, _SMALLEST_NORMAL), _LARGEST))
        unit = np.ldexp(1.0, exponents - 24)
        errors: Array = np.abs(np.clip(result.astype(np.float64), -_BEYOND, _BEYOND) - bounded) / unit
        is_alike = np.where(np.isnan(exact), np.isnan(result), ~np.isnan(result))
        is_alike &= ~np.isinf(exact) | (result == exact)
        is_alike &= (exact != 0) | (result != 0) | (np.signbit(exact) == np.signbit(result))
    return np.where(is_alike, np.where(np.isnan(exact), 0.0, errors), np.inf)


@cache
def kernel_of(function: MathFunction) -> Any:
    """The kernel that applies the function to f32 arrays, the last of which takes the results."""
    called: Callable[..., Any] = getattr(qn if function is MathFunction.RSQRT else math, function.value)
    if function in OF_TWO:

        @qn.kernel
        def of_two(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32], out: qn.Array1[qn.f32]) -> None:
            i = qn.global_id()
            out[i] = called(x[i], y[i])

        return of_two

    @qn.kernel
    def of_one(x: qn.Array1[qn.f32], out: qn.Array1[qn.f32]) -> None:
        i = qn.global_id()
        out[i] = called(x[i])

    return of_one
