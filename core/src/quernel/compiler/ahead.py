"""Kernels compiled for a target that no device here has, on any executor: what a compile farm and a release need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

import attrs

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.executors import run_steps
from quernel.compiler.halves import ArtifactCompiler
from quernel.compiler.job import DEFAULT_JOB_SETTINGS, JobResult, JobStage, checked_result, run_job
from quernel.compiler.recording import CompilationRecording

__all__ = ["compile_ahead"]


def compile_ahead(
    compiler: ArtifactCompiler[Any, Any, Any],
    kernels: Iterable[KernelDefinition],
    *,
    executor: Executor | None = None,
) -> list[JobResult]:
    """The results of compiling the kernels, in their order, each in the compiler's default variant. Nothing is kept.

    A kernel that fails costs no other: its result holds the failure. So does a result that a worker of another build or
    toolchain made, which is refused.

    Args:
        compiler: the compiling half, made for the target.
        kernels: what to compile.
        executor: where; by default as the device's own batches do.
    """
    steps = [_Step(compiler, kernel, number) for number, kernel in enumerate(kernels)]
    results: dict[int, JobResult] = {}

    def advance(step: _Step, result: object) -> _Step | None:
        try:
            found = checked_result(compiler, result, step.kernel.name)
        except Exception as refusal:
            found = step.failed(refusal)
        if found.failure is None and step.stage is JobStage.EXPAND:
            return attrs.evolve(step, stage=JobStage.COMPILE)
        results[step.number] = found
        return None

    run_steps(compiler, steps, advance, executor)
    return [results[number] for number in range(len(steps))]


@attrs.frozen(eq=False)
class _Step:
    """One stage of one kernel: its IR is made here, where its Python code is; the rest anywhere."""

    compiler: ArtifactCompiler[Any, Any, Any]
    kernel: KernelDefinition
    number: int
    stage: JobStage = attrs.field()

    @stage.default
    def _first_stage(self) -> JobStage:
        return JobStage.EXPAND if self.kernel.foreign is None else JobStage.COMPILE

    @property
    def is_local(self) -> bool:
        return self.stage is JobStage.EXPAND

    def task(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        variant = self.compiler.default_variant(self.kernel.specialization.signature)
        id = ArtifactId(self.kernel.id, variant)  # noqa: A001 — the design's name
        return run_job, (self.compiler, self.kernel, id, self.stage, DEFAULT_JOB_SETTINGS)

    def failed(self, failure: Exception) -> JobResult:
        build, fingerprint = self.compiler.build_id.digest, self.compiler.target_info.fingerprint
        return JobResult(self.stage, build, fingerprint, "", CompilationRecording(), failure=failure)
