"""Extents, grids and blocks, all in array order: the last axis is the one along which neighbouring threads run."""

from __future__ import annotations

import enum
import math
import operator
from typing import Any, Final

from quernel.errors import LaunchError
from quernel.values import frozen
from quernel.wording import counted

__all__ = [
    "DEFAULT_BLOCKS",
    "MAX_NDIM",
    "Geometry",
    "LaunchForm",
    "cdiv",
    "extent_geometry",
    "grid_geometry",
    "normalize_block",
]

MAX_NDIM: Final = 3
_LIMIT: Final = 1 << 63
DEFAULT_BLOCKS: Final = {1: (256,), 2: (8, 32), 3: (2, 4, 32)}
"""The block of a launch that names none, by rank; the same on every backend."""


class LaunchForm(enum.Enum):
    """How a kernel is launched; part of its identity."""

    OVER = "over"
    """One thread per point of an extent; the framework maps points to threads and masks the edge."""
    GRID = "grid"
    """Every thread of an explicit grid of blocks runs."""


def cdiv(a: int, b: int) -> int:
    """`a / b` rounded up, for positive `b`."""
    return -(-a // b)


@frozen
class Geometry:
    """The run-time shape of one launch.

    Attributes:
        form: over an extent, or an explicit grid.
        grid: number of blocks along each axis.
        block: number of threads of a block along each axis.
        extent: number of points (`over`) or threads (`grid`) along each axis; what `global_dim` reads.
        start: the first `global_id` along each axis; zeros unless `over` was given a range.
    """

    form: LaunchForm
    grid: tuple[int, ...]
    block: tuple[int, ...]
    extent: tuple[int, ...]
    start: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """Number of axes, 1 to 3."""
        return len(self.extent)

    @property
    def is_empty(self) -> bool:
        """Whether no thread runs."""
        return 0 in self.extent

    @property
    def num_points(self) -> int:
        """Number of points or threads that run."""
        return math.prod(self.extent)


def _as_tuple(value: Any, what: str) -> tuple[Any, ...]:
    axes = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(axes) <= MAX_NDIM:
        raise LaunchError(
            f"{what} {value!r} has {counted(len(axes), 'axis')}", fix=f"give 1 to {MAX_NDIM} axes, the last one fastest"
        )
    return axes


def _as_count(value: Any, what: str, *, least: int) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:  # NumPy's numbers have one too, without axes
            raise LaunchError(
                f"{what} is an array of shape {shape}, not an integer",
                fix="pass the shape of that array, array.shape, or in a tuple the length of an axis, array.shape[0]",
            ) from None
        raise LaunchError(
            f"{what} {value!r} is a {type(value).__name__}, not an integer", fix="pass integers"
        ) from None
    if isinstance(value, bool):
        raise LaunchError(f"{what} {value!r} is a bool", fix="pass integers")
    if count < least:
        raise LaunchError(f"{what} {count} is below {least}", fix=f"pass integers of at least {least}")
    if count >= _LIMIT:
        raise LaunchError(f"{what} {count} does not fit 64 bits", fix="pass a smaller count")
    return count


def _check_total(what: str, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    """Refuses more threads than a 64-bit integer counts, along an axis or together."""
    axes = [count * size for count, size in zip(grid, block, strict=True)]
    total = math.prod(axes)
    if max(total, *axes) >= _LIMIT:
        raise LaunchError(
            f"{what} with blocks of {block} has {max(total, *axes)} threads, more than 2**63 - 1",
            fix="launch fewer, and let each thread do more in a loop, or launch several times",
        )


def normalize_block(block: Any) -> tuple[int, ...]:
    """`block` (an int or a tuple of 1 to 3) as a tuple of positive integers.

    Raises:
        LaunchError: it is neither.
    """
    return tuple(_as_count(axis, "block size", least=1) for axis in _as_tuple(block, "block"))


def extent_geometry(extent: Any, block: tuple[int, ...] | None) -> Geometry:
    """The geometry of `over(extent)`: an int or a `range` of step 1 per axis.

    Raises:
        LaunchError: a negative or non-integer extent, a range with a step, or a block of another rank.
    """
    starts = []
    lengths = []
    for axis in _as_tuple(extent, "extent"):
        if isinstance(axis, range):
            if axis.step != 1:
                raise LaunchError(
                    f"extent {axis!r} has a step of {axis.step}",
                    fix="use range(start, stop) and multiply inside the kernel",
                )
            starts.append(axis.start)
            lengths.append(max(0, axis.stop - axis.start))  # `len` takes no more than 63 bits
        else:
            starts.append(0)
            lengths.append(_as_count(axis, "extent", least=0))
    ndim = len(lengths)
    shape = DEFAULT_BLOCKS[ndim] if block is None else block
    if len(shape) != ndim:
        raise LaunchError(
            f"block {shape} has {counted(len(shape), 'axis')}, the extent has {ndim}",
            fix=f"give a block of {counted(ndim, 'axis')}",
        )
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    if min(starts) < -_LIMIT or max(*ends, *lengths) >= _LIMIT:
        raise LaunchError(f"the extent {extent!r} begins or ends beyond 64 bits", fix="use a smaller start or length")
    grid = tuple(cdiv(length, size) for length, size in zip(lengths, shape, strict=True))
    _check_total(f"extent {tuple(lengths)}", grid, shape)
    return Geometry(LaunchForm.OVER, grid, shape, tuple(lengths), tuple(starts))


def grid_geometry(grid: Any, block: tuple[int, ...] | None) -> Geometry:
    """The geometry of `kernel[grid, block]`; `grid` counts blocks.

    Raises:
        LaunchError: a negative or non-integer grid, or a block of another rank.
    """
    counts = tuple(_as_count(axis, "grid size", least=0) for axis in _as_tuple(grid, "grid"))
    shape = DEFAULT_BLOCKS[len(counts)] if block is None else block
    if len(shape) != len(counts):
        raise LaunchError(
            f"block {shape} has {counted(len(shape), 'axis')}, grid {counts} has {len(counts)}",
            fix=f"give a block of {counted(len(counts), 'axis')}",
        )
    extent = tuple(count * size for count, size in zip(counts, shape, strict=True))
    _check_total(f"grid {counts}", counts, shape)
    return Geometry(LaunchForm.GRID, counts, shape, extent, (0,) * len(counts))
