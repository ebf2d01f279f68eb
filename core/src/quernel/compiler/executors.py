"""Where the stages of a batch run: on the calling thread, on a given executor, or on what the backend scales with.

The rule where no executor was given: one piece of work runs on the calling thread. Several run on threads, one per
core, if the backend scales with those. If it scales with processes, the calling thread works too: it starts processes
once what is left is sure to take longer than their start does, and goes on compiling until they are up. So a small
batch never pays for a process, and a large one never waits for one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from quernel.compiler.own_workers import compilation_processes, compilation_threads, num_cores

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from quernel.compiler.halves import ArtifactCompiler
    from quernel.compiler.processes import CompilationProcesses

__all__ = ["Step", "run_beside", "run_inline", "run_on", "run_steps"]

StepT = TypeVar("StepT", bound="Step")


class Step(Protocol):
    """A piece of work that a batch can run anywhere, and whose result leads to the next piece."""

    @property
    def is_local(self) -> bool:
        """Whether it must run in this process."""
        ...

    def task(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """The function to call and its arguments, which pickle unless the step is local."""
        ...


def run_steps(
    compiler: ArtifactCompiler[Any, Any, Any],
    steps: list[StepT],
    advance: Callable[[StepT, object], StepT | None],
    executor: Executor | None,
) -> int:
    """Runs the steps, and those that they lead to, where the rule says; `advance` is called on this thread.

    Returns how many workers had a part in it at most.
    """
    if executor is not None:
        run_on(executor, steps, advance, is_local=_is_local(executor))
        size = getattr(executor, "_max_workers", None) or num_cores()
        return min(size, len(steps))
    if len(steps) > 1 and compiler.scales_with == "processes":
        processes = compilation_processes() if _imports_elsewhere(compiler) else None
        if processes is not None:
            run_beside(processes, compiler, steps, advance)
            return min(1 + processes.num_workers, len(steps))
    elif len(steps) > 1:
        threads = compilation_threads()
        if threads is not None:
            run_on(threads, steps, advance, is_local=True)
            return min(threads.size, len(steps))
    run_inline(steps, advance)
    return 1


def run_inline(steps: list[StepT], advance: Callable[[StepT, object], StepT | None]) -> None:
    """Runs the steps, and those that they lead to, one after the other on the calling thread."""
    waiting = deque(steps)
    while waiting:
        step = waiting.popleft()
        following = advance(step, _perform(step))
        if following is not None:
            waiting.appendleft(following)


def run_on(
    executor: Executor,
    steps: list[StepT],
    advance: Callable[[StepT, object], StepT | None],
    *,
    is_local: bool,
) -> None:
    """Runs the steps, and those that they lead to, on the executor; `advance` is called on this thread as each is done.

    `is_local`: the executor's workers are threads of this process. What the executor does not take any more, because
    it was shut down, runs on the calling thread. If this thread is interrupted, what has not started never will.
    """
    from queue import SimpleQueue

    done: SimpleQueue[Future[object]] = SimpleQueue()
    running: dict[Future[object], StepT] = {}
    waiting = deque(steps)
    try:
        while waiting or running:
            if waiting:
                step = waiting.popleft()
                future = _submitted(executor, step) if is_local or not step.is_local else None
                if future is not None:
                    running[future] = step
                    future.add_done_callback(done.put)
                    continue
                result = _perform(step)
            else:
                future = done.get()
                step = running.pop(future)
                result = _perform(step) if future.cancelled() else _outcome(future)
            following = advance(step, result)
            if following is not None:
                waiting.appendleft(following)
    finally:
        for future in running:
            future.cancel()


def run_beside(
    processes: CompilationProcesses,
    compiler: ArtifactCompiler[Any, Any, Any],
    steps: list[StepT],
    advance: Callable[[StepT, object], StepT | None],
) -> None:
    """Runs the steps, and those that they lead to, on the processes and on this thread; whoever is free takes the next.

    More processes start as soon as that pays. If this thread is interrupted, what has not started never will.
    """
    from queue import SimpleQueue

    done: SimpleQueue[Future[object]] = SimpleQueue()
    queued: dict[Future[object], StepT] = {}
    waiting = deque(steps)
    pace = _Pace()
    try:
        while waiting or queued:
            if waiting and done.empty():
                step = waiting.popleft()
                future = None if step.is_local else _submitted(processes, step)
                if future is not None:
                    queued[future] = step
                    future.add_done_callback(done.put)
                    continue
                result = _perform(step)
            elif done.empty() and (taken := _taken_back(queued)) is not None:
                step = taken
                with pace:
                    result = _perform(step)
                if pace.pays_for_processes(len(queued)):
                    _grow(processes, compiler, len(queued))
            else:
                finished = done.get()
                if finished not in queued:  # taken back before
                    continue
                step = queued.pop(finished)
                result = _perform(step) if finished.cancelled() else _outcome(finished)
            following = advance(step, result)
            if following is not None:
                waiting.appendleft(following)
    finally:
        for future in queued:
            future.cancel()


def _taken_back(queued: dict[Future[object], StepT]) -> StepT | None:
    """The step queued last of those that no process has begun with, now for the calling thread to run."""
    for future in reversed(queued):
        if future.cancel():
            return queued.pop(future)
    return None


def _grow(processes: CompilationProcesses, compiler: ArtifactCompiler[Any, Any, Any], size: int) -> None:
    from quernel.compiler.warming import warm_up

    processes.grow(size, warm_up, compiler, compiler.build_id.digest)


class _Pace:
    """How long steps take on the calling thread; a context round each."""

    def __init__(self) -> None:
        self._times_s: list[float] = []

    def __enter__(self) -> None:
        self._start_s = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._times_s.append(time.perf_counter() - self._start_s)

    def pays_for_processes(self, num_left: int) -> bool:
        """Whether so many steps, done by one alone, would take longer than processes take to come up."""
        first_s, *later_s = self._times_s
        typical_s = sum(later_s) / len(later_s) if later_s else first_s - _FIRST_EXTRA_S
        return num_left * typical_s > _START_S


_FIRST_EXTRA_S = 0.2
"""The first kernel of a process takes so much longer than others, as it imports the compiler."""
_START_S = 0.6
"""A process that has the whole core takes so long to start and warm up."""


def _is_local(executor: Executor) -> bool:
    """Whether its workers are threads of this process."""
    from concurrent.futures import ThreadPoolExecutor

    from quernel.compiler.threads import CompilationThreads

    return isinstance(executor, (ThreadPoolExecutor, CompilationThreads))


def _imports_elsewhere(compiler: ArtifactCompiler[Any, Any, Any]) -> bool:
    """Whether another process can import the compiler's class: not one that the program's main module defines."""
    return type(compiler).__module__ != "__main__"


def _perform(step: Step) -> object:
    """What the step's function returns, or raises, here."""
    try:
        function, arguments = step.task()
        return function(*arguments)
    except Exception as failure:  # its own: the steps of other kernels go on
        return failure


def _submitted(executor: Executor, step: Step) -> Future[object] | None:
    """The step's future, or `None` where the calling thread is to run it: the executor has been shut down, or the step
    cannot be pickled. An executor that fails otherwise gives a failed future.
    """
    from concurrent.futures import BrokenExecutor, Future
    from pickle import PicklingError

    submit = executor.submit  # who gave something else than an executor is told so
    try:
        function, arguments = step.task()
        return submit(function, *arguments)
    except (RuntimeError, PicklingError, TypeError, AttributeError) as refusal:
        if not isinstance(refusal, BrokenExecutor):  # for which a kernel may be to blame: not to be tried here
            import logging

            logging.getLogger("quernel.compiler").debug("compiling on the calling thread: %s", refusal)
            return None
        failure: Exception = refusal
    except Exception as obstacle:
        failure = obstacle
    failed: Future[object] = Future()
    failed.set_exception(failure)
    return failed


def _outcome(future: Future[object]) -> object:
    """The future's result, or the exception itself where the worker failed."""
    error = future.exception()
    return future.result() if error is None else error
