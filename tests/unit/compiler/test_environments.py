"""Environments, store failures, records and log lines of the loader."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.compiler.scripted import Bench, ScriptedTarget, artifact, artifact_id, definition

import quernel as qn
from quernel.compiler.loader import caching_environment
from quernel.errors import CompilationError, StoreError
from quernel.store import CompilationOutcome, Environment, RecordLog, compilation, read_records
from quernel.store import environment as entered


def test_target_switches_environment_only_when_it_differs(bench: Bench, tmp_path: Path) -> None:
    first, second = bench.environment, Environment(tmp_path / "second")
    bench.load("a")
    bench.load("b")
    bench.environment = second
    bench.load("a")
    bench.environment = None
    bench.load("a")
    assert bench.script.environments == [first, second, None]
    switches = [call for call in bench.script.calls if call.method == "use_environment"]
    assert all(call.is_locked for call in switches)


def test_kernel_is_looked_up_once_in_each_environment_and_shared_on_the_device(bench: Bench, tmp_path: Path) -> None:
    first = bench.load("a")
    bench.environment = Environment(tmp_path / "second")
    second = bench.load("a")
    assert first is not second
    assert first.loaded is second.loaded
    assert bench.script.count("load") == 1
    assert bench.script.log().count("stored a") == 2


def test_queue_of_another_environment_stays_queued(bench: Bench, tmp_path: Path) -> None:
    first = bench.environment
    bench.enqueue("a")
    bench.environment = Environment(tmp_path / "second")
    assert bench.loader.compile_queued() == 0
    bench.environment = first
    assert bench.loader.compile_queued() == 1


def test_closing_an_environment_drops_what_was_loaded_from_it(bench: Bench) -> None:
    kernel = bench.load("a")
    loaded = weakref.ref(kernel.loaded)
    assert bench.environment is not None
    bench.environment.close()
    assert len(bench.loader) == 0
    del kernel
    gc.collect()
    assert loaded() is None


def test_loader_goes_when_its_environment_lives_on(environment: Environment) -> None:
    bench = Bench.of(environment)
    bench.load("a")
    loader = weakref.ref(bench.loader)
    del bench
    gc.collect()
    assert loader() is None
    environment.close()


def test_default_environment_is_the_current_one_unless_caching_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with entered(tmp_path) as opened:
        assert caching_environment() is opened
        monkeypatch.setenv("QUERNEL_NO_CACHE", "1")
        assert caching_environment() is None


@pytest.mark.parametrize("method", ["use_environment", "stored", "stored_for_ir", "store"])
def test_store_that_cannot_be_used_is_said_once_and_the_kernels_load(
    bench: Bench, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    def refuse() -> None:
        if bench.script.environments[-1:] != [None]:
            raise StoreError("the disk is full")

    for name in ("", "a", "b"):
        bench.script.acts[method, name] = refuse
    assert bench.load("a").loaded.payload
    assert bench.load("b").loaded.payload
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING and "full" in record.message]
    assert len(warnings) == 1
    assert [record.outcome for record in bench.records.kernels] == [CompilationOutcome.COMPILED] * 2


def test_store_that_keeps_a_launch_waiting_is_left_alone_for_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("quernel.compiler.guarded_target.time.monotonic", lambda: now_s[0])

    def wait_and_fail() -> None:
        now_s[0] += 1.0
        raise StoreError("it stayed locked by another process")

    bench.script.acts["stored", "a"] = wait_and_fail
    bench.load("a")
    bench.load("b")
    assert now_s == [101.0]
    assert "stored b" not in bench.script.log()
    now_s[0] += 30.0
    bench.load("c")
    assert "stored c" in bench.script.log()


def test_refused_environment_leaves_the_target_without_one(bench: Bench, tmp_path: Path) -> None:
    bench.load("a")
    second = Environment(tmp_path / "second")

    def refuse() -> None:
        if bench.script.environments[-1] is second:
            raise StoreError("not here")

    bench.script.acts["use_environment", ""] = refuse
    bench.environment = second
    bench.load("b")
    assert bench.script.environments[1:] == [second, None]


def test_store_failure_of_any_other_kind_is_the_kernels_own_error(bench: Bench) -> None:
    bench.script.acts["stored", "a"] = RuntimeError("a bug")
    bench.enqueue("b")
    with pytest.raises(RuntimeError, match="a bug"):
        bench.load("a")
    assert len(bench.loader) == 1


def test_one_info_line_is_logged_for_each_kernel_compiled(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.script.by_id[artifact_id("kept")] = artifact("kept")
    with caplog.at_level(logging.INFO, "quernel.compiler"):
        bench.load("kept")
        bench.load("a")
        bench.load("a")
    lines = [record.message for record in caplog.records if record.levelno == logging.INFO]
    digest = artifact_id("a").kernel.digest[:12]
    assert len(lines) == 1
    assert lines[0].startswith(f"compiled a {digest} for scripted t1 in ")
    assert lines[0].endswith(" ms")


def test_record_tells_times_worker_toolchain_and_why_it_missed(bench: Bench) -> None:
    bench.load("a", definition("a", 5))
    (record,) = bench.records.kernels
    assert record.key == artifact_id("a").kernel.digest
    assert record.why_missed == ("code",)
    assert record.toolchain == "scripted 1.0"
    assert record.artifact_bytes == 1
    assert [name for name, _ in record.stages] == ["look up", "expand", "lower", "finalize", "load", "store"]
    assert sum(time_ns for _, time_ns in record.stages) == record.duration_ns
    assert record.worker
    assert (record.ir, record.source) == (None, None)
    (batch,) = bench.records.batches
    assert (batch.asked, batch.workers) == (1, 1)
    assert batch.wall_ns >= record.duration_ns


def test_stored_hit_does_not_ask_why_it_missed(bench: Bench) -> None:
    bench.script.by_id[artifact_id("a")] = artifact("kept")
    bench.load("a")
    assert bench.records.kernels[0].why_missed == ()
    assert bench.records.batches[0].workers == 0


def test_records_hold_texts_at_level_full(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_RECORDS", "full")
    bench.script.sources["a"] = "text"
    bench.load("a")
    (record,) = bench.records.kernels
    assert record.source == "text"
    assert record.ir is not None
    assert "a" in record.ir


def test_records_reach_those_who_observe_at_level_off_and_no_file(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUERNEL_RECORDS", "off")
    bench = Bench.of(environment)
    bench.load("a")
    (record,) = bench.records.kernels
    assert (record.kernel, record.why_missed) == ("a", ("code",))
    assert [batch.asked for batch in bench.records.batches] == [1]
    bench.loader._records = None
    bench.load("b")
    assert not Path(environment.records_path).exists()


def test_batch_of_failures_alone_is_recorded(environment: Environment) -> None:
    bench = Bench.of(environment)
    bench.loader._records = None
    bench.script.acts["lower", "a"] = CompilationError("a is bad")
    with pytest.raises(CompilationError, match="a is bad"):
        bench.load("a")
    (session,) = Path(environment.records_path).iterdir()
    (batch,) = read_records(session)
    assert getattr(batch, "asked", None) == 1


def test_records_go_to_the_environments_log_by_default(environment: Environment) -> None:
    bench = Bench.of(environment)
    bench.loader._records = None
    bench.load("a")
    log = environment.hold(RecordLog, lambda: pytest.fail("no log was opened"))
    kernel, batch = read_records(log.path)
    assert getattr(kernel, "kernel", None) == "a"
    assert getattr(batch, "asked", None) == 1


def test_records_that_cannot_be_kept_fail_nothing(environment: Environment, caplog: pytest.LogCaptureFixture) -> None:
    def sink(environment: object, records: object, batch: object, level: object) -> None:
        raise ValueError("sink is full")

    bench = Bench.of(environment, records=sink)
    assert bench.load("a").id == artifact_id("a")
    assert "sink is full" in caplog.text


@pytest.fixture
def opening(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Notes when the target opens a store, and what it is handed."""
    target, handed = bench.loader.target, []

    def open_store(environment: Environment | None) -> str:
        bench.script.note("open_store")
        return f"the store in {environment!r}"

    def use_environment(environment: Environment | None, store: Any) -> None:
        handed.append(store)
        ScriptedTarget.use_environment(target, environment, store)  # type: ignore[arg-type]

    monkeypatch.setattr(target, "open_store", open_store)
    monkeypatch.setattr(target, "use_environment", use_environment)
    return handed


