from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, compiler, lowered
from tests.unit.cpu.test_operators import INTEGERS, applied, assert_same, edges
from tests.unit.ir_by_hand import array as array_parameter
from tests.unit.ir_by_hand import kernel, load, store

from quernel.dtypes import DType, bool_, f16, f32, f64, i8, i32, i64, u16, u64
from quernel.ir import semantics
from quernel.ir.math_functions import PREDICATES, num_operands
from quernel.ir.nodes import Expr, Math, MathFunction
from quernel_cpu import _toolchain
from quernel_cpu.targets import host_target
from quernel_cpu.vectormath import vector_functions

BITS = (MathFunction.POPCOUNT, MathFunction.CLZ, MathFunction.CTZ)
EXACT = tuple(function for function in semantics.EXACT_FUNCTIONS if function not in BITS)
INEXACT = tuple(function for function in MathFunction if function not in semantics.EXACT_FUNCTIONS)


@cache
def calling(function: MathFunction, result: DType) -> Any:
    def make(*operands: Expr) -> Expr:
        return Math(function=function, operands=operands, type=result)

    return make


@pytest.mark.parametrize("dtype", [f16, f32, f64], ids=str)
@pytest.mark.parametrize("function", sorted(EXACT, key=lambda function: function.value), ids=lambda f: f.value)
def test_exact_function_equals_the_semantics(function: MathFunction, dtype: DType) -> None:
    result = bool_ if function in PREDICATES else dtype
    values = edges(dtype)
    cases = [(x, y) for x in values for y in values] if num_operands(function) == 2 else [(x,) for x in values]
    types = (*(dtype for _ in cases[0]), result)
    found = applied(calling(function, result), types, [list(column) for column in zip(*cases, strict=True)])
    assert_same(found, [semantics.math_function(function, case, dtype) for case in cases], cases)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("function", BITS, ids=lambda function: function.value)
def test_bit_count_equals_the_semantics(function: MathFunction, dtype: DType) -> None:
    values = edges(dtype)
    found = applied(calling(function, dtype), (dtype, dtype), [values])
    wanted = [semantics.math_function(function, (value,), dtype) for value in values]
    assert_same(found, wanted, [(value,) for value in values])


def _operands(function: MathFunction) -> list[tuple[float, ...]]:
    """Numbers across the domain and beyond it, singularities included."""
    values = [
        *np.linspace(-3, 3, 61),
        *np.linspace(-40, 40, 33),
        0.0,
        -0.0,
        1e-3,
        1e-8,
        1e3,
        math.inf,
        -math.inf,
        math.nan,
    ]
    if num_operands(function) == 2:
        return [(x, y) for x in values[::4] + values[-8:] for y in values[::4] + values[-8:]]
    return [(float(x),) for x in values]


ULPS = {MathFunction.GAMMA: 16, MathFunction.LGAMMA: 16}


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("function", INEXACT, ids=lambda function: function.value)
def test_inexact_function_is_within_its_bound(function: MathFunction, dtype: DType) -> None:
    cases = [tuple(float(semantics.cast(x, f64, dtype)) for x in case) for case in _operands(function)]
    types = (*(dtype for _ in cases[0]), dtype)
    found = applied(calling(function, dtype), types, [list(column) for column in zip(*cases, strict=True)])
    for case, got in zip(cases, found, strict=True):
        wanted = float(semantics.math_function(function, case, dtype))
        if math.isnan(wanted) or math.isinf(wanted):
            assert got == wanted or (math.isnan(got) and math.isnan(wanted)), (case, got, wanted)
        else:
            ulp = float(np.spacing(dtype.numpy.type(abs(wanted) or dtype.numpy.type(0))))
            slack = 1e-12 if dtype is f64 and function in ULPS else 0.0
            assert abs(got - wanted) <= ULPS.get(function, 4) * ulp + slack, (
                case,
                got,
                wanted,
                abs(got - wanted) / ulp,
            )


def test_a_function_of_the_vector_library_is_called_on_vectors() -> None:
    if not vector_functions(host_target(), frozenset(), "atanf"):
        pytest.skip("needs the vector mathematics of glibc (libmvec)")
    body = (store("y", Math(function=MathFunction.ATAN, operands=(load("x", f32),), type=f32)),)
    low = lowered(kernel((array_parameter("x", f32), array_parameter("y", f32)), body), CONTIGUOUS)
    assert "libmvec" in low.header.features
    assert "_ZGV" in compiler().assembly(low)


def test_a_target_that_may_run_elsewhere_calls_no_vector_library() -> None:
    if not _toolchain.host()[0].startswith("x86_64"):
        pytest.skip("needs an x86-64 machine")
    from quernel_cpu.targets import named_target

    assert vector_functions(named_target("x86-64-v3"), frozenset({"avx2"}), "expf") == ()


@pytest.mark.parametrize(("function", "result"), [(MathFunction.POPCOUNT, i32), (MathFunction.CTZ, i64)])
def test_a_bit_count_comes_in_the_type_that_is_asked_for(function: MathFunction, result: DType) -> None:
    for dtype in (i8, u16, u64):
        found = applied(calling(function, result), (dtype, result), [[1, 5, 8, 0]])
        assert found == [semantics.math_function(function, (value,), dtype) for value in (1, 5, 8, 0)]
