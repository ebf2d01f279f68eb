"""Queue and batches: one batch at a load, siblings apart in failure, equal kernels sharing one artifact."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.compiler.scripted import Bench, artifact, artifact_id, definition, once

from quernel.errors import CompilationError, DeviceError
from quernel.store import Environment


def names_of(bench: Bench, method: str) -> list[str]:
    return [call.subject for call in bench.script.calls if call.method == method]


def test_enqueue_compiles_nothing(bench: Bench) -> None:
    assert bench.enqueue("a") is True
    assert bench.script.log() == []
    assert len(bench.loader) == 0


def test_enqueue_ignores_what_is_queued_or_loaded(bench: Bench) -> None:
    bench.load("a")
    assert bench.enqueue("a") is False
    assert bench.enqueue("b") is True
    assert bench.enqueue("b") is False
    bench.loader.compile_queued()
    assert names_of(bench, "load") == ["a", "b"]


def test_load_compiles_with_all_that_is_queued_as_one_batch(bench: Bench) -> None:
    bench.enqueue("a")
    bench.enqueue("b")
    bench.load("c")
    assert len(bench.loader) == 3
    (batch,) = bench.records.batches
    assert batch.asked == 3
    assert [record.kernel for record in bench.records.kernels] == ["a", "b", "c"]


def test_steps_on_the_target_run_in_the_order_of_the_batch(bench: Bench) -> None:
    bench.script.by_id[artifact_id("b")] = artifact("kept")
    for name in "abcd":
        bench.enqueue(name)
    assert bench.loader.compile_queued() == 4
    log = bench.script.log()
    assert log[1:6] == ["stored a", "stored b", "stored c", "stored d", "load b"]
    assert [line for line in log[6:] if line.startswith(("load", "store "))] == [
        "load a",
        "store a",
        "load c",
        "store c",
        "load d",
        "store d",
    ]
    assert log.index("load a") > max(log.index(f"finalize {name}") for name in "acd")


def test_batch_of_several_compiles_on_the_workers_and_a_lone_kernel_on_the_calling_thread(bench: Bench) -> None:
    bench.load("lone")
    here = threading.current_thread().name
    assert {call.thread for call in bench.script.calls} == {here}
    bench.enqueue("a")
    bench.load("b")
    workers = {call.thread for call in bench.script.calls if call.method == "lower" and call.subject in "ab"}
    assert all(name.startswith("quernel-compile") for name in workers)
    on_target = {call.thread for call in bench.script.calls if call.method in ("stored", "load", "store")}
    assert on_target == {here}


def test_no_lock_is_held_while_workers_run(bench: Bench) -> None:
    for name in "abc":
        bench.script.sources[name] = f"text {name}"
        bench.enqueue(name)
    both = threading.Barrier(2, timeout=20)  # two workers inside at once, so neither holds what the other needs
    with ThreadPoolExecutor(2) as workers:
        bench.loader.workers = workers
        bench.script.acts["lower", "a"] = both.wait
        bench.script.acts["lower", "b"] = both.wait

        def take_the_lock() -> None:
            assert bench.loader.target_lock.acquire(timeout=20)
            bench.loader.target_lock.release()

        bench.script.acts["finalize", "c"] = take_the_lock
        assert bench.loader.compile_queued() == 3


def test_kernels_of_one_batch_with_equal_ir_make_one_artifact(bench: Bench) -> None:
    bench.enqueue("a", definition("a", 5))
    second = bench.load("b", definition("b", 5))
    first = bench.load("a", definition("a", 5))
    assert bench.script.count("finalize") == 1
    assert bench.script.count("load") == 1
    assert first.loaded is second.loaded
    assert first.id != second.id
    # Which of the two leads depends on which worker is the first to have its IR.
    outcomes = sorted(outcome for _, outcome, _ in bench.records.outcomes())
    assert outcomes == ["compiled", "rekeyed"]
    assert sorted(names_of(bench, "store")) == ["a", "b"]


@pytest.mark.parametrize("persists", [True, False])
def test_kernels_of_two_batches_with_equal_ir_make_one_artifact(environment: Environment, persists: bool) -> None:
    bench = Bench.of(environment, persists=persists)
    first = bench.load("a", definition("a", 5))
    second = bench.load("b", definition("b", 5))
    assert bench.records.outcomes() == [("a", "compiled", None), ("b", "rekeyed", "ir")]
    assert first.loaded is second.loaded
    assert bench.script.count("load") == 1


def test_equal_artifacts_of_different_ir_share_one_loaded_kernel(bench: Bench) -> None:
    bench.script.sources.update(a="text", b="text")
    bench.script.by_source.clear()
    first = bench.load("a", definition("a", is_storable=False))
    second = bench.load("b", definition("b", is_storable=False))
    assert bench.script.count("finalize") == 2
    assert bench.script.count("load") == 1
    assert first.loaded is second.loaded


def test_kernels_of_one_batch_with_equal_source_finalize_once(bench: Bench) -> None:
    bench.script.sources.update(a="text", b="text", c="other")
    for name in "abc":
        bench.enqueue(name)
    assert bench.loader.compile_queued() == 3
    assert bench.script.count("finalize") == 2
    assert bench.script.count("lower") == 3
    by = {record.kernel: (record.outcome.value, record.rekeyed_by) for record in bench.records.kernels}
    assert by["c"] == ("compiled", None)
    assert sorted([by["a"], by["b"]]) == [("compiled", None), ("rekeyed", "source")]
    assert names_of(bench, "stored_for_source").count("text") == 1


def test_failed_leader_gives_its_waiters_the_same_error_and_they_do_not_finalize(bench: Bench) -> None:
    error = CompilationError("the toolchain says no")
    bench.script.sources.update(a="text", b="text")
    bench.script.acts["finalize", "a"] = error
    bench.script.acts["finalize", "b"] = error
    bench.enqueue("a")
    bench.enqueue("b")
    assert bench.loader.compile_queued() == 0
    assert bench.script.count("finalize") == 1
    for name in "ab":
        with pytest.raises(CompilationError, match="the toolchain says no") as caught:
            bench.load(name)
        assert vars(caught.value) == vars(error)
    assert bench.script.by_id == {}


def test_one_failure_leaves_its_siblings_alone(bench: Bench) -> None:
    bench.script.acts["lower", "b"] = CompilationError("b is bad")
    for name in "abc":
        bench.enqueue(name)
    assert bench.loader.compile_queued() == 2
    assert set(bench.script.by_id) == {artifact_id("a"), artifact_id("c")}
    assert [record.kernel for record in bench.records.kernels] == ["a", "c"]
    assert bench.records.batches[0].asked == 3


def test_failed_queued_kernel_reports_once_at_its_own_launch_and_is_tried_again_after(bench: Bench) -> None:
    bench.script.acts["lower", "bad"] = CompilationError("bad kernel")
    bench.enqueue("bad")
    bench.load("good")
    assert bench.script.count("lower") == 2
    with pytest.raises(CompilationError, match="bad kernel"):
        bench.load("bad")
    assert bench.script.count("lower") == 2
    del bench.script.acts["lower", "bad"]
    bench.load("bad")
    assert names_of(bench, "lower").count("bad") == 2


def test_queueing_a_failed_kernel_again_forgets_its_failure(bench: Bench) -> None:
    bench.script.acts["lower", "bad"] = CompilationError("bad kernel")
    bench.enqueue("bad")
    bench.loader.compile_queued()
    del bench.script.acts["lower", "bad"]
    assert bench.enqueue("bad") is True
    assert bench.loader.compile_queued() == 1
    bench.load("bad")


def test_load_of_a_queued_kernel_raises_its_failure_itself(bench: Bench) -> None:
    bench.script.acts["lower", "bad"] = CompilationError("bad kernel")
    bench.enqueue("bad")
    with pytest.raises(CompilationError, match="bad kernel"):
        bench.load("bad")
    del bench.script.acts["lower", "bad"]
    bench.load("bad")


def test_refused_stored_artifact_compiles_in_one_pass_with_the_misses(bench: Bench) -> None:
    bench.script.by_id[artifact_id("a")] = artifact("stale")
    bench.script.acts["load", "a"] = once(DeviceError("no such image"))
    bench.enqueue("a")
    bench.enqueue("b")
    assert bench.loader.compile_queued() == 2
    assert bench.script.log()[1:4] == ["stored a", "stored b", "load a"]
    assert names_of(bench, "load") == ["a", "a", "b"]


def test_compile_queued_with_nothing_queued_does_nothing(bench: Bench) -> None:
    assert bench.loader.compile_queued() == 0
    assert bench.records.batches == []


class Refusing(ThreadPoolExecutor):
    """Takes the first task, then is shut down."""

    num_taken = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.num_taken += 1
        if self.num_taken > 1:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return super().submit(fn, *args, **kwargs)


def test_executor_that_is_shut_down_leaves_the_rest_to_the_calling_thread(environment: Environment) -> None:
    with Refusing(1) as workers:
        bench = Bench.of(environment, workers=workers)
        for name in "abc":
            bench.enqueue(name)
        assert bench.loader.compile_queued() == 3
    here = threading.current_thread().name
    assert sum(call.thread == here for call in bench.script.calls if call.method == "lower") >= 2


def test_artifact_is_not_kept_once_sources_have_changed_under_the_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("quernel.identity.build.sources_are_unchanged", lambda: False)
    bench.enqueue("a")
    assert bench.loader.compile_queued() == 1
    assert bench.script.by_id == {}
    assert "a is not kept, as sources of Quernel have changed" in caplog.text
