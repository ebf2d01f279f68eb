from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quernel.dtypes import BY_NAME, NUMERIC, SCALARS, DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u32, u64
from quernel.ir import semantics
from quernel.ir.math_functions import INTEGER_FUNCTIONS, PREDICATES, num_operands
from quernel.ir.nodes import BinaryOp, CompareOp, MathFunction, UnaryOp
from quernel.ir.rounding import format_of, round_exact, round_float
from quernel.ir.semantics import Value, same_value

INTEGERS = [dtype for dtype in NUMERIC if dtype.is_integer]
NUMPY_FLOATS = [f16, f32, f64]
FLOATS = [*NUMPY_FLOATS, bf16]
MANY = settings(max_examples=200, deadline=None)


def edges(dtype: DType) -> list[Value]:
    if dtype.is_bool:
        return [False, True]
    if dtype.is_integer:
        near = [0, 1, 2, 3, 7, dtype.bits - 1, dtype.bits, dtype.max, dtype.max - 1, dtype.min, dtype.min + 1]
        return sorted({*near, *(-value for value in near if dtype.min <= -value <= dtype.max)})
    form = format_of(dtype)
    greatest = round_exact((1 << form.precision) - 1, form.overflow_exponent - form.precision, dtype)
    least = math.ldexp(1.0, form.least_exponent)
    normal = math.ldexp(1.0, form.least_exponent + form.precision - 1)
    some = [0.0, least, normal, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 127.5, 200.0, 40000.0, greatest, math.inf]
    some = [value for value in some if round_float(value, dtype) == value]
    return [*some, *(-value for value in some), math.nan]


def nearest(exact: Fraction, dtype: DType) -> float:
    """The float nearest to an exact number, found by comparing neighbours; independent of the code under test."""
    form = format_of(dtype)
    if exact == 0:
        return 0.0
    size = abs(exact)
    exponent = -1100
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    quantum = Fraction(2) ** max(exponent - form.precision + 1, form.least_exponent)
    below = size // quantum
    rest = size - below * quantum
    if rest * 2 > quantum or (rest * 2 == quantum and below % 2 == 1):
        below += 1
    result = below * quantum
    infinite = result >= Fraction(2) ** form.overflow_exponent
    return (1 if exact > 0 else -1) * (math.inf if infinite else float(result))


def values(dtype: DType) -> st.SearchStrategy[Value]:
    if dtype.is_float:
        anything = st.one_of(st.floats(), st.floats(-100, 100), st.integers(-9, 9).map(float))
        return st.one_of(st.sampled_from(edges(dtype)), anything.map(lambda x: round_float(x, dtype)))
    if dtype.is_bool:
        return st.booleans()
    return st.one_of(st.sampled_from(edges(dtype)), st.integers(dtype.min, dtype.max))


def pairs(dtypes: list[DType]) -> st.SearchStrategy[tuple[DType, Value, Value]]:
    return st.sampled_from(dtypes).flatmap(lambda dtype: st.tuples(st.just(dtype), values(dtype), values(dtype)))


def wrapped(value: int, dtype: DType) -> int:
    return (value - dtype.min) % (1 << dtype.bits) + dtype.min


# --- integers ---


@MANY
@given(pairs(INTEGERS))
def test_integer_arithmetic_wraps(case: tuple[DType, int, int]) -> None:
    dtype, left, right = case
    for op, exact in (
        (BinaryOp.ADD, left + right),
        (BinaryOp.SUB, left - right),
        (BinaryOp.MUL, left * right),
        (BinaryOp.AND, left & right),
        (BinaryOp.OR, left | right),
        (BinaryOp.XOR, left ^ right),
        (BinaryOp.MIN, min(left, right)),
        (BinaryOp.MAX, max(left, right)),
    ):
        assert semantics.binary(op, left, right, dtype) == wrapped(exact, dtype)
    assert semantics.unary(UnaryOp.NEG, left, dtype) == wrapped(-left, dtype)
    assert semantics.unary(UnaryOp.INVERT, left, dtype) == wrapped(-left - 1, dtype)
    assert semantics.unary(UnaryOp.ABS, left, dtype) == wrapped(abs(left), dtype)


@MANY
@given(pairs(INTEGERS))
def test_floor_division_and_remainder_make_up_the_dividend(case: tuple[DType, int, int]) -> None:
    dtype, left, right = case
    quotient = semantics.binary(BinaryOp.FLOORDIV, left, right, dtype)
    remainder = semantics.binary(BinaryOp.MOD, left, right, dtype)
    if right == 0:
        assert (quotient, remainder) == (0, 0)
    else:
        assert quotient == wrapped(math.floor(Fraction(left, right)), dtype)
        assert wrapped(int(quotient) * right + int(remainder), dtype) == left
        assert remainder == 0 or ((remainder < 0) == (right < 0) and abs(remainder) < abs(right))


