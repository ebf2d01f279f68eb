"""One compilation per kernel among processes: here loaders of one process, whose file locks exclude each other too."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import filelock
import pytest
from tests.unit.compiler.scripted import Hold, artifact_id, definition
from tests.unit.compiler.test_persistent import Process, process

from quernel.compiler import key_locks
from quernel.errors import CompilationError
from quernel.store import Environment


def load(running: Process, name: str) -> Any:
    return running.loader.load(definition(name), artifact_id(name))


def lock_of(environment: Environment, running: Process, name: str) -> filelock.BaseFileLock:
    digits = running.loader.target.lock_name(artifact_id(name))[: key_locks._NUM_DIGITS]
    os.makedirs(environment.locks_path, exist_ok=True)
    return filelock.FileLock(os.path.join(environment.locks_path, f"compile-{digits}.lock"), thread_local=False)


def are_free(environment: Environment) -> bool:
    for name in os.listdir(environment.locks_path):
        lock = filelock.FileLock(os.path.join(environment.locks_path, name), thread_local=False)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            return False
        lock.release()
    return True


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def test_kernel_that_another_process_compiles_is_waited_for_and_loaded(
    environment: Environment, threads: ThreadPoolExecutor
) -> None:
    first, second = process(environment), process(environment)
    hold = first.script.acts["finalize", "a"] = Hold()
    compiling = threads.submit(load, first, "a")
    assert hold.started.wait(20)
    waiting = threads.submit(load, second, "a")
    time.sleep(0.1)
    assert not waiting.done()
    hold.go_on.set()
    assert waiting.result(20).loaded.payload == compiling.result(20).loaded.payload
    assert second.script.log() == ["load a"]
    assert second.records.outcomes() == [("a", "loaded", None)]
    assert are_free(environment)


def test_free_kernels_are_compiled_before_those_of_others_are_waited_for(
    environment: Environment, threads: ThreadPoolExecutor
) -> None:
    first, second = process(environment), process(environment)
    hold = first.script.acts["finalize", "a"] = Hold()
    compiling = threads.submit(load, first, "a")
    assert hold.started.wait(20)
    for name in "abc":
        second.loader.enqueue(definition(name), artifact_id(name))
    others = threads.submit(second.loader.compile_queued)
    third = process(environment)
    until = time.monotonic() + 20
    while "load c" not in second.script.log():
        assert time.monotonic() < until
        time.sleep(0.005)
    assert load(third, "b").loaded.payload  # stored already, and its lock is free
    assert third.records.outcomes() == [("b", "loaded", None)]
    assert not others.done()
    hold.go_on.set()
    assert others.result(20) == 3
    compiling.result(20)
    assert [name for name, outcome, _ in second.records.outcomes() if outcome == "compiled"] == ["b", "c"]


def test_processes_that_want_each_others_kernels_do_not_wait_in_a_circle(
    environment: Environment, threads: ThreadPoolExecutor
) -> None:
    names = [f"k{number}" for number in range(12)]
    running = [process(environment) for _ in range(4)]

    def run(index: int) -> int:
        for name in names[index * 3 :] + names[: index * 3]:
            running[index].loader.enqueue(definition(name), artifact_id(name))
        return running[index].loader.compile_queued()

    assert list(threads.map(run, range(4), timeout=60)) == [12] * 4
    compiled = [name for each in running for name, outcome, _ in each.records.outcomes() if outcome == "compiled"]
    assert sorted(compiled) == sorted(names)


def test_failure_in_one_process_leaves_the_next_to_try(environment: Environment, threads: ThreadPoolExecutor) -> None:
    first, second = process(environment), process(environment)
    hold = Hold()

    def fail() -> None:
        hold()
        raise CompilationError("no")

    first.script.acts["finalize", "a"] = fail
    failing = threads.submit(load, first, "a")
    assert hold.started.wait(20)
    waiting = threads.submit(load, second, "a")
    hold.go_on.set()
    with pytest.raises(CompilationError, match="no"):
        failing.result(20)
    assert waiting.result(20).id == artifact_id("a")
    assert second.records.outcomes() == [("a", "compiled", None)]


def test_past_the_time_limit_the_kernel_is_compiled_anyway(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("QUERNEL_LOCK_TIMEOUT", "0.05")
    running = process(environment)
    with lock_of(environment, running, "a"), caplog.at_level(logging.INFO, "quernel.compiler"):
        assert load(running, "a").id == artifact_id("a")
    assert running.records.outcomes() == [("a", "compiled", None)]
    assert "another process has been compiling a for 0.05 s; compiling it here too" in caplog.text


def test_past_the_time_limit_no_more_kernels_are_waited_for(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUERNEL_LOCK_TIMEOUT", "0.3")
    running = process(environment)
    names = [f"k{number}" for number in range(8)]
    locks = {path.lock_file: path for path in (lock_of(environment, running, name) for name in names)}
    for lock in locks.values():
        lock.acquire()
    for name in names:
        running.loader.enqueue(definition(name), artifact_id(name))
    start_s = time.monotonic()
    assert running.loader.compile_queued() == 8
    assert time.monotonic() - start_s < 2.0
    for lock in locks.values():
        lock.release()


def test_limit_of_zero_asks_no_other_process(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_LOCK_TIMEOUT", "0")
    running = process(environment)
    with lock_of(environment, running, "a"):
        assert load(running, "a").id == artifact_id("a")


def test_where_locks_cannot_be_made_the_kernel_is_compiled_and_kept(
    environment: Environment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "locks").write_text("in the way")
    running = process(environment)
    with caplog.at_level(logging.INFO, "quernel.compiler"):
        assert load(running, "a").id == artifact_id("a")
    assert "compiling without asking other processes" in caplog.text
    assert process(environment).loader.load(definition("a"), artifact_id("a")).loaded.payload


@pytest.mark.parametrize(
    "refusal", [OSError(38, "Function not implemented"), NotImplementedError("no flock"), RuntimeError("odd")]
)
def test_file_system_without_locks_compiles_all_the_same(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise refusal

    running = process(environment)
    assert load(running, "before").id == artifact_id("before")  # the store itself is open by now
    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    for name in "ab":
        running.loader.enqueue(definition(name), artifact_id(name))
    assert running.loader.compile_queued() == 2
    assert {outcome for _, outcome, _ in running.records.outcomes()} == {"compiled"}


def test_interrupt_frees_the_locks(environment: Environment) -> None:
    running = process(environment)

    def interrupt() -> None:
        raise KeyboardInterrupt

    running.script.acts["load", "b"] = interrupt
    for name in "abc":
        running.loader.enqueue(definition(name), artifact_id(name))
    with pytest.raises(KeyboardInterrupt):
        running.loader.compile_queued()
    assert are_free(environment)
    del running.script.acts["load", "b"]
    assert load(running, "b").id == artifact_id("b")


def test_no_lock_of_a_kernel_is_waited_for_with_the_targets_lock_held(
    environment: Environment, threads: ThreadPoolExecutor
) -> None:
    running = process(environment)
    load(running, "loaded")
    with lock_of(environment, running, "a"):
        waiting = threads.submit(load, running, "a")
        time.sleep(0.1)
        assert running.loader.target_lock.acquire(timeout=5)
        running.loader.target_lock.release()
        assert load(running, "other").id == artifact_id("other")
        assert not waiting.done()
    assert waiting.result(20).id == artifact_id("a")


def test_lock_names_differ_by_what_is_kept(environment: Environment) -> None:
    plain, other = process(environment), process(environment, fingerprint="fingerprint-2")
    names = {
        plain.loader.target.lock_name(artifact_id("a")),
        plain.loader.target.lock_name(artifact_id("b")),
        other.loader.target.lock_name(artifact_id("a")),
    }
    assert len(names) == 3
    assert plain.loader.target.lock_name(artifact_id("a")) in names


def test_more_kernels_than_locks_are_compiled_in_rounds(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_locks, "_MAX_HELD", 3)
    running = process(environment)
    for number in range(10):
        running.loader.enqueue(definition(f"k{number}"), artifact_id(f"k{number}"))
    assert running.loader.compile_queued() == 10
    assert are_free(environment)
    assert len(running.records.batches) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_keeps_no_lock_of_its_parent(environment: Environment, threads: ThreadPoolExecutor) -> None:
    running = process(environment)
    hold = running.script.acts["finalize", "a"] = Hold()
    compiling = threads.submit(load, running, "a")
    assert hold.started.wait(20)
    ended = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ended[1])
        os.read(ended[0], 1)
        os._exit(0)
    hold.go_on.set()
    compiling.result(20)
    try:
        assert are_free(environment)
    finally:
        os.close(ended[1])
        os.close(ended[0])
        os.waitpid(child, 0)
