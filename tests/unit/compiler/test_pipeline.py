"""No stage of a batch waits for another kernel's: only equal texts wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.compiler.scripted import Bench

from quernel.store import Environment


@pytest.fixture
def pooled(environment: Environment) -> Iterator[Bench]:
    with ThreadPoolExecutor(3) as workers:
        yield Bench.of(environment, workers=workers)


def waiting_for(event: threading.Event) -> object:
    def wait() -> None:
        assert event.wait(20)

    return wait


def test_lowered_kernel_is_looked_up_by_source_and_finalized_while_another_is_lowered(pooled: Bench) -> None:
    finalized = threading.Event()
    pooled.script.sources.update(slow="slow text", quick="quick text")
    pooled.script.acts["lower", "slow"] = waiting_for(finalized)  # type: ignore[assignment]
    pooled.script.acts["finalize", "quick"] = finalized.set
    for name in ("slow", "quick"):
        pooled.enqueue(name)
    assert pooled.loader.compile_queued() == 2
    log = pooled.script.log()
    assert log.index("stored_for_source quick text") < log.index("finalize quick")
    assert log.index("finalize quick") < log.index("stored_for_source slow text")


def test_kernel_is_lowered_while_another_is_expanded(pooled: Bench) -> None:
    from tests.unit.compiler.scripted import definition

    lowered = threading.Event()
    pooled.script.acts["lower", "quick"] = lowered.set
    pooled.enqueue("slow", definition("slow", expand=waiting_for(lowered)))  # type: ignore[arg-type]
    pooled.enqueue("quick")
    assert pooled.loader.compile_queued() == 2


def test_only_kernels_with_the_same_text_wait_for_one_another(pooled: Bench) -> None:
    other_done, follower_lowered = threading.Event(), threading.Event()
    pooled.script.sources.update(leader="same", follower="same", other="own")

    def finalize_leader() -> None:
        assert follower_lowered.wait(20)
        assert other_done.wait(20)

    pooled.script.acts["finalize", "leader"] = finalize_leader
    pooled.script.acts["finalize", "follower"] = finalize_leader
    pooled.script.acts["lower", "follower"] = follower_lowered.set
    pooled.script.acts["finalize", "other"] = other_done.set
    for name in ("leader", "follower", "other"):
        pooled.enqueue(name)
    assert pooled.loader.compile_queued() == 3
    finalized = [call.subject for call in pooled.script.calls if call.method == "finalize"]
    assert len(finalized) == 2
    assert "other" in finalized
