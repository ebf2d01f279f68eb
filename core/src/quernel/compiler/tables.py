"""What a loader knows: kernels loaded, queued, failed and in flight. One lock, held for look-ups only."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from quernel.compiler.definition import KernelDefinition
from quernel.compiler.guarded_target import SharedLoad
from quernel.compiler.inflight import Job, JobState, LoadedKernel, TableKey

if TYPE_CHECKING:
    from quernel.store import Environment

__all__ = ["LoaderTables"]


class LoaderTables:
    """The tables of one loader, by environment and id. Any thread.

    Attributes:
        loaded: what can be launched. Reading it needs no lock.
    """

    def __init__(self) -> None:
        self.loaded: dict[TableKey, LoadedKernel[Any, Any]] = {}
        self._lock = threading.Lock()
        self._queued: dict[TableKey, KernelDefinition] = {}
        self._failed: dict[TableKey, BaseException] = {}
        self._in_flight: dict[TableKey, Job] = {}
        self._leaders: dict[TableKey, Job] = {}
        self._loaded_for_ir: dict[TableKey, SharedLoad[Any]] = {}

    def enqueue(self, key: TableKey, definition: KernelDefinition) -> bool:
        """Queues a kernel for the next batch of its environment; `False` if it is loaded, queued or in flight."""
        with self._lock:
            if key in self.loaded or key in self._queued or key in self._in_flight:
                return False
            self._failed.pop(key, None)
            self._queued[key] = definition
            return True

    def join(
        self, key: TableKey, definition: KernelDefinition, batch: list[Job]
    ) -> LoadedKernel[Any, Any] | BaseException | Job:
        """The loaded kernel, or the failure that has waited for this launch, or the job that will tell.

        A job that is in `batch` afterwards is for the caller to drive, and so is the rest of `batch`: the queue. Every
        job returned counts the caller as a waiter.
        """
        with self._lock:
            found = self.loaded.get(key) or self._failed.pop(key, None) or self._in_flight.get(key)
            if found is None:
                self._queued.setdefault(key, definition)
                self._take_queue(key[0], batch)
                found = self._in_flight[key]
            if isinstance(found, Job):
                found.num_waiters += 1
            return found

    def leave(self, job: Job) -> None:
        """Says that a waiter was interrupted."""
        with self._lock:
            job.num_waiters -= 1

    def drain(self, environment: Environment | None, batch: list[Job]) -> None:
        """Turns the queue of an environment into jobs for the caller to drive."""
        with self._lock:
            self._take_queue(environment, batch)

    def lead(self, job: Job, what: object) -> Job | None:
        """The job in flight that leads for the same IR key or source, or `None`: this one leads until it is settled."""
        with self._lock:
            leader = self._leaders.setdefault((job.environment, what), job)
            return None if leader is job else leader

    def loaded_for_ir(self, job: Job) -> SharedLoad[Any] | None:
        """What equal IR became on the device in this process."""
        with self._lock:
            return self._loaded_for_ir.get((job.environment, job.ir_key))

    def settle(self, job: Job, state: JobState) -> None:
        """Ends a job: its kernel is published, or its failure kept for its own launch, and who waits goes on."""
        with self._lock:
            if state is JobState.LOADED and job.kernel is not None:
                if job.environment is None or not job.environment.is_closed:
                    self.loaded[job.key] = job.kernel
                    if job.ir_key is not None and job.shared is not None:
                        self._loaded_for_ir[job.environment, job.ir_key] = job.shared
            elif state is JobState.FAILED and job.failure is not None and not job.num_waiters:
                self._failed[job.key] = job.failure
            if self._in_flight.get(job.key) is job:
                del self._in_flight[job.key]
            for what in (job.ir_key, job.source):
                if what is not None and self._leaders.get((job.environment, what)) is job:
                    del self._leaders[job.environment, what]
            # Last, so that an interrupt before here leaves a job that its driver still has to end.
            job.state = state
            job.done.set()

    def forget(self, environment: Environment) -> None:
        """Drops all that belongs to an environment; what is in flight in it ends, but is not kept."""
        with self._lock:
            tables: tuple[dict[TableKey, Any], ...] = (self.loaded, self._queued, self._failed, self._loaded_for_ir)
            for table in tables:
                for key in [key for key in table if key[0] is environment]:
                    del table[key]

    def renew_after_fork(self) -> None:
        """A new lock; what other threads of the parent had in flight never ends here."""
        self._lock = threading.Lock()
        self._in_flight = {}
        self._leaders = {}

    def _take_queue(self, environment: Environment | None, batch: list[Job]) -> None:
        for key in [key for key in self._queued if key[0] is environment]:
            # In `batch` before it is in flight: whatever interrupts this thread, its driver knows of it.
            job = Job(self._queued[key], key[1], environment)  # type: ignore[arg-type]  # queued keys hold ids
            batch.append(job)
            self._in_flight[key] = job
            del self._queued[key]
