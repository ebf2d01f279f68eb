"""Contexts that compile nothing: what is kept is loaded, the rest is refused, and nobody else notices."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.compiler.scripted import Bench, Hold, artifact, artifact_id, definition
from tests.unit.compiler.test_order_of_calls import key_of

from quernel.compiler import Kernels, PendingState, no_compiling
from quernel.errors import LaunchError
from quernel.store import Environment


def test_loaded_and_kept_kernels_are_loaded(bench: Bench) -> None:
    bench.load("loaded")
    bench.script.by_id[artifact_id("kept")] = artifact("kept")
    bench.script.by_ir[key_of(7)] = artifact("equal")
    with no_compiling():
        assert bench.load("loaded").id == artifact_id("loaded")
        assert bench.load("kept").loaded.payload == b"'kept'"
        assert bench.load("equal", definition("equal", 7)).loaded.payload == b"'equal'"
    assert bench.script.count("lower") == 1


def test_missing_kernel_is_refused_with_its_name_the_reason_and_a_fix(bench: Bench) -> None:
    with (
        no_compiling(),
        pytest.raises(LaunchError, match=r"kernel a is not compiled for scripted t1.*with a different: code") as caught,
    ):
        bench.load("a")
    assert caught.value.fix is not None
    assert "a.warm(...)" in caught.value.fix
    assert bench.script.count("lower") == 0
    assert bench.load("a").id == artifact_id("a")


def test_refusal_says_when_the_name_is_new_or_nothing_is_kept(environment: Environment, bench: Bench) -> None:
    bench.script.why = ("new",)
    with no_compiling(), pytest.raises(LaunchError, match="has no kernel of that name"):
        bench.load("a")
    with no_compiling(), pytest.raises(LaunchError, match="keeps nothing"):
        Bench.of(environment, persists=False).load("a")
    with no_compiling(), pytest.raises(LaunchError, match="QUERNEL_NO_CACHE"):
        Bench.of(None).load("a")


def test_artifact_that_the_device_refuses_is_not_compiled_anew(bench: Bench) -> None:
    bench.script.by_id[artifact_id("a")] = artifact("stale")
    bench.script.acts["load", "a"] = LaunchError("no such image")
    with no_compiling(), pytest.raises(LaunchError, match="the device refused what the store in"):
        bench.load("a")
    assert bench.script.count("lower") == 0


def test_queue_of_others_is_left_alone(bench: Bench) -> None:
    bench.script.by_id[artifact_id("kept")] = artifact("kept")
    bench.enqueue("queued")
    with no_compiling():
        bench.load("kept")
        assert bench.loader.counts().queued == 1
        with pytest.raises(LaunchError, match=r"cannot compile what is queued within no_compiling\(\)"):
            bench.loader.compile_queued()
    assert bench.loader.compile_queued() == 1


def test_blocks_nest_and_end_with_an_error(bench: Bench) -> None:
    def raise_inside() -> None:
        with no_compiling():
            with no_compiling():
                pass
            bench.load("a")

    with pytest.raises(LaunchError, match="kernel a is not compiled"):
        raise_inside()
    assert bench.load("a").id == artifact_id("a")


def test_other_threads_compile_and_what_they_compile_is_waited_for(bench: Bench) -> None:
    hold = bench.script.acts["lower", "a"] = Hold()
    with no_compiling(), ThreadPoolExecutor(1) as threads:
        compiling = threads.submit(bench.load, "a")
        assert hold.started.wait(20)
        threading.Timer(0.05, hold.go_on.set).start()
        assert bench.load("a") is compiling.result(20)


def test_thread_that_waits_for_a_refused_kernel_compiles_it_itself(bench: Bench) -> None:
    waits = threading.Event()
    expand_calls: list[str] = []

    def expand() -> None:
        expand_calls.append(threading.current_thread().name)
        if len(expand_calls) == 1:
            waits.set()
            while next(iter(bench.loader._tables._in_flight.values())).num_waiters < 2:
                threading.Event().wait(0.001)

    kernel = definition("a", expand=expand)

    def compile_there() -> Any:
        assert waits.wait(20)
        return bench.load("a", kernel)

    with ThreadPoolExecutor(1) as threads:
        there = threads.submit(compile_there)
        with no_compiling(), pytest.raises(LaunchError, match="kernel a is not compiled"):
            bench.load("a", kernel)
        assert there.result(20).id == artifact_id("a")
    assert bench.loader.counts().compiled == 1
    assert bench.loader.counts().registered == 1


def test_results_of_requests_load_what_is_kept_and_refuse_the_rest(bench: Bench) -> None:
    bench.script.by_id[artifact_id("kept")] = artifact("kept")
    kernels = Kernels(bench.loader)
    with no_compiling():
        kept, missing = kernels.request(definition("kept")), kernels.request(definition("missing"))
        missing.start()
        assert missing.state is PendingState.REQUESTED
        assert kept.result().id == artifact_id("kept")
        with pytest.raises(LaunchError, match="kernel missing is not compiled"):
            missing.result()

        async def ask() -> Any:
            return await kernels.request(definition("other"))

        with pytest.raises(LaunchError, match="kernel other is not compiled"):
            asyncio.run(ask())
