"""What a loader knows: kernels loaded, queued, failed and in flight. One lock, held for look-ups only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quernel.compiler.definition import KernelDefinition
from quernel.compiler.guarded_target import SharedLoad
from quernel.compiler.inflight import Found, Job, JobState, LoadedKernel, TableKey
from quernel.forks import renewed

if TYPE_CHECKING:
    from quernel.compiler.registrations import RegistrationCounts
    from quernel.compiler.reporting import Reporter
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
        self._queued: dict[TableKey, Job] = {}
        self._failed: dict[TableKey, BaseException] = {}
        self._in_flight: dict[TableKey, Job] = {}
        self._leaders: dict[TableKey, Job] = {}
        self._loaded_for_ir: dict[TableKey, SharedLoad[Any]] = {}
        self._num_registered = 0
        self._num_compiled = 0
        self._num_loaded = 0
        self._num_failed = 0
        renewed(self)

    # --- registering --------------------------------------------------------------------------------------------------

    def request(
        self, key: TableKey, definition: KernelDefinition, reporters: tuple[Reporter, ...] = ()
    ) -> tuple[LoadedKernel[Any, Any] | Job, bool]:
        """The loaded kernel, or the job that will end with it, and whether that was queued just now."""
        with self._lock:
            kernel = self.loaded.get(key)
            if kernel is not None:
                return kernel, False
            job = self._in_flight.get(key) or self._queued.get(key)
            is_news = job is None
            if job is None:
                self._failed.pop(key, None)
                job = self._queued[key] = self._registered(key, definition)
            _add_reporters(job, reporters)
            return job, is_news

    def join(
        self, key: TableKey, definition: KernelDefinition, batch: list[Job], *, alone: bool = False
    ) -> LoadedKernel[Any, Any] | BaseException | Job:
        """The loaded kernel, or the failure that has waited for this launch, or the job that will tell.

        A job that is in `batch` afterwards is for the caller to drive, and so is the rest of `batch`: the queue, unless
        the caller drives `alone`. Every job returned counts the caller as a waiter.
        """
        with self._lock:
            found = self.loaded.get(key) or self._failed.pop(key, None) or self._in_flight.get(key)
            if found is None:
                if key not in self._queued:
                    self._queued[key] = self._registered(key, definition)
                found = self._queued[key]
            if isinstance(found, Job):
                self._await(found, batch, alone)
            return found

    def wait_for(self, job: Job, batch: list[Job], *, alone: bool = False) -> None:
        """Counts the caller as a waiter; a job that was queued is in `batch` afterwards, as for `join`."""
        with self._lock:
            self._await(job, batch, alone)

    def leave(self, job: Job) -> None:
        """Says that a waiter was interrupted."""
        with self._lock:
            job.num_waiters -= 1

    def drain(self, environment: Environment | None, batch: list[Job]) -> None:
        """Turns the queue of an environment into jobs for the caller to drive."""
        with self._lock:
            self._take_queue(environment, batch)

    def reported(self, failure: BaseException, key: TableKey) -> None:
        """Says that somebody was told of a failure, which then need not wait for a launch."""
        with self._lock:
            if self._failed.get(key) is failure:
                del self._failed[key]

    def counts(self) -> RegistrationCounts:
        """How many registrations stand where, at one moment."""
        from quernel.compiler.registrations import RegistrationCounts

        with self._lock:
            queued, building = len(self._queued), len(self._in_flight)
            compiled, loaded, failed = self._num_compiled, self._num_loaded, self._num_failed
            registered = self._num_registered
        # What an interrupt kept from being counted as anything else was abandoned.
        abandoned = registered - queued - building - compiled - loaded - failed
        return RegistrationCounts(queued, building, compiled, loaded, failed, abandoned)

    # --- driving ------------------------------------------------------------------------------------------------------

    def lead(self, job: Job, what: object) -> Job | None:
        """The job in flight that leads for the same IR key or source, or `None`: this one leads until it is settled."""
        with self._lock:
            leader = self._leaders.setdefault((job.environment, what), job)
            return None if leader is job else leader

    def loaded_for_ir(self, job: Job) -> SharedLoad[Any] | None:
        """What equal IR became on the device in this process."""
        with self._lock:
            return self._loaded_for_ir.get((job.environment, job.ir_key))

    def reporters(self, job: Job) -> tuple[Reporter, ...]:
        """Whom to tell of a job's artifact; nobody the next time."""
        if not job.reporters:
            return ()
        with self._lock:
            reporters, job.reporters = job.reporters, ()
            return reporters

    def when_settled(self, job: Job, callback: Callable[[], object]) -> None:
        """Calls back once the job, or the one that goes on for it, has ended; at once if it has. Without the lock."""
        with self._lock:
            job = job.last
            if not job.is_settled:
                job.callbacks.append(callback)
                return
        callback()

    def settle(self, job: Job, state: JobState) -> None:
        """Ends a job: its kernel is published, or its failure kept for its own launch, and who waits goes on."""
        with self._lock:
            callbacks = () if job.is_settled else self._settle(job, state)
        for callback in callbacks:
            try:
                callback()
            except Exception:
                import logging

                logging.getLogger("quernel.compiler").exception("who waited for %s could not be told", job.name)

    def _settle(self, job: Job, state: JobState) -> tuple[Callable[[], object], ...]:
        if self._in_flight.get(job.key) is job:
            del self._in_flight[job.key]
        if self._queued.get(job.key) is job:
            del self._queued[job.key]
        for what in (job.ir_key, job.source):
            if what is not None and self._leaders.get((job.environment, what)) is job:
                del self._leaders[job.environment, what]
        callbacks = tuple(job.callbacks)
        if state is JobState.LOADED and job.kernel is not None:
            if job.environment is None or not job.environment.is_closed:
                self.loaded[job.key] = job.kernel
                if job.ir_key is not None and job.shared is not None:
                    self._loaded_for_ir[job.environment, job.ir_key] = job.shared
            if job.found is Found.MADE:
                self._num_compiled += 1
            else:
                self._num_loaded += 1
        elif state is JobState.FAILED and job.failure is not None:
            if not job.num_waiters:
                self._failed[job.key] = job.failure
            self._num_failed += 1
        elif job.num_waiters > job.driver_waits and job.successor is None:
            # The same registration goes on: the first who waits finds it queued, and drives it.
            successor = job.successor = Job(job.definition, job.id, job.environment)
            successor.reporters = job.reporters
            successor.callbacks, callbacks = list(callbacks), ()
            self._queued[job.key] = successor
        # Last, so that an interrupt before here leaves a job that its driver still has to end.
        job.state = state
        job.done.set()
        return callbacks

    # --- ends ---------------------------------------------------------------------------------------------------------

    def forget(self, environment: Environment) -> None:
        """Drops all that belongs to an environment; what is in flight in it ends, but is not kept."""
        with self._lock:
            tables: tuple[dict[TableKey, Any], ...] = (self.loaded, self._failed, self._loaded_for_ir)
            for table in tables:
                for key in [key for key in table if key[0] is environment]:
                    del table[key]
            queued = [job for key, job in self._queued.items() if key[0] is environment]
        for job in queued:
            self.settle(job, JobState.ABANDONED)

    def renew_after_fork(self) -> None:
        """A new lock; what other threads of the parent had in flight never ends here."""
        self._lock = threading.Lock()
        self._in_flight, self._leaders = {}, {}
        # A thread may have been about to take one.
        self._queued = {key: job for key, job in self._queued.items() if job.state is JobState.QUEUED}

    def _registered(self, key: TableKey, definition: KernelDefinition) -> Job:
        self._num_registered += 1
        return Job(definition, key[1], key[0])  # type: ignore[arg-type]  # such keys hold ids

    def _await(self, job: Job, batch: list[Job], alone: bool) -> None:
        job.num_waiters += 1
        if job.state is JobState.QUEUED:
            job.driver_waits = True
            if alone:
                self._take(job, batch)
            else:
                self._take_queue(job.environment, batch)

    def _take_queue(self, environment: Environment | None, batch: list[Job]) -> None:
        for job in [job for key, job in self._queued.items() if key[0] is environment]:
            self._take(job, batch)

    def _take(self, job: Job, batch: list[Job]) -> None:
        # In `batch` before it is in flight: whatever interrupts this thread, its driver knows of it.
        batch.append(job)
        job.state = JobState.ACTIVE
        self._in_flight[job.key] = job
        del self._queued[job.key]


def _add_reporters(job: Job, reporters: tuple[Reporter, ...]) -> None:
    for reporter in reporters:
        if all(reporter is not known for known in job.reporters):
            job.reporters = (*job.reporters, reporter)
