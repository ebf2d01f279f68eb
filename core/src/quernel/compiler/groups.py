"""Lowered kernels of a batch, gathered until there are enough of them for one call of the toolchain."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from quernel.compiler.halves import ArtifactCompiler
from quernel.compiler.inflight import Job
from quernel.compiler.own_workers import num_cores
from quernel.compiler.results import JobStage
from quernel.compiler.stages import GroupStep, JobStep

__all__ = ["Groups"]

_MAX_UNITS = 4
"""Beyond so many calls side by side, toolchains gain less than from larger groups."""


class Groups:
    """Jobs that wait for company. One thread.

    A full group goes at once, so lowering and finalizing overlap; what is left when nothing else can be done is shared
    out among a few calls.
    """

    def __init__(self, compiler: ArtifactCompiler[Any, Any, Any], *, is_full: bool) -> None:
        self._compiler = compiler
        self._is_full = is_full
        self._waiting: dict[Hashable, list[Job]] = {}
        self._parted: list[Job] = []

    def grouped(self, job: Job) -> JobStep | GroupStep | None:
        """The step of a lowered job that goes alone, or of the group that it makes full, or nothing yet."""
        key = self._compiler.group_key(job.lowered)
        if key is None:
            return self._step([job])
        waiting = self._waiting.setdefault(key, [])
        waiting.append(job)
        return self._step(self._waiting.pop(key)) if len(waiting) >= self._compiler.group_size else None

    def part(self, jobs: Sequence[Job]) -> None:
        """Has jobs of a group that was lost go alone."""
        self._parted += jobs

    def rest(self) -> list[JobStep | GroupStep]:
        """Steps for all that waits."""
        num_units = min(num_cores(), _MAX_UNITS)
        steps = [self._step([job]) for job in self._parted]
        self._parted = []
        for jobs in self._waiting.values():
            num_jobs = -(-len(jobs) // num_units)
            steps += [self._step(jobs[first : first + num_jobs]) for first in range(0, len(jobs), num_jobs)]
        self._waiting = {}
        return steps

    def _step(self, jobs: list[Job]) -> JobStep | GroupStep:
        if len(jobs) == 1:
            return JobStep(self._compiler, jobs[0], JobStage.FINALIZE, self._is_full)
        return GroupStep(self._compiler, tuple(jobs), self._is_full)
