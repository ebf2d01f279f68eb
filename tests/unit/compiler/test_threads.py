"""Several threads at one loader: single flight, waiters, interrupts, forks, calls from inside a compilation."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.compiler.scripted import Bench, Hold, Records, artifact_id, definition

from quernel.compiler.reentrancy import refuse_while_compiling
from quernel.errors import CompilationError, LaunchError
from quernel.store import CompilationBatchRecord, Environment


def run_threads(number: int, action: Callable[[int], Any]) -> list[Any]:
    """What each thread returned or raised; all start at once."""
    results: list[Any] = [None] * number
    start = threading.Barrier(number)

    def run(index: int) -> None:
        start.wait()
        try:
            results[index] = action(index)
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


@pytest.mark.usefixtures("fast_switching")
def test_sixteen_threads_that_load_one_kernel_compile_it_once(bench: Bench) -> None:
    results = run_threads(16, lambda _: bench.load("a"))
    assert len(set(map(id, results))) == 1
    assert bench.script.log().count("lower a") == 1
    assert bench.script.log().count("load a") == 1
    assert bench.records.outcomes() == [("a", "compiled", None)]


@pytest.mark.usefixtures("fast_switching")
def test_sixteen_threads_get_copies_of_the_error_of_one_compilation(bench: Bench) -> None:
    error = CompilationError("no", fix="say yes", chain=("a line",))
    error.__cause__ = ValueError("the cause")
    error.add_note("a note")
    arrived = threading.Semaphore(0)

    def fail() -> None:
        for _ in range(15):
            assert arrived.acquire(timeout=20)
        while job_waiters(bench) < 16:  # all wait before it fails, so none starts another compilation
            threading.Event().wait(0.001)
        raise error

    bench.script.acts["lower", "a"] = fail

    def load(index: int) -> Any:
        arrived.release()
        return bench.load("a")

    results = run_threads(16, load)
    assert len({id(result) for result in (error, *results)}) == 17
    for result in results:
        assert (type(result), result.what, result.fix, result.chain) == (CompilationError, "no", "say yes", ("a line",))
        assert result.__cause__ is error.__cause__
        result.add_note("of this thread alone")
        assert result.__notes__ == ["a note", "of this thread alone"]
    assert bench.script.count("lower") == 1


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_failure_that_cannot_be_copied_is_raised_itself(bench: Bench) -> None:
    error = OddError(1, 2)
    bench.script.acts["load", "a"] = error
    with pytest.raises(OddError, match="1 and 2") as caught:
        bench.load("a")
    assert caught.value is error


def job_waiters(bench: Bench) -> int:
    return max((job.num_waiters for job in bench.loader._tables._in_flight.values()), default=0)


@pytest.mark.usefixtures("fast_switching")
def test_threads_with_many_kernels_of_equal_ir_and_source_compile_each_artifact_once(bench: Bench) -> None:
    names = [f"k{number}" for number in range(24)]
    bench.script.sources.update({name: f"text {int(name[1:]) % 4}" for name in names})

    def load(index: int) -> Any:
        order = names[index:] + names[:index]
        return [bench.load(name, definition(name, 1 + int(name[1:]) % 8)).loaded.payload for name in order]

    results = run_threads(8, load)
    assert all(not isinstance(result, BaseException) for result in results), results
    assert bench.script.count("finalize") == 4
    assert bench.script.count("load") == 4
    assert len(bench.loader) == 24
    assert len(bench.records.kernels) == 24


def test_waiter_of_another_batch_takes_the_leaders_artifact(bench: Bench) -> None:
    hold = bench.script.acts["lower", "a"] = Hold()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(bench.load, "a", definition("a", 5))
        assert hold.started.wait(20)
        second = threads.submit(bench.load, "b", definition("b", 5))
        while "stored b" not in bench.script.log():
            threading.Event().wait(0.001)
        hold.go_on.set()
        assert first.result(20).loaded is second.result(20).loaded
    assert bench.script.count("lower") == 1
    assert bench.records.outcomes() == [("a", "compiled", None), ("b", "rekeyed", "ir")]


def test_interrupted_driver_hands_over_to_a_waiting_thread(bench: Bench) -> None:
    started = threading.Event()
    attempts: list[str] = []

    def lower() -> None:
        attempts.append(threading.current_thread().name)
        if len(attempts) == 1:
            started.set()
            while job_waiters(bench) < 2:
                threading.Event().wait(0.001)
            raise KeyboardInterrupt

    bench.script.acts["lower", "a"] = lower

    def load(index: int) -> Any:
        if index == 1:
            assert started.wait(20)
        return bench.load("a")

    first, second = run_threads(2, load)
    assert isinstance(first, KeyboardInterrupt)
    assert second.id == artifact_id("a")
    assert len(set(attempts)) == 2
    assert bench.loader._tables._in_flight == {}


def test_interrupted_batch_abandons_what_has_not_started_and_can_be_loaded_later(environment: Environment) -> None:
    with ThreadPoolExecutor(1) as workers:
        bench = Bench.of(environment, workers=workers)
        hold = bench.script.acts["lower", "a"] = Hold()
        for name in "abc":
            bench.enqueue(name)
        advance = bench.loader._guarded.stored_for_ir
        asked = []

        def interrupt_at_the_third(environment: Environment | None, key: Any) -> Any:
            asked.append(key)
            if len(asked) == 3:
                hold.go_on.set()
                raise KeyboardInterrupt
            return advance(environment, key)

        bench.loader._guarded.stored_for_ir = interrupt_at_the_third  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            bench.loader.compile_queued()
        bench.loader._guarded.stored_for_ir = advance  # type: ignore[method-assign]
        assert bench.loader._tables._in_flight == {}
        assert bench.loader._tables._leaders == {}
        assert len(bench.loader) == 0
        del bench.script.acts["lower", "a"]
        for name in "abc":
            bench.load(name)
        assert len(bench.loader) == 3


def test_follower_whose_leader_was_abandoned_compiles_itself(bench: Bench) -> None:
    started = threading.Event()

    def interrupt_once_followed() -> None:
        started.set()
        while "stored b" not in bench.script.log() or not follows(bench, "b"):
            threading.Event().wait(0.001)
        raise KeyboardInterrupt

    bench.script.acts["lower", "a"] = interrupt_once_followed

    def load(index: int) -> Any:
        if index == 0:
            return bench.load("a", definition("a", 5))
        assert started.wait(20)
        return bench.load("b", definition("b", 5))

    first, second = run_threads(2, load)
    assert isinstance(first, KeyboardInterrupt)
    assert second.loaded.payload == b"5"
    assert bench.records.outcomes() == [("b", "compiled", None)]


def follows(bench: Bench, name: str) -> bool:
    jobs = list(bench.loader._tables._in_flight.values())
    return any(job.name == name and job.leader is not None for job in jobs)


@pytest.mark.parametrize("method", ["lower", "stored", "load"])
def test_load_from_inside_a_compilation_is_refused(bench: Bench, method: str) -> None:
    bench.script.acts[method, "a"] = lambda: bench.load("b")
    with pytest.raises(Exception, match=r"cannot load b here: this thread is (compiling|loading) a"):
        bench.load("a")
    assert bench.load("b").id == artifact_id("b")


def test_load_of_a_loaded_kernel_from_inside_a_worker_is_refused_too(bench: Bench) -> None:
    bench.load("b")
    bench.script.acts["lower", "a"] = lambda: bench.load("b")
    bench.enqueue("a")
    bench.enqueue("c")
    bench.loader.compile_queued()
    with pytest.raises(LaunchError, match="cannot load b here: this thread is compiling a"):
        bench.load("a")


def test_load_from_a_record_sink_is_refused_and_logged(
    environment: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Records()

    def sink(environment: Environment | None, records: Any, batch: CompilationBatchRecord, level: str) -> None:
        kept(environment, records, batch, level)
        bench.load("b")

    bench = Bench.of(environment, records=sink)
    bench.load("a")
    assert "cannot load b here: this thread is loading a" in caplog.text
    assert kept.outcomes() == [("a", "compiled", None)]


def test_refusal_ends_with_the_compilation(bench: Bench) -> None:
    inside: list[LaunchError] = []

    def launch_inside() -> None:
        with pytest.raises(LaunchError, match="cannot launch a here") as caught:
            refuse_while_compiling("launch a")
        inside.append(caught.value)

    bench.script.acts["lower", "a"] = launch_inside
    bench.load("a")
    assert len(inside) == 1
    assert refuse_while_compiling("launch a") is None  # type: ignore[func-returns-value]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_loads_while_a_thread_of_the_parent_compiles(bench: Bench) -> None:
    bench.load("loaded")
    hold = bench.script.acts["lower", "a"] = Hold()
    with ThreadPoolExecutor(1) as threads:
        compiling = threads.submit(bench.load, "a")
        assert hold.started.wait(20)
        with bench.loader.target_lock:  # a lock that some thread holds at the time
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    bench.script.acts.clear()
                    bench.enqueue("b")
                    kernels = [bench.load(name) for name in ("loaded", "a", "b")]
                    status = 0 if len(kernels) == 3 else 2
                finally:
                    os._exit(status)
        _, status = os.waitpid(child, 0)
        hold.go_on.set()
        assert compiling.result(20).id == artifact_id("a")
    assert os.waitstatus_to_exitcode(status) == 0
