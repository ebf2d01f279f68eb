"""The launch's diagnostics buffer: how kernels report failed checks and printed values, the same on every backend.

The buffer is an array of cells of 8 bytes, zero before the launch but for its capacity:

    claim | site | three global ids | number of values | 16 values | cursor | lost | capacity | print records …

A violation is one record for the whole launch. The thread that changes the claim word from 0 to 1 by compare-and-swap
fills the cells behind it; every other thread leaves them alone.

A print record is a head, three global ids and the values. A thread that prints reserves its cells by an atomic add to
the cursor, and counts itself lost where they reach beyond the capacity. It reads the cursor before, and adds nothing
where that is beyond the capacity already, so that the cursor never wraps. As the cursor only grows, the records are
one run without gaps.

Words that atomics change are 32 bits wide, in the low half of their cell. Global ids are in array order, with zeros in
front where the launch has fewer than three axes. A value is 64 bits: an integer extended by its sign, a bool 0 or 1, a
float converted to f64.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs

from quernel.dtypes import DType

__all__ = [
    "CAPACITY",
    "CELL_BYTES",
    "CLAIM",
    "DEFAULT_PRINT_CELLS",
    "GLOBAL_IDS",
    "LOST",
    "MAX_NUM_IDS",
    "MAX_VALUES",
    "NUM_VALUES",
    "PRINT_CURSOR",
    "PRINT_RECORDS",
    "RECORD_CELLS",
    "SITE",
    "VALUES",
    "Diagnostics",
    "Record",
    "buffer_bytes",
    "decode",
    "empty_buffer",
    "print_head",
    "value_of",
]

CELL_BYTES: Final = 8
"""Bytes of a cell; every position below counts cells."""

MAX_NUM_IDS: Final = 3
"""Global ids of a record."""

MAX_VALUES: Final = 16
"""The most values that a violation records: the indices and the lengths of eight axes."""

CLAIM: Final = 0
"""An i32, 0 before the launch; compare-and-swap to 1 claims the violation record."""

SITE: Final = 1
"""The violated site."""

GLOBAL_IDS: Final = 2
"""First of the three global ids of the violating thread."""

NUM_VALUES: Final = GLOBAL_IDS + MAX_NUM_IDS
"""How many values the violation has."""

VALUES: Final = NUM_VALUES + 1
"""First of the violation's values."""

PRINT_CURSOR: Final = VALUES + MAX_VALUES
"""A u32: how many cells of the print records are taken, beyond the capacity too."""

LOST: Final = PRINT_CURSOR + 1
"""A u32: how many prints did not fit."""

CAPACITY: Final = LOST + 1
"""How many cells there are for print records; written by the host."""

PRINT_RECORDS: Final = CAPACITY + 1
"""First cell of the print records."""

RECORD_CELLS: Final = 1 + MAX_NUM_IDS
"""Cells of a print record besides its values."""

DEFAULT_PRINT_CELLS: Final = 1 << 17
"""Capacity for print records, 1 MiB, where nothing else is asked for."""

_CAPACITY_LIMIT: Final = 1 << 31


@attrs.frozen
class Record:
    """What one thread reported.

    Attributes:
        site: number of the assert or print.
        global_id: the thread, one id per axis of the launch.
        values: the raw cells, as unsigned integers; `value_of` reads one by its type.
    """

    site: int
    global_id: tuple[int, ...]
    values: tuple[int, ...]


@attrs.frozen
class Diagnostics:
    """What a launch reported.

    Attributes:
        violation: the first claimed violation.
        prints: the printed records, in the order in which they took their place.
        lost: how many prints did not fit.
    """

    violation: Record | None
    prints: tuple[Record, ...]
    lost: int


def buffer_bytes(print_cells: int = DEFAULT_PRINT_CELLS) -> int:
    """Bytes of a buffer with room for so many cells of print records (0 for a kernel that never prints).

    Raises:
        ValueError: no buffer has so many.
    """
    if not 0 <= print_cells < _CAPACITY_LIMIT:
        raise ValueError(f"{print_cells} cells for print records, not between 0 and {_CAPACITY_LIMIT - 1}")
    return CELL_BYTES * (PRINT_RECORDS + print_cells)


def empty_buffer(print_cells: int = DEFAULT_PRINT_CELLS) -> bytearray:
    """The bytes of a buffer before a launch."""
    data = bytearray(buffer_bytes(print_cells))
    struct.pack_into("<Q", data, CELL_BYTES * CAPACITY, print_cells)
    return data


def print_head(site: int, num_values: int) -> int:
    """The first cell of a print record: the site below, the record's number of cells in the high half. Never 0."""
    return (RECORD_CELLS + num_values) << 32 | site


def decode(data: bytes | bytearray | memoryview, ndim: int = MAX_NUM_IDS) -> Diagnostics:
    """What stands in a buffer after a launch of `ndim` axes."""
    cells = memoryview(data).cast("B")

    def read(position: int, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}Q", cells, CELL_BYTES * position)

    def word(position: int) -> int:
        return read(position, 1)[0] & 0xFFFF_FFFF

    def ids(position: int) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack_from(f"<{MAX_NUM_IDS}q", cells, CELL_BYTES * position)
        return found[MAX_NUM_IDS - ndim :]

    violation = None
    if word(CLAIM):
        num_values = min(read(NUM_VALUES, 1)[0], MAX_VALUES)
        violation = Record(word(SITE), ids(GLOBAL_IDS), read(VALUES, num_values))
    prints: list[Record] = []
    position = PRINT_RECORDS
    end = PRINT_RECORDS + min(word(PRINT_CURSOR), read(CAPACITY, 1)[0])
    while position + RECORD_CELLS <= end:
        size, site = divmod(read(position, 1)[0], 1 << 32)
        if size < RECORD_CELLS or position + size > end:
            break  # The thread that reserved these cells did not fit, and neither did any after it.
        values = read(position + RECORD_CELLS, size - RECORD_CELLS)
        prints.append(Record(site, ids(position + 1), values))
        position += size
    return Diagnostics(violation, tuple(prints), word(LOST))


def value_of(cell: int, dtype: DType) -> bool | int | float:
    """The value of that type in a raw cell."""
    if dtype.is_float:
        value: float = struct.unpack("<d", struct.pack("<Q", cell))[0]
        return value
    if dtype.is_bool:
        return cell != 0
    value_bits = cell & ((1 << dtype.bits) - 1)
    return value_bits - (1 << dtype.bits) if dtype.is_signed and value_bits > dtype.max else value_bits
