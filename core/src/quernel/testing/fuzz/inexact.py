"""Random kernels in which a mathematical function feeds a store directly, held against the function's bound."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs
import numpy as np
from hypothesis import strategies as st

from quernel.ir.math_functions import float_function, num_operands
from quernel.ir.nodes import MathFunction
from quernel.testing.bounds import BOUNDS
from quernel.testing.fuzz.exact import PROLOGUE, KernelWriter
from quernel.testing.fuzz.expressions import FLOATS, NUMBERS, Scope
from quernel.testing.fuzz.programs import VIEWS, Program

__all__ = ["InexactProgram", "error_in_ulp", "inexact_programs"]

_TEXTS: Final = {MathFunction.RSQRT: "qn.rsqrt", MathFunction.POW: "pow"}
_PRECISION_BITS: Final = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
_SMALLEST_EXPONENT: Final = {"f64": -1022, "f32": -126, "f16": -14, "bf16": -126}
_FAR: Final = 1e5
"""Arguments beyond this are not given to periodic functions, whose bound holds up to it."""
_PERIODIC: Final = frozenset({MathFunction.SIN, MathFunction.COS, MathFunction.TAN})


@attrs.frozen
class InexactProgram:
    """A program that stores arguments `x0`, `x1` and the function's value of them in `out`.

    Attributes:
        program: the kernel and its launch; the arrays hold the three at the end.
        function: the function's name in the IR.
    """

    program: Program
    function: str

    def difference(self, backend: str) -> str:
        """The first value that is farther from the exact one than the bound; an empty string if none is."""
        function = MathFunction(self.function)
        arrays = self.program.results(backend)
        lent = {name: VIEWS[view](arrays[name]) for name, _, view in self.program.arrays}
        of = {name: dtype for name, dtype, _ in self.program.arrays}["out"]
        bound = BOUNDS[function] + (0.5 if of in ("f16", "bf16") else 0)
        operands = [lent[f"x{n}"].astype(np.float64).tolist() for n in range(num_operands(function))]
        for index, values in enumerate(zip(*operands, strict=True)):
            if function in _PERIODIC and abs(values[0]) > _FAR:
                continue
            actual = float(lent["out"][index])
            error = error_in_ulp(function, values, actual, of)
            if error > bound:
                return f"{function.value}{values} is {actual!r} in {of} on {backend}, {error:.2f} ulp off"
        return ""


def error_in_ulp(function: MathFunction, operands: tuple[float, ...], actual: float, of: str) -> float:
    """How far `actual` is from the exact value, in units of the last place of the type; infinite where kinds differ."""
    import mpmath

    closed = float_function(function, operands)
    if not math.isfinite(closed) and not (math.isinf(closed) and all(map(math.isfinite, operands))):
        return 0.0 if _same(actual, closed) else math.inf
    with mpmath.workprec(200):
        exact = _exact(function, operands)
        if exact is None:
            if not math.isfinite(closed):
                return 0.0 if _same(actual, closed) else math.inf
            exact = mpmath.mpf(closed)
        magnitude = int(mpmath.floor(mpmath.log(abs(exact), 2))) if exact != 0 else -5000
        if function is MathFunction.LGAMMA:  # Its bound is one of at least 1, as it crosses zero at 1 and 2.
            magnitude = max(magnitude, 0)
        precision = _PRECISION_BITS[of]
        limit = 15 if of == "f16" else 1023 if of == "f64" else 127
        if magnitude > limit or (math.isinf(actual) and magnitude == limit):
            return 0.0 if math.isinf(actual) and (actual > 0) == (exact > 0) else math.inf
        if not math.isfinite(actual):
            return math.inf
        unit = mpmath.mpf(2) ** (max(magnitude, _SMALLEST_EXPONENT[of]) - precision + 1)
        return float(abs(mpmath.mpf(actual) - exact) / unit)


def _same(actual: float, wanted: float) -> bool:
    return actual == wanted or (math.isnan(actual) and math.isnan(wanted))


def _exact(function: MathFunction, operands: tuple[float, ...]) -> Any:
    """The value with many digits, or `None` where only the closed cases of C apply."""
    import mpmath

    if not all(map(math.isfinite, operands)) or 0.0 in operands:
        return None  # The sign of a zero counts, and mpmath has none.
    x = mpmath.mpf(operands[0])
    try:
        match function:
            case MathFunction.RSQRT:
                value = 1 / mpmath.sqrt(x)
            case MathFunction.EXP2:
                value = mpmath.power(2, x)
            case MathFunction.LOG2:
                value = mpmath.log(x, 2)
            case MathFunction.LGAMMA:
                value = mpmath.log(abs(mpmath.gamma(x)))
            case MathFunction.CBRT:
                value = mpmath.sign(x) * mpmath.cbrt(abs(x))
            case MathFunction.POW:
                value = mpmath.power(x, mpmath.mpf(operands[1]))
            case MathFunction.HYPOT | MathFunction.ATAN2:
                value = getattr(mpmath, function.value)(x, mpmath.mpf(operands[1]))
            case _:
                value = getattr(mpmath, function.value)(x)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return value if isinstance(value, mpmath.mpf) and mpmath.isfinite(value) else None


@st.composite
def inexact_programs(draw: Any) -> InexactProgram:
    """A random program of one inexact function of exact arguments."""
    function = draw(st.sampled_from(sorted(BOUNDS, key=lambda function: function.value)))
    dtype = draw(st.sampled_from(FLOATS))
    length = draw(st.integers(1, 24))
    arrays = {name: draw(st.sampled_from((dtype, dtype, *NUMBERS))) for name in ("a", "b", "c")}
    arrays |= dict.fromkeys(("x0", "x1", "out"), dtype)
    writer = KernelWriter(draw, {**arrays}, length, block=16, has_blocks=False)
    writer.elements = {name: arrays[name] for name in ("a", "b", "c")}
    writer.write(0, f"def k({', '.join(arrays)}, count: int, ratio: float):")
    writer.write(1, "i = qn.global_id()")
    scope = Scope([], ["i"])
    names = [f"given{n}" for n in range(num_operands(function))]
    for number, name in enumerate(names):
        writer.write(1, f"{name} = {writer.of(dtype, scope, draw(st.integers(0, 2)))}")
        writer.write(1, f"x{number}[i] = {name}")
    value = f"{_TEXTS.get(function, f'math.{function.value}')}({', '.join(names)})"
    if draw(st.booleans()):
        writer.write(1, f"out[i] = {value}")
    else:
        writer.write(1, f"if {writer.condition(scope, 1)}:")
        writer.write(2, f"out[i] = {value}")
        writer.write(1, "else:")
        writer.write(2, f"out[i] = {value}")
    described = tuple((name, of.name, draw(st.sampled_from(tuple(VIEWS)))) for name, of in arrays.items())
    text = PROLOGUE + "\n".join(writer.lines) + "\n"
    seed = int(draw(st.integers(0, np.iinfo(np.uint32).max)))
    program = Program(text, described, length, 16, 0, draw(st.booleans()), seed, function.value)
    return InexactProgram(program, function.value)
