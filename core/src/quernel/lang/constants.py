"""Constants: Python objects as values of the language, conversion to a scalar type, and arithmetic on them.

Constants follow Python exactly (integers do not wrap) until they take a type.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from quernel.dtypes import DType, ScalarType, bool_, dtype_of, f64
from quernel.ir import nodes
from quernel.ir.rounding import round_exact, wrap
from quernel.ir.semantics import cast
from quernel.lang.promotion import WEAK_FLOAT, WEAK_INT
from quernel.lang.values import Number, Scalar
from quernel.locations import Location

__all__ = [
    "MAX_BITS",
    "TooLargeConstantError",
    "compare_constants",
    "constant",
    "constant_of",
    "converted",
    "fold",
    "literal",
]

MAX_BITS: Final = 4096
"""Constant integers above this are not computed, but refused; none of them fits a type."""


class TooLargeConstantError(ArithmeticError):
    """A constant integer of more than `MAX_BITS` bits."""


def constant(value: Number) -> Scalar:
    """A Python number as a value: weak, but for a bool."""
    if isinstance(value, bool):
        return Scalar(ScalarType(bool_), constant=value)
    if isinstance(value, int):
        return Scalar(WEAK_INT, constant=int(value))
    return Scalar(WEAK_FLOAT, constant=float(value))


def constant_of(value: object) -> Scalar | None:
    """A captured Python or NumPy number as a value; NumPy's are typed. `None` if it is no number of the language."""
    if isinstance(value, np.generic):
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            return None
        dtype = dtype_of(value.dtype)
        return Scalar(ScalarType(dtype), constant=value.item())
    if isinstance(value, bool | int | float):
        return constant(value if isinstance(value, bool) else int(value) if isinstance(value, int) else float(value))
    return None


def converted(value: Number, dtype: DType) -> Number:
    """`value` cast to `dtype` by the language's cast rules, as a Python number."""
    if isinstance(value, float):
        return cast(value, f64, dtype)
    if dtype.is_integer or dtype.is_bool:
        return wrap(int(value), dtype) if dtype.is_integer else value != 0
    return round_exact(int(value), 0, dtype)


def literal(value: Number, dtype: DType, loc: Location) -> nodes.Const:
    """`value` cast to `dtype`, as IR."""
    return nodes.Const(value=converted(value, dtype), type=dtype, loc=loc)


def _floordiv(a: Any, b: Any) -> Number:
    if b == 0:
        return 0 if isinstance(a, int) and isinstance(b, int) else math.nan
    return a // b  # type: ignore[no-any-return]


def _mod(a: Any, b: Any) -> Number:
    if b == 0:
        return 0 if isinstance(a, int) and isinstance(b, int) else math.nan
    return a % b  # type: ignore[no-any-return]


def _div(a: Any, b: Any) -> Number:
    if b == 0:
        x = float(a)
        return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, float(b))
    try:
        return a / b  # type: ignore[no-any-return]
    except OverflowError:
        return math.inf if (a > 0) is (b > 0) else -math.inf


def _pow(a: Any, b: Any) -> Number | None:
    # Of floats, `**` is a function of the device's own library, and is not computed here.
    if not isinstance(a, int) or not isinstance(b, int) or b < 0:
        return None
    if (a.bit_length() - 1) * b > MAX_BITS:  # what it has at least
        raise TooLargeConstantError
    power: int = int(a) ** int(b)
    return power


def _shl(a: Any, b: Any) -> Number:
    count = max(0, b)
    if a and a.bit_length() + count > MAX_BITS:
        raise TooLargeConstantError
    return int(a) << count if a else 0


def _shr(a: Any, b: Any) -> Number:
    return a >> max(0, b)  # type: ignore[no-any-return]


_FOLD: Final[dict[type[ast.operator], Callable[[Any, Any], Number | None]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _div,
    ast.FloorDiv: _floordiv,
    ast.Mod: _mod,
    ast.Pow: _pow,
    ast.LShift: _shl,
    ast.RShift: _shr,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}

_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def fold(op: type[ast.operator], left: Number, right: Number) -> Number | None:
    """The value of an operator on two constants by the language's rules; `None` where it has no constant value.

    Raises:
        TooLargeConstantError: it is an integer of more than `MAX_BITS` bits.
    """
    try:
        value = _FOLD[op](left, right)
    except OverflowError:
        return None
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise TooLargeConstantError
    return value


def compare_constants(op: type[ast.cmpop], left: object, right: object) -> bool:
    """Python's comparison of two objects known when the kernel is compiled."""
    return bool(_COMPARE[op](left, right))
