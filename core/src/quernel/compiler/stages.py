"""A batch's next piece of work for one job, as what a worker calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs

from quernel.compiler.halves import ArtifactCompiler
from quernel.compiler.inflight import Job
from quernel.compiler.job import JobSettings, JobStage, run_job

__all__ = ["JobStep"]


@attrs.frozen(eq=False)
class JobStep:
    """One stage of one job."""

    compiler: ArtifactCompiler[Any, Any, Any]
    job: Job
    stage: JobStage
    is_full: bool

    @property
    def is_local(self) -> bool:
        """Whether it must run in this process, where the user's Python code is."""
        return self.stage is JobStage.EXPAND

    def task(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """`run_job` and its arguments."""
        job = self.job
        work = job.lowered if self.stage is JobStage.FINALIZE else job.definition
        settings = JobSettings(self.is_full, logging.getLogger("quernel.compiler").getEffectiveLevel())
        return run_job, (self.compiler, work, job.id, self.stage, settings)
