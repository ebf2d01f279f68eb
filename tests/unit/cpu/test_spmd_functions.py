"""Our own f32 functions on every target: within their stated bounds on every exponent, and C's values at the edges."""

from __future__ import annotations

import math
import re
from functools import cache

import attrs
import mpmath
import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built, compiler_for, lowered
from tests.unit.cpu.test_spmd import F1, module_of

from quernel.ir.math_functions import float_function
from quernel.ir.nodes import MathFunction
from quernel.testing.bounds import bound_of
from quernel.testing.mathematics.checking import NUM_PARTS, errors_in_ulps, operands_of
from quernel.testing.mathematics.references import exact_results
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.targets import host_target

OWN = {
    MathFunction.EXP: 1.1,
    MathFunction.LOG: 1.0,
    MathFunction.SIN: 1.7,
    MathFunction.COS: 1.7,
    MathFunction.TANH: 3.0,
    MathFunction.ERF: 7.0,
    MathFunction.POW: 0.6,
}
"""Units in the last place that each of our own functions is documented to be within."""
LEVELS = {"host": "", "sse": "x86-64-v2", "avx2": "x86-64-v3", "avx512": "x86-64-v4"}
EVERY_PART = range(NUM_PARTS)
NEAR = {MathFunction.EXP: (-104.5, 89.5), MathFunction.LOG: (0.4, 2.5), MathFunction.ERF: (-4.0, 4.0)}
"""Where the results are hard; for the others, some multiples of pi/2 and where tanh is neither 1 nor its operand."""


def compiler_with(mathematics: str, level: str = "host") -> CpuCompiler:
    """A compiler for a level of this machine; skips where the processor cannot run it."""
    features = host_target().detail("features")
    needed = {"avx2": "+avx2", "avx512": "+avx512vl"}.get(level, "")
    if level != "host" and not (host_target().detail("triple").startswith("x86_64") and needed in features):
        pytest.skip(f"needs an x86-64 processor with {needed or 'SSE4.2'}")
    target = compiler_for("spmd", "on", LEVELS[level]).target_info
    details = dict(target.details) | {"mathematics": mathematics}
    return CpuCompiler(attrs.evolve(target, details=tuple(sorted(details.items()))))


@cache
def built(function: MathFunction, mathematics: str, level: str = "host") -> Built:
    if function is MathFunction.POW:
        module = module_of("i = qn.global_id()\nz[i] = x[i] ** y[i]", x=F1, y=F1, z=F1)
    else:
        module = module_of(f"i = qn.global_id()\ny[i] = math.{function.value}(x[i])", x=F1, y=F1)
    return Built(module, CONTIGUOUS, compiler_with(mathematics, level))


def applied(program: Built, *operands: np.ndarray) -> np.ndarray:
    result = np.zeros_like(operands[0])
    program.over(len(result), *operands, result)
    return result


def hard_operands(function: MathFunction) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(7)
    low, high = NEAR.get(function, (-10.0, 10.0))
    x = generator.uniform(low, high, 1 << 17).astype(np.float32)
    if function is not MathFunction.POW:
        return (x,)
    # Results of all sizes, also of bases so near 1 that all digits of their logarithms count.
    y = generator.uniform(-150, 150, len(x)) / np.log2(np.abs(x))
    near_one = 1 + generator.uniform(-1e-4, 1e-4, len(x))
    bases = np.concatenate([np.abs(x), near_one]).astype(np.float32)
    return bases, np.concatenate([y, generator.uniform(-1e6, 1e6, len(x))]).astype(np.float32)


def assert_within(function: MathFunction, program: Built, bound: float) -> None:
    for operands in (operands_of(function, EVERY_PART, 20), hard_operands(function)):
        errors = errors_in_ulps(applied(program, *operands), exact_results(function, *operands))
        worst = int(np.argmax(errors))
        assert errors[worst] <= bound, (errors[worst], [x[worst] for x in operands])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", OWN, ids=lambda function: function.value)
def test_a_function_of_our_own_is_within_its_bound(function: MathFunction, level: str) -> None:
    assert OWN[function] <= bound_of(function)
    assert_within(function, built(function, "own", level), OWN[function])


@pytest.mark.parametrize("level", ["host", "avx2"])
@pytest.mark.parametrize("function", OWN, ids=lambda function: function.value)
def test_the_library_is_within_the_language_s_bound(function: MathFunction, level: str) -> None:
    assert_within(function, built(function, "library", level), bound_of(function))


