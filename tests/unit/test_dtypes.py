"""Scalar types as casts on the host."""

import numpy as np
import pytest

import quernel as qn
from quernel.ir.rounding import round_exact


@pytest.mark.parametrize("dtype", [qn.f16, qn.bf16, qn.f32, qn.f64], ids=str)
@pytest.mark.parametrize(
    "value", [1, -3, 2**24 + 1, 2**53 + 1, 2**62 + 2**38 + 1, -(2**63), 2**63, 2**64 - 1, 2**62 + 2**54 + 1, 2**2000]
)
def test_an_integer_is_cast_to_a_float_with_one_rounding(dtype, value):
    if dtype is qn.bf16:
        pytest.importorskip("ml_dtypes", reason="needs ml_dtypes for bf16 on the host")
    assert float(dtype(value)) == round_exact(value, 0, dtype)


def test_a_float_is_cast_to_an_integer_by_truncation_within_its_range():
    assert [int(qn.u8(x)) for x in (3.9, -1.0, 300.0, float("nan"), float("inf"))] == [3, 0, 255, 0, 255]
    assert qn.i16(70000) == np.int16(70000 - 65536)


@pytest.mark.parametrize("dtype", [qn.f16, qn.bf16, qn.f32], ids=str)
@pytest.mark.parametrize(
    "value", [1 + 2.0**-9 + 2.0**-40, 1 + 2.0**-8, -1 - 2.0**-8 - 2.0**-30, 3.4e38, 1e300, 1e-320, 2.0**-134]
)
def test_a_float_is_cast_to_a_shorter_one_with_one_rounding(dtype, value):
    if dtype is qn.bf16:
        pytest.importorskip("ml_dtypes", reason="needs ml_dtypes for bf16 on the host")
    numerator, denominator = value.as_integer_ratio()
    assert float(dtype(value)) == round_exact(numerator, 1 - denominator.bit_length(), dtype)
