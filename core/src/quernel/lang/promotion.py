"""The type rules: what two types make in arithmetic, in a join of assignments, and in a comparison.

Weak types are those of Python numbers: i64 or f64 that adapt to what they meet.
"""

from __future__ import annotations

from quernel.dtypes import DType, ScalarType, f32, f64, i32, i64, u32, u64

__all__ = ["WEAK_FLOAT", "WEAK_INT", "arithmetic", "bitwise", "holding_both", "join", "kind_of", "widened"]

WEAK_INT = ScalarType(i64, weak=True)
WEAK_FLOAT = ScalarType(f64, weak=True)


def kind_of(dtype: DType) -> str:
    """`bool`, `integer` or `float`: the kinds between which a local never changes."""
    if dtype.is_bool:
        return "bool"
    return "float" if dtype.is_float else "integer"


def widened(dtype: DType) -> DType:
    """`dtype` as it enters arithmetic: bool and integers below 32 bits become i32."""
    return i32 if dtype.is_bool or (dtype.is_integer and dtype.bits < 32) else dtype


def _dtype(of: ScalarType) -> DType:
    assert isinstance(of.dtype, DType)
    return of.dtype


def arithmetic(left: ScalarType, right: ScalarType) -> ScalarType | None:
    """The type in which an arithmetic operator computes; `None` for u64 with a typed signed integer."""
    a, b = _dtype(left), _dtype(right)
    if left.weak and right.weak:
        return WEAK_FLOAT if a.is_float or b.is_float else WEAK_INT
    if left.weak or right.weak:
        weak, typed = (a, b) if left.weak else (b, a)
        if typed.is_float:
            return ScalarType(typed)
        return ScalarType(f64 if weak.is_float else widened(typed))
    if a.is_float or b.is_float:
        return ScalarType(_wider_float(a, b))
    found = _integers(a, b)
    return ScalarType(found) if found is not None else None


def _wider_float(a: DType, b: DType) -> DType:
    if not a.is_float:
        return b
    if not b.is_float or a is b:
        return a
    if a.bits == b.bits:
        return f32
    return a if a.bits > b.bits else b


def _integers(a: DType, b: DType) -> DType | None:
    if u64 in (a, b):
        return None if a.is_signed or b.is_signed else u64
    a, b = widened(a), widened(b)
    return a if a is b else i64


def bitwise(left: ScalarType, right: ScalarType) -> ScalarType | None:
    """The type of `& | ^`: equal types stay, a weak integer takes an integer's type; else as in arithmetic."""
    a, b = _dtype(left), _dtype(right)
    if left.weak != right.weak:
        typed = right if left.weak else left
        if _dtype(typed).is_integer:
            return typed
    elif a is b:
        return left
    return arithmetic(left, right)


def join(left: ScalarType, right: ScalarType) -> ScalarType | None:
    """The type of a local that is assigned both; `None` across kinds, and for u64 with a typed signed integer."""
    a, b = _dtype(left), _dtype(right)
    if a is b:
        return left if right.weak else right
    if kind_of(a) != kind_of(b):
        if left.weak and a.is_integer and b.is_float:
            return right
        if right.weak and b.is_integer and a.is_float:
            return left
        return None
    if left.weak or right.weak:
        return right if left.weak else left
    return arithmetic(left, right)


def holding_both(a: DType, b: DType) -> DType | None:
    """The least of i32, u32, i64 and u64 that holds every value of both integer types; `None` if none does."""
    low, high = min(a.min, b.min), max(a.max, b.max)
    if a is b and not a.is_bool:
        return a
    return next((dtype for dtype in (i32, u32, i64, u64) if dtype.min <= low and high <= dtype.max), None)
