"""What a batch tells: reporters and progress as it goes, the log, and at its end whoever keeps records.

Called on the thread that drives the batch, without any lock. Whoever raises when it is told costs no kernel.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from quernel.compiler.inflight import Found, Job, JobState

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

    from quernel.capabilities import TargetInfo
    from quernel.compiler.reporting import Progress
    from quernel.compiler.tables import LoaderTables
    from quernel.settings import RecordsLevel
    from quernel.store import CompilationBatchRecord, CompilationRecord, Environment

__all__ = ["RecordSink", "Telling", "logger"]


class RecordSink(Protocol):
    """Takes the records of a closed batch. Called without any lock; MUST NOT load or launch; its errors are logged."""

    def __call__(
        self,
        environment: Environment | None,
        records: Sequence[CompilationRecord],
        batch: CompilationBatchRecord,
        level: RecordsLevel,
    ) -> object:
        """`level` is how much is to be kept, as the caller's settings said; with `off`, only observers are told."""
        ...


class Telling:
    """Tells of the jobs of one batch. One thread."""

    def __init__(
        self,
        jobs: list[Job],
        tables: LoaderTables,
        *,
        environment: Environment | None,
        records: RecordSink,
        level: RecordsLevel,
        progress: Progress | None,
    ) -> None:
        """From now on: the batch starts."""
        self._jobs = jobs
        self._tables = tables
        self._environment = environment
        self._records = records
        self._level = level
        self._progress = progress
        self._told: set[Job] = set()
        self._started_ns, self._start_ns = time.time_ns(), time.perf_counter_ns()
        for job in jobs:
            job.started_ns = self._started_ns

    def artifact(self, job: Job) -> None:
        """Tells of an artifact that was compiled, once and before it is loaded; whoever raises costs no kernel."""
        if job.found is not Found.MADE or not job.reporters:
            return
        from quernel.compiler.reporting import CompiledArtifact

        compiled = CompiledArtifact(job.id, job.artifact, job.source, job.recording, job.worker)
        for reporter in self._tables.reporters(job):
            try:
                reporter(compiled)
            except Exception:
                logger().exception("a reporter failed when it was told of %s", job.name)

    def progress(self, job: Job) -> None:
        """Tells of a job that was found, compiled or has failed, once; whoever raises is told no more."""
        if self._progress is None or job in self._told or not (job.is_settled or job.failure or job.found):
            return
        self._told.add(job)
        try:
            self._progress(len(self._told), len(self._jobs), job.name)
        except Exception:
            logger().exception("progress cannot be shown")
            self._progress = None

    def compiled(self, job: Job, target_info: Any) -> None:
        """One line in the log for each kernel that was compiled."""
        logger().info(
            "compiled %s %s for %s %s in %.1f ms",
            job.name,
            job.id.kernel.digest[:12],
            target_info.backend,
            target_info.name,
            job.duration_ns / 1e6,
        )

    def records(self, num_workers: int, target_info: TargetInfo) -> None:
        """Hands over the records of the batch, which is over."""
        from quernel.compiler.records import batch_record, compilation_record

        wall_ns = time.perf_counter_ns() - self._start_ns
        try:
            records = [compilation_record(job, target_info) for job in self._jobs if job.state is JobState.LOADED]
            batch = batch_record(len(self._jobs), num_workers, self._started_ns, wall_ns)
            self._records(self._environment, records, batch, self._level)
        except Exception:
            logger().exception("the records of a batch could not be kept")


def logger() -> logging.Logger:
    """The logger of everything about compiling; a warm start has nothing to log and does not import it."""
    import logging

    return logging.getLogger("quernel.compiler")
