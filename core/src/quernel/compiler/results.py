"""What a worker reports of one stage of a kernel, and which reports are taken."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final, assert_never

import attrs

from quernel.errors import CompilationError, QuernelError

if TYPE_CHECKING:
    from quernel.compiler.halves import ArtifactCompiler
    from quernel.compiler.recording import CompilationRecording

__all__ = ["JobResult", "JobStage", "WorkerLostError", "checked_result"]


class JobStage(enum.Enum):
    """How far a worker takes a kernel before it reports."""

    EXPAND = "expand"
    """To its IR. Runs in the process that has the kernel's Python code."""
    LOWER = "lower"
    """Lowered; finalized too if nothing could be reused by its source."""
    COMPILE = "compile"
    """Lowered and finalized, whatever its source."""
    FINALIZE = "finalize"
    """From lowered to artifact."""


@attrs.frozen(eq=False)
class JobResult:
    """What a worker reports of one stage. It pickles if the backend's lowered form and artifact do.

    Attributes:
        stage: the stage that ran.
        build_id: digest of the sources that the worker compiled with.
        fingerprint: the target's, as the worker's compiler has it.
        worker: process and thread.
        recording: times, warnings, toolchain, facts and texts.
        log_lines: (level, line) of what was logged.
        failure: the error, in a form that pickles; the fields below are empty then.
        ir_digest: digest of the IR, after `EXPAND`.
        is_storable: whether what is compiled from it may be kept, after `EXPAND`.
        lowered: the lowered kernel, after `LOWER` where it still has to be finalized.
        source: its text, likewise.
        artifact: the artifact, where the stage got that far.
    """

    stage: JobStage
    build_id: str
    fingerprint: str
    worker: str
    recording: CompilationRecording
    log_lines: tuple[tuple[int, str], ...] = ()
    failure: Exception | None = None
    ir_digest: str | None = None
    is_storable: bool = True
    lowered: Any = None
    source: str | None = None
    artifact: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        """As its parts. A failure's cause stays behind, even where a library has errors pickled with theirs."""
        parts = [getattr(self, field.name) for field in attrs.fields(JobResult)]
        failure = self.failure.__reduce__() if isinstance(self.failure, QuernelError) else None
        if failure is not None:
            parts[_FAILURE] = None
        return _received, (failure, *parts)

    @property
    def is_empty(self) -> bool:
        """Whether it has neither what its stage was to make nor why it did not, as a compiler broke its word."""
        if self.failure is not None or self.artifact is not None:
            return False
        match self.stage:
            case JobStage.EXPAND:
                return self.ir_digest is None
            case JobStage.LOWER:
                return self.lowered is None
            case JobStage.COMPILE | JobStage.FINALIZE:
                return True
            case _:
                assert_never(self.stage)


class WorkerLostError(RuntimeError):
    """A compile worker ended, or was ended, without an answer.

    Attributes:
        what: how, as the end of a sentence about the worker: "was killed by SIGSEGV".
        lines: the last of what it wrote to standard error.
        fix: what to do about it.
    """

    def __init__(
        self,
        what: str,
        lines: tuple[str, ...] = (),
        fix: str = "the next launch tries again; if it is always this kernel, report it with the lines above",
    ) -> None:
        super().__init__(what, lines, fix)
        self.what = what
        self.lines = lines
        self.fix = fix

    def __str__(self) -> str:
        return f"the compile worker {self.what}"


_FAILURE: Final = [field.name for field in attrs.fields(JobResult)].index("failure")


def _received(failure: tuple[Any, ...] | None, *parts: Any) -> JobResult:
    """The result whose `__reduce__` gave these."""
    result = JobResult(*parts)
    if failure is None:
        return result
    rebuild, arguments = failure
    return attrs.evolve(result, failure=rebuild(*arguments))


def checked_result(compiler: ArtifactCompiler[Any, Any, Any], result: object, kernel: str) -> JobResult:
    """`result` itself, if a worker with the same sources and the same target made it.

    Raises:
        CompilationError: it is of another build or for another target, or the worker failed and there is none.
        QuernelError: the executor refused the task with it.
    """
    if isinstance(result, WorkerLostError):
        raise CompilationError(f"{result} while compiling {kernel}", fix=result.fix, chain=result.lines) from result
    if isinstance(result, QuernelError):  # it says itself what to do
        raise result
    if isinstance(result, BaseException):
        raise CompilationError(
            f"a worker failed while compiling {kernel}: {type(result).__name__}: {result}",
            fix="the next launch tries again; if it is always this kernel, compile it without the executor to see why",
        ) from result
    if not isinstance(result, JobResult):
        raise CompilationError(
            f"a worker answered with {type(result).__name__} instead of the result for {kernel}",
            fix="let the executor call quernel.compiler.job.run_job and hand back what it returns",
        )
    if result.is_empty:
        raise CompilationError(
            f"compiling {kernel} made nothing: the stage {result.stage.value!r} ended without a result or an error",
            fix=f"report it to the authors of the backend for {compiler.target_info.backend}",
        )
    expected = (compiler.build_id.digest, compiler.target_info.fingerprint)
    for what, wanted, found in zip(("build", "target"), expected, (result.build_id, result.fingerprint), strict=True):
        if found != wanted:
            raise CompilationError(
                f"worker {result.worker} compiled {kernel} for {what} {found}, this process has {what} {wanted}",
                fix="install the same versions of quernel and its backend for the workers, or end old workers",
            )
    return result