@MANY
@given(pairs(INTEGERS))
def test_shift_counts_go_by_their_value(case: tuple[DType, int, int]) -> None:
    dtype, left, right = case
    count = min(max(right, 0), 200)
    assert semantics.binary(BinaryOp.SHL, left, right, dtype) == wrapped(left * 2**count, dtype)
    assert semantics.binary(BinaryOp.SHR, left, right, dtype) == math.floor(Fraction(left, 2**count))


@MANY
@given(pairs(INTEGERS), st.integers(0, 40))
def test_integer_power_wraps(case: tuple[DType, int, int], exponent: int) -> None:
    dtype, base, _ = case
    assert semantics.binary(BinaryOp.POW, base, exponent, dtype) == wrapped(base**exponent, dtype)


@pytest.mark.parametrize(
    ("op", "left", "right", "dtype", "result"),
    [
        (BinaryOp.FLOORDIV, -7, 2, i32, -4),
        (BinaryOp.FLOORDIV, 7, -2, i32, -4),
        (BinaryOp.FLOORDIV, -1, 2, i32, -1),
        (BinaryOp.MOD, -5, 3, i32, 1),
        (BinaryOp.FLOORDIV, 5, 0, u8, 0),
        (BinaryOp.MOD, 5, 0, i64, 0),
        (BinaryOp.FLOORDIV, i64.min, -1, i64, i64.min),
        (BinaryOp.MOD, i64.min, -1, i64, 0),
        (BinaryOp.SHL, 1, 40, i32, 0),
        (BinaryOp.SHL, 3, -1, i32, 3),
        (BinaryOp.SHL, 1, u64.max, u64, 0),
        (BinaryOp.SHR, -8, 40, i32, -1),
        (BinaryOp.SHR, -8, -1, i32, -8),
        (BinaryOp.SHR, 8, u64.max, u64, 0),
        (BinaryOp.AND, True, False, bool_, False),
        (BinaryOp.XOR, True, True, bool_, False),
        (BinaryOp.MAX, False, True, bool_, True),
    ],
)
def test_binary_of_integers_gives_the_value_of_the_language_page(
    op: BinaryOp, left: int, right: int, dtype: DType, result: int
) -> None:
    assert same_value(semantics.binary(op, left, right, dtype), result)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_bit_counts_match_the_binary_digits(dtype: DType) -> None:
    for value in edges(dtype):
        digits = f"{int(value) % (1 << dtype.bits):0{dtype.bits}b}"
        assert semantics.math_function(MathFunction.POPCOUNT, (value,), dtype) == digits.count("1")
        assert semantics.math_function(MathFunction.CLZ, (value,), dtype) == len(digits) - len(digits.lstrip("0"))
        assert semantics.math_function(MathFunction.CTZ, (value,), dtype) == len(digits) - len(digits.rstrip("0"))


# --- floats ---


@MANY
@given(pairs(NUMPY_FLOATS))
def test_float_arithmetic_equals_numpys(case: tuple[DType, float, float]) -> None:
    dtype, left, right = case
    a, b = dtype.numpy.type(left), dtype.numpy.type(right)
    with np.errstate(all="ignore"):
        expected = {
            BinaryOp.ADD: a + b,
            BinaryOp.SUB: a - b,
            BinaryOp.MUL: a * b,
            BinaryOp.DIV: a / b,
        }
    for op, value in expected.items():
        assert same_value(semantics.binary(op, left, right, dtype), float(value)), op


