"""Operators on every type, at the values where implementations go wrong, against exact integers and IEEE floats."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.testing import exact
from quernel.testing.exact import BOOL, FLOATS, INTEGERS, SIGNED, array, assert_equal, edges, pairs, widened, wrap
from quernel.testing.launching import on


@qn.kernel
def add(a, b, out):
    i = qn.global_id()
    out[i] = a[i] + b[i]


@qn.kernel
def subtract(a, b, out):
    i = qn.global_id()
    out[i] = a[i] - b[i]


@qn.kernel
def multiply(a, b, out):
    i = qn.global_id()
    out[i] = a[i] * b[i]


@qn.kernel
def divide(a, b, out):
    i = qn.global_id()
    out[i] = a[i] / b[i]


@qn.kernel
def floor_divide(a, b, out):
    i = qn.global_id()
    out[i] = a[i] // b[i]


@qn.kernel
def remainder(a, b, out):
    i = qn.global_id()
    out[i] = a[i] % b[i]


@qn.kernel
def bit_and(a, b, out):
    i = qn.global_id()
    out[i] = a[i] & b[i]


@qn.kernel
def bit_or(a, b, out):
    i = qn.global_id()
    out[i] = a[i] | b[i]


@qn.kernel
def bit_xor(a, b, out):
    i = qn.global_id()
    out[i] = a[i] ^ b[i]


@qn.kernel
def shift_left(a, b, out):
    i = qn.global_id()
    out[i] = a[i] << b[i]


@qn.kernel
def shift_right(a, b, out):
    i = qn.global_id()
    out[i] = a[i] >> b[i]


@qn.kernel
def least(a, b, out):
    i = qn.global_id()
    out[i] = min(a[i], b[i])


@qn.kernel
def greatest(a, b, out):
    i = qn.global_id()
    out[i] = max(a[i], b[i])


@qn.kernel
def negate(a, out):
    i = qn.global_id()
    out[i] = -a[i]


@qn.kernel
def magnitude(a, out):
    i = qn.global_id()
    out[i] = abs(a[i])


@qn.kernel
def invert(a, out):
    i = qn.global_id()
    out[i] = ~a[i]


@qn.kernel
def power(a, b, out):
    i = qn.global_id()
    out[i] = a[i] ** b[i]


@qn.kernel
def cube(a, out):
    i = qn.global_id()
    out[i] = a[i] ** 3


INTEGER_OPERATORS: list[tuple[Any, Callable[[int, int], int]]] = [
    (add, operator.add),
    (subtract, operator.sub),
    (multiply, operator.mul),
    (floor_divide, lambda a, b: a // b if b else 0),
    (remainder, lambda a, b: a % b if b else 0),
]
BITWISE: list[tuple[Any, Callable[[Any, Any], Any]]] = [
    (bit_and, operator.and_),
    (bit_or, operator.or_),
    (bit_xor, operator.xor),
]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(("kernel", "meaning"), INTEGER_OPERATORS, ids=lambda k: getattr(k, "__name__", ""))
def test_integer_arithmetic_is_exact_modulo_the_width(
    quernel_device: Any, kernel: Any, meaning: Any, dtype: Any
) -> None:
    a, b = pairs(edges(dtype), edges(dtype))
    out = np.zeros(len(a), widened(dtype).numpy)
    on(quernel_device, kernel).over(len(a))(array(a, dtype), array(b, dtype), out)
    assert_equal(out, [wrap(meaning(x, y), widened(dtype)) for x, y in zip(a, b, strict=True)], a, b)


@pytest.mark.parametrize("dtype", [BOOL, *INTEGERS], ids=str)
@pytest.mark.parametrize(("kernel", "meaning"), BITWISE, ids=lambda k: getattr(k, "__name__", ""))
def test_bitwise_operators_keep_equal_types(quernel_device: Any, kernel: Any, meaning: Any, dtype: Any) -> None:
    a, b = pairs(edges(dtype), edges(dtype))
    out = np.zeros(len(a), dtype.numpy)
    on(quernel_device, kernel).over(len(a))(array(a, dtype), array(b, dtype), out)
    assert_equal(out, [meaning(x, y) for x, y in zip(a, b, strict=True)], a, b)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shift_counts_are_taken_by_their_value(quernel_device: Any, dtype: Any) -> None:
    result = widened(dtype)
    a, b = pairs(edges(dtype), edges(dtype))
    left, right = np.zeros(len(a), result.numpy), np.zeros(len(a), result.numpy)
    on(quernel_device, shift_left).over(len(a))(array(a, dtype), array(b, dtype), left)
    on(quernel_device, shift_right).over(len(a))(array(a, dtype), array(b, dtype), right)
    counts = [min(max(count, 0), result.bits) for count in b]
    assert_equal(left, [wrap(x << n, result) for x, n in zip(a, counts, strict=True)], a, b)
    assert_equal(right, [wrap(x >> n, result) for x, n in zip(a, counts, strict=True)], a, b)


@pytest.mark.parametrize("count", [qn.i8, qn.i64, qn.u64], ids=str)
@pytest.mark.parametrize("dtype", [qn.i32, qn.u32, qn.i64, qn.u64], ids=str)
def test_a_shift_computes_in_the_type_of_its_left_side(quernel_device: Any, dtype: Any, count: Any) -> None:
    a, b = pairs(edges(dtype), edges(count))
    out = np.zeros(len(a), np.int64 if dtype is not qn.u64 else np.uint64)
    on(quernel_device, shift_left).over(len(a))(array(a, dtype), array(b, count), out)
    counts = [min(max(n, 0), 64) for n in b]
    assert_equal(out, [wrap(x << n, dtype) for x, n in zip(a, counts, strict=True)], a, b)


@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_min_and_max_are_pythons(quernel_device: Any, dtype: Any) -> None:
    a, b = pairs(edges(dtype), edges(dtype))
    low, high = np.zeros(len(a), dtype.numpy), np.zeros(len(a), dtype.numpy)
    on(quernel_device, least).over(len(a))(array(a, dtype), array(b, dtype), low)
    on(quernel_device, greatest).over(len(a))(array(a, dtype), array(b, dtype), high)
    assert_equal(low, [y if y < x else x for x, y in zip(a, b, strict=True)], a, b)
    assert_equal(high, [y if y > x else x for x, y in zip(a, b, strict=True)], a, b)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_unary_operators_on_integers_wrap(quernel_device: Any, dtype: Any) -> None:
    a = edges(dtype)
    result = widened(dtype)
    negated, absolute = np.zeros(len(a), result.numpy), np.zeros(len(a), dtype.numpy)
    inverted = np.zeros(len(a), dtype.numpy)
    on(quernel_device, negate).over(len(a))(array(a, dtype), negated)
    on(quernel_device, magnitude).over(len(a))(array(a, dtype), absolute)
    on(quernel_device, invert).over(len(a))(array(a, dtype), inverted)
    assert_equal(negated, [wrap(-x, result) for x in a], a)
    assert_equal(absolute, [wrap(abs(x), dtype) for x in a], a)
    assert_equal(inverted, [wrap(~x, dtype) for x in a], a)


@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary_operators_on_floats_change_the_sign_alone(quernel_device: Any, dtype: Any) -> None:
    a = edges(dtype)
    negated, absolute = np.zeros(len(a), dtype.numpy), np.zeros(len(a), dtype.numpy)
    on(quernel_device, negate).over(len(a))(array(a, dtype), negated)
    on(quernel_device, magnitude).over(len(a))(array(a, dtype), absolute)
    assert_equal(negated, [-x for x in a], a)
    assert_equal(absolute, [math.fabs(x) for x in a], a)


@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("kernel", "ufunc"),
    [(add, np.add), (subtract, np.subtract), (multiply, np.multiply), (divide, np.divide)],
    ids=lambda k: getattr(k, "__name__", ""),
)
def test_float_arithmetic_rounds_once(quernel_device: Any, kernel: Any, ufunc: Any, dtype: Any) -> None:
    rng = np.random.default_rng(20)
    a, b = pairs(edges(dtype), edges(dtype))
    a += (rng.standard_normal(500) * 10.0 ** rng.integers(-40, 38, 500)).astype(dtype.numpy).tolist()
    b += (rng.standard_normal(500) * 10.0 ** rng.integers(-40, 38, 500)).astype(dtype.numpy).tolist()
    out = np.zeros(len(a), dtype.numpy)
    on(quernel_device, kernel).over(len(a))(array(a, dtype), array(b, dtype), out)
    with np.errstate(all="ignore"):
        assert_equal(out, ufunc(array(a, dtype), array(b, dtype)).tolist(), a, b)


@pytest.mark.quernel_needs("f64")
def test_division_of_f64_by_zero_gives_nan_where_python_raises(quernel_device: Any) -> None:
    a, b = [7.0, -7.0, 0.0, math.inf], [0.0, -0.0, 0.0, 0.0]
    quotient, rest = np.zeros(4), np.zeros(4)
    on(quernel_device, floor_divide).over(4)(np.array(a), np.array(b), quotient)
    on(quernel_device, remainder).over(4)(np.array(a), np.array(b), rest)
    assert np.isnan(quotient).all()
    assert np.isnan(rest).all()


@pytest.mark.quernel_needs("f64")
def test_floor_division_and_remainder_of_f64_are_pythons(quernel_device: Any) -> None:
    rng = np.random.default_rng(21)
    a, b = pairs(edges(qn.f64), [value for value in edges(qn.f64) if value != 0])
    a += (rng.standard_normal(500) * 1e3).tolist()
    b += (rng.standard_normal(500) * 10).tolist()
    quotient, rest = np.zeros(len(a)), np.zeros(len(a))
    on(quernel_device, floor_divide).over(len(a))(np.array(a), np.array(b), quotient)
    on(quernel_device, remainder).over(len(a))(np.array(a), np.array(b), rest)
    assert_equal(quotient, [x // y for x, y in zip(a, b, strict=True)], a, b)
    assert_equal(rest, [x % y for x, y in zip(a, b, strict=True)], a, b)


def test_floor_division_and_remainder_of_f32_are_pythons_in_f32(quernel_device: Any) -> None:
    rng = np.random.default_rng(22)
    finite = [value for value in edges(qn.f32) if math.isfinite(value) and abs(value) < 1e30]
    a, b = pairs(finite, [value for value in finite if abs(value) > 1e-30])
    a += (rng.standard_normal(500) * 1e3).astype(np.float32).tolist()
    b += (rng.standard_normal(500) * 10).astype(np.float32).tolist()
    quotient, rest = np.zeros(len(a), np.float32), np.zeros(len(a), np.float32)
    on(quernel_device, floor_divide).over(len(a))(array(a, qn.f32), array(b, qn.f32), quotient)
    on(quernel_device, remainder).over(len(a))(array(a, qn.f32), array(b, qn.f32), rest)
    with np.errstate(all="ignore"):
        assert_equal(quotient, np.floor_divide(array(a, qn.f32), array(b, qn.f32)).tolist(), a, b)
        assert_equal(rest, np.remainder(array(a, qn.f32), array(b, qn.f32)).tolist(), a, b)


@pytest.mark.quernel_needs("f64", "exact_f64")
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_true_division_of_integers_gives_f64(quernel_device: Any, dtype: Any) -> None:
    a, b = pairs(edges(dtype), [value for value in edges(dtype) if value])
    out = np.zeros(len(a))
    on(quernel_device, divide).over(len(a))(array(a, dtype), array(b, dtype), out)
    assert_equal(out, [float(x) / float(y) for x, y in zip(a, b, strict=True)], a, b)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_an_integer_to_an_unsigned_power_wraps(quernel_device: Any, dtype: Any) -> None:
    a, b = pairs(edges(dtype), [0, 1, 2, 3, 31, 63, 64, 255])
    result = exact.arithmetic(dtype, qn.u8)
    out = np.zeros(len(a), result.numpy)
    on(quernel_device, power).over(len(a))(array(a, dtype), array(b, qn.u8), out)
    assert_equal(out, [wrap(x**y, result) for x, y in zip(a, b, strict=True)], a, b)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_an_integer_to_a_constant_power_wraps(quernel_device: Any, dtype: Any) -> None:
    a = edges(dtype)
    out = np.zeros(len(a), widened(dtype).numpy)
    on(quernel_device, cube).over(len(a))(array(a, dtype), out)
    assert_equal(out, [wrap(x**3, widened(dtype)) for x in a], a)


# --- mixed types ------------------------------------------------------------------------------------------------------

TYPED_PAIRS = [
    (left, right)
    for left in (*INTEGERS, *FLOATS)
    for right in (*INTEGERS, *FLOATS)
    if left is not right and exact.arithmetic(left, right) is not None
]


@pytest.mark.parametrize(("left", "right"), TYPED_PAIRS, ids=lambda dtype: str(dtype))
def test_operands_of_two_types_meet_in_their_common_type(quernel_device: Any, left: Any, right: Any) -> None:
    result = exact.arithmetic(left, right)
    a, b = pairs(edges(left), edges(right))
    out = np.zeros(len(a), result.numpy)
    on(quernel_device, add).over(len(a))(array(a, left), array(b, right), out)
    x = [exact.cast(value, left, result) for value in a]
    y = [exact.cast(value, right, result) for value in b]
    if result.is_float:
        with np.errstate(all="ignore"):
            expected = (array(x, result) + array(y, result)).tolist()
    else:
        expected = [wrap(p + q, result) for p, q in zip(x, y, strict=True)]
    assert_equal(out, expected, a, b)


@pytest.mark.parametrize("signed", SIGNED, ids=str)
def test_u64_with_a_typed_signed_integer_is_refused_naming_the_cast(quernel_device: Any, signed: Any) -> None:
    with pytest.raises(qn.errors.KernelTypeError, match="u64") as caught:
        on(quernel_device, add).over(1)(array([1], qn.u64), array([1], signed), array([0], qn.i64))
    assert "qn.u64" in caught.value.fix
    assert caught.value.where.line == add.__wrapped__.__code__.co_firstlineno + 3


# --- weak numbers -----------------------------------------------------------------------------------------------------


@qn.kernel
def with_literals(a, wide, out):
    i = qn.global_id()
    out[i] = a[i] + 1
    wide[i] = a[i] * 0.5


@pytest.mark.quernel_needs("f64")
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_literal_takes_the_type_that_it_meets(quernel_device: Any, dtype: Any) -> None:
    a = edges(dtype)
    out, wide = np.zeros(len(a), widened(dtype).numpy), np.zeros(len(a))
    on(quernel_device, with_literals).over(len(a))(array(a, dtype), wide, out)
    assert_equal(out, [wrap(x + 1, widened(dtype)) for x in a], a)
    assert_equal(wide, [float(x) * 0.5 for x in a], a)


@qn.kernel
def with_float_literals(x, out):
    i = qn.global_id()
    out[i] = x[i] + 0.1 * 3


@pytest.mark.quernel_needs("f64")
def test_a_float_literal_beside_f32_is_f32(quernel_device: Any) -> None:
    x = np.linspace(-2, 2, 50, dtype=np.float32)
    out = np.zeros(50)
    on(quernel_device, with_float_literals).over(50)(x, out)
    assert np.array_equal(out, (x + np.float32(0.1 * 3)).astype(np.float64))


@qn.kernel
def too_large_a_literal(a, out):
    i = qn.global_id()
    out[i] = a[i] + 4294967296


def test_a_literal_that_does_not_fit_is_refused(quernel_device: Any) -> None:
    with pytest.raises(qn.errors.KernelTypeError, match="4294967296"):
        on(quernel_device, too_large_a_literal).over(1)(array([1], qn.i32), array([1], qn.i64))


# --- contraction ------------------------------------------------------------------------------------------------------


@qn.kernel
def product_and_sum(a, b, c, plus, minus, reverse):
    i = qn.global_id()
    plus[i] = a[i] * b[i] + c[i]
    minus[i] = a[i] * b[i] - c[i]
    reverse[i] = c[i] - a[i] * b[i]


@qn.kernel
def accumulate(a, b, c, plus):
    i = qn.global_id()
    total = c[i]
    total += a[i] * b[i]
    plus[i] = total


@qn.kernel
def two_products(a, b, c, d, out):
    i = qn.global_id()
    out[i] = a[i] * b[i] + c[i] * d[i]


@qn.kernel
def explicit_fma(a, b, c, out):
    i = qn.global_id()
    out[i] = qn.fma(a[i], b[i], c[i])


def columns(dtype: Any, count: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(23)
    return [rng.standard_normal(400).astype(dtype.numpy) for _ in range(count)]


@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_product_within_a_sum_is_fused(quernel_device: Any, dtype: Any) -> None:
    a, b, c = columns(dtype, 3)
    outs = [np.zeros(400, dtype.numpy) for _ in range(4)]
    on(quernel_device, product_and_sum).over(400)(a, b, c, *outs[:3])
    on(quernel_device, accumulate).over(400)(a, b, c, outs[3])
    rows = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    for out, sign, sign_c in zip(outs, (1, 1, -1, 1), (1, -1, 1, 1), strict=True):
        assert_equal(out, [exact.fused(sign * x, y, sign_c * z, dtype) for x, y, z in rows], rows)


@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_of_two_products_the_right_one_is_fused(quernel_device: Any, dtype: Any) -> None:
    a, b, c, d = columns(dtype, 4)
    out = np.zeros(400, dtype.numpy)
    on(quernel_device, two_products).over(400)(a, b, c, d, out)
    rows = list(zip(c.tolist(), d.tolist(), (a * b).tolist(), strict=True))
    assert_equal(out, [exact.fused(x, y, z, dtype) for x, y, z in rows], rows)


@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nothing_is_fused_where_contraction_is_off(quernel_device: Any, dtype: Any) -> None:
    a, b, c = columns(dtype, 3)
    outs = [np.zeros(400, dtype.numpy) for _ in range(3)]
    on(quernel_device, product_and_sum.options(contract=False)).over(400)(a, b, c, *outs)
    for out, expected in zip(outs, (a * b + c, a * b - c, c - a * b), strict=True):
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("contract", [True, False])
def test_fma_is_fused_always(quernel_device: Any, dtype: Any, contract: bool) -> None:
    a, b, c = columns(dtype, 3)
    out = np.zeros(400, dtype.numpy)
    on(quernel_device, explicit_fma.options(contract=contract)).over(400)(a, b, c, out)
    rows = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    assert_equal(out, [exact.fused(x, y, z, dtype) for x, y, z in rows], rows)


@qn.kernel
def remainders_with_nan(small, out):
    i = qn.global_id()
    given = qn.f32(small[i])
    out[i, 0] = given % qn.f32(math.nan)
    out[i, 1] = qn.f32(math.nan) % 3
    out[i, 2] = math.fmod(given, qn.f32(math.nan))
    out[i, 3] = math.fmod(qn.f32(math.nan), 2.0)
    out[i, 4] = given // qn.f32(math.nan)
    out[i, 5] = qn.f64(small[i]) % math.nan


@pytest.mark.quernel_needs("f64")
def test_a_remainder_with_nan_is_nan_even_where_the_other_side_is_surely_finite(quernel_device: Any) -> None:
    out = np.zeros((3, 6))
    on(quernel_device, remainders_with_nan).over(3)(np.array([2, 0, -7], np.int8), out)
    assert np.isnan(out).all(), out


@qn.kernel
def limited_twice(x, out):
    i = qn.global_id()
    given = x[i]
    below = min(given, 2.0)
    above = max(given, 0.0)
    out[i, 0] = min(2.0, below)
    out[i, 1] = max(0.0, above)
    out[i, 2] = min(1.0, qn.clamp(given, -1.0, 1.0))
    out[i, 3] = max(-1.0, -1.0 if given < -1.0 else given)
    out[i, 4] = above if above < 1.0 else 1.0
    out[i, 5] = min(below, 2.0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_limit_gives_what_it_gives_of_nan_also_where_another_has_the_same_constant(
    quernel_device: Any, dtype: Any
) -> None:
    """`min(c, x)` is `c` for a NaN and `min(x, c)` is not, as in Python."""
    given = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, 1.0, -1.0, 2.0, -2.0, 3.0]
    out = array(np.full((len(given), 6), 7.0), dtype)
    on(quernel_device, limited_twice).over(len(given))(array(np.array(given), dtype), out)
    wanted: list[float] = []
    for x in given:
        below, above, clamped = min(x, 2.0), max(x, 0.0), min(max(x, -1.0), 1.0)
        fourth = max(-1.0, -1.0 if x < -1.0 else x)
        fifth = above if above < 1.0 else 1.0
        wanted += [min(2.0, below), max(0.0, above), min(1.0, clamped), fourth, fifth, min(below, 2.0)]
    assert_equal(out.reshape(-1), wanted, np.repeat(given, 6).tolist(), list(range(6)) * len(given))
