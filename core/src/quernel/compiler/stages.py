"""A batch's next piece of work for one job, or for a group of them, as what a worker calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs

from quernel.compiler.halves import ArtifactCompiler
from quernel.compiler.inflight import Job
from quernel.compiler.job import JobSettings, run_group, run_job
from quernel.compiler.results import JobStage

__all__ = ["GroupStep", "JobStep"]


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
        return run_job, (self.compiler, work, job.id, self.stage, _settings(self.is_full))


@attrs.frozen(eq=False)
class GroupStep:
    """The last stage of several jobs, whose lowered kernels go to the toolchain together."""

    compiler: ArtifactCompiler[Any, Any, Any]
    jobs: tuple[Job, ...]
    is_full: bool

    @property
    def is_local(self) -> bool:
        """Nothing of it needs this process."""
        return False

    def task(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """`run_group` and its arguments."""
        group = [(job.id, job.lowered) for job in self.jobs]
        return run_group, (self.compiler, group, _settings(self.is_full))

    def shared_out(self, result: object) -> list[object] | None:
        """Each job's own part of what the worker gave, or `None`: the worker was lost, and any of them may be why."""
        return result if isinstance(result, list) and len(result) == len(self.jobs) else None


def _settings(is_full: bool) -> JobSettings:
    return JobSettings(is_full, logging.getLogger("quernel.compiler").getEffectiveLevel())
