"""What the layout of an array means for a launch: bits of facts, worked out once per shape and strides."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

from quernel.geometry import Geometry, extent_geometry, grid_geometry

if TYPE_CHECKING:
    from quernel.dtypes import DType, StructType
    from quernel.runtime.devices import Device

__all__ = [
    "ALIGNED16",
    "CONTIGUOUS",
    "INDEX32",
    "MANY",
    "ArrayKind",
    "extent_layout",
    "grid_layout",
    "kind_of",
    "strided_layout",
]

ALIGNED16: Final = 1
CONTIGUOUS: Final = 2
INDEX32: Final = 4
_EVERYTHING: Final = ALIGNED16 | CONTIGUOUS | INDEX32
MANY: Final = 1 << 31
"""From so many elements on, offsets do not fit 32 bits."""
_LIMIT32: Final = MANY
_UNALIGNED: Final = ~ALIGNED16


@lru_cache(maxsize=4096)
def strided_layout(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, bool, bool, tuple[int, ...]]:
    """The facts of an array, whether elements share memory, whether strides are whole elements, strides in elements."""
    facts = _EVERYTHING
    expected = itemsize
    is_whole = True
    repeats = False
    reach = 0
    is_empty = 0 in shape
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length >= _LIMIT32:
            facts &= ~INDEX32
        if length > 1 and not is_empty:
            if stride != expected:
                facts &= ~CONTIGUOUS
            is_whole &= stride % itemsize == 0
            repeats |= stride == 0
            reach += (length - 1) * abs(stride)
        expected *= length
    if reach // itemsize >= _LIMIT32:
        facts &= ~INDEX32
    return facts, repeats, is_whole, tuple(stride // itemsize for stride in strides)


@final
class ArrayKind:
    """All that a launch depends on of a device array but its address, lengths and strides; one object per kind.

    Attributes:
        device: where the array is.
        facts: what holds for it.
        repeats: whether several elements share memory.
        is_read_only: whether kernels must not write it.
        key: element type and rank.
    """

    __slots__ = ("device", "facts", "is_read_only", "key", "repeats")

    def __init__(self, device: Device, facts: int, repeats: bool, is_read_only: bool, key: tuple[Any, int]) -> None:
        self.device = device
        self.facts = facts
        self.repeats = repeats
        self.is_read_only = is_read_only
        self.key = key


def kind_of(
    device: Device,
    dtype: DType | StructType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    address: int,
    *,
    is_read_only: bool = False,
) -> tuple[ArrayKind, tuple[int, ...]]:
    """The kind of an array, and its strides in elements."""
    facts, repeats, _, steps = strided_layout(shape, strides, dtype.itemsize)
    if address & 15:
        facts &= _UNALIGNED
    key = (dtype, len(shape), facts, repeats, is_read_only)
    kinds = device.array_kinds
    kind = kinds.get(key)
    if kind is None:
        kind = kinds.setdefault(key, ArrayKind(device, facts, repeats, is_read_only, (dtype, len(shape))))
    return kind, steps


def extent_layout(extent: object, block: tuple[int, ...] | None) -> tuple[Geometry, int]:
    """The geometry of `over(extent)`, and the facts that hold for it. On the launch path; kept for plain integers.

    Raises:
        LaunchError: the extent or block is none.
    """
    if type(extent) is int or (type(extent) is tuple and all(type(axis) is int for axis in extent)):
        return _kept_extent(extent, block)
    return _with_facts(extent_geometry(extent, block))


def grid_layout(grid: object, block: tuple[int, ...] | None) -> tuple[Geometry, int]:
    """The geometry of `kernel[grid, block]`, and the facts that hold for it. On the launch path.

    Raises:
        LaunchError: the grid or block is none.
    """
    if type(grid) is int or (type(grid) is tuple and all(type(axis) is int for axis in grid)):
        return _kept_grid(grid, block)
    return _with_facts(grid_geometry(grid, block))


@lru_cache(maxsize=1024)
def _kept_extent(extent: object, block: tuple[int, ...] | None) -> tuple[Geometry, int]:
    return _with_facts(extent_geometry(extent, block))


@lru_cache(maxsize=1024)
def _kept_grid(grid: object, block: tuple[int, ...] | None) -> tuple[Geometry, int]:
    return _with_facts(grid_geometry(grid, block))


def _with_facts(geometry: Geometry) -> tuple[Geometry, int]:
    ends = [start + length for start, length in zip(geometry.start, geometry.extent, strict=True)]
    narrow = max(ends) < _LIMIT32 and min(geometry.start) >= -_LIMIT32
    return geometry, _EVERYTHING if narrow else _EVERYTHING & ~INDEX32
