from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quernel.store.rows import DAY_SLICE, DIGEST_SLICE, FLAGS_SLICE, DamagedRowError, MapRow, today

TEXTS = st.text(max_size=40)
ROWS = st.builds(
    MapRow,
    name=TEXTS,
    payload_digest=st.binary(min_size=32, max_size=32).map(bytes.hex),
    payload_bytes=st.integers(0, 2**64 - 1),
    entry=TEXTS,
    kernel_name=TEXTS,
    backend=TEXTS,
    statistics=st.binary(max_size=40),
    header=st.binary(max_size=200),
    day=st.integers(0, 2**32 - 1),
    pinned=st.booleans(),
)


@given(ROWS)
@settings(max_examples=100)
def test_row_comes_back_as_it_was_encoded(row: MapRow) -> None:
    assert attrs.asdict(MapRow.decode(row.name, row.encode())) == attrs.asdict(row)


@given(ROWS, st.data())
@settings(max_examples=150)
def test_row_is_damaged_when_any_byte_changes(row: MapRow, data: st.DataObject) -> None:
    value = bytearray(row.encode())
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedRowError, match=r"its digest does not match|not the bytes of a row"):
        MapRow.decode(row.name, bytes(value))


@given(ROWS, st.data())
@settings(max_examples=100)
def test_row_is_damaged_when_cut_short(row: MapRow, data: st.DataObject) -> None:
    value = row.encode()
    with pytest.raises(DamagedRowError, match=r"its digest does not match|not the bytes of a row"):
        MapRow.decode(row.name, value[: data.draw(st.integers(0, len(value) - 1))])


@given(ROWS, TEXTS)
def test_row_is_damaged_when_it_echoes_another_key(row: MapRow, other: str) -> None:
    if other != row.name:
        with pytest.raises(DamagedRowError, match="it belongs to"):
            MapRow.decode(other, row.encode())


@given(ROWS)
def test_row_keeps_what_statements_read_at_fixed_places(row: MapRow) -> None:
    value = row.encode()

    def at(place: tuple[int, int]) -> bytes:
        return value[place[0] - 1 : place[0] - 1 + place[1]]

    assert at(DIGEST_SLICE).hex() == row.payload_digest
    assert int.from_bytes(at(DAY_SLICE), "big") == row.day
    assert int.from_bytes(at(FLAGS_SLICE), "big") == int(row.pinned)


@pytest.mark.parametrize("value", [None, 7, "text", b"", b"x" * 100, memoryview(b"x" * 100)])
def test_row_is_damaged_when_it_is_something_else(value: object) -> None:
    with pytest.raises(DamagedRowError, match=r"its digest does not match|not the bytes of a row"):
        MapRow.decode("k/a/b", value)


@pytest.mark.parametrize(
    ("now_s", "day"),
    [(-1e9, 0), (0.0, 0), (86400.0 * 7 + 5, 7), (1e18, 2**32 - 1), (float("inf"), 2**32 - 1), (float("nan"), 0)],
)
def test_today_is_a_day_that_a_row_holds_however_odd_the_clock(monkeypatch, now_s, day) -> None:
    monkeypatch.setattr("time.time", lambda: now_s)
    assert today() == day
    fixed = MapRow(
        name="k/n/x",
        payload_digest="00" * 32,
        payload_bytes=1,
        entry="",
        kernel_name="",
        backend="cpu",
        statistics=b"{}",
        header=b"",
        day=today(),
    )
    assert MapRow.decode("k/n/x", fixed.encode()).day == day