@MANY
@given(pairs([f64]))
def test_f64_floor_division_equals_pythons(case: tuple[DType, float, float]) -> None:
    _, left, right = case
    expected = (left // right, left % right) if right else (math.nan, math.nan)
    assert same_value(semantics.binary(BinaryOp.FLOORDIV, left, right, f64), expected[0])
    assert same_value(semantics.binary(BinaryOp.MOD, left, right, f64), expected[1])


@MANY
@given(pairs([f32]))
def test_f32_floor_division_equals_numpys_for_divisors_that_are_not_zero(case: tuple[DType, float, float]) -> None:
    _, left, right = case
    if right == 0.0 or not math.isfinite(left):
        expected = math.nan, math.nan
    else:
        with np.errstate(all="ignore"):
            quotient, remainder = np.divmod(np.float32(left), np.float32(right))
        expected = float(quotient), float(remainder)
    assert same_value(semantics.binary(BinaryOp.FLOORDIV, left, right, f32), expected[0])
    assert same_value(semantics.binary(BinaryOp.MOD, left, right, f32), expected[1])


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        (-7.931341679068282e-05, -1.7231953108876041e-07, f32),
        (45.28593063354492, -7.896032333374023, f32),
        (1.3828613418809255e-06, -3.0985889409862466e-09, f32),
        (718.3832450065252, -4.2579606194944674e-08, f64),
        (-321341035.3099432, 1602336.2746336423, f64),
    ],
)
def test_floor_division_is_exact_where_the_division_of_its_last_step_is_not(
    left: float, right: float, dtype: DType
) -> None:
    expected = math.floor(Fraction(left) / Fraction(right))
    assert semantics.binary(BinaryOp.FLOORDIV, left, right, dtype) == expected


@MANY
@given(pairs(FLOATS))
def test_min_and_max_are_pythons(case: tuple[DType, float, float]) -> None:
    dtype, left, right = case
    assert same_value(semantics.binary(BinaryOp.MIN, left, right, dtype), right if right < left else left)
    assert same_value(semantics.binary(BinaryOp.MAX, left, right, dtype), right if right > left else left)
    assert same_value(semantics.unary(UnaryOp.NEG, left, dtype), -left)
    assert same_value(semantics.unary(UnaryOp.ABS, left, dtype), math.copysign(left, 1.0))


@MANY
@given(pairs([bf16]))
def test_bf16_arithmetic_rounds_the_f32_result(case: tuple[DType, float, float]) -> None:
    _, left, right = case
    for op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MOD):
        single = semantics.binary(op, left, right, f32)
        assert same_value(semantics.binary(op, left, right, bf16), semantics.cast(single, f32, bf16))


finite = st.floats(allow_nan=False, allow_infinity=False)


@MANY
@given(st.sampled_from([f32, f64]), finite, finite, finite, st.booleans())
def test_fma_rounds_the_exact_value_once(dtype: DType, a: float, b: float, c: float, cancels: bool) -> None:
    a, b, c = (round_float(x, dtype) for x in (a, b, c))
    if cancels:
        c = semantics.unary(UnaryOp.NEG, semantics.binary(BinaryOp.MUL, a, b, dtype), dtype)
    if not all(math.isfinite(x) for x in (a, b, c)):
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    result = semantics.fma(a, b, c, dtype)
    assert result == nearest(exact, dtype)
    if exact != 0:
        assert math.copysign(1, result) == (1 if exact > 0 else -1)


@pytest.mark.parametrize(
    ("a", "b", "c", "result"),
    [
        (1e300, 1e300, -math.inf, -math.inf),
        (math.inf, 0.0, 1.0, math.nan),
        (math.inf, 1.0, -math.inf, math.nan),
        (-0.0, 1.0, -0.0, -0.0),
        (-0.0, 1.0, 0.0, 0.0),
        (2.0, -3.0, 6.0, 0.0),
        (-5e-324, 0.25, -0.0, -0.0),
        (1.0, math.nan, 1.0, math.nan),
    ],
)
def test_fma_of_special_values(a: float, b: float, c: float, result: float) -> None:
    assert same_value(semantics.fma(a, b, c, f64), result)


def test_fma_of_f32_is_not_rounded_by_way_of_f64() -> None:
    # The product lies a hair above a tie of f32 that the double sum cannot tell from the tie.
    a, b, c = 1.0 + 2.0**-23, 1.0 + 2.0**-23, 2.0**-80
    assert semantics.fma(a, b, c, f32) == nearest(Fraction(a) * Fraction(b) + Fraction(c), f32)
    tie, hair = 1.0 + 2.0**-24, 2.0**-80
    assert round_float(tie + hair, f32) == 1.0
    assert semantics.fma(2.0**12 + 2.0**-12, 2.0**-12, hair, f32) == 1.0 + 2.0**-23


# --- casts ---


@MANY
@given(st.sampled_from(FLOATS), st.integers(-(2**70), 2**70), st.integers(-200, 60))
def test_round_exact_finds_the_nearest(dtype: DType, digits: int, exponent: int) -> None:
    assert round_exact(digits, exponent, dtype) == nearest(Fraction(digits) * Fraction(2) ** exponent, dtype)


@MANY
@given(st.sampled_from(FLOATS), finite)
def test_round_float_finds_the_nearest(dtype: DType, value: float) -> None:
    rounded = round_float(value, dtype)
    assert rounded == nearest(Fraction(value), dtype)
    assert math.copysign(1, rounded) == math.copysign(1, value)


