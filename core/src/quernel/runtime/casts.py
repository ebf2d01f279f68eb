"""Conversion of whole host arrays by the language's cast rules, which differ from NumPy's beyond a type's range."""

from __future__ import annotations

from typing import Any

import numpy as np

from quernel.dtypes import DType

__all__ = ["cast_array"]


def cast_array(source: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """A new array of `dtype`: float to integer truncates and saturates, NaN gives 0; to bool compares with zero."""
    if dtype.is_bool:
        return np.asarray(source != 0)
    if not dtype.is_integer or np.issubdtype(source.dtype, np.integer) or source.dtype == np.bool_:
        with np.errstate(over="ignore"):
            return source.astype(dtype.numpy)
    values = np.trunc(source.astype(np.float64))
    result = np.zeros(source.shape, dtype.numpy)
    above = values >= float(dtype.max + 1)  # a power of two, so the comparison is exact
    below = values < float(dtype.min)
    within = ~(above | below | np.isnan(values))
    result[within] = values[within].astype(dtype.numpy)
    result[above] = dtype.max
    result[below] = dtype.min
    return result
