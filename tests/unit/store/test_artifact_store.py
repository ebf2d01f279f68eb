"""What a store gives back."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.unit.store.files import LARGE, value_file

from quernel.errors import StoreError
from quernel.store import ArtifactStore, StoreNames
from quernel.store import rows as rows_module
from quernel.store.rows import MapRow

# Round trips


@pytest.mark.parametrize("payload", [b"", b"code", LARGE[: 2**20 - 1], LARGE], ids=["empty", "small", "row", "file"])
def test_store_gives_back_header_and_payload_by_every_key(store, keys, payload) -> None:
    stored = keys.artifact(payload, b"header \x00 bytes")
    store.put(keys.kernel("a"), stored, ir_key=keys.ir("a"), source_digest=keys.source("a"))
    assert store.get(keys.kernel("a")) == stored
    assert store.get_for_ir(keys.ir("a")) == stored
    assert store.get_for_source(keys.source("a")) == stored


def test_store_keeps_large_payloads_in_files_and_small_ones_in_the_database(store, env, keys) -> None:
    store.put(keys.kernel("small"), keys.artifact(LARGE[: 2**20 - 1]))
    assert not list(Path(env.store_path).glob("*/*/*.val"))
    store.put(keys.kernel("large"), keys.artifact(LARGE))
    assert value_file(env).read_bytes() == LARGE


def test_store_finds_nothing_under_other_keys_kinds_and_names(store, env, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    assert store.get(keys.kernel("b")) is None
    assert store.get_for_ir(type(keys.ir("a"))(keys.kernel("a").digest)) is None
    other = ArtifactStore(env, StoreNames("cpu", 1, "another machine"))
    assert other.get(keys.kernel("a")) is None
    other.close()


def test_store_finds_nothing_and_makes_nothing_where_no_store_is(store, env, keys) -> None:
    assert store.get(keys.kernel("a")) is None
    assert store.last_parts("a") == []
    assert not os.path.exists(env.path)


def test_store_is_read_by_another_one_opened_later(store, env, names, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    store.close()
    again = ArtifactStore(env, names)
    assert again.get(keys.kernel("a")) == keys.artifact(LARGE)
    again.close()


def test_store_sees_what_another_one_stores_while_both_are_open(store, env, names, keys) -> None:
    other = ArtifactStore(env, names)
    assert other.get(keys.kernel("a")) is None
    store.put(keys.kernel("a"), keys.artifact())
    assert other.get(keys.kernel("a")) == keys.artifact()
    other.close()


def test_store_replaces_an_artifact_and_removes_its_file(store, env, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    first = value_file(env)
    store.put(keys.kernel("a"), keys.artifact(LARGE, b"new header"))
    assert store.get(keys.kernel("a")) == keys.artifact(LARGE, b"new header")
    assert not first.exists()
    assert value_file(env).read_bytes() == LARGE


def test_store_keeps_equal_payloads_once(store, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.put(keys.kernel("b"), keys.artifact())
    assert sql("SELECT count(*) FROM Cache WHERE key LIKE 'b/%'") == [(1,)]


def test_store_keeps_entry_kernel_and_statistics_in_the_row(store, keys, names, sql) -> None:
    store.put(
        keys.kernel("a"),
        keys.artifact(),
        entry="saxpy_1",
        kernel_name="saxpy",
        statistics={"spills": 0, "registers": 12},
    )
    name = names.kernel(keys.kernel("a"))
    ((value,),) = sql("SELECT value FROM Cache WHERE key = ?", name)
    row = MapRow.decode(name, value)
    assert (row.entry, row.kernel_name, row.backend) == ("saxpy_1", "saxpy", "cpu")
    assert row.statistics == b'{"registers":12,"spills":0}'
    assert row.day == rows_module.today()


def test_store_says_by_name_that_it_is_closed(store, keys) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError, match=r"store of cpu in .* is closed"):
        store.get(keys.kernel("a"))
    with pytest.raises(StoreError, match="is closed"):
        store.put(keys.kernel("a"), keys.artifact())


# Transactions


def test_put_leaves_nothing_when_one_of_its_rows_fails(store, env, keys, sql, monkeypatch) -> None:
    store.put(keys.kernel("first"), keys.artifact(b"first"))
    before = sql("SELECT key FROM Cache ORDER BY key")
    encode = MapRow.encode

    def failing(row: MapRow) -> bytes:
        if row.name.startswith("s/"):
            raise OSError(28, "No space left on device")
        return encode(row)

    monkeypatch.setattr(MapRow, "encode", failing)
    with pytest.raises(StoreError, match="No space left on device"):
        store.put(keys.kernel("a"), keys.artifact(LARGE), ir_key=keys.ir("a"), source_digest=keys.source("a"))
    monkeypatch.undo()
    assert sql("SELECT key FROM Cache ORDER BY key") == before
    assert not list(Path(env.store_path).glob("*/*/*.val"))
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    assert store.get(keys.kernel("a")) == keys.artifact(LARGE)


def test_put_keeps_the_old_file_when_its_transaction_fails(store, keys, monkeypatch) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))

    def failing(row: MapRow) -> bytes:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(MapRow, "encode", failing)
        with pytest.raises(StoreError, match="No space left on device"):
            store.put(keys.kernel("a"), keys.artifact(LARGE))
    assert store.get(keys.kernel("a")) == keys.artifact(LARGE)


def test_put_works_again_after_a_commit_failed(store, keys, monkeypatch) -> None:
    import sqlite3

    connect, fails = sqlite3.connect, []

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            if sql == "COMMIT" and fails:
                fails.clear()
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *arguments)

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Connection, **k))
    store.put(keys.kernel("a"), keys.artifact())
    fails.append(True)
    with pytest.raises(StoreError, match="disk is full"):
        store.put(keys.kernel("b"), keys.artifact(LARGE))
    assert store.get(keys.kernel("b")) is None
    store.put(keys.kernel("b"), keys.artifact(LARGE))
    assert store.get(keys.kernel("b")) == keys.artifact(LARGE)


def test_put_fails_in_time_while_another_process_holds_the_lock(store, keys, env) -> None:
    import sqlite3

    store.put(keys.kernel("a"), keys.artifact())
    other = sqlite3.connect(Path(env.store_path) / "cache.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreError, match="locked by another process"):
            store.put(keys.kernel("b"), keys.artifact())
        assert store.get(keys.kernel("a")) == keys.artifact()
    finally:
        other.execute("ROLLBACK")
        other.close()
    store.put(keys.kernel("b"), keys.artifact())
    assert store.get(keys.kernel("b")) == keys.artifact()


@pytest.mark.parametrize("first", [True, False], ids=["new store", "store with a row"])
def test_first_put_of_a_process_fails_in_time_while_another_holds_the_lock(env, names, keys, first) -> None:
    import sqlite3
    import time

    if first:
        os.makedirs(env.store_path)
    else:
        filled = ArtifactStore(env, names)
        filled.put(keys.kernel("a"), keys.artifact())
        filled.close()
    store = ArtifactStore(env, names)
    other = sqlite3.connect(Path(env.store_path) / "cache.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    start_s = time.monotonic()
    try:
        with pytest.raises(StoreError, match="locked"):
            store.put(keys.kernel("b"), keys.artifact())
        assert time.monotonic() - start_s < 4
    finally:
        other.execute("ROLLBACK")
        other.close()
    store.put(keys.kernel("b"), keys.artifact())
    assert store.get(keys.kernel("b")) == keys.artifact()
    store.close()


def test_put_goes_on_soon_where_another_process_stays_in_its_opening(env, names, keys) -> None:
    import time

    from filelock import FileLock

    os.makedirs(env.locks_path)
    store = ArtifactStore(env, names)
    start_s = time.monotonic()
    with FileLock(os.path.join(env.locks_path, "store-open.lock"), is_singleton=False):
        store.put(keys.kernel("a"), keys.artifact())
    assert time.monotonic() - start_s < 4
    assert store.get(keys.kernel("a")) == keys.artifact()
    store.close()


@pytest.mark.parametrize("now_s", [-1e9, 1e18, float("nan")])
def test_store_works_and_collects_however_odd_the_clock(env, names, keys, monkeypatch, now_s) -> None:
    monkeypatch.setattr("time.time", lambda: now_s)
    store = ArtifactStore(env, names, size_limit_bytes=50_000)
    for text in "abcdefgh":
        store.put(keys.kernel(text), keys.artifact(text.encode() * 10_000))
    assert store.get(keys.kernel("h")) == keys.artifact(b"h" * 10_000)
    assert store.local.size_bytes() < 150_000
    store.close()


def test_close_folds_the_log_into_the_database(store, env, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    assert store.get(keys.kernel("a")) is not None
    store.close()
    assert os.listdir(env.store_path) == ["cache.db"]


# Hits


def test_hit_writes_nothing(store, env, names, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    store.put(keys.kernel("b"), keys.artifact())
    store.close()

    def state() -> object:
        files = {path: path.read_bytes() for path in Path(env.path).rglob("*") if path.suffix in (".db", ".val")}
        return files, sorted(path.stat().st_mtime_ns for path in files)

    before = state()
    reader = ArtifactStore(env, names)
    assert reader.get(keys.kernel("a")) is not None
    assert reader.get(keys.kernel("b")) is not None
    assert reader.get(keys.kernel("c")) is None
    reader.close()
    assert state() == before


def test_hit_loads_no_heavy_module(store, env, names, keys, tmp_path) -> None:
    import subprocess

    store.put(keys.kernel("a"), keys.artifact(LARGE))
    store.close()
    script = f"""
