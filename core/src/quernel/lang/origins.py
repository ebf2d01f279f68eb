"""Where a weak integer comes from: which parameters it follows from, and how, so that the launcher can tell what fits.

A weak integer takes the type of what it meets. A parameter's value is known at the launch only, so the kernel says from
which least to which greatest value it may have: those for which everything that follows from it by steps with constants
fits where it meets a type. What follows in another way is refused where it meets a narrower type.
"""

from __future__ import annotations

import ast
from typing import Final, TypeAlias

import attrs

from quernel.dtypes import i64

__all__ = ["NOWHERE", "Origin", "Origins", "after", "bounds_before", "merged", "traced", "unknown"]

_MAX_STEPS: Final = 8
_MAX_WAYS: Final = 4
"""A local may follow from a parameter in several ways; in a loop, in ever more."""

_EMPTY: Final = (1, 0)


@attrs.frozen
class Origin:
    """A weak parameter, and the steps that lead from its value to the one at hand; `None` where they are not known."""

    name: str
    steps: tuple[tuple[str, int, int], ...] | None = ()


Origins: TypeAlias = frozenset[Origin]
NOWHERE: Final[Origins] = frozenset()


def unknown(*all_origins: Origins) -> Origins:
    """Origins of what follows from values in some way."""
    return frozenset(Origin(origin.name, None) for origins in all_origins for origin in origins)


def merged(*all_origins: Origins) -> Origins:
    """Origins of what may be any of several values. More of them never make it known in more ways, or not at all."""
    together: Origins = NOWHERE.union(*all_origins)
    if len(together) > _MAX_WAYS:
        return unknown(together)
    vague = {origin.name for origin in together if origin.steps is None}
    return frozenset(origin for origin in together if origin.steps is None or origin.name not in vague)


def after(origins: Origins, step: str, first: int = 0, second: int = 0) -> Origins:
    """Origins after one more step."""
    return frozenset(_after(origin, (step, first, second)) for origin in origins)


def _after(origin: Origin, step: tuple[str, int, int]) -> Origin:
    steps = origin.steps
    if steps is None:
        return origin if step[0] != "range" else Origin(origin.name, (step,))
    if steps and steps[-1][0] == step[0] == "+":
        step = ("+", steps[-1][1] + step[1], 0)
        steps = steps[:-1]
    return Origin(origin.name, (*steps, step) if len(steps) < _MAX_STEPS else None)


def traced(
    op: type[ast.operator], left: Origins, right: Origins, left_constant: int | None, right_constant: int | None
) -> Origins:
    """Origins of `left op right`, of which one may be a constant."""
    if not left and not right:
        return NOWHERE
    if right_constant is not None:
        known = right_constant
        if op is ast.Add or op is ast.Sub:
            return after(left, "+", known if op is ast.Add else -known)
        if op is ast.Mult:
            return after(left, "*", known)
        if op is ast.LShift:
            return after(left, "*", 1 << min(max(known, 0), 64))
        if op is ast.RShift:
            return after(left, "//", 1 << min(max(known, 0), 64))
        if op is ast.FloorDiv and known:
            return after(left if known > 0 else after(left, "*", -1), "//", abs(known))
        if op is ast.Mod:
            return after(left, "range", min(known + 1, 0), max(known - 1, 0))
        if op is ast.BitAnd and known >= 0:
            return after(left, "range", 0, known)
    if left_constant is not None:
        known = left_constant
        if op is ast.Add:
            return after(right, "+", known)
        if op is ast.Sub:
            return after(after(right, "*", -1), "+", known)
        if op is ast.Mult:
            return after(right, "*", known)
        if op is ast.BitAnd and known >= 0:
            return after(right, "range", 0, known)
    return unknown(left, right)


def bounds_before(origin: Origin, low: int, high: int) -> tuple[int, int] | None:
    """The least and greatest value of the parameter for which the value is from `low` to `high`; `None`: not known."""
    if origin.steps is None:
        return None
    for step in reversed(origin.steps):
        low, high = _before(step, low, high)
        if low > high:
            return _EMPTY
    return max(low, i64.min), min(high, i64.max)


def _before(step: tuple[str, int, int], low: int, high: int) -> tuple[int, int]:
    match step:
        case ("+", known, _):
            return low - known, high - known
        case ("*", 0, _):
            return _all_or_none(low <= 0 <= high)
        case ("*", known, _):
            ends = (low, high) if known > 0 else (high, low)
            return -(-ends[0] // known), ends[1] // known
        case ("//", known, _):
            return low * known, high * known + known - 1
        case ("range", least, greatest):
            return _all_or_none(low <= least and greatest <= high)
        case ("min", known, _):
            return (low, i64.max) if low <= known <= high else (low, high) if known > high else _EMPTY
        case ("max", known, _):
            return (i64.min, high) if low <= known <= high else (low, high) if known < low else _EMPTY
        case ("abs", _, _):
            return (-high, high) if low <= 0 else (low, high)
        case _:
            raise AssertionError(step)


def _all_or_none(holds: bool) -> tuple[int, int]:
    return (i64.min, i64.max) if holds else _EMPTY
