"""The number of axes that a kernel's source says its launch has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import quernel as qn
from quernel.dtypes import ArrayType, f32
from quernel.lang.ranks import launch_rank

LAST = 1
ARRAYS = {"x": ArrayType(f32, 2), "y": ArrayType(f32, 1), "p.field": ArrayType(f32, 3)}


def nothing(x):
    x[0, 0] = 1


def scalar(y):
    i = qn.global_id()
    y[i] = 1


def unpacked(x):
    i, j = qn.global_id()
    x[i, j] = 1


def unpacked_later(x):
    index = qn.local_id()
    [i, j, k] = index
    x[i, j] = k


def by_axis(x):
    x[qn.global_id(0), qn.global_id(1)] = 1


def by_named_axis(x):
    x[0, 0] = qn.block_dim(axis=2)


def by_captured_axis(x):
    x[0, 0] = qn.global_id(LAST)


def by_axis_from_the_end(x):
    x[0, 0] = qn.global_id(-2)


def whole(x):
    x[qn.global_id()] = 1


def whole_by_name(x):
    ij = qn.global_id()
    x[ij] = 1


def whole_in_a_field(p):
    ijk = qn.global_id()
    p.field[ijk] = 1


def part(x):
    x[0, qn.global_id()[0]] = 1


def part_by_name(x):
    index = qn.global_id()
    x[0, index[2]] = 1


@qn.func
def column():
    _, j = qn.global_id()
    return j


@qn.func
def further():
    return column()


def in_a_function(x):
    x[0, further()] = 1


def exact_beats_least(x):
    i, j = qn.global_id()
    x[i, qn.global_id(0)] = j


def of_another_name(x):
    def global_id() -> Any: ...

    i = global_id()
    x[0, i] = 1


def beyond(x):
    x[0, 0] = qn.global_id(7)


@pytest.mark.parametrize(
    ("kernel", "rank"),
    [
        (nothing, 1),
        (scalar, 1),
        (unpacked, 2),
        (unpacked_later, 3),
        (by_axis, 2),
        (by_named_axis, 3),
        (by_captured_axis, 2),
        (by_axis_from_the_end, 2),
        (whole, 2),
        (whole_by_name, 2),
        (whole_in_a_field, 3),
        (part, 2),
        (part_by_name, 3),
        (in_a_function, 2),
        (exact_beats_least, 2),
        (of_another_name, 1),
        (beyond, 3),
    ],
    ids=lambda given: getattr(given, "__name__", str(given)),
)
def test_rank_is_what_the_source_says(kernel: Callable[..., None], rank: int) -> None:
    assert launch_rank(kernel, ARRAYS) == rank  # type: ignore[arg-type]  # plain functions


def test_functions_that_call_each_other_are_read_once() -> None:
    @qn.func
    def one(n):
        return two(n)

    @qn.func
    def two(n):
        i, _, _ = qn.global_id()
        return one(n) + i

    def kernel(y):
        y[0] = one(3)

    assert launch_rank(kernel, {}) == 3
