"""The diagnostics buffer: what kernels write is what the host reads."""

from __future__ import annotations

import struct

import pytest

from quernel import diagnostics as d
from quernel.dtypes import bool_, f32, i8, i64, u8, u64


def put(data: bytearray, position: int, *cells: int) -> None:
    for offset, cell in enumerate(cells):
        struct.pack_into("<Q", data, d.CELL_BYTES * (position + offset), cell & (1 << 64) - 1)


def test_empty_buffer_reports_nothing() -> None:
    assert d.decode(d.empty_buffer(10)) == d.Diagnostics(None, (), 0)
    assert len(d.empty_buffer(10)) == d.buffer_bytes(10) == 8 * (d.PRINT_RECORDS + 10)


def test_capacity_that_the_cursor_cannot_count_is_refused() -> None:
    with pytest.raises(ValueError, match="not between"):
        d.buffer_bytes(1 << 31)


def test_violation_has_site_thread_and_values() -> None:
    data = d.empty_buffer(0)
    put(data, d.CLAIM, 1, 7, 0, -4, 5, 2, -1, 10)
    assert d.decode(data, ndim=2).violation == d.Record(7, (-4, 5), ((1 << 64) - 1, 10))


def test_prints_are_read_up_to_the_first_that_did_not_fit() -> None:
    data = d.empty_buffer(12)
    put(data, d.PRINT_RECORDS, d.print_head(0, 1), 0, 0, 3, 42)
    put(data, d.PRINT_RECORDS + 5, d.print_head(2, 0), 0, 0, 4)
    put(data, d.PRINT_CURSOR, 9 + 6, 2)
    found = d.decode(data, ndim=1)
    assert found.prints == (d.Record(0, (3,), (42,)), d.Record(2, (4,), ()))
    assert found.lost == 2


def test_head_of_a_record_is_never_zero() -> None:
    assert d.print_head(0, 0) != 0


@pytest.mark.parametrize(
    ("cell", "dtype", "value"),
    [
        ((1 << 64) - 2, i64, -2),
        ((1 << 64) - 2, u64, (1 << 64) - 2),
        ((1 << 64) - 2, i8, -2),
        (200, u8, 200),
        (1, bool_, True),
        (struct.unpack("<Q", struct.pack("<d", 0.5))[0], f32, 0.5),
    ],
)
def test_cell_is_read_by_its_type(cell: int, dtype: object, value: object) -> None:
    read = d.value_of(cell, dtype)  # type: ignore[arg-type]
    assert read == value
    assert type(read) is type(value)