import sys, numpy, attrs
before = set(sys.modules)
from quernel.identity import KernelCacheKey
from quernel.store import compilation_store
store = compilation_store({names.backend!r}, {names.fingerprint!r}, artifact_format={names.artifact_format!r})
assert len(store.get(KernelCacheKey({keys.kernel("a").digest!r})).payload) == {len(LARGE)}
heavy = "diskcache filelock platformdirs rich click pluggy json logging ast pickle quernel.ir quernel.lang".split()
print(sorted(name for name in set(sys.modules) - before if name in heavy or name.split(".")[0] in heavy))
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"QUERNEL_ENVIRONMENT": env.path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"


def test_day_of_use_is_written_at_close_and_not_before(store, env, names, keys, sql, monkeypatch) -> None:
    monkeypatch.setattr("quernel.store.artifact_store.today", lambda: 20_000)
    store.put(keys.kernel("a"), keys.artifact(), pinned=True)
    monkeypatch.undo()
    name = names.kernel(keys.kernel("a"))

    def row() -> MapRow:
        ((value,),) = sql("SELECT value FROM Cache WHERE key = ?", name)
        return MapRow.decode(name, value)

    store.get(keys.kernel("a"))
    assert row().day == 20_000
    store.close()
    assert row().day == rows_module.today()
    assert row().pinned
    assert row().header == keys.artifact().header


