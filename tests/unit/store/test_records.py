"""What is remembered of compilations, and what is read back after a crash."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quernel.errors import StoreError
from quernel.store import (
    CompilationBatchRecord,
    CompilationOutcome,
    CompilationRecord,
    RecordLog,
    prune_sessions,
    read_records,
)
from quernel.store.record_log import _decoded, _encoded

COMPILED = CompilationRecord(
    kernel="saxpy",
    key="ab" * 32,
    outcome=CompilationOutcome.COMPILED,
    started_ns=5,
    duration_ns=1_000,
    stages=(("lower", 400), ("finalize", 600)),
    ir="kernel saxpy ...",
    source="define void @saxpy",
    artifact_bytes=1234,
    registers=16,
    spills=0,
    warnings=("unused 'x'",),
    toolchain="llvmlite 0.50",
    worker="thread 1",
    why_missed=("code", "types"),
)
BATCH = CompilationBatchRecord(asked=3, workers=2, wall_ns=999, started_ns=4)
TEXTS = st.text(max_size=30)
NUMBERS = st.integers(0, 2**63)
RECORDS = st.builds(
    CompilationRecord,
    kernel=TEXTS,
    key=TEXTS,
    outcome=st.sampled_from(CompilationOutcome),
    rekeyed_by=st.none() | st.sampled_from(["ir", "source", "equal artifact"]),
    started_ns=NUMBERS,
    duration_ns=NUMBERS,
    stages=st.lists(st.tuples(TEXTS, NUMBERS), max_size=3).map(tuple),
    ir=st.none() | TEXTS,
    source=st.none() | TEXTS,
    artifact_bytes=NUMBERS,
    registers=st.none() | NUMBERS,
    spills=st.none() | NUMBERS,
    warnings=st.lists(TEXTS, max_size=2).map(tuple),
    toolchain=TEXTS,
    worker=TEXTS,
    why_missed=st.lists(TEXTS, max_size=2).map(tuple),
)


def evolve(record: CompilationRecord, **changes: object) -> CompilationRecord:
    import attrs

    return attrs.evolve(record, **changes)


@pytest.fixture
def log(env):
    opened = RecordLog(env)
    yield opened
    opened.close()


def test_log_gives_back_records_and_batch_in_order(log, env) -> None:
    loaded = evolve(COMPILED, outcome=CompilationOutcome.LOADED, ir=None)
    assert log.append([COMPILED, loaded], BATCH, level="full")
    assert log.append([evolve(COMPILED, kernel="blur")], level="full")
    expected = [COMPILED, loaded, BATCH, evolve(COMPILED, kernel="blur")]
    assert read_records(log.path) == expected
    assert read_records(env.records_path) == expected


@given(RECORDS)
@settings(max_examples=100)
def test_record_comes_back_from_its_line(record: CompilationRecord) -> None:
    line = json.dumps(_encoded(record, "full"))
    expected = evolve(record, ir=None) if record.outcome is CompilationOutcome.LOADED else record
    assert "\n" not in line
    assert _decoded(json.loads(line)) == expected


@pytest.mark.parametrize(
    ("level", "outcome", "ir", "source"),
    [
        ("basic", CompilationOutcome.COMPILED, False, False),
        ("full", CompilationOutcome.COMPILED, True, True),
        ("full", CompilationOutcome.REKEYED, True, True),
        ("full", CompilationOutcome.LOADED, False, True),
    ],
)
def test_level_decides_what_is_kept(log, level, outcome, ir, source) -> None:
    log.append([evolve(COMPILED, outcome=outcome)], level=level)
    (record,) = read_records(log.path)
    assert (record.ir is not None, record.source is not None) == (ir, source)
    assert record.stages == COMPILED.stages


def test_level_off_makes_no_file(log, env, monkeypatch) -> None:
    monkeypatch.setenv("QUERNEL_RECORDS", "off")
    assert not log.append([COMPILED], BATCH)
    assert not os.path.exists(env.path)


def test_level_is_the_settings_without_an_argument(log, monkeypatch) -> None:
    monkeypatch.setenv("QUERNEL_RECORDS", "full")
    log.append([COMPILED])
    monkeypatch.setenv("QUERNEL_RECORDS", "basic")
    log.append([COMPILED])
    assert [record.ir for record in read_records(log.path)] == [COMPILED.ir, None]


def test_nothing_to_record_makes_no_file(log, env) -> None:
    assert not log.append([], level="full")
    assert not os.path.exists(env.path)


def test_file_is_named_by_start_process_and_chance_and_begins_with_the_schema(log, env) -> None:
    log.append([COMPILED], level="basic")
    start, pid, chance = Path(log.path).stem.split("-")
    assert abs(int(start) / 1000 - time.time()) < 60
    assert int(pid) == os.getpid()
    assert len(chance) == 8
    first = json.loads(Path(log.path).read_text().splitlines()[0])
    assert (first["format"], first["schema"]) == ("quernel records", 1)
    assert os.stat(log.path).st_mode & 0o777 == 0o600
    assert os.stat(env.records_path).st_mode & 0o777 == 0o700


def test_each_record_is_one_write(log, monkeypatch) -> None:
    log.append([COMPILED], level="basic")
    written = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: written.append(data) or write(handle, data))
    log.append([COMPILED, COMPILED], BATCH, level="basic")
    assert len(written) == 3
    assert all(data.count(b"\n") == 1 and data.endswith(b"\n") for data in written)


@pytest.mark.parametrize("cut", [1, 2, 30, 200])
def test_torn_last_line_is_skipped(log, cut) -> None:
    log.append([COMPILED, evolve(COMPILED, kernel="blur")], level="full")
    os.truncate(log.path, os.path.getsize(log.path) - cut)
    expected = [COMPILED] if cut > 1 else [COMPILED, evolve(COMPILED, kernel="blur")]
    assert read_records(log.path) == expected


def test_damaged_lines_are_skipped(log) -> None:
    log.append([COMPILED], level="full")
    with open(log.path, "ab") as file:
        file.write(
            b'\xff\xfe\n[]\n{"record":"compilation"}\n{"record":"batch","asked":"many","workers":1,"wall_ns":1}\n'
        )
        file.write(b'{"record":"other"}\n' + b"[" * 100_000 + b"\n")
    log.append([], BATCH, level="full")
    assert read_records(log.path) == [COMPILED, BATCH]


def test_record_after_a_torn_write_is_whole(log, monkeypatch, caplog) -> None:
    log.append([COMPILED], level="full")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: write(handle, data[: len(data) // 2]))
        assert not log.append([COMPILED], level="full")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not log.append([COMPILED], level="full")
    assert read_records(log.path) == [COMPILED]


def test_unusable_folder_is_warned_about_once_and_then_silent(log, env, caplog) -> None:
    Path(env.path).write_text("a file")
    assert not log.append([COMPILED], level="basic")
    assert not log.append([COMPILED], level="basic")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    "content", ["", "text\n", "{}\n", '{"format":"other","schema":1}\n', '{"format":"quernel records"}\n']
)
def test_other_files_are_refused_and_left_out_of_a_folder(log, env, content) -> None:
    log.append([COMPILED], level="full")
    other = Path(env.records_path, "0-1-a.jsonl")
    other.write_text(content)
    with pytest.raises(StoreError, match="does not hold records"):
        read_records(other)
    assert read_records(env.records_path) == [COMPILED]


def test_newer_schema_is_refused(tmp_path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"format":"quernel records","schema":2}\n')
    with pytest.raises(StoreError, match="schema 2, this version reads 1"):
        read_records(path)


def test_missing_file_is_a_store_error(tmp_path) -> None:
    with pytest.raises(StoreError, match="cannot read the records"):
        read_records(tmp_path / "none.jsonl")


def sessions(folder: Path, *ages_s: float, num_bytes: int = 100) -> list[Path]:
    paths = []
    for number, age in enumerate(ages_s):
        path = folder / f"{number:014d}-1-a.jsonl"
        path.write_bytes(b"x" * num_bytes)
        os.utime(path, (time.time() - age,) * 2)
        paths.append(path)
    return paths


def test_pruning_deletes_the_oldest_sessions_beyond_their_number(tmp_path) -> None:
    paths = sessions(tmp_path, 9000, 8000, 7000, 6000)
    (tmp_path / "notes.txt").write_text("mine")
    assert prune_sessions(str(tmp_path), max_sessions=2) == 2
    assert [path.exists() for path in paths] == [False, False, True, True]
    assert (tmp_path / "notes.txt").exists()


def test_pruning_deletes_the_oldest_sessions_beyond_their_size(tmp_path) -> None:
    paths = sessions(tmp_path, 9000, 8000, 7000)
    assert prune_sessions(str(tmp_path), max_bytes=150) == 2
    assert [path.exists() for path in paths] == [False, False, True]


def test_pruning_keeps_sessions_that_may_be_alive(tmp_path) -> None:
    paths = sessions(tmp_path, 10, 9000, 20)
    assert prune_sessions(str(tmp_path), max_sessions=1) == 1
    assert [path.exists() for path in paths] == [True, False, True]


def test_new_session_prunes(env, log, monkeypatch) -> None:
    os.makedirs(env.records_path)
    paths = sessions(Path(env.records_path), *range(505 * 10_000, 0, -10_000))
    log.append([COMPILED], level="basic")
    assert sum(path.exists() for path in paths) == 500


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_writes_a_file_of_its_own(log, env) -> None:
    log.append([COMPILED], level="full")
    child = os.fork()
    if child == 0:
        os._exit(0 if log.append([evolve(COMPILED, kernel="child")], level="full") else 1)
    assert os.waitpid(child, 0)[1] == 0
    log.append([evolve(COMPILED, kernel="parent")], level="full")
    assert [record.kernel for record in read_records(log.path)] == ["saxpy", "parent"]
    assert len(os.listdir(env.records_path)) == 2
    assert {record.kernel for record in read_records(env.records_path)} == {"saxpy", "parent", "child"}