EDGES = (
    *(0.0, math.inf, math.nan, 1e-45, 1e-40, 2.0**-126, 1e-30, 0.5, 1.0, 1.5, 2.0, 3.0, 1e9, 2.0**24 - 1, 2.0**24),
    *(3.4028235e38, 0.99999994, 1.0000001),
)


def assert_same_kind(found: np.ndarray, wanted: np.ndarray, operands: list[tuple[float, ...]]) -> None:
    """NaN, infinity and zero where C has them, with its signs."""
    for given, value, exact in zip(operands, found.tolist(), wanted.tolist(), strict=True):
        if math.isnan(exact) or math.isinf(exact) or exact == 0:
            assert str(value) == str(exact), (given, value, exact)
        else:
            assert math.isfinite(value), (given, value, exact)
            assert math.copysign(1, value) == math.copysign(1, exact), (given, value, exact)


@pytest.mark.parametrize("mathematics", ["own", "library"])
@pytest.mark.parametrize("function", OWN, ids=lambda function: function.value)
def test_an_edge_gives_what_c_gives(function: MathFunction, mathematics: str) -> None:
    values = np.array([sign * edge for edge in EDGES for sign in (1, -1)], np.float32)
    operands = (values,)
    if function is MathFunction.POW:
        x, y = np.meshgrid(values, values)
        operands = (x.ravel(), y.ravel())
    cases = [tuple(map(float, case)) for case in zip(*operands, strict=True)]
    with np.errstate(over="ignore"):
        wanted = np.array([float_function(function, case) for case in cases]).astype(np.float32)
    assert_same_kind(applied(built(function, mathematics), *operands), wanted, cases)


@pytest.mark.parametrize("level", LEVELS)
def test_results_that_an_f32_holds_come_out_exactly(level: str) -> None:
    x, y = np.meshgrid(np.arange(-60, 61, dtype=np.float32) / 4, np.arange(-6, 9, dtype=np.float32))
    with np.errstate(divide="ignore"):
        exact = x.astype(np.float64) ** y
    is_held = exact == exact.astype(np.float32)
    assert is_held.sum() > 500
    found = applied(built(MathFunction.POW, "own", level), x.ravel(), y.ravel())
    assert np.array_equal(found.reshape(x.shape)[is_held], exact[is_held])
    zeros = np.zeros(5, np.float32)
    for function, value in ((MathFunction.EXP, 1), (MathFunction.COS, 1), (MathFunction.SIN, 0), (MathFunction.ERF, 0)):
        assert applied(built(function, "own", level), zeros).tolist() == [value] * 5


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", [MathFunction.ERF, MathFunction.TANH], ids=lambda function: function.value)
def test_a_curve_levels_off_at_one_and_never_passes_it(function: MathFunction, level: str) -> None:
    start, end = (np.array([3.4, 4.0]) if function is MathFunction.ERF else np.array([8.0, 9.2])).astype(np.float32)
    rising = np.arange(start.view(np.uint32), end.view(np.uint32), dtype=np.uint32).view(np.float32)
    program = built(function, "own", level)
    assert applied(program, rising).max() == 1
    far = np.array([9.2, 50.0, 1e30, math.inf], np.float32)
    assert applied(program, far).tolist() == [1.0] * 4
    assert applied(program, -far).tolist() == [-1.0] * 4


