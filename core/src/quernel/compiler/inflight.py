"""Kernels in flight: one job per id, and who leads where several jobs would make the same artifact."""

from __future__ import annotations

import enum
import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from quernel.compiler.artifacts import ArtifactHeader, ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.guarded_target import SharedLoad

if TYPE_CHECKING:
    from quernel.compiler.recording import CompilationRecording
    from quernel.identity import IrKey
    from quernel.store import Environment

__all__ = ["Found", "Job", "JobState", "LoadedKernel", "TableKey"]

VariantT = TypeVar("VariantT")
LoadedT = TypeVar("LoadedT")

TableKey = tuple["Environment | None", Hashable]
"""The key of the loader's tables: the environment, and an id, an IR key or a source's digest."""


@attrs.frozen(eq=False)
class LoadedKernel(Generic[VariantT, LoadedT]):
    """A kernel that can be launched.

    Attributes:
        id: what it was asked for by.
        header: all that a launch needs besides.
        loaded: the backend's own object; kernels with equal artifacts share it.
        digest: the artifact's.
    """

    id: ArtifactId[VariantT]
    header: ArtifactHeader
    loaded: LoadedT
    digest: str
    _shared: SharedLoad[LoadedT] = attrs.field(repr=False)


class JobState(enum.Enum):
    """Where a job ends."""

    ACTIVE = "active"
    LOADED = "loaded"
    FAILED = "failed"
    ABANDONED = "abandoned"
    """Its driver was interrupted; whoever waits drives it anew."""


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


@attrs.define(eq=False)
class Job:
    """One kernel on its way from an id to being loaded. Its driver owns all of it; others read after `done`.

    Attributes:
        num_waiters: threads that wait for it, or drive it for themselves; under the tables' lock. While it is 0,
            nobody has launched the kernel yet, so a failure has to wait for that.
        is_storable: whether what is compiled from it may be kept and looked up by its IR.
        is_expanded: whether its IR is there, or it has none.
        is_fresh: nothing may be looked up any more, as the device refused what was kept.
        leader: the job whose artifact this one waits for.
        is_from_store: whether the artifact was kept, so that a refusal by the device is no failure yet.
    """

    definition: KernelDefinition
    id: ArtifactId[Any]
    environment: Environment | None
    num_waiters: int = 0
    done: threading.Event = attrs.field(factory=threading.Event)
    state: JobState = JobState.ACTIVE
    failure: BaseException | None = None
    kernel: LoadedKernel[Any, Any] | None = None
    started_ns: int = 0
    duration_ns: int = 0
    worker: str = ""
    why_missed: tuple[str, ...] = ()
    is_storable: bool = True
    is_expanded: bool = False
    is_fresh: bool = False
    leader: Job | None = None
    found: Found | None = None
    is_from_store: bool = False
    ir_key: IrKey | None = None
    source: str | None = None
    lowered: Any = None
    artifact: Any = None
    shared: SharedLoad[Any] | None = None
    recording: CompilationRecording | None = None

    @property
    def key(self) -> TableKey:
        """Its key in the tables of what is loaded, queued and in flight."""
        return (self.environment, self.id)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.id.kernel.name

    @property
    def is_settled(self) -> bool:
        """Whether it has ended, and who waits knows."""
        return self.done.is_set()

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

    def start_afresh(self) -> None:
        """Takes back an answer that the device refused: now it has to be compiled."""
        self.found = None
        self.artifact = None
        self.is_from_store = False
        self.is_fresh = True
