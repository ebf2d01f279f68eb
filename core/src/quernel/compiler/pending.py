"""A kernel that was asked for, until it is loaded or cannot be."""

from __future__ import annotations

import enum
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.inflight import Job, JobState, LoadedKernel
from quernel.compiler.reentrancy import is_compiling_allowed, refuse_while_compiling

if TYPE_CHECKING:
    from quernel.compiler.loader import KernelLoader

__all__ = ["Pending", "PendingState"]

VariantT = TypeVar("VariantT")
LoadedT = TypeVar("LoadedT")


class PendingState(enum.Enum):
    """Where a request stands. The last three are ends."""

    REQUESTED = "requested"
    """Queued: the next batch compiles it, whoever starts that."""
    BUILDING = "building"
    """A thread compiles or loads it."""
    LOADED = "loaded"
    FAILED = "failed"
    ABANDONED = "abandoned"
    """The thread that compiled it was interrupted while nobody waited, or its environment was closed."""


_STATES = {
    JobState.QUEUED: PendingState.REQUESTED,
    JobState.ACTIVE: PendingState.BUILDING,
    JobState.LOADED: PendingState.LOADED,
    JobState.FAILED: PendingState.FAILED,
    JobState.ABANDONED: PendingState.ABANDONED,
}


@final
class Pending(Generic[VariantT, LoadedT]):
    """One kernel that was requested. Any thread may ask for its state or wait for it; `await` works in `asyncio`.

    Attributes:
        id: what was asked for.
    """

    __slots__ = ("__weakref__", "_job", "_kernel", "_loader", "id")

    def __init__(
        self,
        loader: KernelLoader[VariantT, Any, LoadedT],
        id: ArtifactId[VariantT],  # noqa: A002 — the design's name
        found: LoadedKernel[VariantT, LoadedT] | Job,
    ) -> None:
        self.id = id
        self._loader = loader
        self._job = found if isinstance(found, Job) else None
        self._kernel = None if isinstance(found, Job) else found

    def __repr__(self) -> str:
        return f"<kernel {self.name} on {self._loader.name}, {self.state.value}>"

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.id.kernel.name

    @property
    def state(self) -> PendingState:
        """Where it stands now. An end never changes."""
        return PendingState.LOADED if self._job is None else _STATES[self._job.last.state]

    @property
    def is_done(self) -> bool:
        """Whether it has ended, one way or another, so that `result` does not wait."""
        return self._job is None or self._job.last.is_settled

    def result(self) -> LoadedKernel[VariantT, LoadedT]:
        """The loaded kernel, each time the same. Blocks; what nobody compiles yet is compiled here, with the queue.

        Raises:
            QuernelError: that kernel's own error, each time.
            CompilationError: it was abandoned.
            LaunchError: the calling thread is part of a compilation, or the kernel would have to be compiled within
                `no_compiling()`; it stays requested then, if others wait for it.
        """
        if self._kernel is not None:
            refuse_while_compiling(f"wait for {self.name}")
            return self._kernel
        assert self._job is not None
        return self._loader.finish(self._job)

    def start(self) -> None:
        """Has it compiled by another thread, together with all that is queued; returns at once.

        Nothing happens if some thread is at it, and within `no_compiling()`, where only `result` looks in the store.
        """
        if self.state is PendingState.REQUESTED and is_compiling_allowed():
            self._loader.compile_in_background()

    def __await__(self) -> Generator[Any, None, LoadedKernel[VariantT, LoadedT]]:
        """Waits without blocking the event loop, which is one of `asyncio`; compiles on other threads.

        Raises:
            QuernelError: as `result`.
        """
        if not self.is_done and (is_compiling_allowed() or self.state is PendingState.BUILDING):
            import asyncio
            import contextlib

            loop = asyncio.get_running_loop()
            ended: asyncio.Future[None] = loop.create_future()

            def wake() -> None:
                if not ended.done():
                    ended.set_result(None)

            def tell() -> None:
                with contextlib.suppress(RuntimeError):  # the loop has been closed
                    loop.call_soon_threadsafe(wake)

            assert self._job is not None
            self._loader.when_settled(self._job, tell)
            self.start()
            yield from ended
        return self.result()
