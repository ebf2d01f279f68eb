from __future__ import annotations

import enum
import gc
import math
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

import quernel as qn
from quernel.errors import KernelTypeError
from quernel.runtime.argument_types import constant_key


class Pair(NamedTuple):
    first: float
    second: float = 0.0


class Number(float):
    pass


class Whole(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class Level(enum.IntEnum):
    LOW = 1


@qn.kernel
def sign_of(x, c: qn.Const):
    x[qn.global_id()] = math.copysign(1.0, c)


@qn.kernel
def sign_of_first(x, c: qn.Const):
    x[qn.global_id()] = math.copysign(1.0, c[0])


@qn.kernel
def valued(x, c: qn.Const):
    x[qn.global_id()] = c


def launched(kernel: Any, constant: Any) -> float:
    x = np.zeros(1)
    kernel.over(1)(x, constant)
    return float(x[0])


@pytest.mark.parametrize("make", [float, Number, np.float64, np.float32])
def test_zeros_of_either_sign_are_two_constants(make: Any) -> None:
    assert [launched(sign_of, make(zero)) for zero in (0.0, -0.0)] == [1.0, -1.0]


@pytest.mark.parametrize("make", [lambda zero: (zero,), lambda zero: Pair(zero), lambda zero: (Number(zero),)])
def test_tuples_of_zeros_of_either_sign_are_two_constants(make: Any) -> None:
    assert [launched(sign_of_first, make(zero)) for zero in (0.0, -0.0)] == [1.0, -1.0]


def test_subclass_that_is_equal_to_everything_is_read_by_its_content() -> None:
    assert [launched(valued, Whole(value)) for value in (3, 4)] == [3.0, 4.0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (1, np.int64(1)),
        (np.int32(1), np.int64(1)),
        (1, Level.LOW),
        ((1.0, 0.0), Pair(1.0)),
        (Pair(1.0, Pair(0.0)), Pair(1.0, Pair(-0.0))),  # type: ignore[arg-type]
        (frozenset((0.0,)), frozenset((-0.0,))),
        (1.0 + 0.0j, complex(1.0, -0.0)),
        (math.nan, -math.nan),
    ],
)
def test_values_of_different_content_have_different_keys(one: Any, other: Any) -> None:
    assert constant_key(one) != constant_key(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pair(0.5, math.nan),
        lambda: Number(0.5),
        lambda: np.float32(0.5),
        lambda: frozenset((1, 2)),
        lambda: qn.f32,
        lambda: Level.LOW,
        lambda: None,
    ],
)
def test_values_of_equal_content_have_one_key(make: Any) -> None:
    assert constant_key(make()) == constant_key(make())
    assert hash(constant_key(make())) == hash(constant_key(make()))


def test_key_of_an_object_keeps_it_so_that_no_other_takes_its_place() -> None:
    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)
    key = constant_key((1, thing))
    del thing
    gc.collect()
    assert alive() is not None
    assert key != constant_key((1, Thing()))


@pytest.mark.parametrize("value", [{1}, bytearray(b"1"), (1, [2])])
def test_constant_that_may_change_is_refused(value: Any) -> None:
    with pytest.raises(KernelTypeError, match=r"Const parameter 'c' got .*, which may change"):
        launched(valued, value)
