"""What diskcache may and may not do with rows and files of a store."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import diskcache
import pytest
from diskcache.core import MODE_BINARY, MODE_PICKLE, MODE_RAW, MODE_TEXT

from quernel.errors import StoreError
from quernel.store.byte_disk import BytesDisk
from quernel.store.value_files import is_value_file, new_value_file


class Bomb:
    def __reduce__(self) -> object:
        return os.mkdir, ("exploded",)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quernel.store.byte_disk._left_alone", set())
    folder = tmp_path / "store"
    folder.mkdir()
    yield BytesDisk(str(folder), min_file_size=1000)
    assert not (tmp_path / "exploded").exists()


def test_disk_replaces_every_method_that_touches_keys_values_or_files() -> None:
    for name in ("put", "get", "store", "fetch", "remove", "filename"):
        assert name in vars(BytesDisk), name


@pytest.mark.parametrize("key", [b"bytes", 1, 1.5, None, ("a",), Bomb()])
def test_disk_takes_text_keys_only(disk, key) -> None:
    with pytest.raises(StoreError, match="keys are text"):
        disk.put(key)
    assert disk.put("k/a") == ("k/a", True)


@pytest.mark.parametrize(("key", "raw"), [(pickle.dumps(Bomb()), 0), ("k/a", 0), (b"k/a", 1), (7, 1)])
def test_disk_refuses_keys_that_it_never_wrote(disk, key, raw) -> None:
    with pytest.raises(StoreError, match="a key that is not text"):
        disk.get(key, raw)
    assert disk.get("k/a", 1) == "k/a"


@pytest.mark.parametrize("value", ["text", 1, 1.5, None, bytearray(b"x"), Bomb()])
def test_disk_takes_bytes_values_only(disk, value) -> None:
    with pytest.raises(StoreError, match="values are bytes"):
        disk.store(value, False)
    with pytest.raises(StoreError, match="values are bytes"):
        disk.store(b"bytes", True)


@pytest.mark.parametrize(("num_bytes", "mode"), [(0, MODE_RAW), (999, MODE_RAW), (1000, MODE_BINARY)])
def test_disk_gives_back_values_from_rows_and_files(disk, num_bytes, mode) -> None:
    value = os.urandom(num_bytes)
    size, stored_mode, name, column = disk.store(value, False, "b/a")
    assert stored_mode == mode
    assert size == (num_bytes if name else 0)
    assert disk.fetch(stored_mode, name, column, False) == value


@pytest.mark.parametrize(
    ("mode", "name", "value"),
    [
        (MODE_PICKLE, None, pickle.dumps(Bomb())),
        (MODE_PICKLE, "victim", None),
        (MODE_TEXT, "victim", None),
        (MODE_BINARY, "../victim", None),
        (MODE_BINARY, "/etc/passwd", None),
        (MODE_BINARY, None, b"x"),
        (MODE_BINARY, "ab/cd/" + "0" * 28 + ".val/../../../../victim", None),
        (MODE_RAW, None, "text"),
        (MODE_RAW, None, None),
        (17, None, b"x"),
    ],
)
def test_disk_refuses_rows_that_it_never_wrote(disk, tmp_path, mode, name, value) -> None:
    (tmp_path / "victim").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(StoreError, match="never wrote"):
        disk.fetch(mode, name, value, False)


@pytest.mark.parametrize("name", ["../victim", "victim", "ab/../../victim", "cache.db", None, b"x", 7])
def test_disk_leaves_files_with_foreign_names_alone(disk, tmp_path, name, caplog) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "store" / "cache.db").write_text("precious")
    disk.remove(name)
    assert (tmp_path / "victim").exists()
    assert (tmp_path / "store" / "cache.db").exists()
    assert "left a file alone" in caplog.text


def test_disk_warns_once_about_a_foreign_name(disk, caplog) -> None:
    caplog.set_level("WARNING")
    for _ in range(3):
        disk.remove("../../../precious.txt")
    assert caplog.text.count("left a file alone") == 1


def test_disk_removes_its_own_files_and_the_folders_left_empty(disk, tmp_path) -> None:
    _, _, name, _ = disk.store(b"x" * 2000, False)
    assert (tmp_path / "store" / name).exists()
    disk.remove(name)
    assert os.listdir(tmp_path / "store") == []
    disk.remove(name)


def test_disk_defers_removals_to_the_end_of_a_transaction(disk, tmp_path) -> None:
    _, _, old, _ = disk.store(b"x" * 2000, False)
    disk.begin()
    _, _, new, _ = disk.store(b"y" * 2000, False)
    disk.remove(old)
    assert Path(tmp_path, "store", old).exists()
    disk.rollback()
    assert Path(tmp_path, "store", old).exists()
    assert not Path(tmp_path, "store", new).exists()
    disk.begin()
    disk.remove(old)
    disk.commit()
    assert not Path(tmp_path, "store", old).exists()


def test_stock_cache_over_this_disk_treats_a_pickled_row_as_missing(disk, tmp_path) -> None:
    cache = diskcache.Cache(str(tmp_path / "store"), disk=BytesDisk, eviction_policy="none")
    cache.set("k/a", b"value")
    cache._sql("UPDATE Cache SET mode = 4, value = ?", (pickle.dumps(Bomb()),))
    assert cache.get("k/a") is None
    cache.close()


def test_file_names_are_of_the_pattern_that_is_checked() -> None:
    names = {new_value_file() for _ in range(50)}
    assert len(names) == 50
    assert all(is_value_file(name) for name in names)
    for name in ("AB/cd/" + "0" * 28 + ".val", "ab/cd/" + "0" * 28 + ".val\n", "ab\\cd\\" + "0" * 28 + ".val", 5):
        assert not is_value_file(name)
