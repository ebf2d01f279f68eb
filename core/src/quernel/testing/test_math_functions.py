"""Mathematical functions against double precision, within the bound in units of the last place that each states."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.ir.nodes import MathFunction
from quernel.testing.bounds import bound_of
from quernel.testing.launching import on

SPREAD = np.concatenate([np.linspace(-30, 30, 301), np.logspace(-30, 4, 120), -np.logspace(-30, 2, 60)])
POSITIVE = np.concatenate([np.logspace(-37, 37, 300), np.linspace(0.1, 40, 200), 1 + np.logspace(-6, -1, 40)])
UNIT = np.concatenate([np.linspace(-1, 1, 201), np.logspace(-20, -1, 50)])
SMALL = np.linspace(-20, 20, 401)


@qn.kernel
def sqrt(x, out):
    i = qn.global_id()
    out[i] = math.sqrt(x[i])


@qn.kernel
def rsqrt(x, out):
    i = qn.global_id()
    out[i] = qn.rsqrt(x[i])


@qn.kernel
def exp(x, out):
    i = qn.global_id()
    out[i] = math.exp(x[i])


@qn.kernel
def expm1(x, out):
    i = qn.global_id()
    out[i] = math.expm1(x[i])


@qn.kernel
def log(x, out):
    i = qn.global_id()
    out[i] = math.log(x[i])


@qn.kernel
def log2(x, out):
    i = qn.global_id()
    out[i] = math.log2(x[i])


@qn.kernel
def log10(x, out):
    i = qn.global_id()
    out[i] = math.log10(x[i])


@qn.kernel
def log1p(x, out):
    i = qn.global_id()
    out[i] = math.log1p(x[i])


@qn.kernel
def sin(x, out):
    i = qn.global_id()
    out[i] = math.sin(x[i])


@qn.kernel
def cos(x, out):
    i = qn.global_id()
    out[i] = math.cos(x[i])


@qn.kernel
def tan(x, out):
    i = qn.global_id()
    out[i] = math.tan(x[i])


@qn.kernel
def asin(x, out):
    i = qn.global_id()
    out[i] = math.asin(x[i])


@qn.kernel
def acos(x, out):
    i = qn.global_id()
    out[i] = math.acos(x[i])


@qn.kernel
def atan(x, out):
    i = qn.global_id()
    out[i] = math.atan(x[i])


@qn.kernel
def sinh(x, out):
    i = qn.global_id()
    out[i] = math.sinh(x[i])


@qn.kernel
def cosh(x, out):
    i = qn.global_id()
    out[i] = math.cosh(x[i])


@qn.kernel
def tanh(x, out):
    i = qn.global_id()
    out[i] = math.tanh(x[i])


@qn.kernel
def asinh(x, out):
    i = qn.global_id()
    out[i] = math.asinh(x[i])


@qn.kernel
def acosh(x, out):
    i = qn.global_id()
    out[i] = math.acosh(x[i])


@qn.kernel
def atanh(x, out):
    i = qn.global_id()
    out[i] = math.atanh(x[i])


@qn.kernel
def erf(x, out):
    i = qn.global_id()
    out[i] = math.erf(x[i])


@qn.kernel
def erfc(x, out):
    i = qn.global_id()
    out[i] = math.erfc(x[i])


@qn.kernel
def gamma(x, out):
    i = qn.global_id()
    out[i] = math.gamma(x[i])


@qn.kernel
def lgamma(x, out):
    i = qn.global_id()
    out[i] = math.lgamma(x[i])


@qn.kernel
def atan2(x, y, out):
    i = qn.global_id()
    out[i] = math.atan2(x[i], y[i])


@qn.kernel
def exp2(x, out):
    i = qn.global_id()
    out[i] = math.exp2(x[i])


@qn.kernel
def cbrt(x, out):
    i = qn.global_id()
    out[i] = math.cbrt(x[i])


@qn.kernel
def pow(x, y, out):  # noqa: A001 — named after the function
    i = qn.global_id()
    out[i] = x[i] ** y[i]


@qn.kernel
def hypot(x, y, out):
    i = qn.global_id()
    out[i] = math.hypot(x[i], y[i])


@qn.kernel
def fmod(x, y, out):
    i = qn.global_id()
    out[i] = math.fmod(x[i], y[i])


@qn.kernel
def copysign(x, y, out):
    i = qn.global_id()
    out[i] = math.copysign(x[i], y[i])


@qn.kernel
def classify(x, nan, infinite, finite):
    i = qn.global_id()
    nan[i] = math.isnan(x[i])
    infinite[i] = math.isinf(x[i])
    finite[i] = math.isfinite(x[i])


ONE_OPERAND: list[Any] = [
    pytest.param(sqrt, math.sqrt, POSITIVE, marks=pytest.mark.quernel_needs("exact")),
    (rsqrt, lambda x: 1 / math.sqrt(x), POSITIVE),
    (exp, math.exp, SPREAD[np.abs(SPREAD) < 80]),
    (expm1, math.expm1, SMALL),
    (exp2, math.exp2, SMALL),
    (cbrt, math.cbrt, SPREAD),
    (log, math.log, POSITIVE),
    (log2, math.log2, POSITIVE),
    (log10, math.log10, POSITIVE),
    (log1p, math.log1p, np.abs(SPREAD)),
    (sin, math.sin, SPREAD),
    (cos, math.cos, SPREAD),
    (tan, math.tan, SMALL),
    (asin, math.asin, UNIT),
    (acos, math.acos, UNIT),
    (atan, math.atan, SPREAD),
    (sinh, math.sinh, SMALL),
    (cosh, math.cosh, SMALL),
    (tanh, math.tanh, SMALL),
    (asinh, math.asinh, SPREAD),
    (acosh, math.acosh, 1 + np.abs(SMALL)),
    (atanh, math.atanh, UNIT[np.abs(UNIT) < 1]),
    (erf, math.erf, SMALL),
    (erfc, math.erfc, np.linspace(-4, 8, 200)),
    (gamma, math.gamma, np.linspace(0.1, 30, 200)),
    (lgamma, math.lgamma, np.linspace(3, 100, 200)),
]
TWO_OPERANDS: list[tuple[Any, Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = [
    (atan2, math.atan2, SMALL, SMALL[::-1] + 0.03),
    (pow, math.pow, np.linspace(0.05, 9, 300), np.linspace(-7, 7, 300)),
    (hypot, math.hypot, SMALL, SMALL[::-1]),
    (fmod, math.fmod, SMALL * 7, SMALL[::-1] + 0.07),
    (copysign, math.copysign, SMALL, SMALL[::-1]),
]


def stated(kernel: Any) -> float:
    """The bound of the function that a kernel is named after."""
    return bound_of(MathFunction(kernel.__name__))


def assert_within(out: np.ndarray[Any, Any], exact: list[float], bound: float, x: np.ndarray[Any, Any]) -> None:
    """Each result within `bound` units of the last place of the exact value (of the smallest normal near zero)."""
    exact_values = np.array(exact, np.float64)
    with np.errstate(over="ignore"):
        unit = np.spacing(np.abs(exact_values.astype(out.dtype))).astype(np.float64)
    error = np.abs(out.astype(np.float64) - exact_values) / unit
    # Half a unit more, as the exact value is itself no number of the type; in f64 the reference is off by as much.
    worst = int(np.nanargmax(error))
    assert error[worst] <= bound + 0.5, (
        f"at {x[worst]!r}: {out[worst]!r} is {error[worst]:.2f} ulp from {exact[worst]!r}"
    )
    assert not np.isnan(out).any()


@pytest.mark.parametrize("dtype", [qn.f32, qn.f64], ids=str)
@pytest.mark.parametrize(("kernel", "reference", "x"), ONE_OPERAND, ids=lambda k: getattr(k, "__name__", ""))
def test_functions_of_one_operand_keep_their_bound(
    quernel_device: Any, kernel: Any, reference: Any, x: np.ndarray[Any, Any], dtype: Any
) -> None:
    given = x.astype(dtype.numpy)
    out = np.zeros_like(given)
    on(quernel_device, kernel).over(len(given))(given, out)
    assert_within(out, [reference(float(value)) for value in given], stated(kernel), given)


@pytest.mark.parametrize("dtype", [qn.f32, qn.f64], ids=str)
@pytest.mark.parametrize(("kernel", "reference", "x", "y"), TWO_OPERANDS, ids=lambda k: getattr(k, "__name__", ""))
def test_functions_of_two_operands_keep_their_bound(
    quernel_device: Any,
    kernel: Any,
    reference: Any,
    x: np.ndarray[Any, Any],
    y: np.ndarray[Any, Any],
    dtype: Any,
) -> None:
    a, b = x.astype(dtype.numpy), y.astype(dtype.numpy)
    out = np.zeros_like(a)
    on(quernel_device, kernel).over(len(a))(a, b, out)
    assert_within(out, [reference(float(p), float(q)) for p, q in zip(a, b, strict=True)], stated(kernel), a)


SPECIAL: list[tuple[Any, list[float], list[float]]] = [
    (sqrt, [0.0, -0.0, math.inf, -1.0, math.nan], [0.0, -0.0, math.inf, math.nan, math.nan]),
    (exp, [0.0, math.inf, -math.inf, 1e4, -1e4, math.nan], [1.0, math.inf, 0.0, math.inf, 0.0, math.nan]),
    (log, [1.0, 0.0, -0.0, -1.0, math.inf, math.nan], [0.0, -math.inf, -math.inf, math.nan, math.inf, math.nan]),
    (log2, [8.0, 0.0, -1.0, math.inf], [3.0, -math.inf, math.nan, math.inf]),
    (sin, [0.0, -0.0, math.inf, math.nan], [0.0, -0.0, math.nan, math.nan]),
    (cos, [0.0, -math.inf], [1.0, math.nan]),
    (tanh, [-0.0, math.inf, -math.inf, 50.0], [-0.0, 1.0, -1.0, 1.0]),
    (asin, [1.5, -0.0], [math.nan, -0.0]),
    (atan, [math.inf, -0.0], [math.pi / 2, -0.0]),
    (acosh, [0.5, 1.0], [math.nan, 0.0]),
    (erf, [math.inf, -math.inf, 0.0, math.nan], [1.0, -1.0, 0.0, math.nan]),
]


@pytest.mark.parametrize("dtype", [qn.f32, qn.f64], ids=str)
@pytest.mark.parametrize(("kernel", "x", "expected"), SPECIAL, ids=lambda k: getattr(k, "__name__", ""))
def test_special_values_give_what_c_gives(
    quernel_device: Any, kernel: Any, x: list[float], expected: list[float], dtype: Any
) -> None:
    given = np.array(x, dtype.numpy)
    out = np.zeros_like(given)
    on(quernel_device, kernel).over(len(given))(given, out)
    wanted = np.array(expected, dtype.numpy)
    rounded = np.isfinite(wanted) & (wanted != 0)
    assert np.array_equal(out[~rounded], wanted[~rounded], equal_nan=True), (out, wanted)
    if rounded.any():
        assert_within(out[rounded], np.array(expected)[rounded].tolist(), stated(kernel), given[rounded])
    numbers = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(out)[numbers], np.signbit(wanted)[numbers])


def test_floats_are_classified(quernel_device: Any) -> None:
    x = np.array([0.0, -1.5, math.inf, -math.inf, math.nan, 1e-45], np.float32)
    outs = [np.zeros(6, bool) for _ in range(3)]
    on(quernel_device, classify).over(6)(x, *outs)
    for out, ufunc in zip(outs, (np.isnan, np.isinf, np.isfinite), strict=True):
        assert np.array_equal(out, ufunc(x))


@qn.kernel
def constants(out):
    i = qn.global_id()
    out[i] = math.pi * math.e + math.tau


@pytest.mark.quernel_needs("f64")
def test_constants_of_math_are_known(quernel_device: Any) -> None:
    out = np.zeros(1)
    on(quernel_device, constants.options(contract=False)).over(1)(out)
    assert out[0] == math.pi * math.e + math.tau
