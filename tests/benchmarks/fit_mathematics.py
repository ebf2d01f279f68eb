"""Fits the coefficients of the CPU backend's own mathematical functions: the tables in `quernel_cpu.emission`.

    python tests/benchmarks/fit_mathematics.py

Each is the polynomial, or the quotient of two, with the least greatest relative error, found by C. Lawson's reweighted
least squares (quotients made linear by the denominator of the round before, as C. Sanathanan and J. Koerner do).
Coefficients are rounded to the type that they are evaluated in one after the other, those of the lowest powers first,
and those that are left are fitted again. Needs mpmath; takes some seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 40
NUM_SAMPLES, NUM_ROUNDS = 600, 300
Array = np.ndarray[Any, Any]
Rounding = Callable[[Any], float]


def single(value: Any) -> float:
    """The nearest f32."""
    return float(np.float32(value))


def double(value: Any) -> float:
    """The nearest f64."""
    return float(value)


def spread(low: float, high: float) -> Array:
    """Points of an interval that are closer to each other at its ends."""
    return (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * np.arange(NUM_SAMPLES + 1) / NUM_SAMPLES)


class Fit:
    """`top(t) / (1 + t * bottom(t))` near `values` at the points `t`, where errors count `weights` times.

    `top` and `bottom` are the roundings of their coefficients, the lowest power first; without `bottom` the fit is a
    polynomial.
    """

    def __init__(self, t: Array, values: Array, weights: Array, top: list[Rounding], bottom: list[Rounding]) -> None:
        self.values, self.weights = values, weights
        self.roundings = [*top, *bottom]
        self.powers = [*range(len(top)), *range(1, len(bottom) + 1)]
        self.num_top = len(top)
        columns = [t**power for power in self.powers]
        self.columns = np.array([*columns[: len(top)], *(-values * column for column in columns[len(top) :])])

    def rounded(self) -> tuple[list[float], float]:
        """The coefficients, those of `top` first, and the greatest error."""
        fixed: dict[int, float] = {}
        for number in sorted(range(len(self.powers)), key=lambda number: self.powers[number]):
            fixed[number] = self.roundings[number](self._fitted(fixed)[number])
        found = np.array([fixed[number] for number in range(len(self.powers))])
        return found.tolist(), float(np.abs(self._errors(found)).max())

    def _denominator(self, coefficients: Array) -> Array:
        return 1 - coefficients[self.num_top :] @ self.columns[self.num_top :] / self.values

    def _errors(self, coefficients: Array) -> Array:
        return (coefficients @ self.columns - self.values) * self.weights / self._denominator(coefficients)

    def _fitted(self, fixed: dict[int, float]) -> Array:
        """The coefficients of the least greatest error, those that are fixed as they are."""
        free = [number for number in range(len(self.powers)) if number not in fixed]
        coefficients = np.zeros(len(self.powers))
        coefficients[list(fixed)] = list(fixed.values())
        target = self.values - coefficients @ self.columns
        importance, denominator = np.ones_like(self.values), np.ones_like(self.values)
        best, least = coefficients, math.inf
        for _ in range(NUM_ROUNDS):
            factor = np.sqrt(importance) * self.weights / denominator
            matrix = (self.columns[free] * factor).T
            scale = np.linalg.norm(matrix, axis=0)
            solution = np.linalg.lstsq(matrix / scale, target * factor, rcond=None)[0]
            coefficients = coefficients.copy()
            coefficients[free] = solution / scale
            errors = np.abs(self._errors(coefficients))
            denominator = self._denominator(coefficients)
            if errors.max() < least:
                best, least = coefficients, errors.max()
            importance *= errors / errors.max() + 1e-9
            importance /= importance.mean()
        return best


def show(name: str, t: Array, function: Callable[[Any], Any], weight: Callable[[Any], Any], *parts: Any) -> None:
    """Prints the coefficients, the highest power first."""
    values = np.array([float(function(mp.mpf(x))) for x in t])
    fit = Fit(t, values, np.array([float(weight(mp.mpf(x))) for x in t]), *parts)
    coefficients, error = fit.rounded()
    print(f"# {name}: error 2**{math.log2(error):.1f}")
    print(f"top = {tuple(coefficients[: fit.num_top][::-1])}")
    if parts[1]:
        print(f"bottom = {tuple(coefficients[fit.num_top :][::-1])}")


def main() -> None:
    root, eighth = mp.sqrt, (spread(0.01, math.pi / 4 + 0.002)) ** 2
    show(
        "sin(r) = r + r**3 * top(r**2)",
        eighth,
        lambda z: (mp.sin(root(z)) / root(z) - 1) / z,
        lambda z: z * root(z) / mp.sin(root(z)),
        [single] * 3,
        [],
    )
    show(
        "cos(r) = 1 - r**2 / 2 + r**4 * top(r**2)",
        eighth,
        lambda z: (mp.cos(root(z)) - 1 + z / 2) / z**2,
        lambda z: z**2 / mp.cos(root(z)),
        [single] * 3,
        [],
    )
    show(
        "erf(x) = x * top(x**2) / (1 + x**2 * bottom(x**2))",
        spread(0.01, 3.93) ** 2,
        lambda z: mp.erf(root(z)) / root(z),
        lambda z: root(z) / mp.erf(root(z)),
        [single] * 7,
        [single] * 4,
    )
    logarithm = lambda f: mp.log(1 + f, 2) / f if f else 1 / mp.log(2)  # noqa: E731 — one expression, used twice
    show(
        "log2(1 + f) = f * top(f)",
        spread(math.sqrt(0.5) - 1.0001, math.sqrt(2) - 0.9999),
        logarithm,
        lambda f: 1 / logarithm(f),
        [double] * 5 + [single] * 8,
        [],
    )
    show(
        "2**r = top(r)",
        spread(-0.5001, 0.5001),
        lambda r: mp.mpf(2) ** r,
        lambda r: mp.mpf(2) ** -r,
        [lambda _: 1.0, *[double] * 6],
        [],
    )


if __name__ == "__main__":
    main()
