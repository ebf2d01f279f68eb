"""Backends, executors and systems that break their word: it costs one kernel at most, and nothing hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from tests.unit.compiler.scripted import Bench, Hold, artifact_id, definition, foreign_definition
from tests.unit.compiler.test_workers import Elsewhere

from quernel.compiler import CompilationProcesses, Kernels, key_locks, no_compiling
from quernel.compiler.job import run_job
from quernel.compiler.results import JobResult, JobStage
from quernel.compiler.threads import CompilationThreads
from quernel.errors import CompilationError, SettingError
from quernel.store import Environment


def refuse(*arguments: object) -> Any:
    raise ZeroDivisionError("a bug")


def queue(bench: Bench, *names: str) -> None:
    for name in names:
        bench.enqueue(name)


# --- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["store", "why_missed", "lock_name"])
def test_method_that_a_kernel_can_do_without_costs_none(
    bench: Bench, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    setattr(bench.loader.target, method, refuse)
    queue(bench, "a", "b")
    with caplog.at_level(logging.ERROR, "quernel.compiler"):
        assert bench.loader.compile_queued() == 2
    assert f"`{method}` of scripted t1 failed, which costs no kernel" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text
    assert bench.loader.counts().compiled == 2


def test_target_that_cannot_say_whether_it_persists_keeps_nothing(bench: Bench) -> None:
    class Undecided(type(bench.loader.target)):  # type: ignore[misc]
        persists = property(refuse)

    bench.loader.target.__class__ = Undecided
    queue(bench, "a", "b")
    assert bench.loader.compile_queued() == 2
    assert bench.script.by_id == {}


def test_refused_artifact_that_cannot_be_dropped_is_compiled_anew(bench: Bench) -> None:
    bench.load("a")
    other = Bench.of(bench.environment)
    other.script.by_id = dict(bench.script.by_id)
    failures = [ZeroDivisionError("refused")]

    def load_once() -> None:
        if failures:
            raise failures.pop()

    other.script.acts["load", "a"] = load_once
    other.loader.target.drop = refuse
    assert other.load("a").id == artifact_id("a")
    assert other.script.count("finalize") == 1


def test_record_that_cannot_be_made_costs_no_kernel(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quernel.compiler.records.compilation_record", refuse)
    assert bench.load("a").id == artifact_id("a")


# --- compilers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["lower", "finalize"])
@pytest.mark.parametrize("kernel", [definition, foreign_definition])
def test_compiler_that_makes_nothing_fails_its_kernel(bench: Bench, method: str, kernel: Callable[..., Any]) -> None:
    compiler = bench.loader.target.compiler
    made = getattr(compiler, method)
    calls = []

    def nothing_for_a(*arguments: Any) -> Any:
        calls.append(method)
        if len(calls) > 20:
            os._exit(1)  # round and round
        result = made(*arguments)
        subject = arguments[0] if method == "lower" else arguments[-1]
        return None if subject.name == "a" else result

    setattr(compiler, method, nothing_for_a)
    compiler.source = lambda lowered: "text" if lowered is None else None
    bench.enqueue("a", kernel("a"))
    bench.enqueue("b")
    assert bench.loader.compile_queued() == 1
    with pytest.raises(CompilationError, match="compiling a made nothing: the stage 'lower' ended") as caught:
        bench.load("a")
    assert caught.value.fix == "report it to the authors of the backend for scripted"


def test_result_is_empty_only_without_what_its_stage_makes() -> None:
    def result(stage: JobStage, **fields: Any) -> JobResult:
        return JobResult(stage, "", "", "", None, **fields)  # type: ignore[arg-type]

    assert all(result(stage).is_empty for stage in JobStage)
    assert not any(result(stage, failure=ValueError()).is_empty for stage in JobStage)
    assert not result(JobStage.EXPAND, ir_digest="d").is_empty
    assert not result(JobStage.LOWER, lowered="").is_empty
    assert not any(result(stage, artifact=b"").is_empty for stage in JobStage)
    assert result(JobStage.FINALIZE, lowered="").is_empty


def test_error_whose_text_cannot_be_made_fails_its_kernel_only(bench: Bench) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError("no text")

    bench.script.acts["lower", "a"] = Mute()
    queue(bench, "a", "b")
    assert bench.loader.compile_queued() == 1
    with pytest.raises(CompilationError, match="a worker failed while compiling a: ZeroDivisionError"):
        bench.load("a")


# --- executors --------------------------------------------------------------------------------------------------------


class Refusing(Executor):
    """Raises what it is told to for the second task; runs the others at once."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.num_taken = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.num_taken += 1
        if self.num_taken == 2:
            raise self.failure
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize("failure", [OSError("no route to host"), KeyError("task"), TimeoutError()])
def test_executor_that_refuses_a_task_costs_its_kernel(environment: Environment, failure: Exception) -> None:
    bench = Bench.of(environment, workers=Refusing(failure))
    queue(bench, "a", "b", "c")
    assert bench.loader.compile_queued() == 2
    with pytest.raises(CompilationError, match=f"a worker failed while compiling b: {type(failure).__name__}"):
        bench.load("b")


