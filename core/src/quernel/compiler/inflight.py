"""Kernels in flight: one job per id, and who leads where several jobs would make the same artifact."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quernel.compiler.artifacts import ArtifactHeader, ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.guarded_target import SharedLoad
from quernel.compiler.recording import CompilationRecording
from quernel.forks import renewed

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from quernel.compiler.guarded_target import GuardedTarget
    from quernel.compiler.reporting import Reporter
    from quernel.identity import IrKey
    from quernel.store import Environment

__all__ = ["MAIN_STAGES", "Found", "Job", "JobState", "LoadedKernel", "TableKey"]

VariantT = TypeVar("VariantT")
LoadedT = TypeVar("LoadedT")

MAIN_STAGES = ("look up", "expand", "lower", "finalize", "load", "store")
"""The stages that follow one another; whatever else a compiler times is part of one of them."""

TableKey = tuple["Environment | None", Hashable]
"""The key of the loader's tables: the environment, and an id, an IR key or a source's digest."""


class LoadedKernel(Generic[VariantT, LoadedT]):
    """A kernel that can be launched.

    Attributes:
        id: what it was asked for by.
        header: all that a launch needs besides.
        loaded: the backend's own object; kernels with equal artifacts share it.
        digest: the artifact's.
    """

    __slots__ = ("_shared", "digest", "header", "id", "loaded")

    def __init__(self, id: ArtifactId[VariantT], shared: SharedLoad[LoadedT]) -> None:  # noqa: A002
        self.id = id
        self.header: ArtifactHeader = shared.header
        self.loaded: LoadedT = shared.loaded
        self.digest = shared.digest
        self._shared = shared  # other kernels find it for as long as someone has it

    def __repr__(self) -> str:
        return f"<loaded kernel {self.id.kernel.name} {self.digest[:12]}>"

    @property
    def owner(self) -> GuardedTarget[Any, Any, LoadedT]:
        """What loaded it, and stands for the device."""
        return self._shared.owner

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} does not pickle: it is loaded on a device; ask for the kernel again over there")


class JobState(enum.Enum):
    """Where a job stands. The last three are ends: a job reaches exactly one of them, once."""

    QUEUED = "queued"
    """Nobody compiles it yet."""
    ACTIVE = "active"
    """A thread drives it."""
    LOADED = "loaded"
    FAILED = "failed"
    ABANDONED = "abandoned"
    """Its driver was interrupted, or its environment closed; whoever waits drives its successor."""


class Found(enum.Enum):
    """Where a job's artifact came from."""

    STORED = "stored"
    """The store, by the id."""
    IR = "ir"
    """An equal IR's artifact: stored, loaded, or just made by another job."""
    SOURCE = "source"
    """An equal source's artifact, likewise."""
    MADE = "made"
    """This job compiled it."""


class Job:
    """One kernel on its way from an id to being loaded. Its driver owns all of it; others read after `done`.

    It is what a registration of a kernel becomes: queued, driven by one thread, settled once.

    Attributes:
        num_waiters: threads that wait for it, or drive it for themselves; under the tables' lock. While it is 0,
            nobody has launched the kernel yet, so a failure has to wait for that.
        driver_waits: whether its driver is one of them.
        reporters: whom to tell of its artifact before that is loaded, should it be compiled; under the tables' lock.
        callbacks: what to call once it has ended; under the tables' lock.
        successor: the job that goes on for those who wait for this one, which was abandoned.
        state: where it stands.
        failure: why it cannot be loaded.
        is_refused: its driver's context compiles nothing, so that the failure is that context's alone.
        kernel: the loaded kernel.
        is_storable: whether what is compiled from it may be kept and looked up by its IR.
        is_expanded: whether its IR has been made.
        is_fresh: nothing may be looked up any more, as the device refused what was kept.
        leader: the job whose artifact this one waits for.
        found: where the artifact came from.
        is_from_store: whether the artifact was kept, so that a refusal by the device is no failure yet.
        shared: what the artifact, or an equal one, became on the device.
        recording: notes of its stages, those that its driver runs included.
    """

    def __init__(self, definition: KernelDefinition, id: ArtifactId[Any], environment: Environment | None) -> None:  # noqa: A002
        self.definition = definition
        self.id = id
        self.environment = environment
        self.num_waiters = 0
        self.driver_waits = False
        self.reporters: tuple[Reporter, ...] = ()
        self.callbacks: list[Callable[[], object]] = []
        self.successor: Job | None = None
        self.done = threading.Event()
        self.state = JobState.QUEUED
        self.failure: BaseException | None = None
        self.is_refused = False
        self.kernel: LoadedKernel[Any, Any] | None = None
        self.is_storable = True
        self.is_expanded = False
        self.is_fresh = False
        self.leader: Job | None = None
        self.found: Found | None = None
        self.is_from_store = False
        self.ir_key: IrKey | None = None
        self.source: str | None = None
        self.lowered: Any = None
        self.artifact: Any = None
        self.shared: SharedLoad[Any] | None = None
        self.started_ns = 0
        self.worker = ""
        self.why_missed: tuple[str, ...] = ()
        self.recording = CompilationRecording()
        renewed(self)

    @property
    def key(self) -> TableKey:
        """Its key in the tables of what is loaded, queued and in flight."""
        return (self.environment, self.id)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.id.kernel.name

    @property
    def stage(self) -> Callable[[str], AbstractContextManager[None]]:
        """Times what its driver does for it."""
        return self.recording.stage

    @property
    def duration_ns(self) -> int:
        """The time spent on this kernel so far, without waiting for others."""
        return sum(self.recording.stage_ns.get(stage, 0) for stage in MAIN_STAGES)

    @property
    def is_settled(self) -> bool:
        """Whether it has ended, and who waits knows."""
        return self.done.is_set()

    @property
    def last(self) -> Job:
        """The job that goes on for this one, or itself. Any thread."""
        job = self
        while job.successor is not None:
            job = job.successor
        return job

    @property
    def is_answered(self) -> bool:
        """Whether no worker has to do anything for it, at least until its leader is done."""
        return self.found is not None or self.leader is not None or self.failure is not None

    def fail(self, error: BaseException) -> None:
        """Notes why it cannot be loaded."""
        self.failure = error
        self.lowered = None

    def answer(self, found: Found, artifact: Any, *, from_store: bool = False) -> None:
        """Notes the artifact and where it is from."""
        self.found = found
        self.artifact = artifact
        self.is_from_store = from_store
        self.lowered = None

    def renew_after_fork(self) -> None:
        """In a forked child: the threads that drive it and wait for it are not there, and may have held its locks."""
        self.num_waiters = 0
        has_driver = self.state is JobState.ACTIVE
        if has_driver:
            self.state = JobState.ABANDONED
        is_settled, self.done = has_driver or self.done.is_set(), threading.Event()
        if is_settled:
            self.done.set()

    def start_afresh(self) -> None:
        """Takes back an answer that the device refused: now it has to be compiled."""
        self.found = None
        self.artifact = None
        self.is_from_store = False
        self.is_fresh = True
