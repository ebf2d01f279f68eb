from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from quernel.errors import LaunchError
from quernel.runtime.layouts import CONTIGUOUS, INDEX32, extent_layout, grid_layout, strided_layout


@settings(max_examples=150, deadline=None)
@given(shape=hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), data=st.data())
def test_contiguity_is_that_of_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.zeros(shape, np.int32)[data.draw(hnp.basic_indices(shape, allow_newaxis=True))]
    if not isinstance(array, np.ndarray):
        return
    array = array.T if data.draw(st.booleans()) else array
    facts, repeats, is_whole, strides = strided_layout(array.shape, array.strides, array.itemsize)
    assert bool(facts & CONTIGUOUS) == array.flags.c_contiguous
    assert is_whole
    assert not repeats
    assert strides == tuple(stride // 4 for stride in array.strides)


def test_repeated_elements_are_seen_only_where_there_are_several() -> None:
    assert strided_layout((3, 2), (0, 4), 4)[1]
    assert not strided_layout((1, 2), (0, 4), 4)[1]
    assert not strided_layout((3, 0), (0, 4), 4)[1]


def test_strides_that_are_no_whole_elements_are_seen() -> None:
    record = np.zeros(3, np.dtype([("a", "u1"), ("b", "<i4")]))["b"]
    assert not strided_layout(record.shape, record.strides, 4)[2]


@pytest.mark.parametrize(
    ("shape", "strides", "is_narrow"),
    [
        ((2**31 - 1,), (1,), True),
        ((2**31,), (1,), False),
        ((2**31,), (0,), False),
        ((3,), (-(2**30),), False),
        ((3,), (2**29,), True),
        ((2**31, 0), (0, 1), False),
        ((2**16, 2**15), (2**15, 1), True),
        ((2**16, 2**15 + 1), (2**15 + 1, 1), False),
    ],
)
def test_index32_holds_only_where_shapes_and_offsets_fit(
    shape: tuple[int, ...], strides: tuple[int, ...], is_narrow: bool
) -> None:
    assert bool(strided_layout(shape, strides, 1)[0] & INDEX32) == is_narrow


@pytest.mark.parametrize(
    ("extent", "is_narrow"),
    [(10, True), (2**31 - 1, True), (2**31, False), (range(2**31 - 2, 2**31), False), (range(-(2**31) - 1, 0), False)],
)
def test_extent_counts_for_index32(extent: Any, is_narrow: bool) -> None:
    assert bool(extent_layout(extent, None)[1] & INDEX32) == is_narrow


def test_range_that_leaves_64_bits_is_refused() -> None:
    with pytest.raises(LaunchError, match="beyond 64 bits"):
        extent_layout(range(2**63 - 1, 2**63 + 1), None)


def test_equal_integers_of_other_types_are_not_taken_from_what_is_kept() -> None:
    extent_layout(1, None)
    extent_layout((1, 1), None)
    grid_layout(1, None)
    for make, value in ((extent_layout, True), (extent_layout, (1, True)), (grid_layout, True)):
        with pytest.raises(LaunchError, match="is a bool"):
            make(value, None)
    with pytest.raises(LaunchError, match="is a float, not an integer"):
        extent_layout(1.0, None)
    assert extent_layout(np.int64(1), None)[0] == extent_layout(1, None)[0]
