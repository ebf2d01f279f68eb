"""What runs on workers elsewhere, what they hand back, and which answers are refused."""

from __future__ import annotations

import copyreg
import hashlib
import logging
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import attrs
import pytest
from tests.unit.compiler.scripted import (
    BUILD,
    Bench,
    ScriptedArtifact,
    ScriptedTarget,
    ScriptedVariant,
    artifact,
    artifact_id,
    definition,
)

from quernel.capabilities import TargetInfo
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.halves import ArtifactCompiler, Signature
from quernel.compiler.job import JobSettings, run_job
from quernel.compiler.recording import CompilationRecording
from quernel.compiler.results import JobResult, JobStage, checked_result
from quernel.errors import CompilationError, ValidationError
from quernel.identity import BuildId, build, build_id_hash
from quernel.ir.digest import ir_digest
from quernel.locations import Location
from quernel.store import Environment


@attrs.frozen
class Elsewhere(ArtifactCompiler[ScriptedVariant, str, ScriptedArtifact]):
    """A compiler that pickles; kernels by certain names fail."""

    target_info: TargetInfo = TargetInfo("scripted", "t1", "fingerprint-1")
    build_id: BuildId = BUILD

    def default_variant(self, signature: Signature) -> ScriptedVariant:
        return ScriptedVariant()

    def lower(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[ScriptedVariant],  # noqa: A002 — the design's name
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> str:
        log.warning("lowering %s", kernel.name)
        log.debug("not kept")
        recording.warn("a remark")
        recording.statistics(registers=12, spills=0)
        if kernel.name == "invalid":
            raise ValidationError("too large a block", where=Location("k.py", 3), fix="use a smaller one")
        if kernel.name == "buggy":
            raise Unpicklable("inside", "out")
        return f"lowered {kernel.expand().kernel.block[0]}"

    def source(self, lowered: str) -> str | None:
        return lowered

    def finalize(self, id: ArtifactId[ScriptedVariant], lowered: str) -> ScriptedArtifact:  # noqa: A002
        return artifact(lowered)


class Unpicklable(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


class Pickling(Executor):
    """Runs tasks at once, handing everything through pickle as another process would; notes what it was given."""

    def __init__(self, change: Callable[[Any], Any] = lambda result: result) -> None:
        self.stages: list[JobStage] = []
        self.change = change

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            function, arguments = pickle.loads(pickle.dumps((fn, args)))
            self.stages.append(arguments[3] if function is run_job else JobStage.FINALIZE)
            future.set_result(pickle.loads(pickle.dumps(self.change(function(*arguments)))))
        except Exception as error:
            future.set_exception(error)
        return future


class Broken(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise BrokenProcessPool("a worker was killed")


def bench_on(executor: Executor, environment: Environment | None) -> Bench:
    bench = Bench.of(environment, workers=executor)
    target = bench.loader.target
    assert isinstance(target, ScriptedTarget)
    target.compiler = Elsewhere()
    return bench


def test_workers_elsewhere_lower_and_finalize_what_was_expanded_here(environment: Environment) -> None:
    executor = Pickling()
    bench = bench_on(executor, environment)
    kernel = bench.load("a", definition("a", 5))
    assert executor.stages == [JobStage.LOWER, JobStage.FINALIZE]
    assert kernel.loaded.payload == b"'lowered 5'"
    (record,) = bench.records.kernels
    assert (record.registers, record.spills, record.warnings) == (12, 0, ("a remark",))
    assert [name for name, _ in record.stages] == ["look up", "expand", "lower", "finalize", "load", "store"]


def test_worker_processes_compile_a_batch(environment: Environment) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        bench = bench_on(executor, environment)
        bench.enqueue("a", definition("a", 5))
        bench.enqueue("invalid")
        kernel = bench.load("b", definition("b", 6))
        assert kernel.loaded.payload == b"'lowered 6'"
        with pytest.raises(ValidationError, match=r"^k.py:3:1: too large a block\n  fix: use a smaller one$"):
            bench.load("invalid")


def test_failures_elsewhere_survive_the_way_back(environment: Environment) -> None:
    bench = bench_on(Pickling(), environment)
    with pytest.raises(ValidationError, match=r"^k.py:3:1: too large a block"):
        bench.load("invalid")
    with pytest.raises(CompilationError, match="compiling buggy failed with Unpicklable: inside"):
        bench.load("buggy")


def test_failures_come_back_where_a_library_has_causes_pickled(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_cause(error: CompilationError) -> tuple[Any, ...]:
        return _with_cause, (error.__reduce__(), error.__cause__)

    monkeypatch.setitem(copyreg.dispatch_table, CompilationError, with_cause)
    bench = bench_on(Pickling(), environment)
    with pytest.raises(CompilationError, match="compiling buggy failed with Unpicklable: inside"):
        bench.load("buggy")


def _with_cause(made: tuple[Any, ...], cause: Exception) -> Exception:
    rebuild, arguments = made
    error: Exception = rebuild(*arguments)
    error.__cause__ = cause
    return error


def test_log_lines_of_workers_are_logged_here(environment: Environment, caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_on(Pickling(), environment)
    with caplog.at_level(logging.INFO, "quernel.compiler"):
        bench.load("a")
    assert ("quernel.compiler", logging.WARNING, "a: lowering a") in caplog.record_tuples
    assert "not kept" not in caplog.text


def test_exception_in_a_worker_costs_its_own_kernel_only(environment: Environment) -> None:
    def die(result: JobResult) -> JobResult:
        if result.lowered == "lowered 6":
            raise MemoryError("worker out of memory")
        return result

    bench = bench_on(Pickling(die), environment)
    bench.enqueue("a", definition("a", 6))
    bench.load("b", definition("b", 7))
    with pytest.raises(CompilationError, match="a worker failed while compiling a: MemoryError: worker out") as caught:
        bench.load("a")
    assert isinstance(caught.value.__cause__, MemoryError)


def test_broken_executor_fails_the_kernel_and_compiles_nothing_here(environment: Environment) -> None:
    bench = bench_on(Broken(), environment)
    with pytest.raises(CompilationError, match="a worker failed while compiling a: BrokenProcessPool: a worker was"):
        bench.load("a")


def test_result_of_another_build_is_refused_naming_both(environment: Environment) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    bench = bench_on(Pickling(lambda result: attrs.evolve(result, build_id=other)), environment)
    with pytest.raises(CompilationError, match=rf"compiled a for build {other}, this process has build {BUILD}"):
        bench.load("a")
    assert bench.script.by_id == {}


def test_result_for_another_target_is_refused_naming_both(environment: Environment) -> None:
    bench = bench_on(Pickling(lambda result: attrs.evolve(result, fingerprint="f2")), environment)
    with pytest.raises(CompilationError, match="compiled a for target f2, this process has target fingerprint-1"):
        bench.load("a")


def test_answer_that_is_no_result_is_refused(environment: Environment) -> None:
    bench = bench_on(Pickling(lambda result: "done"), environment)
    with pytest.raises(CompilationError, match="a worker answered with str instead of the result for a"):
        bench.load("a")


def test_run_job_expands_to_a_digest(environment: Environment) -> None:
    kernel = definition("a", 5, is_storable=False)
    result = run_job(Elsewhere(), kernel, artifact_id("a"), JobStage.EXPAND, JobSettings(is_full=True))
    assert result.ir_digest == ir_digest(kernel.expand())
    assert result.is_storable is False
    assert result.failure is None
    assert "a" in (result.recording.ir_text or "")


def test_run_job_that_compiles_hands_back_the_artifact_and_its_source() -> None:
    result = run_job(Elsewhere(), definition("a", 5), artifact_id("a"), JobStage.COMPILE)
    assert result.artifact == artifact("lowered 5")
    assert result.source == "lowered 5"
    assert result.lowered is None


def test_run_job_keeps_texts_only_when_asked() -> None:
    brief = run_job(Elsewhere(), definition("a", 5), artifact_id("a"), JobStage.LOWER)
    full = run_job(Elsewhere(), definition("a", 5), artifact_id("a"), JobStage.LOWER, JobSettings(is_full=True))
    assert brief.recording.source_text is None
    assert full.recording.source_text == "lowered 5"


def test_run_job_lets_an_interrupt_through() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(Elsewhere(), definition("a", expand=interrupt), artifact_id("a"), JobStage.EXPAND)


def test_compiler_that_travels_takes_on_the_build_of_where_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Elsewhere(build_id=build_id_hash("quernel", "quernel_cpu"))
    packed = pickle.dumps((here, definition("a", 5), artifact_id("a")))
    monkeypatch.setattr(build, "_package_digest", lambda package: f"other sources of {package}")
    there, kernel, id = pickle.loads(packed)  # noqa: A001
    result = run_job(there, kernel, id, JobStage.COMPILE)
    assert result.build_id == build_id_hash("quernel", "quernel_cpu").digest != here.build_id.digest
    monkeypatch.undo()
    with pytest.raises(
        CompilationError, match=f"compiled a for build {result.build_id}, this process has build {here.build_id.digest}"
    ):
        checked_result(here, result, "a")
    checked_result(here, run_job(pickle.loads(packed)[0], kernel, id, JobStage.COMPILE), "a")


def test_result_tells_the_fingerprint_of_the_toolchain_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Elsewhere, "local_fingerprint", lambda compiler: "toolchain-2")
    result = run_job(Elsewhere(), definition("a", 5), artifact_id("a"), JobStage.COMPILE)
    with pytest.raises(CompilationError, match="for target toolchain-2, this process has target fingerprint-1"):
        checked_result(Elsewhere(), result, "a")


def test_worker_without_a_toolchain_reports_what_the_compiler_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(compiler: Elsewhere) -> str:
        raise CompilationError("there is no toolchain")

    monkeypatch.setattr(Elsewhere, "local_fingerprint", missing)
    result = run_job(Elsewhere(), definition("invalid", 5), artifact_id("invalid"), JobStage.COMPILE)
    assert isinstance(checked_result(Elsewhere(), result, "invalid").failure, ValidationError)
