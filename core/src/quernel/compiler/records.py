"""From what was noted while compiling to the records that outlive it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quernel.compiler.inflight import Found, Job
from quernel.store.records import CompilationBatchRecord, CompilationOutcome, CompilationRecord

if TYPE_CHECKING:
    from quernel.capabilities import TargetInfo
    from quernel.settings import RecordsLevel
    from quernel.store import Environment

__all__ = ["append_records", "batch_record", "compilation_record"]

_OUTCOMES = {
    Found.STORED: CompilationOutcome.LOADED,
    Found.IR: CompilationOutcome.REKEYED,
    Found.SOURCE: CompilationOutcome.REKEYED,
    Found.MADE: CompilationOutcome.COMPILED,
}


def compilation_record(job: Job, target_info: TargetInfo) -> CompilationRecord:
    """The record of a job that ended loaded."""
    assert job.found is not None
    assert job.shared is not None
    recording = job.recording
    facts = dict(job.shared.header.statistics) | recording.facts
    return CompilationRecord(
        kernel=job.name,
        key=job.id.kernel.digest,
        outcome=_OUTCOMES[job.found],
        rekeyed_by=job.found.value if job.found in (Found.IR, Found.SOURCE) else None,
        started_ns=job.started_ns,
        duration_ns=job.duration_ns,
        stages=tuple(recording.stage_ns.items()),
        ir=recording.ir_text,
        source=recording.source_text,
        artifact_bytes=len(getattr(job.artifact, "payload", b"")),
        registers=facts.get("registers"),
        spills=facts.get("spills"),
        warnings=tuple(recording.warnings),
        toolchain=", ".join(f"{name} {version}" for name, version in recording.toolchain_versions.items()),
        worker=job.worker,
        # Another process may have kept it meanwhile: then it was missed at first, and loaded in the end.
        why_missed=() if job.found is Found.STORED else job.why_missed,
        backend=target_info.backend,
        target=target_info.name,
    )


def batch_record(asked: int, workers: int, started_ns: int, wall_ns: int) -> CompilationBatchRecord:
    """The record of a batch, failures included."""
    return CompilationBatchRecord(asked=asked, workers=workers, wall_ns=wall_ns, started_ns=started_ns)


def append_records(
    environment: Environment | None,
    records: Sequence[CompilationRecord],
    batch: CompilationBatchRecord,
    level: RecordsLevel,
) -> None:
    """Appends a closed batch, even one of failures alone, to this process's log in the environment, if there is one."""
    if environment is None or environment.is_closed or level == "off":
        return
    from quernel.store.record_log import RecordLog

    log: RecordLog = environment.hold(RecordLog, lambda: RecordLog(environment))
    log.append(records, batch, level=level)
