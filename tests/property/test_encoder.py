"""The canonical encoding is injective, and encodings that follow each other can be told apart."""

from __future__ import annotations

import math
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quernel.identity import Encoder, encode

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3),
    st.floats(allow_nan=True),
    st.sampled_from([0.0, -0.0, 1.0]),
    st.complex_numbers(),
    st.text(max_size=6),
    st.text(st.characters(categories=["Cs"]), max_size=3),
    st.binary(max_size=6),
)


def nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(children, max_size=4).map(tuple),
        st.lists(children, max_size=4),
        st.dictionaries(st.text(max_size=4), children, max_size=3),
        st.frozensets(st.one_of(st.integers(), st.text(max_size=3), st.booleans()), max_size=4),
    )


values = st.recursive(leaves, nested, max_leaves=12)


def tagged(value: Any) -> object:
    """A structure that is equal exactly where type and content are, whatever Python's `==` says (1 == True)."""
    match value:
        case float():
            return ("float", struct.pack("<d", value))
        case complex():
            return ("complex", struct.pack("<dd", value.real, value.imag))
        case tuple() | list():
            return (type(value).__name__, tuple(map(tagged, value)))
        case dict():
            return ("dict", frozenset((key, tagged(item)) for key, item in value.items()))
        case frozenset():
            return ("frozenset", frozenset(map(tagged, value)))
        case _:
            return (type(value).__name__, value)


@given(values, values)
def test_encode_is_equal_exactly_for_equal_types_and_content(left: Any, right: Any) -> None:
    assert (encode(left) == encode(right)) == (tagged(left) == tagged(right))


@given(st.lists(values, max_size=4), st.lists(values, max_size=4))
def test_encodings_in_a_row_are_unambiguous(left: list[Any], right: list[Any]) -> None:
    joined_left = b"".join(map(Encoder().body, left))
    joined_right = b"".join(map(Encoder().body, right))
    assert (joined_left == joined_right) == (tagged(left) == tagged(right))


@given(values, values)
def test_no_encoding_is_the_beginning_of_another(left: Any, right: Any) -> None:
    if tagged(left) != tagged(right):
        assert not Encoder().body(right).startswith(Encoder().body(left))


@given(st.integers(-(2**70), 2**70))
def test_encode_tells_an_integer_from_its_neighbours_and_its_float(number: int) -> None:
    others = [number - 1, number + 1, -number - 1, float(number), math.nextafter(float(number), math.inf)]
    assert encode(number) not in [encode(other) for other in others]
