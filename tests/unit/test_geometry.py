"""Extents and grids, and how large they may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import LaunchError
from quernel.geometry import extent_geometry, grid_geometry

LARGE = 2**63


@qn.kernel
def fill(x):
    x[0] = 1


@pytest.mark.parametrize("extent", [LARGE - 256, (2**31, 2**31), (0, 2**40), range(-LARGE, -LARGE + 3), range(5, 2)])
def test_extent_of_up_to_63_bits_is_taken(extent: Any) -> None:
    assert extent_geometry(extent, None).num_points < LARGE


@pytest.mark.parametrize(
    "extent",
    [
        (2**36, 2**36),
        (2**40, 2**40),
        (2**21, 2**21, 2**21),
        LARGE - 1,
        range(2**70, 2**70 + 5),
        range(-(2**70), 0),
        range(2**70),
        range(LARGE - 2, LARGE + 2),
    ],
)
def test_extent_of_more_than_63_bits_is_refused_with_a_fix(extent: Any) -> None:
    with pytest.raises(LaunchError, match=r"(?s)(more than 2\*\*63 - 1|beyond 64 bits).*fix: "):
        extent_geometry(extent, None)


@pytest.mark.parametrize(("grid", "block"), [((2**40, 2**40), (8, 32)), (2**56, (256,)), ((0, 2**62), (8, 32))])
def test_grid_of_more_than_63_bits_is_refused_with_a_fix(grid: Any, block: tuple[int, ...]) -> None:
    with pytest.raises(LaunchError, match=r"(?s)more than 2\*\*63 - 1.*fix: launch fewer"):
        grid_geometry(grid, block)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_launch_of_more_than_63_bits_runs_nothing_and_says_so(device: str) -> None:
    x = np.zeros(1)
    with pytest.raises(LaunchError, match="threads, more than"):
        fill.over((2**36, 2**36), device=device)(x)
    with qn.use(device), pytest.raises(LaunchError, match="threads, more than"):
        fill[2**56, 256](x)
    assert x.tolist() == [0]
