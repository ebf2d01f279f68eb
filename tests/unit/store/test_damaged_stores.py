"""Files and rows that are not what was stored: none is given back, none costs another, none is touched outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.store.files import LARGE, value_file

from quernel.errors import StoreError
from quernel.store import ArtifactStore
from quernel.store.rows import MapRow


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


def _replaced(old: bytes, new: bytes) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        data = path.read_bytes()
        assert old in data
        path.write_bytes(data.replace(old, new))

    return replace


def _format_of_the_future(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:44] + b"\0\0\0\x63" + data[48:])


_HARMS = {
    "noise": _noise,
    "noise at the start": _noise_at_the_start,
    "cut short": _cut_short,
    "noise in the middle": _noise_in_the_middle,
    "no text in the schema": _replaced(b"CREATE TABLE", b"CR\xb9ATE TABLE"),
    "another column": _replaced(b" raw INTEGER", b" rew INTEGER"),
    "a format of the future": _format_of_the_future,
}


@pytest.mark.parametrize("harm", _HARMS.values(), ids=_HARMS)
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


def test_key_that_is_no_text_is_named_and_repaired(store, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact(b"a"))
    sql("UPDATE Cache SET key = CAST(x'6b2fff41' AS TEXT) WHERE key LIKE 'k/%'")
    assert any("the store never wrote it" in problem for problem in store.verify().problems)
    store.verify(repair=True)
    assert store.verify().is_whole


def test_file_name_that_is_no_text_is_a_miss(store, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact(LARGE))
    sql("UPDATE Cache SET filename = CAST(x'ff41' AS TEXT) WHERE key LIKE 'b/%'")
    assert store.get(keys.kernel("a")) is None
    store.verify(repair=True)
    assert store.verify().is_whole


def test_counter_that_is_missing_costs_nothing(store, env, names, keys, sql) -> None:
    store.put(keys.kernel("a"), keys.artifact(b"a"))
    sql("DELETE FROM Settings WHERE key = 'size'")
    assert store.local.size_bytes() > 0
    store.put(keys.kernel("b"), keys.artifact(b"b"))
    assert store.get(keys.kernel("b")) == keys.artifact(b"b")


def test_database_that_a_later_version_wrote_is_cleared(store, env, names, keys) -> None:
    store.put(keys.kernel("a"), keys.artifact(b"a"))
    store.close()
    path = Path(env.store_path) / "cache.db"
    data = path.read_bytes()
    path.write_bytes(data[:18] + b"\x63" + data[19:])
    again = ArtifactStore(env, names)
    again.clear()
    again.put(keys.kernel("b"), keys.artifact(b"b"))
    assert again.get(keys.kernel("b")) == keys.artifact(b"b")
    again.close()


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
