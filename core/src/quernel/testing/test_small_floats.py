"""f16 and bf16: every value, every conversion, and arithmetic that computes in f32 and rounds after each operation."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.testing.exact import INTEGERS
from quernel.testing.fuzz.programs import bits, kernel_of
from quernel.testing.launching import is_interpreted, on

pytestmark = [
    pytest.mark.quernel_needs("f64"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),  # of NumPy's own casts of NaNs
]
SMALL = (qn.f16, qn.bf16)
ALL_BITS = np.arange(1 << 16, dtype=np.uint16)


def converter(target: Any) -> Any:
    return kernel_of(f"@qn.kernel\ndef k(x, out):\n    i = qn.global_id()\n    out[i] = qn.{target}(x[i])\n")


def every(device: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """All values of the type; one in sixteen where threads are slow."""
    step = 1 if not is_interpreted(device) else 16
    return ALL_BITS[::step].copy().view(dtype.numpy)


def rounded(values: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Doubles rounded once, to nearest, ties to even: to the type's own grid, worked out in whole numbers."""
    x = np.asarray(values, np.float64)
    precision, least, most = (11, -14, 65504.0) if dtype is qn.f16 else (8, -126, 3.3895313892515355e38)
    with np.errstate(all="ignore"):
        exponents = np.maximum(np.frexp(np.where(np.isfinite(x), x, 1.0))[1] - 1, least)
        unit = np.ldexp(1.0, exponents - precision + 1)
        near = np.rint(x / unit) * unit
        near = np.where(np.abs(near) > most, np.copysign(np.inf, x), near)
    return np.where(np.isfinite(x), near, x)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("target", [qn.f32, qn.f64], ids=str)
def test_widening_is_exact_for_every_value(quernel_device: Any, dtype: Any, target: Any) -> None:
    x = every(quernel_device, dtype)
    out = np.zeros(len(x), target.numpy)
    on(quernel_device, converter(target)).over(len(x))(x, out)
    assert np.array_equal(bits(out), bits(x.astype(target.numpy)))


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_bytes_of_a_rounded_value_are_of_its_bits(quernel_device: Any, dtype: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel\n"
        "def k(x, low, high, packed):\n"
        "    i = qn.global_id()\n"
        f"    near = qn.{dtype}(x[i])\n"
        "    low[i] = qn.u8(qn.bitcast(near, qn.u16))\n"
        "    high[i] = qn.u8(qn.bitcast(near, qn.u16) >> 8)\n"
        "    packed[i].value = near\n"
    )
    x = np.linspace(-300, 300, 1001).astype(np.float32)
    low, high = np.zeros(len(x), np.uint8), np.zeros(len(x), np.uint8)
    packed = np.zeros(len(x), [("tag", np.uint8), ("value", dtype.numpy)])
    on(quernel_device, kernel).over(len(x))(x, low, high, packed)
    expected = x.astype(dtype.numpy).view(np.uint16)
    assert np.array_equal(packed["value"].copy().view(np.uint16), expected)
    assert not packed["tag"].any()
    assert np.array_equal(low, expected & 255)
    assert np.array_equal(high, expected >> 8)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("source", [qn.f32, qn.f64], ids=str)
def test_narrowing_rounds_once_with_ties_to_even(quernel_device: Any, dtype: Any, source: Any) -> None:
    rng = np.random.default_rng(6)
    grid = every(quernel_device, dtype).astype(np.float64)
    grid = grid[np.isfinite(grid)][:: 1 if not is_interpreted(quernel_device) else 8]
    with np.errstate(all="ignore"):
        middle = (grid[1:] + grid[:-1]) / 2
        near = [np.nextafter(middle.astype(source.numpy), source.numpy.type(end)) for end in (-np.inf, np.inf)]
        x = np.concatenate([grid, middle, *near, rng.standard_normal(500) * 10.0 ** rng.integers(-45, 38, 500)])
        x = np.concatenate([x, [65519.99, 65520.0, 1e300, -1e300, np.inf, -np.inf, np.nan, -0.0]]).astype(source.numpy)
    out = np.zeros(len(x), dtype.numpy)
    on(quernel_device, converter(dtype)).over(len(x))(x, out)
    expected = rounded(x.astype(np.float64), dtype)
    assert np.array_equal(bits(out.astype(np.float64)), bits(expected))


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("source", INTEGERS, ids=str)
def test_integers_become_small_floats_by_one_rounding(quernel_device: Any, dtype: Any, source: Any) -> None:
    rng = np.random.default_rng(7)
    near_ties = [
        (1 << k) + (1 << max(k - shift, 0)) + d for k in range(64) for shift in (8, 9, 11, 12) for d in (-1, 0, 1)
    ]
    values = [v for sign in (1, -1) for value in near_ties if source.min <= (v := sign * value) <= source.max]
    x = np.array([*values, source.min, source.max, 0, 2049 % (source.max + 1)], source.numpy)
    x = np.concatenate([x, rng.integers(source.min, source.max, 200, source.numpy, endpoint=True)])
    out = np.zeros(len(x), dtype.numpy)
    on(quernel_device, converter(dtype)).over(len(x))(x, out)
    expected = [once(int(value), dtype) for value in x.tolist()]
    assert out.astype(np.float64).tolist() == expected


