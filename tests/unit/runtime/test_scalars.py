from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quernel as qn
from quernel.errors import KernelTypeError
from quernel.runtime.scalars import convert_scalar


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (2, qn.f32, 2.0),
        (np.float64(0.5), qn.f32, 0.5),
        (np.int8(-3), qn.f64, -3.0),
        (math.inf, qn.f32, math.inf),
        (np.int64(5), qn.i32, 5),
        (2**64 - 1, qn.u64, 2**64 - 1),
        (-128, qn.i8, -128),
        (np.True_, qn.bool, True),
    ],
)
def test_value_converts_by_the_declared_type(value: Any, dtype: Any, expected: Any) -> None:
    converted = convert_scalar(value, dtype, "parameter 'n'")
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (2**40, qn.i32, "parameter 'n' is i32 and got 1099511627776, which does not fit"),
        (-1, qn.u8, "is u8 and got -1, which does not fit"),
        (np.int64(200), qn.i8, "is i8 and got 200, which does not fit"),
        (2.0, qn.i32, "is i32 and got 2.0 of type float"),
        (np.float32(2), qn.i32, "of type numpy.float32"),
        (True, qn.i32, "is i32 and got True of type bool"),
        (np.True_, qn.f32, "is f32 and got"),
        (1, qn.bool, "is bool and got 1 of type int"),
        ("1", qn.f32, "is f32 and got '1' of type str"),
        (1j, qn.f64, "of type complex"),
        (1e39, qn.f32, "is f32 and got 1e\\+39, which does not fit"),
        (70000.0, qn.f16, "is f16 and got 70000.0, which does not fit"),
        (10**400, qn.f64, "which does not fit"),
        (None, qn.i64, "of type NoneType"),
    ],
)
def test_value_that_does_not_fit_is_refused_naming_value_and_type(value: Any, dtype: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message) as caught:
        convert_scalar(value, dtype, "parameter 'n'")
    assert caught.value.fix


@settings(max_examples=200, deadline=None)
@given(value=st.integers(-(2**70), 2**70), dtype=st.sampled_from([qn.i8, qn.u8, qn.i16, qn.u32, qn.i64, qn.u64]))
def test_integer_is_taken_exactly_or_refused(value: int, dtype: Any) -> None:
    if dtype.min <= value <= dtype.max:
        assert convert_scalar(value, dtype, "n") == value
    else:
        with pytest.raises(KernelTypeError, match="does not fit"):
            convert_scalar(value, dtype, "n")


@settings(max_examples=200, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False), dtype=st.sampled_from([qn.f16, qn.f32, qn.bf16]))
def test_finite_float_is_refused_exactly_where_rounding_makes_it_infinite(value: float, dtype: Any) -> None:
    with np.errstate(over="ignore"):
        overflows = bool(np.isinf(dtype.numpy.type(value)))
    if overflows:
        with pytest.raises(KernelTypeError, match="does not fit"):
            convert_scalar(value, dtype, "x")
    else:
        assert convert_scalar(value, dtype, "x") == value
