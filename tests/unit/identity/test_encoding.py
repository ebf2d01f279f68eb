from __future__ import annotations

import enum
import math
import struct
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest

from quernel.errors import KernelTypeError
from quernel.identity import SCHEMA, Encoder, StrictEncoder, encode


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Size(enum.Enum):
    RED = 1


class Count(int):
    pass


class Point(NamedTuple):
    x: int
    y: int


class Named:
    def __init__(self, identity: object) -> None:
        self.identity = identity

    def __quernel_identity__(self) -> object:
        return self.identity


class OtherNamed(Named):
    pass


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0),
        (1, True),
        (1.0, True),
        (0, False),
        (0, None),
        (0.0, -0.0),
        (0j, complex(0.0, -0.0)),
        (1.0, 1 + 0j),
        ("a", b"a"),
        ("", ()),
        ((), frozenset()),
        ((1, 2), [1, 2]),
        ((1, 2), (2, 1)),
        ((1, (2, 3)), ((1, 2), 3)),
        (("ab", "c"), ("a", "bc")),
        ((1,), 1),
        (255, -1),
        (128, -128),
        (2**64, 2**64 + 1),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, ("a", 1)),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        (Colour.RED, Colour.GREEN),
        (Colour.RED, Size.RED),
        (Colour.RED, 1),
        (enum.Enum("E", {"A": 1})["A"], enum.Enum("E", {"B": 1})["B"]),
        (np.float32(1.5), np.float64(1.5)),
        (np.float64(1.5), 1.5),
        (np.int32(7), np.int64(7)),
        (np.int32(7), np.int32(8)),
        (np.bool_(True), True),
        (np.float32(0.0), np.float32(-0.0)),
        (np.datetime64(1, "s"), np.datetime64(1, "ms")),
        (Count(3), 3),
        (Count(3), Count(4)),
        (Point(1, 2), (1, 2)),
        (Point(1, 2), Point(1, 3)),
        (Named("f32"), Named("f64")),
        (Named("f32"), OtherNamed("f32")),
        (Named("f32"), "f32"),
        (int, float),
        (..., None),
        ("\ud800", "?"),
        (frozenset({1}), frozenset({1.0})),
    ],
)
def test_encode_tells_apart(left: object, right: object) -> None:
    assert encode(left) != encode(right)


def test_encode_takes_floats_by_their_bits() -> None:
    quiet = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000))[0]
    marked = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    assert math.isnan(quiet)
    assert math.isnan(marked)
    assert encode(quiet) != encode(marked)
    assert encode(quiet) == encode(math.nan)


def test_encode_sorts_the_keys_of_a_dict() -> None:
    assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})


def test_encode_sorts_a_frozenset_by_encoding() -> None:
    numbers = [2**60 * k for k in range(50)]
    assert encode(frozenset(numbers)) == encode(frozenset(reversed(numbers)))


def test_encode_starts_with_its_version() -> None:
    assert encode(1).startswith(b"quernel\0" + SCHEMA.to_bytes(2, "little"))


@pytest.mark.parametrize("make", [set, bytearray, object, lambda: {1: 2}, lambda: np.zeros(3), lambda: math.sin])
def test_encode_is_opaque_for_what_has_no_content(make: Any) -> None:
    assert encode(make()) == encode(make())


def test_encode_of_an_opaque_value_is_its_types_name() -> None:
    assert encode({1}) == encode({2})
    assert encode({1}) != encode(bytearray())


def test_encode_ignores_what_a_subclass_redefines() -> None:
    class Liar(int):
        def to_bytes(self, *args: Any, **kwargs: Any) -> bytes:  # type: ignore[override]
            return b"1234"

        def bit_length(self) -> int:
            return 1

    assert encode(Liar(5)) != encode(Liar(6))


@attrs.frozen
class Options:
    checked: bool = False
    note: str = attrs.field(default="", eq=False)


@attrs.define
class Mutable:
    checked: bool = False


def test_strict_encoder_takes_frozen_attrs_objects_by_their_compared_fields() -> None:
    body = StrictEncoder().body
    assert body(Options(True)) != body(Options(False))
    assert body(Options(note="a")) == body(Options(note="b"))


@pytest.mark.parametrize("value", [object(), [1, object()], Mutable(), {1: 2}, frozenset({object()})])
def test_strict_encoder_refuses_what_is_opaque(value: object) -> None:
    with pytest.raises(KernelTypeError, match=r"has no canonical encoding[\s\S]*__quernel_identity__"):
        StrictEncoder().body(value)


def test_encoder_body_is_encode_without_the_version() -> None:
    assert encode((1, "a")).endswith(Encoder().body((1, "a")))