@MANY
@given(st.sampled_from(INTEGERS).flatmap(lambda d: st.tuples(st.just(d), values(d))), st.sampled_from(FLOATS))
def test_integers_round_once_to_floats(case: tuple[DType, int], target: DType) -> None:
    dtype, value = case
    assert semantics.cast(value, dtype, target) == nearest(Fraction(value), target)


@pytest.mark.parametrize("source", SCALARS, ids=str)
@pytest.mark.parametrize("target", SCALARS, ids=str)
def test_casts_follow_the_language_page(source: DType, target: DType) -> None:
    for value in edges(source):
        result = semantics.cast(value, source, target)
        assert semantics.is_value_of(result, target)
        if target.is_bool:
            assert result is (value != 0)
        elif not target.is_float and not source.is_float:
            assert result == wrapped(int(value), target)
        elif not target.is_float:
            limited = 0 if math.isnan(value) else min(max(value, target.min), target.max)
            assert result == (limited if isinstance(limited, int) else math.trunc(limited))


@pytest.mark.parametrize(
    ("value", "source", "target", "result"),
    [
        (200, u8, f64, 200.0),
        (3e9, f64, u32, 3_000_000_000),
        (math.nan, f32, i32, 0),
        (1e30, f32, i8, 127),
        (-1e30, f32, i16, -32768),
        (-1.5, f32, u8, 0),
        (-1, i8, u64, u64.max),
        (math.nan, f64, bool_, True),
        (-0.0, f64, bool_, False),
        (True, bool_, bf16, 1.0),
        (2**63 + 2**39 + 1, u64, f32, float(2**63 + 2**40)),
        (1.0 + 2.0**-11 + 2.0**-40, f64, f16, 1.0 + 2.0**-10),
        (65519.99, f64, f16, 65504.0),
        (65520.0, f64, f16, math.inf),
        (2.0**128 - 2.0**119, f64, bf16, math.inf),
        (math.nextafter(2.0**128 - 2.0**119, 0), f64, bf16, 2.0**128 - 2.0**120),
        (-0.0, f64, bf16, -0.0),
        (1e-45, f64, bf16, 0.0),
    ],
)
def test_cast_gives(value: Value, source: DType, target: DType, result: Value) -> None:
    assert same_value(semantics.cast(value, source, target), result)


@pytest.mark.parametrize("dtype", [f16, f32, f64, bf16], ids=str)
def test_bits_of_a_float_survive_the_way_through_an_integer(dtype: DType) -> None:
    integer = BY_NAME[f"u{dtype.bits}"]
    for value in edges(dtype):
        bits = semantics.bitcast(value, dtype, integer)
        assert same_value(semantics.bitcast(bits, integer, dtype), value)
        if dtype.name != "bf16" and value == value:
            code = {f16: "<e", f32: "<f", f64: "<d"}[dtype]
            assert bits == int.from_bytes(struct.pack(code, value), "little")


def test_bits_of_bf16_are_the_upper_half_of_f32() -> None:
    assert semantics.bitcast(1.5, bf16, BY_NAME["u16"]) == 0x3FC0
    assert math.isnan(semantics.bitcast(-1, i16, bf16))
    assert semantics.bitcast(0xFF, u8, i8) == -1


# --- comparisons and functions ---


@MANY
@given(pairs([*INTEGERS, *FLOATS]))
def test_comparisons_are_mathematical_and_a_nan_is_only_unequal(case: tuple[DType, Value, Value]) -> None:
    _, left, right = case
    found = {op: semantics.compare(op, left, right) for op in CompareOp}
    if left != left or right != right:
        assert [op for op, holds in found.items() if holds] == [CompareOp.NE]
    else:
        order = (left > right) - (left < right)
        assert found[CompareOp.LT] == (order < 0)
        assert found[CompareOp.GT] == (order > 0)
        assert found[CompareOp.EQ] == (order == 0) == (not found[CompareOp.NE])
        assert found[CompareOp.LE] == (order <= 0)
        assert found[CompareOp.GE] == (order >= 0)


_NUMPY_NAMES = {
    MathFunction.ASIN: "arcsin",
    MathFunction.ACOS: "arccos",
    MathFunction.ATAN: "arctan",
    MathFunction.ATAN2: "arctan2",
    MathFunction.ASINH: "arcsinh",
    MathFunction.ACOSH: "arccosh",
    MathFunction.ATANH: "arctanh",
    MathFunction.POW: "power",
}
_WITHOUT_NUMPY = {
    MathFunction.RSQRT,
    MathFunction.ERF,
    MathFunction.ERFC,
    MathFunction.GAMMA,
    MathFunction.LGAMMA,
    *INTEGER_FUNCTIONS,
}
_WITH_NUMPY = [function for function in MathFunction if function not in _WITHOUT_NUMPY]


