"""Kernels compiled for a target that no device here has, on any executor: what a compile farm and a release need."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any

import attrs

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.executors import run_steps
from quernel.compiler.groups import Groups
from quernel.compiler.halves import ArtifactCompiler
from quernel.compiler.inflight import Job
from quernel.compiler.recording import CompilationRecording
from quernel.compiler.results import JobResult, JobStage, checked_result
from quernel.compiler.stages import GroupStep, JobStep

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
    return _Ahead(compiler, list(kernels)).run(executor)


class _Ahead:
    """One call: its kernels as jobs that nothing is looked up for, and what becomes of each."""

    def __init__(self, compiler: ArtifactCompiler[Any, Any, Any], kernels: list[KernelDefinition]) -> None:
        self._compiler = compiler
        is_grouped = len(kernels) > 1 and compiler.group_size > 1
        self._groups = Groups(compiler, is_full=False) if is_grouped else None
        self._ends: dict[Job, JobResult] = {}
        self._jobs = [self._job(kernel) for kernel in kernels]

    def run(self, executor: Executor | None) -> list[JobResult]:
        """The results, in the order of the kernels."""
        steps: list[JobStep | GroupStep] = [
            self._compiling(job) if job.definition.foreign is not None else self._step(job, JobStage.EXPAND)
            for job in self._jobs
            if job not in self._ends
        ]
        while steps:
            run_steps(self._compiler, steps, self._advance, executor)
            steps = [] if self._groups is None else self._groups.rest()
        return [self._ends[job] for job in self._jobs]

    def _job(self, kernel: KernelDefinition) -> Job:
        try:
            variant = self._compiler.default_variant(kernel.specialization.signature)
        except Exception as error:
            job = Job(kernel, ArtifactId(kernel.id, None), None)
            self._end(job, self._failed(JobStage.EXPAND, error))
            return job
        return Job(kernel, ArtifactId(kernel.id, variant), None)

    def _step(self, job: Job, stage: JobStage) -> JobStep:
        return JobStep(self._compiler, job, stage, is_full=False)

    def _compiling(self, job: Job) -> JobStep:
        """The step from IR to an artifact, or to what others of its group are finalized with."""
        return self._step(job, JobStage.COMPILE if self._groups is None else JobStage.LOWER)

    def _advance(self, step: JobStep | GroupStep, result: object) -> JobStep | GroupStep | None:
        if isinstance(step, JobStep):
            return self._advance_job(step.job, step.stage, result)
        results = step.shared_out(result)
        if results is not None:
            for job, own in zip(step.jobs, results, strict=True):
                self._advance_job(job, JobStage.FINALIZE, own)
        elif self._groups is not None:
            self._groups.part(step.jobs)
        return None

    def _advance_job(self, job: Job, stage: JobStage, result: object) -> JobStep | GroupStep | None:
        """Takes a worker's result; what has to be done next."""
        try:
            found = checked_result(self._compiler, result, job.name)
            job.recording.absorb(found.recording)
            job.source = found.source if found.source is not None else job.source
            job.lowered = found.lowered
            if found.failure is None and found.artifact is None:
                if job.lowered is None or self._groups is None:
                    return self._compiling(job)
                return self._groups.grouped(job)
        except Exception as refusal:
            found = self._failed(stage, refusal)
        self._end(job, found)
        return None

    def _end(self, job: Job, result: JobResult) -> None:
        self._ends[job] = attrs.evolve(result, recording=job.recording, source=job.source)

    def _failed(self, stage: JobStage, failure: Exception) -> JobResult:
        build, fingerprint = self._compiler.build_id.digest, self._compiler.target_info.fingerprint
        return JobResult(stage, build, fingerprint, "", CompilationRecording(), failure=failure)
