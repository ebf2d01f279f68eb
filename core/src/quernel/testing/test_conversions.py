"""Casts between all types, comparisons by mathematical value, and stores that convert."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.testing import exact
from quernel.testing.exact import BOOL, FLOATS, INTEGERS, SCALARS, array, assert_equal, edges, pairs
from quernel.testing.fuzz.programs import kernel_of
from quernel.testing.launching import on


def cast_kernel(target: Any) -> Any:
    """A kernel made by a factory: `target` is captured."""

    @qn.kernel
    def convert(a, out):
        i = qn.global_id()
        out[i] = target(a[i])

    return convert


CASTS = {target: cast_kernel(target) for target in (*INTEGERS, *FLOATS)}


@pytest.mark.parametrize("source", SCALARS, ids=str)
@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("target", [*INTEGERS, *FLOATS], ids=str)
def test_every_cast_is_exact(quernel_device: Any, source: Any, target: Any) -> None:
    a = edges(source)
    if source.is_float and target.is_integer:  # the last value below the limit, the first above
        limits = [float(target.max), float(target.max) + 1, float(target.min), float(target.min) - 1, -0.9, 254.999]
        a += [
            exact.rounded(neighbour, source)
            for limit in limits
            for neighbour in (limit, math.nextafter(limit, math.inf), math.nextafter(limit, -math.inf))
        ]
    out = np.zeros(len(a), target.numpy)
    on(quernel_device, CASTS[target]).over(len(a))(array(a, source), out)
    assert_equal(out, [exact.cast(x, source, target) for x in a], a)


@pytest.mark.quernel_needs("f64")
@pytest.mark.parametrize("block", [1, 64])
@pytest.mark.parametrize("through", [qn.i8, qn.i16, qn.i32, qn.i64, qn.u32], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_integers_between_floats_have_no_negative_zero(
    quernel_device: Any, dtype: Any, through: Any, block: int
) -> None:
    kernel = kernel_of(
        f"@qn.kernel\ndef k(a, out):\n    i = qn.global_id()\n    out[i] = qn.{dtype}(qn.{through}(a[i]))\n"
    )
    a = [-0.0, -0.25, -0.75, 0.0, 0.25, 2.5] * 12
    out = np.ones(len(a), dtype.numpy)
    on(quernel_device, kernel).over(len(a), block=block)(array(a, dtype), out)
    assert out.tolist() == [float(math.trunc(x)) for x in a]
    assert not np.signbit(out).any()


@qn.kernel
def to_bool(a, out):
    i = qn.global_id()
    out[i] = bool(a[i])


@pytest.mark.parametrize("source", SCALARS, ids=str)
def test_a_cast_to_bool_compares_with_zero(quernel_device: Any, source: Any) -> None:
    a = edges(source)
    out = np.zeros(len(a), bool)
    on(quernel_device, to_bool).over(len(a))(array(a, source), out)
    assert_equal(out, [x != 0 for x in a], a)


@qn.kernel
def to_python_types(a, ints, floats):
    i = qn.global_id()
    ints[i] = int(a[i])
    floats[i] = float(a[i])


@pytest.mark.quernel_needs("f64")
@pytest.mark.parametrize("source", SCALARS, ids=str)
def test_int_and_float_give_i64_and_f64(quernel_device: Any, source: Any) -> None:
    a = edges(source)
    ints, floats = np.zeros(len(a), np.int64), np.zeros(len(a))
    on(quernel_device, to_python_types).over(len(a))(array(a, source), ints, floats)
    assert_equal(ints, [exact.cast(x, source, qn.i64) for x in a], a)
    assert_equal(floats, [exact.cast(x, source, qn.f64) for x in a], a)


@qn.kernel
def copy(a, out):
    i = qn.global_id()
    out[i] = a[i]


STORES = [
    (source, target)
    for source in SCALARS
    for target in SCALARS
    if not (source.is_float and not target.is_float) and not (target is BOOL and source is not BOOL)
]


@pytest.mark.parametrize(("source", "target"), STORES, ids=str)
def test_a_store_wraps_integers_and_rounds_floats(quernel_device: Any, source: Any, target: Any) -> None:
    a = edges(source)
    out = np.zeros(len(a), target.numpy)
    on(quernel_device, copy).over(len(a))(array(a, source), out)
    assert_equal(out, [exact.cast(x, source, target) for x in a], a)


@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_a_float_stored_into_integers_is_refused(quernel_device: Any, target: Any) -> None:
    with pytest.raises(qn.errors.KernelTypeError, match=r"f32|float"):
        on(quernel_device, copy).over(1)(array([1.5], qn.f32), array([0], target))


@qn.kernel
def compare(a, b, lt, le, gt, ge, eq, ne):
    i = qn.global_id()
    lt[i] = a[i] < b[i]
    le[i] = a[i] <= b[i]
    gt[i] = a[i] > b[i]
    ge[i] = a[i] >= b[i]
    eq[i] = a[i] == b[i]
    ne[i] = a[i] != b[i]


def f32_is_too_narrow(left: Any, right: Any) -> bool:
    """Whether f32 meets integers that it does not hold, so that the comparison computes in f64."""
    return any(a is qn.f32 and b.is_integer and b.bits >= 32 for a, b in ((left, right), (right, left)))


COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
INTEGER_PAIRS = [(left, right) for left in (BOOL, *INTEGERS) for right in (BOOL, *INTEGERS)]
FLOAT_PAIRS = [
    pytest.param(left, right, marks=pytest.mark.quernel_needs("f64"))
    if f32_is_too_narrow(left, right)
    else (left, right)
    for left in SCALARS
    for right in SCALARS
    if left.is_float or right.is_float
]


@pytest.mark.parametrize(("left", "right"), INTEGER_PAIRS + FLOAT_PAIRS, ids=str)
def test_comparisons_are_by_mathematical_value(quernel_device: Any, left: Any, right: Any) -> None:
    a, b = pairs(edges(left), edges(right))
    outs = [np.zeros(len(a), bool) for _ in COMPARISONS]
    on(quernel_device, compare).over(len(a))(array(a, left), array(b, right), *outs)
    for out, holds in zip(outs, COMPARISONS, strict=True):
        assert_equal(out, [holds(x, y) for x, y in zip(a, b, strict=True)], a, b)


@qn.kernel
def compare_with_large_literals(a, below, above):
    i = qn.global_id()
    below[i] = a[i] < 100000000000000000000
    above[i] = a[i] > -100000000000000000000


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_comparison_with_any_literal_is_by_value(quernel_device: Any, dtype: Any) -> None:
    a = edges(dtype)
    below, above = np.zeros(len(a), bool), np.zeros(len(a), bool)
    on(quernel_device, compare_with_large_literals).over(len(a))(array(a, dtype), below, above)
    assert below.all()
    assert above.all()


@qn.kernel
def bits(x, y, as_int, as_float):
    i = qn.global_id()
    as_int[i] = qn.bitcast(x[i], qn.u32)
    as_float[i] = qn.bitcast(y[i], qn.f32)


def test_bitcast_keeps_the_bits(quernel_device: Any) -> None:
    x = np.array([0.0, -0.0, 1.0, 1e-45, math.inf, -2.5], np.float32)
    as_int, as_float = np.zeros(6, np.uint32), np.zeros(6, np.float32)
    on(quernel_device, bits).over(6)(x, x.view(np.uint32), as_int, as_float)
    assert np.array_equal(as_int, x.view(np.uint32))
    assert np.array_equal(as_float.view(np.uint32), x.view(np.uint32))


@qn.kernel
def rounding(x, near, down, up, toward_zero):
    i = qn.global_id()
    near[i] = round(x[i])
    down[i] = math.floor(x[i])
    up[i] = math.ceil(x[i])
    toward_zero[i] = math.trunc(x[i])


@qn.kernel
def rounding_floats(x, near, down, up, toward_zero):
    i = qn.global_id()
    near[i] = qn.rint(x[i])
    down[i] = qn.floor(x[i])
    up[i] = qn.ceil(x[i])
    toward_zero[i] = qn.trunc(x[i])


@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding_gives_integers_as_in_python(quernel_device: Any, dtype: Any) -> None:
    x = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0, -0.0, 7.49, -7.51, 2.0**40, -(2.0**40), 0.49999997]
    x = [exact.rounded(value, dtype) for value in x]
    outs = [np.zeros(len(x), np.int64) for _ in range(4)]
    on(quernel_device, rounding).over(len(x))(array(x, dtype), *outs)
    for out, meaning in zip(outs, (round, math.floor, math.ceil, math.trunc), strict=True):
        assert_equal(out, [meaning(value) for value in x], x)


@pytest.mark.quernel_needs("exact")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding_of_the_package_keeps_the_type_and_the_sign_of_zero(quernel_device: Any, dtype: Any) -> None:
    x = edges(dtype) + [exact.rounded(value, dtype) for value in (0.5, 1.5, -0.4, -0.5, 8388609.5, 4503599627370497.5)]
    outs = [np.zeros(len(x), dtype.numpy) for _ in range(4)]
    on(quernel_device, rounding_floats).over(len(x))(array(x, dtype), *outs)
    for out, ufunc in zip(outs, (np.rint, np.floor, np.ceil, np.trunc), strict=True):
        assert_equal(out, ufunc(array(x, dtype)).tolist(), x)


@qn.kernel
def count_bits(a, population, leading, trailing):
    i = qn.global_id()
    population[i] = qn.popcount(a[i])
    leading[i] = qn.clz(a[i])
    trailing[i] = qn.ctz(a[i])


@pytest.mark.parametrize("dtype", [qn.i32, qn.u32, qn.i64, qn.u64], ids=str)
def test_bits_are_counted_within_the_width(quernel_device: Any, dtype: Any) -> None:
    a = edges(dtype)
    outs = [np.zeros(len(a), np.int64) for _ in range(3)]
    on(quernel_device, count_bits).over(len(a))(array(a, dtype), *outs)
    patterns = [x & ((1 << dtype.bits) - 1) for x in a]
    assert_equal(outs[0], [bits.bit_count() for bits in patterns], a)
    assert_equal(outs[1], [dtype.bits - bits.bit_length() for bits in patterns], a)
    assert_equal(outs[2], [(bits & -bits).bit_length() - 1 if bits else dtype.bits for bits in patterns], a)


@qn.kernel
def joined(x, out):
    i = qn.global_id()
    acc = 0.0
    for j in range(3):
        acc += x[i] * j
    out[i] = acc


@pytest.mark.quernel_needs("f64")
def test_an_accumulator_of_literals_takes_the_type_of_what_it_sums(quernel_device: Any) -> None:
    x = np.array([16777216.0, 0.1], np.float32)
    out = np.zeros(2)
    on(quernel_device, joined.options(contract=False)).over(2)(x, out)
    acc = np.zeros(2, np.float32)
    for j in range(3):
        acc = acc + x * np.float32(j)
    assert np.array_equal(out, acc.astype(np.float64))


@qn.kernel
def clamped(x, lo, hi, out):
    i = qn.global_id()
    out[i] = qn.clamp(x[i], lo, hi)


@pytest.mark.quernel_needs("f64")
def test_clamp_keeps_values_within_its_bounds(quernel_device: Any) -> None:
    x = np.array([-5.0, 0.25, 3.0], np.float32)
    out = np.zeros(3, np.float32)
    on(quernel_device, clamped).over(3)(x, -1.0, 1.0, out)
    assert out.tolist() == [-1.0, 0.25, 1.0]
