"""A value given for a scalar of a declared type: converted, or refused by name where it does not fit."""

from __future__ import annotations

import math
import struct
from typing import Any, Final

import numpy as np

from quernel.dtypes import DType, bf16, f16, f32
from quernel.errors import KernelTypeError

__all__ = ["LARGEST_FLOAT", "checked_float", "checked_integer", "convert_scalar"]

LARGEST_FLOAT: Final = {f16: 65504.0, f32: 3.4028234663852886e38, bf16: 3.3895313892515355e38}
"""The greatest finite value of each float type narrower than Python's own."""


def convert_scalar(value: Any, dtype: DType, what: str) -> bool | int | float:
    """`value` as a plain Python number that `dtype` holds; `what` names it in messages.

    Integers go to float types, NumPy scalars to the declared type; bool is no number, and floats need a cast to become
    integers.

    Raises:
        KernelTypeError: another kind of value, or one that does not fit.
    """
    if dtype.is_float:
        return checked_float(value, dtype, what)
    if dtype.is_integer:
        return checked_integer(value, dtype.min, dtype.max, dtype.name, what)
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise KernelTypeError(f"{what} is bool and got {shown(value)}", fix="pass a bool, for example value != 0")


def checked_integer(value: Any, least: int, greatest: int, type_name: str, what: str) -> int:
    """`value` as an int within bounds.

    Raises:
        KernelTypeError: it is no integer, or out of bounds.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        fix = "pass an integer"
        if isinstance(value, float | np.floating):
            fix = "round it yourself, for example int(value)"
        elif isinstance(value, bool | np.bool_):
            fix = "bool is not a number here: pass int(value)"
        raise KernelTypeError(f"{what} is {type_name} and got {shown(value)}", fix=fix)
    number = int(value)
    if not least <= number <= greatest:
        raise KernelTypeError(
            f"{what} is {type_name} and got {number}, which does not fit",
            fix=f"pass an integer from {least} to {greatest}, or declare a wider type",
        )
    return number


def checked_float(value: Any, dtype: DType, what: str, type_name: str = "") -> float:
    """`value` as a float that is finite in `dtype` if it was finite.

    Raises:
        KernelTypeError: it is no real number, or too large.
    """
    type_name = type_name or dtype.name
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        fix = "bool is not a number here: pass float(value)" if isinstance(value, bool | np.bool_) else "pass a number"
        raise KernelTypeError(f"{what} is {type_name} and got {shown(value)}", fix=fix)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    largest = LARGEST_FLOAT.get(dtype)
    lost = math.isinf(number) and not (isinstance(value, float | np.floating) and math.isinf(value))
    if lost or (largest is not None and abs(number) > largest and not math.isinf(number) and _overflows(number, dtype)):
        raise KernelTypeError(
            f"{what} is {type_name} and got {value!s}, which does not fit",
            fix="pass a smaller value or declare a wider type",
        )
    return number


def _overflows(number: float, dtype: DType) -> bool:
    """Whether rounding to `dtype` gives infinity: only values beyond the largest by less than half a step do not."""
    if dtype is bf16:
        return bool(np.isinf(dtype.numpy.type(number)))
    try:
        struct.pack("<e" if dtype is f16 else "<f", number)
    except OverflowError:
        return True
    return False


def shown(value: Any) -> str:
    """A value and its type, for messages."""
    name = (
        type(value).__name__
        if type(value).__module__ == "builtins"
        else f"{type(value).__module__}.{type(value).__name__}"
    )
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {name}"