def test_day_of_use_is_written_with_the_next_store(store, names, keys, sql, monkeypatch) -> None:
    monkeypatch.setattr("quernel.store.artifact_store.today", lambda: 20_000)
    store.put(keys.kernel("a"), keys.artifact())
    monkeypatch.undo()
    store.get(keys.kernel("a"))
    store.put(keys.kernel("b"), keys.artifact())
    name = names.kernel(keys.kernel("a"))
    ((value,),) = sql("SELECT value FROM Cache WHERE key = ?", name)
    assert MapRow.decode(name, value).day == rows_module.today()


# Dropping


def test_drop_removes_the_rows_of_an_artifact_and_its_payload(store, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact(), ir_key=keys.ir("a"), source_digest=keys.source("a"))
    store.drop(keys.kernel("a"))
    assert store.get(keys.kernel("a")) is None
    assert store.get_for_ir(keys.ir("a")) is None
    assert store.get_for_source(keys.source("a")) is None
    assert sql("SELECT key FROM Cache") == []


def test_drop_keeps_the_payload_that_another_kernel_has_too(store, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    store.put(keys.kernel("b"), keys.artifact(LARGE))
    store.drop(keys.kernel("a"))
    assert store.get(keys.kernel("a")) is None
    assert store.get(keys.kernel("b")) == keys.artifact(LARGE)


def test_drop_removes_the_second_keys_even_where_the_payload_stays(store, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact(), ir_key=keys.ir("a"), source_digest=keys.source("a"))
    store.put(keys.kernel("b"), keys.artifact())
    store.drop(keys.kernel("a"))
    assert store.get_for_ir(keys.ir("a")) is None
    assert store.get_for_source(keys.source("a")) is None
    assert store.get(keys.kernel("b")) == keys.artifact()


def test_drop_keeps_the_payload_that_another_fingerprint_has_too(store, env, keys) -> None:
    other = ArtifactStore(env, StoreNames("cpu", 1, "another"))
    other.put(keys.kernel("a"), keys.artifact(), ir_key=keys.ir("a"))
    store.put(keys.kernel("a"), keys.artifact())
    store.drop(keys.kernel("a"))
    assert other.get(keys.kernel("a")) == keys.artifact()
    assert other.get_for_ir(keys.ir("a")) == keys.artifact()
    other.close()


def test_drop_of_what_is_not_there_does_nothing(store, keys) -> None:
    store.drop(keys.kernel("a"))
    store.put(keys.kernel("b"), keys.artifact())
    store.drop(keys.kernel("a"))
    assert store.get(keys.kernel("b")) == keys.artifact()


def test_dropped_artifact_is_found_again_after_it_is_stored_anew(store, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact(b"refused"))
    store.drop(keys.kernel("a"))
    store.put(keys.kernel("a"), keys.artifact(b"better"))
    assert store.get(keys.kernel("a")) == keys.artifact(b"better")


# Parts


def test_last_parts_holds_the_last_eight_different_sets_newest_first(store, keys) -> None:
    for number in range(12):
        store.put(
            keys.kernel(str(number)),
            keys.artifact(),
            kernel_name="saxpy",
            parts=(("code", str(number)), ("block", "b")),
        )
    assert store.last_parts("saxpy") == [{"code": str(n), "block": "b"} for n in range(11, 3, -1)]
    store.put(keys.kernel("x"), keys.artifact(), kernel_name="saxpy", parts={"code": "6", "block": "b"})
    assert [parts["code"] for parts in store.last_parts("saxpy")] == ["6", "11", "10", "9", "8", "7", "5", "4"]
    assert store.last_parts("other") == []


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"[1]", b'{"kernel":"other","parts":[]}', b'{"kernel":"saxpy","parts":3}']
)
def test_last_parts_is_empty_where_its_row_is_damaged(store, keys, sql, value) -> None:
    store.put(keys.kernel("a"), keys.artifact(), kernel_name="saxpy", parts={"code": "1"})
    sql("UPDATE Cache SET value = ? WHERE key LIKE 'n/%'", value)
    assert store.last_parts("saxpy") == []


# Threads


def test_sixteen_threads_store_and_find_at_once(store, keys) -> None:
    start = threading.Barrier(16)

    def work(number: int) -> int:
        start.wait()
        found = 0
        for step in range(6):
            text = f"{number % 4} {step}"
            payload = LARGE + text.encode() if step == 5 else text.encode() * 50
            store.put(keys.kernel(text), keys.artifact(payload), kernel_name="k", parts={"code": text})
            stored = store.get(keys.kernel(text))
            assert stored == keys.artifact(payload)
            found += store.get(keys.kernel(f"{(number + 1) % 4} {step}")) is not None
        return found

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    report = store.verify()
    assert report.problems == ()
    assert store.info().num_kernels == 24