@cache
def angles_near_multiples_of_a_right_angle() -> list[float]:
    """Of each size from 2**-1 on, the f32 nearest to a multiple of pi/2, by continued fractions of 2**k * 2/pi."""
    found = []
    with mpmath.workprec(500):
        for exponent in range(-23, 105):
            rest = mpmath.frac(mpmath.mpf(2) ** exponent * 2 / mpmath.pi)
            before, last = 0, 1
            while last < 1 << 24:
                multiple = last * -(-(1 << 23) // last)
                if multiple < 1 << 24:
                    found.append(math.ldexp(multiple, exponent))
                rest = 1 / rest
                before, last = last, int(rest) * last + before
                rest = mpmath.frac(rest)
    return found


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", [MathFunction.SIN, MathFunction.COS], ids=lambda function: function.value)
def test_an_angle_of_any_size_is_reduced_exactly(function: MathFunction, level: str) -> None:
    angles = angles_near_multiples_of_a_right_angle()
    assert math.ldexp(16367173, 72) in angles, "the worst of all is among them"
    operands = np.array([*angles, *(-angle for angle in angles)], np.float32)
    assert np.array_equal(operands[: len(angles)].astype(float), angles)
    with mpmath.workdps(80):
        exact = np.array([float(getattr(mpmath, function.value)(mpmath.mpf(float(x)))) for x in operands])
    found = applied(built(function, "own", level), operands)
    assert errors_in_ulps(found, exact).max() <= OWN[function]


def test_large_angles_among_small_ones_leave_them_as_they_are() -> None:
    generator = np.random.default_rng(3)
    small = generator.uniform(-100, 100, 4099).astype(np.float32)
    mixed = np.where(generator.random(4099) < 0.2, np.float32(1e30), small)
    program = built(MathFunction.SIN, "own")
    is_small = mixed == small
    assert np.array_equal(applied(program, mixed)[is_small], applied(program, small)[is_small])


@pytest.mark.parametrize("level", ["sse", "avx2", "avx512"])
@pytest.mark.parametrize("function", OWN, ids=lambda function: function.value)
def test_no_lane_is_alone_without_a_vector_library(function: MathFunction, level: str) -> None:
    text = "z[i] = x[i] ** y[i]" if function is MathFunction.POW else f"z[i] = math.{function.value}(x[i] + y[i])"
    module = module_of(f"i = qn.global_id()\n{text}", x=F1, y=F1, z=F1)
    own = lowered(module, CONTIGUOUS, compiler_with("own", level))
    assert f"@{function.value}f" not in own.ir
    assert f"@{function.value}f" in lowered(module, CONTIGUOUS, compiler_with("library", level)).ir
    assert "libmvec" not in own.header.features


@pytest.mark.parametrize("function", OWN, ids=lambda function: function.value)
def test_lanes_of_another_processor_stay_vectors_with_fused_operations(function: MathFunction) -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    base = compiler_for("spmd").target_info
    facts = {"triple": "aarch64-unknown-linux-gnu", "cpu": "generic", "features": "", "vector_library": "none"}
    details = dict(base.details) | facts | {"vector_bytes": "16"}
    target = attrs.evolve(base, details=tuple(sorted(details.items())), subgroup_size=4)
    text = "z[i] = x[i] ** y[i]" if function is MathFunction.POW else f"z[i] = math.{function.value}(x[i] + y[i])"
    using = CpuCompiler(target)
    made = lowered(module_of(f"i = qn.global_id()\n{text}", x=F1, y=F1, z=F1), CONTIGUOUS, using)
    assembly = using.assembly(made)
    called = {name for name in re.findall(r"\bbl\s+(\S+)", assembly) if not name.startswith("q.")}
    assert not called
    assert len(re.findall(r"\bfml[as]\s+v", assembly)) > 5 * len(re.findall(r"\bfmadd\b", assembly))


def test_logarithms_have_the_same_bits_with_instructions_of_avx512_and_without() -> None:
    patterns = np.concatenate([np.arange(0, 1 << 32, 104729), np.arange(0, 1 << 12), 0x3F3504F3 + np.arange(-64, 64)])
    x = patterns.astype(np.uint32).view(np.float32)
    found = [applied(built(MathFunction.LOG, "own", level), x) for level in ("avx512", "avx2")]
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize(
    ("function", "instructions"),
    [
        (MathFunction.EXP, ("vpermps", "vscalefps")),
        (MathFunction.LOG, ("vgetmantps", "vgetexpps", "vfixupimmps")),
        (MathFunction.POW, ("vgetmantps", "vgetexpps")),
    ],
    ids=lambda value: value.value if isinstance(value, MathFunction) else "",
)
def test_avx512_has_instructions_for_it(function: MathFunction, instructions: tuple[str, ...]) -> None:
    source = "z[i] = x[i] ** y[i]" if function is MathFunction.POW else f"z[i] = math.{function.value}(x[i])"
    module = module_of(f"i = qn.global_id()\n{source}", x=F1, y=F1, z=F1)
    made = compiler_with("own", "avx512")
    text = made.assembly(lowered(module, CONTIGUOUS, made))
    assert all(instruction in text for instruction in instructions)
    if function is MathFunction.LOG:
        assert not re.search("vcmp[a-z_]+ps", text), "special numbers are told apart by one instruction"
