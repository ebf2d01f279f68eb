"""One batch: from ids to loaded kernels in six steps, driven by the thread that asked for it.

`GuardedTarget` takes the target lock for one method at a time; nothing here holds a lock while it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quernel.compiler.inflight import Found, Job, JobState, LoadedKernel
from quernel.compiler.telling import RecordSink, Telling, logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from quernel.compiler.groups import Groups
    from quernel.compiler.guarded_target import GuardedTarget
    from quernel.compiler.key_locks import KeyLocks
    from quernel.compiler.reporting import Progress
    from quernel.compiler.results import JobResult, JobStage
    from quernel.compiler.stages import GroupStep, JobStep
    from quernel.compiler.tables import LoaderTables
    from quernel.settings import RecordsLevel
    from quernel.store import Environment

__all__ = ["Batch"]


class Batch:
    """Drives jobs of one environment to their ends. The thread that calls `run` owns them."""

    def __init__(
        self,
        jobs: list[Job],
        *,
        tables: LoaderTables,
        target: GuardedTarget[Any, Any, Any],
        environment: Environment | None,
        workers: Executor | None,
        records: RecordSink,
        level: RecordsLevel,
        may_compile: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """Jobs to drive; without `may_compile`, those that the store does not answer are refused."""
        self._jobs = jobs
        self._tables = tables
        self._target = target
        self._compiler = target.target.compiler
        self._environment = environment
        self._given_workers = workers
        self._level = level
        self._may_compile = may_compile
        self._telling = Telling(jobs, tables, environment=environment, records=records, level=level, progress=progress)
        self._locks: KeyLocks | None = None
        self._num_workers = 0
        self._persists = False
        self._groups: Groups | None = None

    def run(self) -> None:
        """Settles every job; failures are theirs. Raises only what interrupts the thread."""
        missed = self._look_up()
        if missed and self._persists and self._may_compile:
            self._make_with_locks(missed)
        else:
            self._make(missed)
        self._telling.records(self._num_workers, self._compiler.target_info)

    def _make_with_locks(self, missed: list[Job]) -> None:
        """Makes what no other process makes, then looks again for what others made, and makes what they did not."""
        from quernel.compiler.key_locks import KeyLocks

        self._locks = KeyLocks(self._environment)
        try:
            while missed:
                taken = self._locks.take(missed, lambda job: self._target.lock_name(job.id))
                missed = [job for job in missed if job not in taken]
                self._make(self._looked_up_again(taken))
        finally:
            self._locks.release_all()

    def _make(self, jobs: list[Job]) -> None:
        """Settles jobs that the store did not answer. Waits for no lock: other batches may wait for these jobs."""
        unanswered = jobs
        while unanswered:
            self._compile(unanswered)
            unanswered = [job for job in unanswered if not self._land(job)]
            unanswered = [job for job in unanswered if job.leader is None]
        self._follow(jobs)

    # --- step 1: by id ------------------------------------------------------------------------------------------------

    def _look_up(self) -> list[Job]:
        """Asks the store for each job in order, then loads the hits; what is left has to be compiled."""
        for job in self._jobs:
            self._seek_by_id(job, self._target.stored)
        missed = [job for job in self._jobs if not (job.is_answered and self._land(job))]
        if missed:
            self._persists = self._target.persists(self._environment)
            if self._persists:
                for job in missed:
                    job.why_missed = job.why_missed or self._target.why_missed(self._environment, job.id)
        return missed

    def _looked_up_again(self, jobs: list[Job]) -> list[Job]:
        """What is still missed by those whose locks were taken: another process may have kept it just before."""
        assert self._locks is not None
        for job in jobs:
            if not job.is_fresh and self._locks.holds(job):
                self._seek_by_id(job, self._target.stored_meanwhile)
        return [job for job in jobs if not (job.is_answered and self._land(job))]

    def _seek_by_id(self, job: Job, stored: Callable[[Environment | None, Any], Any]) -> None:
        try:
            with job.stage("look up"):
                artifact = stored(self._environment, job.id)
        except Exception as error:
            job.fail(error)
        else:
            if artifact is not None:
                job.answer(Found.STORED, artifact, from_store=True)

    # --- steps 2 to 4: by IR, by source, by compiling -----------------------------------------------------------------

    def _compile(self, jobs: list[Job]) -> None:
        """Takes each job as far as an artifact, a failure or a leader to wait for."""
        from quernel.compiler import executors

        self._groups = self._new_groups(len(jobs))
        steps = [step for job in jobs if (step := self._next_step(job)) is not None]
        while steps:
            num_workers = executors.run_steps(self._compiler, steps, self._advance, self._given_workers)
            self._num_workers = max(self._num_workers, num_workers)
            steps = [] if self._groups is None else self._groups.rest()

    def _new_groups(self, num_jobs: int) -> Groups | None:
        if num_jobs < 2 or self._compiler.group_size < 2:
            return None
        from quernel.compiler.groups import Groups

        return Groups(self._compiler, is_full=self._level == "full")

    def _next_step(self, job: Job) -> JobStep | GroupStep | None:
        """What a worker has to do next for a job, if anything; the store is asked first where it can answer."""
        from quernel.compiler.results import JobStage
        from quernel.compiler.stages import JobStep

        try:
            stage = None if job.is_answered else self._next_stage(job)
            if stage is None:
                return None
            step: JobStep | GroupStep | None = JobStep(self._compiler, job, stage, self._level == "full")
            if self._groups is not None and stage is JobStage.FINALIZE:
                step = self._groups.grouped(job)
        except Exception as error:
            job.fail(error)
            return None
        return step

    def _next_stage(self, job: Job) -> JobStage | None:
        from quernel.compiler.results import JobStage

        if job.is_fresh:
            self._refuse_to_compile(job)
            return JobStage.COMPILE
        if job.lowered is not None:
            if self._persists and job.is_storable:
                self._seek_by_source(job)
            return None if job.is_answered else JobStage.FINALIZE
        if not job.is_expanded and job.definition.foreign is None:
            return JobStage.EXPAND
        if job.ir_key is not None:
            self._seek_by_ir(job)
            if job.is_answered:
                return None
        self._refuse_to_compile(job)
        is_looked_up = self._persists and job.is_storable
        return JobStage.LOWER if is_looked_up or self._groups is not None else JobStage.COMPILE

    def _refuse_to_compile(self, job: Job) -> None:
        """Raises where this batch's context compiles nothing."""
        if self._may_compile:
            return
        from quernel.compiler.failures import not_compiled

        job.is_refused = True
        raise not_compiled(job, self._compiler.target_info, self._environment, self._persists)

    def _seek_by_ir(self, job: Job) -> None:
        """Finds a leader of equal IR, or becomes it and asks the store, then what is loaded."""
        assert job.ir_key is not None
        job.leader = self._tables.lead(job, job.ir_key)
        if job.leader is None:
            with job.stage("look up"):
                artifact = self._target.stored_for_ir(self._environment, job.ir_key) if self._persists else None
            if artifact is not None:
                job.answer(Found.IR, artifact, from_store=True)
            else:
                job.shared = self._tables.loaded_for_ir(job)
                if job.shared is not None:
                    job.answer(Found.IR, None)

    def _seek_by_source(self, job: Job) -> None:
        """Finds a leader of an equal source, or becomes it and asks the store."""
        assert job.source is not None
        job.leader = self._tables.lead(job, job.source)
        if job.leader is None:
            with job.stage("look up"):
                artifact = self._target.stored_for_source(self._environment, job.source)
            if artifact is not None:
                job.answer(Found.SOURCE, artifact, from_store=True)

    def _advance(self, step: JobStep | GroupStep, result: object) -> JobStep | GroupStep | None:
        """Takes a worker's result; what has to be done next."""
        from quernel.compiler.stages import JobStep

        if isinstance(step, JobStep):
            return self._advance_job(step.job, result)
        results = step.shared_out(result)
        if results is not None:
            for job, own in zip(step.jobs, results, strict=True):
                self._advance_job(job, own)
        elif self._groups is not None:
            self._groups.part(step.jobs)
        return None

    def _advance_job(self, job: Job, result: object) -> JobStep | GroupStep | None:
        from quernel.compiler.results import checked_result

        try:
            self._absorb(job, checked_result(self._compiler, result, job.name))
        except Exception as error:
            job.fail(error)
        self._telling.progress(job)
        return self._next_step(job)

    def _absorb(self, job: Job, result: JobResult) -> None:
        from quernel.identity import ir_key

        for level, line in result.log_lines:
            logger().log(level, "%s: %s", job.name, line)
        job.recording.absorb(result.recording)
        job.worker = result.worker
        if result.failure is not None:
            job.fail(result.failure)
            return
        if result.ir_digest is not None:
            job.is_expanded = True
            job.is_storable = result.is_storable
            if result.is_storable and self._compiler.shares_by_ir:
                job.ir_key = ir_key(result.ir_digest, job.id.variant, self._compiler.build_id)
        job.source = result.source if result.source is not None else job.source
        job.lowered = result.lowered
        if result.artifact is not None:
            job.answer(Found.MADE, result.artifact)

    # --- step 5: onto the device --------------------------------------------------------------------------------------

    def _land(self, job: Job) -> bool:
        """Loads, stores and settles an answered job; `False`: it has a leader, or has to be compiled after all."""
        if job.leader is not None:
            return False
        if job.failure is None:
            try:
                self._telling.artifact(job)
                if not self._load(job):
                    return False
            except Exception as error:
                job.fail(error)
        if job.failure is None and job.found is Found.MADE:
            self._telling.compiled(job, self._compiler.target_info)
        failed = JobState.ABANDONED if job.is_refused else JobState.FAILED
        self._tables.settle(job, JobState.LOADED if job.failure is None else failed)
        if self._locks is not None:
            self._locks.release(job)
        self._telling.progress(job)
        return True

    def _load(self, job: Job) -> bool:
        """Loads the artifact, then keeps it unless it was kept under this id; `False`: a kept one was refused."""
        try:
            with job.stage("load"):
                shared = job.shared = job.shared or self._target.load(self._environment, job.id, job.artifact)
        except Exception as refusal:
            if not job.is_from_store:
                raise
            logger().warning("compiling %s anew, as the device refused the stored artifact: %s", job.name, refusal)
            job.why_missed = ("refused by the device",)
            job.start_afresh()
            return False
        if job.is_fresh:  # Only now is it sure that what was kept was to blame, and not the device.
            self._target.drop(self._environment, job.id)
        job.kernel = LoadedKernel(job.id, shared)
        if job.found is not Found.STORED and job.artifact is not None and self._may_keep(job):
            with job.stage("store"):  # which logs instead of failing
                self._target.store(self._environment, job.id, job.artifact, job.source, job.ir_key)
        return True

    def _may_keep(self, job: Job) -> bool:
        """Whether the environment keeps artifacts, and this one is what its id and build id say."""
        if not (self._persists and job.is_storable):
            return False
        from quernel.identity.build import sources_are_unchanged

        if sources_are_unchanged():
            return True
        logger().warning("%s is not kept, as sources of Quernel have changed since they were imported", job.name)
        return False

    def _follow(self, jobs: list[Job]) -> None:
        """Settles the jobs that wait for others, here or in other batches, once the rest of them is settled.

        Who waits by its source comes first: another batch may wait for it by its IR, and never the other way round.
        """
        followers = [job for job in jobs if not job.is_settled]
        for job in sorted(followers, key=lambda job: job.source is None):
            while not job.is_settled:
                if job.leader is not None:
                    self._take_from_leader(job, job.leader)
                if not job.is_answered:
                    self._compile([job])
                self._land(job)

    def _take_from_leader(self, job: Job, leader: Job) -> None:
        """Waits for the leader and takes over its artifact or failure; if that was abandoned, the job goes on alone."""
        leader.done.wait()
        job.leader = None
        if leader.state is JobState.FAILED and leader.failure is not None:
            job.fail(leader.failure)
        elif leader.state is JobState.LOADED:
            job.shared = leader.shared
            job.answer(Found.IR if job.source is None else Found.SOURCE, leader.artifact)