def test_store_is_opened_without_the_target_lock_and_handed_to_the_target(bench: Bench, opening: list[Any]) -> None:
    bench.load("a")
    bench.load("b")
    assert [call.is_locked for call in bench.script.calls if call.method == "open_store"] == [False]
    assert opening == [f"the store in {bench.environment!r}"]


def test_store_that_cannot_be_opened_is_tried_again_after_a_while(
    bench: Bench, opening: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("quernel.compiler.guarded_target.time.monotonic", lambda: now_s[0])
    bench.script.acts["open_store", ""] = StoreError("the disk is full")
    bench.load("a")
    bench.load("b")
    del bench.script.acts["open_store", ""]
    assert opening == [None]
    now_s[0] += 30.0
    bench.load("c")
    bench.load("d")
    assert opening == [None, f"the store in {bench.environment!r}"]


@qn.kernel
def asked(x: qn.Array[qn.f64]):  # type: ignore[no-untyped-def]
    x[qn.global_id()] = 1.0


def test_store_layers_of_plugins_are_asked_for_without_any_lock(tmp_path: Path) -> None:
    loader = qn.device("cpu").loader
    free: list[bool] = []

    def layers(opened: Environment) -> tuple[()]:
        for lock in (loader.target_lock, opened._lock):
            got = threading.Thread(target=lambda lock=lock: free.append(lock.acquire(timeout=1) and not lock.release()))
            got.start()
            got.join()
        return ()

    before = compilation._layers_of
    compilation.layers_from(layers)
    try:
        with entered(tmp_path):
            asked.over(1)(np.zeros(1))
    finally:
        compilation.layers_from(before)
    assert free == [True, True]
