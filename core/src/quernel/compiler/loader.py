"""The loader of one device: alone owns what is loaded, and makes what is not."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quernel.compiler.guarded_target import GuardedTarget
from quernel.compiler.inflight import Job, JobState, LoadedKernel
from quernel.compiler.reentrancy import (
    Compiling,
    is_compiling_allowed,
    refuse_not_compiling,
    refuse_while_compiling,
)
from quernel.compiler.tables import LoaderTables
from quernel.errors import CompilationError, LaunchError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from quernel.compiler.artifacts import ArtifactId
    from quernel.compiler.definition import KernelDefinition
    from quernel.compiler.halves import CompilationTarget
    from quernel.compiler.registrations import RegistrationCounts
    from quernel.compiler.reporting import Progress, Reporter
    from quernel.compiler.telling import RecordSink
    from quernel.settings import RecordsLevel
    from quernel.store import CompilationBatchRecord, CompilationRecord, Environment

__all__ = ["KernelLoader", "LoadedKernel"]

VariantT = TypeVar("VariantT")
ArtifactT = TypeVar("ArtifactT")
LoadedT = TypeVar("LoadedT")


class KernelLoader(Generic[VariantT, ArtifactT, LoadedT]):
    """Loads kernels on one device, compiling what is not stored. Any thread may call; a hit takes no lock."""

    def __init__(
        self,
        target: CompilationTarget[VariantT, ArtifactT, LoadedT],
        *,
        workers: Executor | None = None,
        environment: Callable[[], Environment | None] | None = None,
        records: RecordSink | None = None,
        name: str = "",
    ) -> None:
        """A loader for the device of `target`, which it calls under its lock from now on.

        Args:
            target: the half that stays with the device.
            workers: where batches compile; by default on threads of this process, and a lone kernel on the calling
                thread.
            environment: reads the caller's environment, `None` for keeping nothing; by default the current one, and
                none where the settings forbid caching.
            records: takes the records of each closed batch; by default they go to the environment's log.
            name: the device's, for messages; by default what the compiler says that it compiles for.
        """
        self.target = target
        self.workers = workers
        self._guarded = GuardedTarget(target, name)
        self._tables = LoaderTables()
        self._loaded = self._tables.loaded
        self._environment = environment if environment is not None else caching_environment
        self._records = records
        self._known_environments: weakref.WeakSet[Environment] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._loaded)

    @property
    def name(self) -> str:
        """The device's name, for messages."""
        return self._guarded.name

    @property
    def target_lock(self) -> threading.Lock:
        """Whoever holds it is the device's thread. Held for one method of the target at a time."""
        return self._guarded.lock

    def counts(self) -> RegistrationCounts:
        """How many kernels were registered here, and what became of them, counted at one moment. Any thread."""
        return self._tables.counts()

    def check(self, kernel: LoadedKernel[Any, Any]) -> None:
        """Raises unless the kernel was loaded here: the objects of one device mean nothing to another.

        Raises:
            LaunchError: it was loaded on another device.
        """
        owner = kernel.owner
        if owner is not self._guarded:
            raise LaunchError(
                f"kernel {kernel.id.kernel.name} is loaded on {owner.name}, not on {self.name}",
                fix="ask the device that is to run it: device.kernels.get(...)",
            )

    def load(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[VariantT],  # noqa: A002 — the design's name
        *,
        reporters: tuple[Reporter, ...] = (),
    ) -> LoadedKernel[VariantT, LoadedT]:
        """The loaded kernel; what is missing is compiled, in one batch with all that is queued.

        Within `no_compiling()` nothing is compiled, and the queue is left alone.

        Raises:
            QuernelError: why this kernel cannot be lowered, compiled or loaded. The next call tries again.
            LaunchError: the calling thread is part of a compilation, or its context compiles nothing.
        """
        refuse_while_compiling(f"load {id.kernel.name}")
        environment = self._environment()
        found = self._loaded.get((environment, id))
        return found if found is not None else self._load_missing(kernel, id, environment, reporters)

    def enqueue(self, kernel: KernelDefinition, id: ArtifactId[VariantT]) -> bool:  # noqa: A002
        """Queues a kernel for the next batch; whether it was news. Compiles nothing."""
        return self.request(kernel, id)[1]

    def request(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[VariantT],  # noqa: A002
        *,
        reporters: tuple[Reporter, ...] = (),
    ) -> tuple[LoadedKernel[VariantT, LoadedT] | Job, bool]:
        """The loaded kernel, or the job that will end with it, and whether that was queued just now."""
        environment = self._environment()
        self._watch(environment)
        return self._tables.request((environment, id), kernel, reporters)

    def compile_queued(self, *, workers: Executor | None = None, progress: Progress | None = None) -> int:
        """Compiles and loads what is queued, as one batch; how many kernels of it are loaded now.

        A failure is not raised here but at that kernel's own launch, once.

        Args:
            workers: where this batch compiles, instead of the loader's own.
            progress: is told as each kernel is found, compiled or has failed.

        Raises:
            LaunchError: the calling thread is part of a compilation, or its context compiles nothing.
        """
        refuse_while_compiling("compile what is queued")
        return self._compile_queue(self._environment(), workers, progress)

    def compile_in_background(self) -> None:
        """Has what is queued compiled by another thread, beside what others compile; returns at once.

        While the process ends, the calling thread does it.
        """
        from quernel.compiler.background import run_in_background

        refuse_not_compiling("compile what is queued")
        environment = self._environment()
        run_in_background(lambda: self._compile_queue(environment, None, None))

    def finish(self, job: Job) -> LoadedKernel[VariantT, LoadedT]:
        """The kernel of a job that `request` gave: driven here together with the queue, or waited for.

        Raises:
            QuernelError: that kernel's own error.
            CompilationError: nobody will end it, as its driver was interrupted or its environment was closed.
            LaunchError: the calling thread is part of a compilation, or its context compiles nothing.
        """
        refuse_while_compiling(f"wait for {job.name}")
        job = job.last
        while not job.is_settled:
            self._attend(job)
            if job.is_refused and job.failure is not None:
                raise _own(job.failure)
            job = job.last
        if job.state is JobState.LOADED and job.kernel is not None:
            return job.kernel
        if job.state is JobState.FAILED and job.failure is not None:
            self._tables.reported(job.failure, job.key)
            raise _own(job.failure)
        raise CompilationError(
            f"kernel {job.name} was abandoned before it was compiled: the thread that compiled it was interrupted, "
            "or its environment was closed",
            fix="ask for it again",
        )

    def when_settled(self, job: Job, callback: Callable[[], object]) -> None:
        """Calls back once the job has ended, on the thread that ends it; at once if it has. MUST be short."""
        self._tables.when_settled(job, callback)

    def _attend(self, job: Job) -> None:
        """Waits for the job, driving it if nobody does."""
        batch: list[Job] = []
        try:
            self._tables.wait_for(job, batch, alone=not is_compiling_allowed())
            if batch:
                self._drive(batch, job.environment)
        finally:
            self._abandon(batch)
        self._wait(job)

    def _load_missing(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[VariantT],  # noqa: A002
        environment: Environment | None,
        reporters: tuple[Reporter, ...],
    ) -> LoadedKernel[VariantT, LoadedT]:
        self._watch(environment)
        while True:
            batch: list[Job] = []
            try:
                if reporters:
                    self._tables.request((environment, id), kernel, reporters)
                found = self._tables.join((environment, id), kernel, batch, alone=not is_compiling_allowed())
                if batch:
                    self._drive(batch, environment)
            finally:
                self._abandon(batch)
            if isinstance(found, BaseException):
                raise _own(found)
            if isinstance(found, LoadedKernel):
                return found
            self._wait(found)
            if found.failure is not None and (found.state is JobState.FAILED or (found.is_refused and found in batch)):
                raise _own(found.failure)
            if found.state is JobState.LOADED and found.kernel is not None:
                return found.kernel
            # The job was abandoned by its driver: the next round finds another driver's, or drives it here.

    def _compile_queue(
        self, environment: Environment | None, workers: Executor | None, progress: Progress | None
    ) -> int:
        refuse_not_compiling("compile what is queued")
        batch: list[Job] = []
        try:
            self._tables.drain(environment, batch)
            self._drive(batch, environment, workers, progress)
        finally:
            self._abandon(batch)
        return sum(job.state is JobState.LOADED for job in batch)

    def _wait(self, job: Job) -> None:
        try:
            job.done.wait()
        except BaseException:
            self._tables.leave(job)
            raise

    def _drive(
        self,
        batch: list[Job],
        environment: Environment | None,
        workers: Executor | None = None,
        progress: Progress | None = None,
    ) -> None:
        if not batch:
            return
        from quernel import settings
        from quernel.compiler.batch import Batch

        more = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
        with Compiling(f"loading {batch[0].name}{more}"):
            Batch(
                batch,
                tables=self._tables,
                target=self._guarded,
                environment=environment,
                workers=workers if workers is not None else self.workers,
                may_compile=is_compiling_allowed(),
                progress=progress,
                records=self._records if self._records is not None else _append_to_log,
                level=settings.records_level(),
            ).run()

    def _abandon(self, batch: list[Job]) -> None:
        for job in batch:
            if not job.is_settled:
                self._tables.settle(job, JobState.ABANDONED)

    def _watch(self, environment: Environment | None) -> None:
        """Forgets, when the environment closes, what was loaded from it."""
        if environment is None or environment in self._known_environments:
            return
        self._known_environments.add(environment)
        tables = weakref.ref(self._tables)

        def forget(closing: Environment) -> None:
            kept = tables()
            if kept is not None:
                kept.forget(closing)

        environment.when_closed(forget)


def _own(failure: BaseException) -> BaseException:
    from quernel.compiler.failures import own_copy

    return own_copy(failure)


def _append_to_log(
    environment: Environment | None,
    records: Sequence[CompilationRecord],
    batch: CompilationBatchRecord,
    level: RecordsLevel,
) -> None:
    from quernel.compiler.records import append_records

    append_records(environment, records, batch, level)


def caching_environment() -> Environment | None:
    """The current environment, or `None` where the settings forbid caching."""
    from quernel import settings
    from quernel.store import current_environment

    return None if settings.no_cache() else current_environment()
