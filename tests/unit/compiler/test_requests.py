"""Requests: what becomes of each, who is told, and what a view of a device's kernels shares."""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.compiler.scripted import Bench, Hold, ScriptedVariant, artifact, artifact_id, definition
from tests.unit.compiler.test_threads import run_threads

from quernel.compiler import CompiledArtifact, Kernels, KeyedKernels, PendingState, RegistrationCounts
from quernel.compiler.loader import KernelLoader
from quernel.errors import CompilationError, DeviceError, LaunchError
from quernel.store import Environment


@pytest.fixture
def kernels(bench: Bench) -> Kernels[Any, Any, Any]:
    return Kernels(bench.loader)


def counts(bench: Bench) -> dict[str, int]:
    found = bench.loader.counts()
    names = ("queued", "building", "compiled", "loaded", "failed", "abandoned")
    return {name: number for name in names if (number := getattr(found, name))}


# --- Pending ----------------------------------------------------------------------------------------------------------


def test_request_compiles_nothing_until_its_result_is_asked_for(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    pending = kernels.request(definition("a"))
    assert pending.state is PendingState.REQUESTED
    assert not pending.is_done
    assert bench.script.log() == []
    kernel = pending.result()
    assert pending.state is PendingState.LOADED
    assert pending.is_done
    assert pending.result() is kernel is kernels.get(definition("a"))
    assert repr(pending) == "<kernel a on scripted t1, loaded>"


def test_request_of_a_loaded_kernel_is_done_at_once(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    kernel = kernels.get(definition("a"))
    pending = kernels.request(definition("a"))
    assert pending.state is PendingState.LOADED
    assert pending.result() is kernel
    assert len(bench.records.batches) == 1


def test_requests_of_one_kernel_share_one_compilation(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    first, second = kernels.request(definition("a")), Kernels(bench.loader).request(definition("a"))
    assert first.result() is second.result()
    assert bench.script.count("lower") == 1
    assert bench.loader.counts().registered == 1


def test_request_is_building_while_a_thread_compiles_it(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    seen: list[PendingState] = []
    pending = kernels.request(definition("a"))
    bench.script.acts["lower", "a"] = lambda: seen.append(pending.state)
    pending.result()
    assert seen == [PendingState.BUILDING]


def test_result_raises_that_kernels_own_error_each_time_and_siblings_load(
    bench: Bench, kernels: Kernels[Any, Any, Any]
) -> None:
    bench.script.acts["lower", "bad"] = CompilationError("bad kernel")
    bad, good = kernels.request(definition("bad")), kernels.request(definition("good"))
    assert kernels.build() == (bad, good)
    assert (bad.state, good.state) == (PendingState.FAILED, PendingState.LOADED)
    caught = []
    for _ in range(2):
        with pytest.raises(CompilationError, match="bad kernel") as raised:
            bad.result()
        caught.append(raised.value)
    assert caught[0] is not caught[1]
    assert good.result().id == artifact_id("good")


def test_failure_told_by_a_result_does_not_wait_for_a_launch_too(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    bench.script.acts["lower", "bad"] = CompilationError("bad kernel")
    pending = kernels.request(definition("bad"))
    kernels.build()
    with pytest.raises(CompilationError, match="bad kernel"):
        pending.result()
    del bench.script.acts["lower", "bad"]
    assert bench.load("bad").id == artifact_id("bad")
    assert pending.state is PendingState.FAILED


def test_failure_that_nobody_asked_for_is_raised_at_the_launch(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    bench.script.acts["lower", "bad"] = CompilationError("bad kernel")
    kernels.request(definition("bad"))
    kernels.build()
    with pytest.raises(CompilationError, match="bad kernel"):
        bench.load("bad")
    assert bench.script.count("lower") == 1


def test_request_whose_driver_is_interrupted_is_abandoned_and_can_be_asked_again(
    bench: Bench, kernels: Kernels[Any, Any, Any]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.script.acts["load", "a"] = interrupt
    first, second = kernels.request(definition("a")), kernels.request(definition("b"))
    with pytest.raises(KeyboardInterrupt):
        kernels.build()
    assert {first.state, second.state} == {PendingState.ABANDONED}
    assert counts(bench) == {"abandoned": 2}
    with pytest.raises(CompilationError, match=r"kernel a was abandoned .* interrupted"):
        first.result()
    del bench.script.acts["load", "a"]
    assert kernels.request(definition("a")).result().id == artifact_id("a")
    assert first.state is PendingState.ABANDONED


def test_waiting_result_goes_on_with_a_new_driver_after_an_interrupt(
    bench: Bench, kernels: Kernels[Any, Any, Any]
) -> None:
    attempts: list[str] = []
    waits = threading.Event()
    pending = kernels.request(definition("a"))

    def lower() -> None:
        attempts.append(threading.current_thread().name)
        if len(attempts) == 1:
            waits.set()
            while next(iter(bench.loader._tables._in_flight.values())).num_waiters < 2:
                threading.Event().wait(0.001)
            raise KeyboardInterrupt

    bench.script.acts["lower", "a"] = lower

    def ask(index: int) -> Any:
        if index:
            assert waits.wait(20)
        return pending.result()

    first, second = run_threads(2, ask)
    assert isinstance(first, KeyboardInterrupt)
    assert second is pending.result()
    assert pending.state is PendingState.LOADED
    assert counts(bench) == {"compiled": 1}


def test_requests_of_an_environment_that_closes_are_abandoned(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    pending = kernels.request(definition("a"))
    assert bench.environment is not None
    bench.environment.close()
    assert pending.state is PendingState.ABANDONED
    with pytest.raises(CompilationError, match="its environment was closed"):
        pending.result()


def test_result_from_inside_a_compilation_is_refused_even_when_done(
    bench: Bench, kernels: Kernels[Any, Any, Any]
) -> None:
    done = kernels.request(definition("done"))
    done.result()
    for pending in (done, kernels.request(definition("later"))):
        bench.script.acts["lower", "a"] = pending.result
        with pytest.raises(LaunchError, match=f"cannot wait for {pending.name} here: this thread is compiling a"):
            bench.load("a")


def test_started_request_is_compiled_by_another_thread(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    pending = kernels.request(definition("a"))
    pending.start()
    assert pending.result().id == artifact_id("a")
    ended = threading.Event()
    other = kernels.request(definition("b"))
    bench.loader.when_settled(other._job, ended.set)  # type: ignore[arg-type]  # it is not loaded yet
    other.start()
    assert ended.wait(20)
    assert other.state is PendingState.LOADED
    threads = {call.thread for call in bench.script.calls if call.subject == "b"}
    assert threading.current_thread().name not in threads


def test_awaited_request_leaves_the_event_loop_free(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    go_on = threading.Event()
    bench.script.acts["lower", "a"] = lambda: go_on.wait(20)

    async def ask() -> list[Any]:
        pending = [kernels.request(definition(name)) for name in "ab"]

        async def release() -> None:
            go_on.set()

        a, b, _ = await asyncio.gather(_awaited(pending[0]), _awaited(pending[1]), release())
        return [a, b, await pending[0]]

    async def _awaited(pending: Any) -> Any:
        return await pending

    a, b, again = asyncio.run(ask())
    assert (a.id, b.id) == (artifact_id("a"), artifact_id("b"))
    assert again is a


def test_awaited_request_raises_its_own_error(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    bench.script.acts["finalize", "a"] = CompilationError("bad kernel")

    async def ask() -> Any:
        return await kernels.request(definition("a"))

    with pytest.raises(CompilationError, match="bad kernel"):
        asyncio.run(ask())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_ends_requests_that_a_thread_of_its_parent_built_and_builds_those_queued(
    bench: Bench, kernels: Kernels[Any, Any, Any]
) -> None:
    hold = bench.script.acts["lower", "a"] = Hold()
    building = kernels.request(definition("a"))
    building.start()
    assert hold.started.wait(20)
    queued = kernels.request(definition("b"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            bench.script.acts.clear()
            ended = building.state is PendingState.ABANDONED
            again = kernels.request(definition("a"))
            again.start()
            good = queued.result().id == artifact_id("b") and again.result().id == artifact_id("a")
            status = 0 if ended and good else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    hold.go_on.set()
    assert building.result().id == artifact_id("a")
    assert os.waitstatus_to_exitcode(status) == 0


# --- counts -----------------------------------------------------------------------------------------------------------


def test_each_registration_is_counted_once_by_what_became_of_it(bench: Bench) -> None:
    bench.script.by_id[artifact_id("kept")] = artifact("kept")
    bench.script.acts["lower", "bad"] = CompilationError("bad kernel")
    for name in ("kept", "bad", "new"):
        bench.enqueue(name)
    assert counts(bench) == {"queued": 3}
    bench.loader.compile_queued()
    bench.load("new")
    bench.enqueue("new")
    assert counts(bench) == {"compiled": 1, "loaded": 1, "failed": 1}
    bench.enqueue("later")
    found = bench.loader.counts()
    assert (found.registered, found.settled) == (4, 3)


def test_kernel_of_equal_ir_counts_as_loaded(bench: Bench) -> None:
    bench.load("a", definition("a", 5))
    bench.load("b", definition("b", 5))
    assert counts(bench) == {"compiled": 1, "loaded": 1}


@pytest.mark.usefixtures("fast_switching")
def test_counts_read_beside_compilations_add_up_and_never_go_back(bench: Bench) -> None:
    names = [f"k{number}" for number in range(40)]
    for name in names[::5]:
        bench.script.acts["lower", name] = CompilationError("no")
    over = threading.Event()
    seen: list[RegistrationCounts] = []

    def watch() -> None:
        while not over.is_set():
            seen.append(bench.loader.counts())

    watcher = threading.Thread(target=watch)
    watcher.start()

    def work(index: int) -> None:
        for name in names[index:] + names[:index]:
            bench.enqueue(name)
            if index % 2:
                bench.loader.compile_queued()

    run_threads(4, work)
    bench.loader.compile_queued()
    over.set()
    watcher.join()
    for before, after in itertools.pairwise(seen):
        assert after.registered >= before.registered
        assert after.settled >= before.settled
        assert min(after.queued, after.building, after.abandoned) >= 0
        assert (after.compiled, after.failed) >= (before.compiled, 0)
    last = bench.loader.counts()
    assert (last.queued, last.building, last.abandoned) == (0, 0, 0)
    assert last.compiled == len(bench.loader) == 32


# --- reporters --------------------------------------------------------------------------------------------------------


class Told:
    """A reporter that notes what it was told, and what had been loaded by then."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.artifacts: list[CompiledArtifact] = []
        self.loads_before: list[int] = []

    def __call__(self, compiled: CompiledArtifact) -> None:
        self.artifacts.append(compiled)
        self.loads_before.append(self.bench.script.log().count(f"load {compiled.name}"))

    @property
    def names(self) -> list[str]:
        return [compiled.name for compiled in self.artifacts]


def test_reporter_is_told_once_of_each_compiled_artifact_before_it_loads_and_never_of_hits(bench: Bench) -> None:
    bench.script.by_id[artifact_id("kept")] = artifact("kept")
    told = Told(bench)
    kernels = Kernels(bench.loader).reporting(told)
    for kernel in (definition("a", 5), definition("equal", 5), definition("kept"), definition("c")):
        kernels.request(kernel)
    kernels.build()
    kernels.get(definition("a", 5))
    assert sorted(set(told.names) - {"equal"}) in (["a", "c"], ["c"])
    assert len(told.names) == 2  # one of the two with equal IR
    assert told.loads_before == [0, 0]
    assert told.artifacts[0].artifact.payload
    assert "finalize" in told.artifacts[0].recording.stage_ns


def test_view_without_the_reporter_does_not_report(bench: Bench) -> None:
    told = Told(bench)
    plain = Kernels(bench.loader)
    reporting = plain.reporting(told)
    plain.get(definition("a"))
    reporting.get(definition("b"))
    assert told.names == ["b"]


def test_views_that_share_a_request_are_all_told_once(bench: Bench) -> None:
    one, two = Told(bench), Told(bench)
    plain = Kernels(bench.loader)
    views = [plain.reporting(one), plain.reporting(two), plain.reporting(one).reporting(two)]
    pending = [view.request(definition("a")) for view in views]
    plain.build()
    assert one.names == two.names == ["a"]
    assert len({id(request.result()) for request in pending}) == 1


def test_raising_reporter_is_logged_and_costs_no_kernel(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    told = Told(bench)

    def raising(compiled: CompiledArtifact) -> None:
        raise ZeroDivisionError("of the reporter")

    kernels = Kernels(bench.loader).reporting(raising).reporting(told)
    assert kernels.get(definition("a")).id == artifact_id("a")
    assert "a reporter failed when it was told of a" in caplog.text
    assert told.names == ["a"]


def test_load_from_inside_a_reporter_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    kernels = Kernels(bench.loader)
    requested = []

    def loading(compiled: CompiledArtifact) -> None:
        requested.append(kernels.request(definition("c")))  # asking is fine
        bench.load("b")

    kernels.reporting(loading).get(definition("a"))
    assert "cannot load b here: this thread is loading a" in caplog.text
    assert requested[0].result().id == artifact_id("c")


def test_no_lock_is_held_while_a_reporter_runs(bench: Bench) -> None:
    locked: list[bool] = []
    kernels = Kernels(bench.loader).reporting(lambda compiled: locked.append(bench.loader.target_lock.locked()))
    kernels.get(definition("a"))
    assert locked == [False]


# --- views ------------------------------------------------------------------------------------------------------------


def test_copies_and_reporting_views_share_requests_and_kernels(bench: Bench) -> None:
    first = Kernels(bench.loader)
    second, third = copy.copy(first), first.reporting(Told(bench))
    asked = (first.request(definition("a")), second.request(definition("b")), third.request(definition("c")))
    assert second.build() == asked
    assert first.build() == ()
    assert len(first) == len(second) == len(third) == 3


def test_build_compiles_what_was_requested_as_one_batch_on_the_given_executor(
    bench: Bench, kernels: Kernels[Any, Any, Any]
) -> None:
    steps: list[tuple[int, int, str]] = []
    with ThreadPoolExecutor(1, thread_name_prefix="given") as executor:
        for name in "abc":
            kernels.request(definition(name))
        kernels.build(executor=executor, progress=lambda *step: steps.append(step))
    assert [batch.asked for batch in bench.records.batches] == [3]
    assert {call.thread for call in bench.script.calls if call.method == "lower"} == {"given_0"}
    assert [(done, of) for done, of, _ in steps] == [(1, 3), (2, 3), (3, 3)]
    assert sorted(name for _, _, name in steps) == ["a", "b", "c"]


def test_progress_that_raises_is_logged_once_and_told_no_more(
    bench: Bench, kernels: Kernels[Any, Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    def raising(done: int, of: int, name: str) -> None:
        raise OSError("no terminal")

    for name in "abc":
        kernels.request(definition(name))
    kernels.build(progress=raising)
    assert len(kernels) == 3
    assert caplog.text.count("progress cannot be shown") == 1


def test_build_waits_for_what_another_thread_compiles(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    hold = bench.script.acts["lower", "a"] = Hold()
    with ThreadPoolExecutor(2) as threads:
        loading = threads.submit(bench.load, "a")
        assert hold.started.wait(20)
        pending = kernels.request(definition("a"))
        building = threads.submit(kernels.build)
        hold.go_on.set()
        assert building.result(20) == (pending,)
        assert pending.result() is loading.result(20)


def test_many_requests_that_ended_are_not_held(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    for number in range(150):
        kernels.request(definition(f"k{number}", 5)).result()
    assert len(kernels._requests._pending) <= 65


def test_kernel_of_one_device_is_refused_by_another(environment: Environment, bench: Bench) -> None:
    other = KernelLoader(bench.loader.target, environment=lambda: environment, name="scripted:1")
    kernel = bench.load("a")
    Kernels(bench.loader).check(kernel)
    with pytest.raises(LaunchError, match="kernel a is loaded on scripted t1, not on scripted:1"):
        Kernels(other).check(kernel)


def test_loaded_kernel_does_not_pickle(bench: Bench) -> None:
    with pytest.raises(TypeError, match="does not pickle: it is loaded on a device"):
        pickle.dumps(bench.load("a"))


# --- keyed ------------------------------------------------------------------------------------------------------------


def test_key_is_defined_once_and_shares_the_devices_kernels(bench: Bench, kernels: Kernels[Any, Any, Any]) -> None:
    defined: list[int] = []

    def define(number: int) -> Any:
        defined.append(number)
        return definition(f"k{number % 2}", number % 2 + 1)

    keyed = kernels.keyed(define)
    first = keyed.get(1)
    assert keyed.get(1) is first
    assert keyed.get(3) is first  # another key of the same kernel
    keyed.request(2)
    (pending,) = keyed.build()
    assert pending.result() is keyed.get(2)
    assert defined == [1, 3, 2]
    assert (len(keyed), 2 in keyed, 4 in keyed) == (3, True, False)
    assert isinstance(copy.copy(keyed), KeyedKernels)
    assert 2 in copy.copy(keyed)


def test_key_that_cannot_be_defined_is_asked_again(kernels: Kernels[Any, Any, Any]) -> None:
    answers: list[Any] = [DeviceError("not yet"), definition("a")]

    def define(key: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    keyed = kernels.keyed(define)
    with pytest.raises(DeviceError, match="not yet"):
        keyed.get("a")
    assert keyed.get("a").id == artifact_id("a")


def test_keys_are_loaded_in_the_variant_given(kernels: Kernels[Any, Any, Any]) -> None:
    keyed = kernels.keyed(definition, ScriptedVariant(is_wide=True))
    assert keyed.get("a").id.variant.is_wide
