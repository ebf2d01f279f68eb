"""The order in which a loader asks a backend: stored before lower, load before store, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quernel as qn
from quernel.errors import CompilationError, DeviceError, ValidationError
from quernel.store import environment
from quernel.testing.compiling import artifact_of, content_of, definition_of, id_of
from quernel.testing.watching import Bench, opened_again

keeps = pytest.mark.quernel_needs("persistence")


@qn.kernel
def adds(x: qn.Array[qn.i32], by: qn.Const[int]):
    i = qn.global_id()
    x[i] += by


@qn.kernel
def adds_too(x: qn.Array[qn.i32], by: qn.Const[int]):
    i = qn.global_id()
    x[i] += by


def namesake() -> Any:
    """A kernel called as the first one, of other Python code that means the same."""

    @qn.kernel
    def adds(x: qn.Array[qn.i32], by: qn.Const[int]):
        i = qn.global_id()
        x[i] = x[i] + by

    return adds


@qn.kernel
def too_wide(x: qn.Array[qn.i32]):
    x[qn.global_id()] = qn.local_id()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Any]:
    """An environment of its own."""
    with environment(tmp_path / "kept") as made:
        yield made


@pytest.fixture
def bench(quernel_device: Any, kept: Any) -> Iterator[Bench]:
    with opened_again(quernel_device) as opened:
        yield Bench(opened, kept)


def in_order(calls: list[str], *names: str) -> bool:
    """Whether each name was called, once, and in that order."""
    return [name for name in calls if name in names] == list(names)


def test_a_kernel_is_looked_for_then_compiled_then_loaded_then_stored(bench: Bench) -> None:
    loaded = bench.load(definition_of(bench.device, adds, by=1))
    assert in_order(bench.calls, "stored", "lower", "finalize", "load")
    if bench.device.operations.target.persists:
        assert in_order(bench.calls, "finalize", "load", "store")
    else:
        assert "store" not in bench.calls
    assert bench.outcomes() == [("compiled", None)]
    assert loaded.loaded is not None


def test_a_loaded_kernel_is_given_without_a_call(bench: Bench) -> None:
    definition = definition_of(bench.device, adds, by=2)
    first = bench.load(definition)
    before = list(bench.calls)
    assert bench.load(definition) is first
    assert bench.calls == before
    assert len(bench.loader) == 1


@keeps
def test_nothing_is_kept_before_it_is_loaded(quernel_device: Any, kept: Any) -> None:
    with opened_again(quernel_device) as opened:
        target = opened.operations.target
        definition = definition_of(opened, adds, by=3)
        key = id_of(opened, definition)
        found: list[Any] = []
        bench = Bench(opened, kept, {"store": lambda *_: found.append(target.stored(key))})
        bench.load(definition)
        assert found == [None]
        assert content_of(opened, target.stored(key)) == content_of(opened, artifact_of(opened, definition))


@keeps
def test_a_stored_kernel_is_loaded_and_neither_compiled_nor_stored_again(bench: Bench, quernel_device: Any) -> None:
    definition = definition_of(bench.device, adds, by=4)
    bench.load(definition)
    with opened_again(quernel_device) as opened:
        again = Bench(opened, bench.environment)
        again.load(definition_of(opened, adds, by=4))
    assert in_order(again.calls, "stored", "load")
    assert not {"lower", "finalize", "store"} & set(again.calls)
    assert again.outcomes() == [("loaded", None)]


@pytest.mark.quernel_needs("ir_reuse")
def test_a_kernel_of_equal_ir_is_rekeyed_and_not_lowered(bench: Bench, quernel_device: Any) -> None:
    bench.load(definition_of(bench.device, adds, by=5))
    with opened_again(quernel_device) as opened:
        again = Bench(opened, bench.environment)
        again.load(definition_of(opened, adds_too, by=5))
        assert again.outcomes() == [("rekeyed", "ir")]
        assert in_order(again.calls, "stored", "stored_for_ir", "load", "store")
        assert "lower" not in again.calls


@pytest.mark.quernel_needs("source_reuse")
def test_a_kernel_of_equal_source_is_rekeyed_and_not_finalized(bench: Bench, quernel_device: Any) -> None:
    bench.load(definition_of(bench.device, adds, by=6))
    with opened_again(quernel_device) as opened:
        again = Bench(opened, bench.environment)
        object.__setattr__(opened.operations.target.compiler, "shares_by_ir", False)
        again.load(definition_of(opened, namesake(), by=6))
        assert again.outcomes() == [("rekeyed", "source")]
        assert in_order(again.calls, "stored", "lower", "stored_for_source", "load", "store")
        assert "finalize" not in again.calls


@keeps
def test_a_stored_artifact_that_the_device_refuses_is_dropped_and_compiled_anew(
    bench: Bench, quernel_device: Any
) -> None:
    definition = definition_of(bench.device, adds, by=7)
    bench.load(definition)
    refusals = [DeviceError("no such image")]

    def refuse(*_: Any) -> None:
        if refusals:
            raise refusals.pop()

    with opened_again(quernel_device) as opened:
        again = Bench(opened, bench.environment, {"load": refuse})
        again.load(definition_of(opened, adds, by=7))
        kept = ("load", "lower", "finalize", "drop", "store")
        expected = ["load", "lower", "finalize", "load", "drop", "store"]
        assert [name for name in again.calls if name in kept] == expected
        assert again.outcomes() == [("compiled", None)]


def test_a_kernel_that_cannot_be_compiled_leaves_nothing_behind(bench: Bench) -> None:
    limit = bench.device.target_info.limits.max_block_threads
    definition = definition_of(bench.device, too_wide.options(block=limit + 1))
    for _ in range(2):
        with pytest.raises((ValidationError, CompilationError), match=str(limit)):
            bench.load(definition)
    assert bench.calls.count("lower") == 2
    assert not {"finalize", "load", "store"} & set(bench.calls)
    assert len(bench.loader) == 0
    bench.load(definition_of(bench.device, adds, by=8))
    assert len(bench.loader) == 1


def test_without_an_environment_nothing_is_kept(quernel_device: Any) -> None:
    with opened_again(quernel_device) as opened:
        bench = Bench(opened, None)
        bench.load(definition_of(opened, adds, by=9))
        assert in_order(bench.calls, "stored", "lower", "finalize", "load")
        assert "store" not in bench.calls