def once(value: int, dtype: Any) -> float:
    """An integer rounded to nearest, ties to even, by whole numbers alone."""
    precision, most = (11, 65504) if dtype is qn.f16 else (8, 255 << 120)
    magnitude = abs(value)
    shift = max(magnitude.bit_length() - precision, 0)
    kept, rest = magnitude >> shift, magnitude & ((1 << shift) - 1)
    half = (1 << shift) >> 1
    kept += shift > 0 and (rest > half or (rest == half and kept & 1 == 1))
    result = float(kept << shift) if kept << shift <= most else float("inf")
    return -result if value < 0 else result


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_small_floats_become_integers_truncated_and_saturated(quernel_device: Any, dtype: Any, target: Any) -> None:
    x = every(quernel_device, dtype)
    out = np.zeros(len(x), target.numpy)
    on(quernel_device, converter(target)).over(len(x))(x, out)
    expected = []
    for value in x.astype(np.float64).tolist():
        if value != value:
            expected.append(0)
        elif value in (float("inf"), float("-inf")):
            expected.append(target.max if value > 0 else target.min)
        else:
            expected.append(min(max(int(value), target.min), target.max))
    assert out.tolist() == expected


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("symbol", ["+", "-", "*", "/"])
def test_arithmetic_computes_in_f32_and_rounds_after_each_operation(
    quernel_device: Any, dtype: Any, symbol: str
) -> None:
    kernel = kernel_of(f"@qn.kernel\ndef k(a, b, out):\n    i = qn.global_id()\n    out[i] = a[i] {symbol} b[i]\n")
    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 1 << 16, 4000).astype(np.uint16).view(dtype.numpy) for _ in range(2))
    out = np.zeros(4000, dtype.numpy)
    on(quernel_device, kernel).over(4000)(a, b, out)
    apply = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[symbol]
    with np.errstate(all="ignore"):
        expected = rounded(apply(a.astype(np.float32), b.astype(np.float32)).astype(np.float64), dtype)
    assert np.array_equal(bits(out.astype(np.float64)), bits(expected))


def test_a_chain_rounds_at_every_step(quernel_device: Any) -> None:
    kernel = kernel_of("@qn.kernel\ndef k(x, out):\n    i = qn.global_id()\n    out[i] = x[i] * x[i] * x[i] + x[i]\n")
    x, out = np.array([0.1, 3.3, 60.0], np.float16), np.zeros(3, np.float16)
    on(quernel_device, kernel).over(3)(x, out)
    square = (x.astype(np.float32) * x.astype(np.float32)).astype(np.float16)
    fused = rounded(square.astype(np.float64) * x.astype(np.float64) + x.astype(np.float64), qn.f16)
    assert out.tolist() == np.float32(fused).astype(np.float16).tolist()


def test_f16_with_bf16_is_f32(quernel_device: Any) -> None:
    kernel = kernel_of("@qn.kernel\ndef k(a, b, out):\n    out[0] = a[0] + b[0]\n")
    out = np.zeros(1)
    on(quernel_device, kernel).over(1)(np.array([0.1], qn.f16.numpy), np.array([0.1], qn.bf16.numpy), out)
    assert out.tolist() == [0.0999755859375 + 0.10009765625]
