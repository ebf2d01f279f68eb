"""The order of calls on each path from an id to a loaded kernel."""

from __future__ import annotations

import pytest
from tests.unit.compiler.scripted import (
    BUILD,
    Bench,
    ScriptedVariant,
    artifact,
    artifact_id,
    definition,
    foreign_definition,
    module,
    once,
)

from quernel.compiler import no_compiling
from quernel.errors import CompilationError, DeviceError, KernelSyntaxError, LaunchError
from quernel.identity import ir_key
from quernel.ir.digest import ir_digest
from quernel.store import Environment


def key_of(ir: int) -> object:
    return ir_key(ir_digest(module("any", ir)), ScriptedVariant(), BUILD)


def test_compiled_kernel_is_looked_up_by_id_and_ir_then_lowered_finalized_loaded_stored(bench: Bench) -> None:
    bench.load("a")
    assert bench.script.log() == [
        "use_environment",
        "stored a",
        "stored_for_ir",
        "lower a",
        "finalize a",
        "load a",
        "store a",
    ]
    assert bench.records.outcomes() == [("a", "compiled", None)]


def test_kernel_with_a_source_is_looked_up_by_it_between_lowering_and_finalizing(bench: Bench) -> None:
    bench.script.sources["a"] = "text"
    bench.load("a")
    assert bench.script.log()[3:] == ["lower a", "stored_for_source text", "finalize a", "load a", "store a"]
    assert set(bench.script.by_source) == {"text"}


def test_stored_kernel_is_only_loaded(bench: Bench) -> None:
    bench.script.by_id[artifact_id("a")] = artifact("kept")
    kernel = bench.load("a", definition("a", expand=lambda: pytest.fail("expanded")))
    assert bench.script.log() == ["use_environment", "stored a", "load a"]
    assert kernel.loaded.payload == b"'kept'"
    assert bench.records.outcomes() == [("a", "loaded", None)]


def test_loaded_kernel_is_returned_without_any_call(bench: Bench) -> None:
    first = bench.load("a")
    before = len(bench.script.calls)
    assert bench.load("a") is first
    assert len(bench.script.calls) == before
    assert len(bench.records.batches) == 1


def test_equal_ir_in_the_store_answers_before_lowering_and_is_stored_under_the_id(bench: Bench) -> None:
    bench.script.by_ir[key_of(7)] = artifact("kept")
    bench.load("a", definition("a", 7))
    assert bench.script.log() == ["use_environment", "stored a", "stored_for_ir", "load a", "store a"]
    assert bench.records.outcomes() == [("a", "rekeyed", "ir")]


def test_equal_source_in_the_store_answers_before_finalizing(bench: Bench) -> None:
    bench.script.sources["a"] = "text"
    bench.script.by_source["text"] = artifact("kept")
    bench.load("a")
    assert bench.script.log()[2:] == ["stored_for_ir", "lower a", "stored_for_source text", "load a", "store a"]
    assert bench.records.outcomes() == [("a", "rekeyed", "source")]


def test_stored_artifact_that_the_device_refuses_is_dropped_and_compiled_once_more(bench: Bench) -> None:
    bench.script.by_id[artifact_id("a")] = artifact("stale")
    bench.script.acts["load", "a"] = once(DeviceError("no such image"))
    kernel = bench.load("a", definition("a", 7))
    assert bench.script.log() == [
        "use_environment",
        "stored a",
        "load a",
        "lower a",
        "finalize a",
        "load a",
        "drop a",
        "store a",
    ]
    assert kernel.loaded.payload == b"7"
    assert bench.records.outcomes() == [("a", "compiled", None)]
    assert bench.records.kernels[0].why_missed == ("refused by the device",)


@pytest.mark.parametrize("by", ["ir", "source"])
def test_rekeyed_artifact_that_the_device_refuses_is_compiled_once_more(bench: Bench, by: str) -> None:
    bench.script.sources["a"] = "text"
    if by == "ir":
        bench.script.by_ir[key_of(7)] = artifact("stale")
    else:
        bench.script.by_source["text"] = artifact("stale")
    bench.script.acts["load", "a"] = once(DeviceError("no such image"))
    bench.load("a", definition("a", 7))
    log = bench.script.log()
    assert log[-5:] == ["lower a", "finalize a", "load a", "drop a", "store a"]
    assert bench.script.by_source["text"] == artifact("text")


def test_device_that_refuses_what_was_just_compiled_too_costs_nothing_that_is_kept(bench: Bench) -> None:
    bench.script.by_id[artifact_id("a")] = artifact("kept")
    bench.script.acts["load", "a"] = DeviceError("out of memory")
    with pytest.raises(DeviceError, match="out of memory"):
        bench.load("a")
    assert bench.script.log()[1:] == ["stored a", "load a", "lower a", "finalize a", "load a"]
    bench.script.acts.clear()
    assert bench.load("a").loaded.payload == b"'kept'"


