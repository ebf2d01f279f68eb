"""What a store gives back, and what it refuses to give back."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quernel.errors import StoreError
from quernel.store import ArtifactStore, Environment, ReadOnlyLayer, StoredArtifact, StoreNames
from quernel.store import rows as rows_module
from quernel.store.rows import MapRow

LARGE = b"\x90" * (2**20 + 17)


def value_file(env: Environment) -> Path:
    (found,) = Path(env.store_path).glob("*/*/*.val")
    return found


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


# Corruption


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_flipped_byte_in_a_payload_file_is_a_miss_and_deletes_the_rows(store, env, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    flip(value_file(env), 12345)
    assert store.get(keys.kernel("a")) is None
    assert sql("SELECT count(*) FROM Cache") == [(0,)]
    assert not list(Path(env.store_path).glob("*/*/*.val"))
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    assert store.get(keys.kernel("a")) == keys.artifact(LARGE)


def test_flipped_byte_in_a_payload_row_is_a_miss_and_deletes_the_rows(store, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact(b"code"), ir_key=keys.ir("a"))
    sql("UPDATE Cache SET value = ? WHERE key LIKE 'b/%'", b"cofe")
    assert store.get(keys.kernel("a")) is None
    assert [key[:1] for (key,) in sql("SELECT key FROM Cache")] == ["i"]
    assert store.get_for_ir(keys.ir("a")) is None
    assert sql("SELECT key FROM Cache") == []


@pytest.mark.parametrize("size", [0, 1, 2**20])
def test_truncated_payload_file_is_a_miss(store, env, keys, size) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    os.truncate(value_file(env), size)
    assert store.get(keys.kernel("a")) is None
    assert store.verify().is_whole


def test_missing_payload_file_is_a_miss(store, env, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    value_file(env).unlink()
    assert store.get(keys.kernel("a")) is None
    assert store.verify().is_whole


def test_longer_payload_file_is_a_miss(store, env, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    with value_file(env).open("ab") as file:
        file.write(b"more")
    assert store.get(keys.kernel("a")) is None


def test_payload_file_replaced_by_a_link_is_a_miss_and_leaves_the_other_file(store, env, keys, tmp_path) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    path = value_file(env)
    victim = tmp_path / "victim"
    path.rename(victim)
    path.symlink_to(victim)
    assert store.get(keys.kernel("a")) is None
    assert victim.read_bytes() == LARGE


def test_payload_folder_replaced_by_a_link_is_a_miss_and_leaves_what_it_shows(store, env, keys, tmp_path) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    path = value_file(env)
    elsewhere = tmp_path / "elsewhere"
    path.parent.rename(elsewhere)
    path.parent.symlink_to(elsewhere)
    assert store.get(keys.kernel("a")) is None
    assert (elsewhere / path.name).read_bytes() == LARGE


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.timeout(20)
def test_payload_file_replaced_by_a_pipe_does_not_block(store, env, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    path = value_file(env)
    path.unlink()
    os.mkfifo(path)
    assert store.get(keys.kernel("a")) is None


@pytest.mark.parametrize(
    "target", ["../../victim", "{absolute}", "ab/../../../victim", "cache.db", "ab/cd/x.val\n", ""]
)
def test_crafted_file_name_is_a_miss_and_touches_no_other_file(store, env, keys, sql, tmp_path, target, caplog) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(LARGE)
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    sql("UPDATE Cache SET filename = ? WHERE key LIKE 'b/%'", target.format(absolute=victim))
    assert store.get(keys.kernel("a")) is None
    assert victim.read_bytes() == LARGE
    assert store.get(keys.kernel("a")) is None
    assert "left a file alone" in caplog.text
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    assert store.get(keys.kernel("a")) == keys.artifact(LARGE)


def test_crafted_file_name_survives_put_drop_verify_and_clear(store, keys, sql, tmp_path) -> None:
    victim = tmp_path / "victim"
    for use in (
        lambda: store.put(keys.kernel("a"), keys.artifact(LARGE)),
        lambda: store.drop(keys.kernel("a")),
        lambda: store.verify(repair=True),
        store.clear,
    ):
        victim.write_bytes(b"precious")
        store.put(keys.kernel("a"), keys.artifact(LARGE))
        sql("UPDATE Cache SET filename = '../../victim' WHERE key LIKE 'b/%'")
        use()
        assert victim.read_bytes() == b"precious"


class Bomb:
    def __reduce__(self) -> object:
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("mode", [3, 4, 99, None])
@pytest.mark.parametrize("kind", ["k", "b", "n"])
def test_foreign_row_is_not_unpickled(store, keys, sql, tmp_path, monkeypatch, mode, kind) -> None:
    import pickle

    monkeypatch.chdir(tmp_path)
    store.put(keys.kernel("a"), keys.artifact(), kernel_name="saxpy", parts=[("code", "1")])
    sql(f"UPDATE Cache SET mode = ?, value = ? WHERE key LIKE '{kind}/%'", mode, pickle.dumps(Bomb()))
    assert store.get(keys.kernel("a")) == (keys.artifact() if kind == "n" else None)
    assert store.last_parts("saxpy") == ([] if kind == "n" else [{"code": "1"}])
    assert store.verify(repair=True)
    store.put(keys.kernel("a"), keys.artifact(), kernel_name="saxpy", parts=[("code", "2")])
    assert store.get(keys.kernel("a")) == keys.artifact()
    store.clear()
    assert not (tmp_path / "exploded").exists()


def test_foreign_pickled_key_is_reported_and_removed_unread(store, keys, sql, tmp_path, monkeypatch) -> None:
    import pickle

    monkeypatch.chdir(tmp_path)
    store.put(keys.kernel("a"), keys.artifact())
    sql("INSERT INTO Cache (key, raw, mode, value) VALUES (?, 0, 4, ?)", pickle.dumps(Bomb()), pickle.dumps(Bomb()))
    report = store.verify()
    assert len(report.problems) == 1
    assert "the store never wrote it" in report.problems[0]
    assert store.verify(repair=True).num_removed == 1
    assert store.verify().is_whole
    assert store.get(keys.kernel("a")) == keys.artifact()
    assert not (tmp_path / "exploded").exists()


def test_wrong_echoed_key_is_a_miss_and_deletes_that_row_only(store, names, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact(b"code of a"))
    store.put(keys.kernel("b"), keys.artifact(b"code of b"))
    a, b = names.kernel(keys.kernel("a")), names.kernel(keys.kernel("b"))
    sql("UPDATE Cache SET value = (SELECT value FROM Cache WHERE key = ?) WHERE key = ?", b, a)
    assert store.get(keys.kernel("a")) is None
    assert store.get(keys.kernel("b")) == keys.artifact(b"code of b")
    assert (a,) not in sql("SELECT key FROM Cache")


def test_row_of_another_length_is_a_miss(store, names, keys, sql) -> None:
    import attrs

    store.put(keys.kernel("a"), keys.artifact(b"code"))
    name = names.kernel(keys.kernel("a"))
    ((value,),) = sql("SELECT value FROM Cache WHERE key = ?", name)
    sql(
        "UPDATE Cache SET value = ? WHERE key = ?",
        attrs.evolve(MapRow.decode(name, value), payload_bytes=5).encode(),
        name,
    )
    assert store.get(keys.kernel("a")) is None


def test_flipped_byte_in_a_map_is_a_miss_and_keeps_the_payload_of_others(store, names, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.put(keys.kernel("b"), keys.artifact())
    name = names.kernel(keys.kernel("a"))
    ((value,),) = sql("SELECT value FROM Cache WHERE key = ?", name)
    damaged = bytearray(value)
    damaged[-40] ^= 4
    sql("UPDATE Cache SET value = ? WHERE key = ?", bytes(damaged), name)
    assert store.get(keys.kernel("a")) is None
    assert store.get(keys.kernel("b")) == keys.artifact()


def _noise(path: Path) -> None:
    path.write_bytes(os.urandom(50_000))


def _noise_at_the_start(path: Path) -> None:
    path.write_bytes(b"garbage" * 9 + path.read_bytes()[63:])


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10_000])


def _noise_in_the_middle(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:8192] + b"\xa5" * (len(data) - 8192))


@pytest.mark.parametrize("harm", [_noise, _noise_at_the_start, _cut_short, _noise_in_the_middle])
@pytest.mark.parametrize("first", ["get", "put", "open", "last_parts"])
def test_damaged_database_is_set_aside_with_one_warning_and_another_begun(
    store, env, names, keys, caplog, harm, first
) -> None:
    for text in "abcdef":
        store.put(keys.kernel(text), keys.artifact(text.encode() * 3000), kernel_name=text, parts={"code": text})
    store.close()
    path = Path(env.store_path) / "cache.db"
    harm(path)
    again = ArtifactStore(env, names)
    if first == "get":
        assert again.get(keys.kernel("a")) in (None, keys.artifact(b"a" * 3000))
    elif first == "open":
        again.open()
    elif first == "last_parts":
        again.last_parts("a")
    again.put(keys.kernel("new"), keys.artifact(), kernel_name="new", parts={"code": "1"})
    assert again.get(keys.kernel("new")) == keys.artifact()
    again.close()
    last = ArtifactStore(env, names)
    assert last.get(keys.kernel("new")) == keys.artifact()
    assert last.verify().is_whole
    last.close()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "is damaged" in warnings[0]
    assert "set aside as cache.db.damaged" in warnings[0]
    assert path.with_name("cache.db.damaged").exists()
    last = ArtifactStore(env, names)
    last.clear()
    assert not path.with_name("cache.db.damaged").exists()
    last.close()


def test_damaged_database_of_another_user_stays(store, env, names, keys, monkeypatch) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    path = Path(env.store_path) / "cache.db"
    _noise(path)
    noise = path.read_bytes()
    again = ArtifactStore(env, names)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StoreError, match="belongs to user"):
        again.put(keys.kernel("a"), keys.artifact())
    assert path.read_bytes() == noise
    monkeypatch.undo()
    again.close()


@pytest.mark.parametrize("page", range(1, 12))
def test_overwritten_page_never_gives_wrong_bytes(store, env, names, keys, page) -> None:
    for text in "abcdef":
        store.put(keys.kernel(text), keys.artifact(text.encode() * 3000))
    store.close()
    path = Path(env.store_path) / "cache.db"
    data = bytearray(path.read_bytes())
    data[page * 4096 : page * 4096 + 4096] = bytes(os.urandom(4096))
    path.write_bytes(data[: max(len(data), 4096)])
    again = ArtifactStore(env, names)
    for text in "abcdef":
        try:
            found = again.get(keys.kernel(text))
        except StoreError:
            continue
        assert found is None or found == keys.artifact(text.encode() * 3000)
    again.close()


@pytest.mark.parametrize("table", ["Cache", "Settings"])
def test_store_that_was_not_finished_is_empty_and_finished_by_the_next_put(store, env, names, keys, sql, table) -> None:
    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    sql(f"DROP TABLE {table}")
    again = ArtifactStore(env, names)
    assert again.get(keys.kernel("a")) is None
    again.put(keys.kernel("b"), keys.artifact())
    assert again.get(keys.kernel("b")) == keys.artifact()
    again.close()


def test_reader_of_a_removed_folder_finds_what_is_stored_anew(store, env, names, keys) -> None:
    import shutil

    store.put(keys.kernel("a"), keys.artifact())
    store.close()
    again = ArtifactStore(env, names)
    assert again.get(keys.kernel("a")) == keys.artifact()
    shutil.rmtree(env.path)
    again.put(keys.kernel("b"), keys.artifact())
    assert again.get(keys.kernel("b")) == keys.artifact()
    again.close()


def test_verify_reports_a_malformed_database(store, env, names, keys) -> None:
    for text in "abcdef":
        store.put(keys.kernel(text), keys.artifact(text.encode() * 3000))
    store.close()
    path = Path(env.store_path) / "cache.db"
    data = path.read_bytes()
    path.write_bytes(data[:-40960] + b"\xa5" * 40960)
    again = ArtifactStore(env, names)
    assert not again.verify().is_whole
    again.clear()
    assert again.verify().is_whole
    again.close()


def test_store_whose_folder_was_removed_meanwhile_starts_anew(store, env, keys) -> None:
    import shutil

    store.put(keys.kernel("a"), keys.artifact())
    shutil.rmtree(env.store_path)
    store.put(keys.kernel("b"), keys.artifact())
    assert store.get(keys.kernel("b")) == keys.artifact()
    assert store.get(keys.kernel("a")) is None


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


# Layers


class Layer:
    name = "a bundle"

    def __init__(self, found: StoredArtifact | None = None, error: StoreError | None = None) -> None:
        self.found, self.error, self.asked, self.closed = found, error, [], 0

    def find(self, name: str) -> StoredArtifact | None:
        self.asked.append(name)
        if self.error is not None:
            raise self.error
        return self.found

    def close(self) -> None:
        self.closed += 1


def test_layers_are_asked_in_order_after_a_local_miss_only(env, names, keys) -> None:
    first, second = Layer(), Layer(keys.artifact(b"from below"))
    assert isinstance(first, ReadOnlyLayer)
    store = ArtifactStore(env, names, layers=[first, second])
    store.put(keys.kernel("local"), keys.artifact())
    assert store.get(keys.kernel("local")) == keys.artifact()
    assert first.asked == []
    assert store.get(keys.kernel("a")) == keys.artifact(b"from below")
    assert first.asked == second.asked == [names.kernel(keys.kernel("a"))]
    store.close()
    assert (first.closed, second.closed) == (1, 1)


def test_failing_layer_is_switched_off_after_three_failures(env, names, keys, caplog) -> None:
    bad, good = Layer(error=StoreError("connection refused")), Layer(keys.artifact())
    store = ArtifactStore(env, names, layers=[bad, good])
    for _ in range(5):
        assert store.get(keys.kernel("a")) == keys.artifact()
    assert len(bad.asked) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "a bundle is not asked any more: connection refused" in caplog.text
    store.close()


class _Odd:
    """A layer of somebody else's making that keeps no contract."""

    def __init__(self, result: object) -> None:
        self.result = result

    def find(self, name: str) -> object:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def close(self) -> None:
        pass


@pytest.mark.parametrize("result", [RuntimeError("a bug"), b"bytes", 7])
def test_layer_that_breaks_its_contract_is_switched_off(env, names, keys, caplog, result) -> None:
    store = ArtifactStore(env, names, layers=[_Odd(result)])
    for _ in range(4):
        assert store.get(keys.kernel("a")) is None
    assert caplog.text.count("_Odd is not asked any more") == 1
    store.close()


def test_dropped_artifact_is_not_found_in_a_layer_either(env, names, keys) -> None:
    store = ArtifactStore(env, names, layers=[Layer(keys.artifact())])
    store.drop(keys.kernel("a"))
    assert store.get(keys.kernel("a")) is None
    store.close()


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
