"""How a store makes room."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from quernel.store import ArtifactStore, collect

LIMIT = 400_000


def payload(number: int, num_bytes: int = 30_000) -> bytes:
    return number.to_bytes(4, "big") * (num_bytes // 4)


@pytest.fixture
def small(env, names):
    store = ArtifactStore(env, names, size_limit_bytes=LIMIT)
    yield store
    store.close()


def stored_on(monkeypatch: pytest.MonkeyPatch, day: int) -> None:
    monkeypatch.setattr("quernel.store.artifact_store.today", lambda: day)


def test_store_stays_below_its_limit_and_loses_the_oldest_first(small, keys) -> None:
    for number in range(40):
        small.put(keys.kernel(str(number)), keys.artifact(payload(number)), ir_key=keys.ir(str(number)))
        assert small.get(keys.kernel(str(number))) is not None
    assert small.local.size_bytes() <= LIMIT
    left = [number for number in range(40) if small.get(keys.kernel(str(number))) is not None]
    assert left == list(range(40 - len(left), 40))
    assert len(left) >= 5
    report = small.verify()
    assert report.is_whole
    assert (report.num_unnamed_payloads, report.num_stray_files) == (0, 0)
    assert small.get_for_ir(keys.ir("0")) is None


def test_artifact_last_used_longer_ago_goes_first(small, keys, monkeypatch) -> None:
    for number, day in enumerate([20_005, 20_000, 20_009, 20_001]):
        stored_on(monkeypatch, day)
        small.put(keys.kernel(str(number)), keys.artifact(payload(number, 60_000)))
    monkeypatch.undo()
    assert collect(small.local, limit_bytes=int(small.local.size_bytes() / 1.01)).num_maps == 1
    assert [small.get(keys.kernel(str(n))) is not None for n in range(4)] == [True, False, True, True]


def test_use_of_any_map_keeps_the_artifact(small, keys, monkeypatch) -> None:
    stored_on(monkeypatch, 20_000)
    small.put(keys.kernel("old"), keys.artifact(payload(0)), ir_key=keys.ir("old"))
    stored_on(monkeypatch, 20_001)
    small.put(keys.kernel("newer"), keys.artifact(payload(1)))
    monkeypatch.undo()
    assert small.get_for_ir(keys.ir("old")) is not None
    small.local.record_uses()
    assert collect(small.local, limit_bytes=int(small.local.size_bytes() / 1.01)).num_maps == 1
    assert small.get(keys.kernel("old")) is not None
    assert small.get(keys.kernel("newer")) is None


def test_pinned_artifact_stays(small, keys) -> None:
    small.put(keys.kernel("pinned"), keys.artifact(payload(1000)), pinned=True)
    for number in range(30):
        small.put(keys.kernel(str(number)), keys.artifact(payload(number)))
    assert small.get(keys.kernel("pinned")) is not None
    assert small.get(keys.kernel("0")) is None


def test_artifact_just_stored_stays_even_when_it_exceeds_the_limit(small, keys) -> None:
    small.put(keys.kernel("small"), keys.artifact(payload(0)))
    small.put(keys.kernel("large"), keys.artifact(payload(1, 1_500_000)))
    assert small.get(keys.kernel("large")) is not None
    assert small.get(keys.kernel("small")) is None


def test_files_of_collected_payloads_are_removed(small, env, keys) -> None:
    for number in range(4):
        small.put(keys.kernel(str(number)), keys.artifact(payload(number, 1_200_000)))
    assert len(list(Path(env.store_path).glob("*/*/*.val"))) == 1
    assert len([path for path in Path(env.store_path).iterdir() if path.is_dir()]) == 1


def test_kernels_parts_are_collected_with_age(small, keys, sql) -> None:
    small.put(keys.kernel("a"), keys.artifact(payload(0)), kernel_name="a", parts={"code": "1"})
    sql("UPDATE Cache SET store_time = 0 WHERE key LIKE 'n/%'")
    small.put(keys.kernel("b"), keys.artifact(payload(1)), kernel_name="b", parts={"code": "1"})
    collect(small.local, limit_bytes=int(small.local.size_bytes() / 1.01))
    assert small.last_parts("a") == []
    assert small.last_parts("b") == [{"code": "1"}]


def test_collection_below_the_limit_removes_unnamed_payloads_and_old_stray_files_only(small, env, keys, sql) -> None:
    small.put(keys.kernel("a"), keys.artifact(payload(0, 1_200_000)))
    small.put(keys.kernel("b"), keys.artifact(payload(1, 1_200_000)))
    small.local.size_limit_bytes = 10**9
    small.put(keys.kernel("c"), keys.artifact(payload(2, 1_200_000)))
    sql("DELETE FROM Cache WHERE key = (SELECT key FROM Cache WHERE key LIKE 'k/%' ORDER BY store_time LIMIT 1)")
    folder = Path(env.store_path)
    old, young, foreign = (
        folder / "aa/bb" / ("0" * 28 + ".val"),
        folder / "aa/bb" / ("1" * 28 + ".val"),
        folder / "aa/notes",
    )
    old.parent.mkdir(parents=True)
    for path in (old, young, foreign):
        path.write_bytes(b"stray")
    for path in (old, foreign):
        os.utime(path, (time.time() - 4000,) * 2)
    named = [str(name) for (name,) in sql("SELECT filename FROM Cache WHERE filename IS NOT NULL")]
    for name in named:
        os.utime(folder / name, (time.time() - 4000,) * 2)
    collected = collect(small.local)
    assert (collected.num_maps, collected.num_payloads, collected.num_files) == (0, 1, 1)
    assert not old.exists()
    assert young.exists()
    assert foreign.exists()
    assert small.get(keys.kernel("c")) is not None
    assert small.verify().is_whole


def test_only_one_process_collects_at_a_time(small, env, keys) -> None:
    from filelock import FileLock

    small.put(keys.kernel("a"), keys.artifact(payload(0)))
    with FileLock(os.path.join(env.locks_path, "store-collect.lock")):
        assert collect(small.local, limit_bytes=1) is None
        for number in range(20):
            small.put(keys.kernel(str(number)), keys.artifact(payload(number)))
        assert small.local.size_bytes() > LIMIT
    small.put(keys.kernel("last"), keys.artifact(payload(99)))
    assert small.local.size_bytes() <= LIMIT


def test_info_counts_kernels_rows_payloads_and_bytes(small, env, keys) -> None:
    assert small.info().num_rows == 0
    small.put(keys.kernel("a"), keys.artifact(b"1234"), ir_key=keys.ir("a"), source_digest=keys.source("a"))
    small.local.size_limit_bytes = 10**9
    small.put(keys.kernel("b"), keys.artifact(payload(1, 1_200_000)))
    info = small.info()
    assert (info.num_kernels, info.num_rows, info.num_payloads) == (2, 4, 2)
    assert (info.payload_bytes, info.file_bytes) == (1_200_004, 1_200_000)
    assert info.path == env.store_path
    assert info.database_bytes + info.file_bytes == small.local.size_bytes()


def test_stored_kernels_lists_what_is_there(small, keys) -> None:
    from quernel.store import stored_kernels

    assert stored_kernels(small.local) == []
    small.put(keys.kernel("a"), keys.artifact(b"1234"), kernel_name="saxpy", entry="e", statistics={"spills": 3})
    (listed,) = stored_kernels(small.local)
    assert (listed.key, listed.kernel_name, listed.backend) == (keys.kernel("a").digest, "saxpy", "cpu")
    assert (listed.payload_bytes, listed.statistics) == (4, {"spills": 3})


def test_clear_empties_database_and_files(small, env, keys) -> None:
    assert small.clear() == 0
    small.local.size_limit_bytes = 10**9
    for number in range(3):
        small.put(
            keys.kernel(str(number)),
            keys.artifact(payload(number, 1_200_000 if number else 8)),
            kernel_name="k",
            parts={"a": "b"},
        )
    assert small.clear() == 7
    assert not list(Path(env.store_path).glob("*/*/*.val"))
    assert small.get(keys.kernel("0")) is None
    assert small.info().num_rows == 0
    small.put(keys.kernel("0"), keys.artifact(b"x"))
    assert small.get(keys.kernel("0")) == keys.artifact(b"x")


def test_verify_names_what_is_damaged_and_repairs_it(small, keys, sql) -> None:
    assert small.verify().is_whole
    for text in "abc":
        small.put(keys.kernel(text), keys.artifact(text.encode()))
    sql("UPDATE Cache SET value = X'00' WHERE key = (SELECT key FROM Cache WHERE key LIKE 'b/%' LIMIT 1)")
    report = small.verify()
    assert not report.is_whole
    assert len(report.problems) == 1
    assert "digest does not match" in report.problems[0]
    assert report.num_removed == 0
    assert small.verify(repair=True).num_removed == 2
    assert small.verify().is_whole
    assert sum(small.get(keys.kernel(text)) is not None for text in "abc") == 2


@pytest.mark.parametrize("value", ["NULL", "'text'", "x'00ff'"])
def test_rows_that_were_stored_at_no_time_are_collected(small, keys, sql, value) -> None:
    for number in range(8):
        small.put(keys.kernel(str(number)), keys.artifact(payload(number)))
    sql(f"UPDATE Cache SET store_time = {value} WHERE key LIKE 'k/%' OR rowid % 3 = 0")
    for number in range(8, 30):
        small.put(keys.kernel(str(number)), keys.artifact(payload(number)))
    assert small.local.size_bytes() <= LIMIT
    assert small.get(keys.kernel("29")) is not None
