"""One stage of compiling one kernel, wherever it runs: plain values in, plain values out, and it never raises."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.halves import ArtifactCompiler
from quernel.compiler.recording import CompilationRecording
from quernel.compiler.reentrancy import Compiling
from quernel.compiler.results import JobResult, JobStage
from quernel.errors import CompilationError, QuernelError

__all__ = ["DEFAULT_JOB_SETTINGS", "JobSettings", "run_group", "run_job"]


@attrs.frozen
class JobSettings:
    """What the caller read from its settings, since a worker may not see them.

    Attributes:
        is_full: the recording keeps IR and source texts.
        log_level: lines below it are not kept.
    """

    is_full: bool = False
    log_level: int = logging.WARNING


DEFAULT_JOB_SETTINGS = JobSettings()


def run_job(
    compiler: ArtifactCompiler[Any, Any, Any],
    work: Any,
    id: ArtifactId[Any],  # noqa: A002 — the design's name
    stage: JobStage,
    settings: JobSettings = DEFAULT_JOB_SETTINGS,
) -> JobResult:
    """Runs one stage on `work`: the kernel's definition, or what was lowered for `FINALIZE`. Any thread or process.

    A failure is part of the result; only what ends a process, such as `KeyboardInterrupt`, is raised.
    """
    recording = CompilationRecording(is_full=settings.is_full)
    log = _CollectingLog(settings.log_level)
    outcome: dict[str, Any]
    try:
        with Compiling(f"compiling {id.kernel.name}"):
            outcome = _STEPS[stage](_Steps(compiler, id, recording, log), work)
    except Exception as error:
        outcome = {"failure": _portable(error, id.kernel.name, compiler.target_info.backend)}
    return JobResult(
        stage=stage,
        build_id=compiler.build_id.digest,
        fingerprint=_fingerprint(compiler),
        worker=_worker(),
        recording=recording,
        log_lines=tuple(log.lines),
        **outcome,
    )


def run_group(
    compiler: ArtifactCompiler[Any, Any, Any],
    group: Sequence[tuple[ArtifactId[Any], Any]],
    settings: JobSettings = DEFAULT_JOB_SETTINGS,
) -> list[JobResult]:
    """Finalizes several lowered kernels together; the results in order, each as `run_job` gives it. Anywhere.

    Where the compiler fails as a whole, though it should not, each kernel is finalized alone.
    """
    names = [id.kernel.name for id, _ in group]  # noqa: A001
    members = [id for id, _ in group], [lowered for _, lowered in group]  # noqa: A001
    start_ns = time.perf_counter_ns()
    made: list[Any]
    with Compiling(f"compiling {names[0]} and {len(names) - 1} more"):
        try:
            made = compiler.finalize_group(*members)
            if len(made) != len(group):
                raise CompilationError(f"{len(group)} kernels were to be finalized, the compiler gave {len(made)}")
        except Exception:  # of which kernel, nobody knows
            made = ArtifactCompiler.finalize_group(compiler, *members)
    share_ns = (time.perf_counter_ns() - start_ns) // len(group)
    results = []
    for name, artifact in zip(names, made, strict=True):
        recording = CompilationRecording(is_full=settings.is_full)
        recording.stage_ns["finalize"] = share_ns
        is_failed = isinstance(artifact, Exception)
        results.append(
            JobResult(
                stage=JobStage.FINALIZE,
                build_id=compiler.build_id.digest,
                fingerprint=_fingerprint(compiler),
                worker=_worker(),
                recording=recording,
                failure=_portable(artifact, name, compiler.target_info.backend) if is_failed else None,
                artifact=None if is_failed else artifact,
            )
        )
    return results


def _worker() -> str:
    return f"{os.getpid()}/{threading.current_thread().name}"


def _fingerprint(compiler: ArtifactCompiler[Any, Any, Any]) -> str:
    try:
        return compiler.local_fingerprint()
    except Exception:  # there is no toolchain here: what the compiler raised says more
        return compiler.target_info.fingerprint


class _Steps:
    """The steps of one job, each of which gives fields of its result."""

    def __init__(
        self,
        compiler: ArtifactCompiler[Any, Any, Any],
        id: ArtifactId[Any],  # noqa: A002
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> None:
        self._compiler = compiler
        self._id = id
        self._recording = recording
        self._log = log

    def expand(self, kernel: KernelDefinition) -> dict[str, Any]:
        from quernel.ir.digest import ir_digest

        with self._recording.stage("expand"):
            module = kernel.expand()
            digest = ir_digest(module)
        if self._recording.is_full:
            from quernel.ir.printer import print_module

            self._recording.ir(print_module(module))
        return {"ir_digest": digest, "is_storable": kernel.is_storable}

    def lower(self, kernel: KernelDefinition) -> dict[str, Any]:
        lowered, source = self._lowered(kernel)
        return self.finalize(lowered) if source is None else {"lowered": lowered, "source": source}

    def compile(self, kernel: KernelDefinition) -> dict[str, Any]:
        lowered, source = self._lowered(kernel)
        return {**self.finalize(lowered), "source": source}

    def finalize(self, lowered: Any) -> dict[str, Any]:
        with self._recording.stage("finalize"):
            return {"artifact": self._compiler.finalize(self._id, lowered)}

    def _lowered(self, kernel: KernelDefinition) -> tuple[Any, str | None]:
        with self._recording.stage("lower"):
            lowered = self._compiler.lower(kernel, self._id, self._recording, self._log)
            source = self._compiler.source(lowered)
        if source is not None:
            self._recording.source(source)
        return lowered, source


_STEPS: dict[JobStage, Callable[[_Steps, Any], dict[str, Any]]] = {
    JobStage.EXPAND: _Steps.expand,
    JobStage.LOWER: _Steps.lower,
    JobStage.COMPILE: _Steps.compile,
    JobStage.FINALIZE: _Steps.finalize,
}


def _portable(error: Exception, kernel: str, backend: str) -> Exception:
    """The error, or one that says the same and pickles. Errors of the project stay themselves if they can."""
    if isinstance(error, QuernelError):
        try:
            pickle.loads(pickle.dumps(error))
        except Exception as obstacle:
            replacement = CompilationError(error.what, where=error.where, fix=error.fix, chain=error.chain)
            return _caused(replacement, obstacle)
        return error
    lines = traceback.format_exception(error)
    report = f"report it, with these lines, to the authors of the backend for {backend}"
    failure = CompilationError(
        f"compiling {kernel} failed with {type(error).__name__}: {error}",
        fix=None if isinstance(error, MemoryError) else report,
        chain=tuple("".join(lines).rstrip().splitlines()),
    )
    return _caused(failure, error)


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause  # for whoever runs in this process; pickling leaves it behind
    return error


class _CollectingLog(logging.Logger):
    """A logger outside the tree of loggers that keeps its lines for the driver to log."""

    def __init__(self, level: int) -> None:
        super().__init__("quernel.compiler.job", level)
        self.propagate = False
        self.lines: list[tuple[int, str]] = []

    def handle(self, record: logging.LogRecord) -> None:
        """Keeps the record's level and text."""
        self.lines.append((record.levelno, record.getMessage()))