@pytest.mark.parametrize("function", _WITH_NUMPY, ids=lambda function: function.value)
def test_functions_agree_with_numpy_at_every_edge(function: MathFunction) -> None:
    reference = getattr(np, _NUMPY_NAMES.get(function, function.value))
    first = [*edges(f64), 0.1, -0.9, 710.0, -746.0, 1024.5, -1.0]
    for operands in [(x, y) for x in first for y in first] if num_operands(function) == 2 else [(x,) for x in first]:
        if function is MathFunction.POW and operands[1] == 0.5:
            continue  # NumPy takes the square root, which treats -0.0 and -inf otherwise than C's pow.
        result = semantics.math_function(function, operands, f64)
        with np.errstate(all="ignore"):
            expected = reference(*(np.float64(operand) for operand in operands))
        if function in PREDICATES:
            assert result is bool(expected)
        elif function in semantics.EXACT_FUNCTIONS:
            assert same_value(result, float(expected)), operands
        else:
            assert np.allclose(result, expected, rtol=1e-14, atol=0, equal_nan=True), operands
            assert math.isnan(result) or result != 0 or math.copysign(1, result) == math.copysign(1, expected)


@pytest.mark.parametrize(
    ("function", "operands", "result"),
    [
        (MathFunction.RSQRT, (-0.0,), -math.inf),
        (MathFunction.RSQRT, (4.0,), 0.5),
        (MathFunction.RSQRT, (-1.0,), math.nan),
        (MathFunction.GAMMA, (-0.0,), -math.inf),
        (MathFunction.GAMMA, (-1.0,), math.nan),
        (MathFunction.GAMMA, (200.0,), math.inf),
        (MathFunction.LGAMMA, (-3.0,), math.inf),
        (MathFunction.POW, (-10.0, 309.0), -math.inf),
        (MathFunction.POW, (-1.0, 2.0), 1.0),
        (MathFunction.POW, (-8.0, 1 / 3), math.nan),
        (MathFunction.POW, (-0.0, -1.0), -math.inf),
        (MathFunction.RINT, (0.5,), 0.0),
        (MathFunction.RINT, (2.5,), 2.0),
        (MathFunction.RINT, (-0.2,), -0.0),
        (MathFunction.LOG, (0.0,), -math.inf),
        (MathFunction.SINH, (-1e4,), -math.inf),
        (MathFunction.FMOD, (5.0, 0.0), math.nan),
        (MathFunction.ERFC, (100.0,), 0.0),
    ],
)
def test_function_gives_what_c_gives(function: MathFunction, operands: tuple[float, ...], result: float) -> None:
    assert same_value(semantics.math_function(function, operands, f64), result)


@MANY
@given(st.sampled_from([f16, f32]).flatmap(lambda dtype: st.tuples(st.just(dtype), values(dtype))))
def test_sqrt_is_rounded_correctly(case: tuple[DType, float]) -> None:
    dtype, value = case
    with np.errstate(all="ignore"):
        expected = float(np.sqrt(dtype.numpy.type(value)))
    assert same_value(semantics.math_function(MathFunction.SQRT, (value,), dtype), expected)


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_every_operation_of_a_type_is_total_and_stays_in_the_type(dtype: DType) -> None:
    float_ops = [op for op in BinaryOp if op.value in ("add", "sub", "mul", "div", "floordiv", "mod", "min", "max")]
    bool_ops = [BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR, BinaryOp.MIN, BinaryOp.MAX]
    integer_ops = [op for op in BinaryOp if op is not BinaryOp.DIV]
    functions = [f for f in MathFunction if f not in INTEGER_FUNCTIONS] if dtype.is_float else []
    for left in edges(dtype):
        for right in edges(dtype):
            for op in float_ops if dtype.is_float else bool_ops if dtype.is_bool else integer_ops:
                assert semantics.is_value_of(semantics.binary(op, left, right, dtype), dtype)
            for function in functions:
                result = semantics.math_function(function, (left, right)[: num_operands(function)], dtype)
                assert semantics.is_value_of(result, bool_ if function in PREDICATES else dtype)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-7, 7))
def test_trip_count_is_the_length_of_pythons_range(start: int, stop: int, step: int) -> None:
    assert semantics.trip_count(start, stop, step) == (len(range(start, stop, step)) if step else 0)