def test_device_that_refuses_costs_nothing_that_is_kept_where_nothing_is_compiled(bench: Bench) -> None:
    bench.script.by_id[artifact_id("a")] = artifact("kept")
    bench.script.acts["load", "a"] = DeviceError("out of memory")
    with no_compiling(), pytest.raises(LaunchError, match=r"the device refused what the store in .* has"):
        bench.load("a")
    bench.script.acts.clear()
    with no_compiling():
        assert bench.load("a").loaded.payload == b"'kept'"


def test_fresh_artifact_that_the_device_refuses_fails_and_is_not_stored(bench: Bench) -> None:
    bench.script.acts["load", "a"] = DeviceError("no such image")
    with pytest.raises(DeviceError, match="no such image"):
        bench.load("a")
    assert bench.script.log()[-1] == "load a"
    assert bench.script.by_id == {}
    assert bench.records.kernels == []


def test_target_that_does_not_persist_finalizes_at_once_and_stores_nothing(environment: Environment) -> None:
    bench = Bench.of(environment, persists=False)
    bench.script.sources["a"] = "text"
    bench.load("a")
    assert bench.script.log() == ["use_environment", "stored a", "lower a", "finalize a", "load a"]


def test_without_environment_nothing_is_kept(bench: Bench) -> None:
    bench.environment = None
    bench.load("a")
    assert bench.script.log() == ["stored a", "lower a", "finalize a", "load a"]


def test_kernel_that_is_not_storable_is_neither_stored_nor_looked_up_by_ir(bench: Bench) -> None:
    bench.script.sources["a"] = "text"
    bench.load("a", definition("a", is_storable=False))
    assert bench.script.log() == ["use_environment", "stored a", "lower a", "finalize a", "load a"]


def test_compiler_whose_artifacts_hold_more_than_the_ir_reuses_nothing_by_ir(bench: Bench) -> None:
    bench.loader.target.compiler.shares_by_ir = False
    bench.load("a", definition("a", 5))
    bench.load("b", definition("b", 5))
    assert bench.script.count("stored_for_ir") == 0
    assert bench.script.by_ir == {}
    assert bench.records.outcomes() == [("a", "compiled", None), ("b", "compiled", None)]


def test_ready_made_source_has_no_ir_key(bench: Bench) -> None:
    bench.script.sources["a"] = "text"
    bench.load("a", foreign_definition("a"))
    assert bench.script.log()[1:] == [
        "stored a",
        "lower a",
        "stored_for_source text",
        "finalize a",
        "load a",
        "store a",
    ]
    assert bench.script.by_ir == {}


def test_target_methods_run_under_the_lock_and_compiler_methods_outside_it(bench: Bench) -> None:
    bench.script.sources["a"] = "text"
    bench.load("a")
    unlocked = {call.method for call in bench.script.calls if not call.is_locked}
    assert unlocked == {"lower", "finalize"}
    assert not bench.loader.target_lock.locked()


def test_failure_to_expand_is_raised_as_it_is_and_not_kept(bench: Bench) -> None:
    error = KernelSyntaxError("no lambda")

    def refuse() -> None:
        raise error

    with pytest.raises(KernelSyntaxError, match="no lambda") as caught:
        bench.load("a", definition("a", expand=refuse))
    assert vars(caught.value) == vars(error)
    assert bench.script.log() == ["use_environment", "stored a"]
    bench.load("a")
    assert bench.records.outcomes() == [("a", "compiled", None)]


@pytest.mark.parametrize("method", ["lower", "finalize"])
def test_failure_to_compile_stores_nothing_and_the_next_load_tries_again(bench: Bench, method: str) -> None:
    bench.script.acts[method, "a"] = CompilationError("the toolchain says no", chain=("line 1",))
    with pytest.raises(CompilationError, match="the toolchain says no\n  line 1"):
        bench.load("a")
    assert bench.script.by_id == {}
    assert bench.records.kernels == []
    assert bench.records.batches[0].asked == 1
    del bench.script.acts[method, "a"]
    bench.load("a")
    assert bench.script.count("load") == 1


def test_bug_in_a_backend_becomes_a_compilation_error_with_its_traceback(bench: Bench) -> None:
    bench.script.acts["lower", "a"] = ZeroDivisionError("a bug")
    with pytest.raises(CompilationError, match="compiling a failed with ZeroDivisionError: a bug") as caught:
        bench.load("a")
    assert any("in lower" in line for line in caught.value.chain)
    assert caught.value.fix is not None
    assert caught.value.fix.endswith("the authors of the backend for scripted")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