@pytest.mark.parametrize("failure", [pickle.PicklingError("no"), TypeError("cannot pickle"), AttributeError("local")])
def test_task_that_does_not_pickle_runs_on_the_calling_thread(environment: Environment, failure: Exception) -> None:
    bench = Bench.of(environment, workers=Refusing(failure))
    queue(bench, "a", "b", "c")
    assert bench.loader.compile_queued() == 3


def test_kernels_of_a_compiler_that_does_not_pickle_compile_here(environment: Environment) -> None:
    pool = CompilationProcesses(1)
    bench = Bench.of(environment, workers=pool)
    bench.loader.target.compiler.lock = threading.Lock()
    queue(bench, "a", "b")
    assert bench.loader.compile_queued() == 2
    assert pool.num_workers == 0
    pool.shutdown()


def test_setting_that_is_not_understood_is_named_as_it_is_elsewhere(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUERNEL_COMPILE_LIMIT", "soon")
    bench = Bench.of(environment, workers=CompilationProcesses(1))
    bench.loader.target.compiler = Elsewhere()
    with pytest.raises(SettingError, match=r"^QUERNEL_COMPILE_LIMIT='soon' is not understood"):
        bench.load("a")
    monkeypatch.delenv("QUERNEL_COMPILE_LIMIT")
    bench.loader.workers.shutdown()
    assert bench.load("a").id == artifact_id("a")


def test_what_is_no_executor_is_refused_and_abandons_what_was_queued(bench: Bench) -> None:
    queue(bench, "a", "b")
    with pytest.raises(AttributeError, match="'str' object has no attribute 'submit'"):
        bench.loader.compile_queued(workers="threads")  # type: ignore[arg-type]
    counts = bench.loader.counts()
    assert (counts.abandoned, counts.queued, counts.building) == (2, 0, 0)
    assert bench.load("a").id == artifact_id("a")


# --- who waits --------------------------------------------------------------------------------------------------------


def test_callback_that_raises_costs_no_kernel(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    job, _ = bench.loader.request(definition("a"), artifact_id("a"))
    told = threading.Event()
    bench.loader.when_settled(job, refuse)
    bench.loader.when_settled(job, told.set)
    queue(bench, "b")
    assert bench.loader.compile_queued() == 2
    assert told.is_set()
    assert "who waited for a could not be told" in caplog.text


def test_await_of_a_loop_that_was_closed_costs_no_kernel(bench: Bench) -> None:
    hold = bench.script.acts["finalize", "a"] = Hold()
    pending = Kernels(bench.loader).request(definition("a"))

    async def give_up() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_awaited(pending), 0.2)

    asyncio.run(give_up())
    assert hold.started.wait(30)
    hold.go_on.set()
    assert pending.result().id == artifact_id("a")


def test_await_of_what_another_thread_compiles_keeps_the_loop_going_within_no_compiling(bench: Bench) -> None:
    hold = bench.script.acts["finalize", "a"] = Hold()
    pending = Kernels(bench.loader).request(definition("a"))
    thread = threading.Thread(target=bench.loader.compile_queued)
    thread.start()
    assert hold.started.wait(30)

    async def both() -> Any:
        async def release() -> None:
            hold.go_on.set()

        with no_compiling():
            loaded, _ = await asyncio.gather(_awaited(pending), release())
        return loaded

    assert asyncio.run(asyncio.wait_for(both(), 20)).id == artifact_id("a")
    thread.join()


async def _awaited(pending: Any) -> Any:
    return await pending


# --- systems ----------------------------------------------------------------------------------------------------------


def no_more_threads(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_threads_that_there_are_do_what_more_would_have_done(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = CompilationThreads(4)
    held = threading.Event()
    first = threads.submit(held.wait, 30)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more_threads)
        second = threads.submit(len, "abc")
    held.set()
    assert (first.result(30), second.result(30)) == (True, 3)
    threads.shutdown()


def test_first_thread_that_does_not_start_leaves_no_task_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = CompilationThreads(4)
    calls: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more_threads)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.submit(calls.append, 1)
    threads.submit(calls.append, 2).result(30)
    threads.shutdown()
    assert calls == [2]


def test_workers_without_threads_to_serve_them_fail_their_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = CompilationProcesses(2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more_threads)
        future = pool.submit(len, "abc")
    with pytest.raises(Exception, match="can't start new thread"):
        future.result(30)
    pool.shutdown()


def test_worker_finds_modules_whatever_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "colon:and space\nline"
    odd.mkdir()
    (odd / "oddly_placed.py").write_text("def answer():\n    return 42\n")
    monkeypatch.setattr(sys, "path", [str(odd), "nul\0byte", b"bytes", Path("pathlib"), None, *sys.path])  # type: ignore[list-item]
    import oddly_placed  # type: ignore[import-not-found]

    pool = CompilationProcesses(1)
    try:
        assert pool.submit(oddly_placed.answer).result(60) == 42
    finally:
        pool.shutdown(timeout_s=5)
        del sys.modules["oddly_placed"]


def test_worker_starts_where_the_current_folder_was_deleted(tmp_path: Path) -> None:
    code = (
        "import os, sys, operator\n"
        "os.rmdir(os.getcwd())\n"
        "sys.path.insert(0, '')\n"
        "from quernel.compiler import CompilationProcesses\n"
        "pool = CompilationProcesses(1)\n"
        "print(pool.submit(operator.add, 1, 2).result(60))\n"
        "pool.shutdown(timeout_s=5)\n"
    )
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "gone", capture_output=True, text=True, timeout=100
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


def write_much() -> int:
    for _ in range(200):
        os.write(2, b"x" * 99_999 + b"\n")
    return 5


def test_only_the_end_of_what_a_worker_wrote_is_read(caplog: pytest.LogCaptureFixture) -> None:
    pool = CompilationProcesses(1)
    with caplog.at_level(logging.WARNING, "quernel.compiler"):
        assert pool.submit(write_much).result(60) == 5
        pool.shutdown(timeout_s=5)
    assert 0 < sum(len(record.getMessage()) for record in caplog.records) < 100_000


def test_locks_leave_most_files_of_a_process_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    for limit, most in [(256, 64), (1024, 256), (1 << 20, 256), (resource.RLIM_INFINITY, 256), (2, 1)]:
        monkeypatch.setattr(resource, "getrlimit", lambda which, limit=limit: (limit, limit))
        assert key_locks._most_held() == most


def test_run_job_tells_of_every_failure_in_its_result(bench: Bench) -> None:
    result = run_job(bench.loader.target.compiler, object(), artifact_id("a"), JobStage.EXPAND)
    assert isinstance(result.failure, CompilationError)
