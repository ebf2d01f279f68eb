"""Where the stages of a batch run: on the calling thread, on a pool sized to the cores, or on a given executor."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from quernel.compiler.threads import CompilationThreads

__all__ = ["Step", "compilation_threads", "num_cores", "run_inline", "run_on"]

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


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compilation_threads() -> Executor | None:
    """The process's own threads, one per core, started as work comes; `None` while the process ends."""
    global _threads
    if _is_ending:
        return None
    with _threads_lock:
        if _threads is None:
            import atexit

            from quernel.compiler.threads import CompilationThreads

            _threads = CompilationThreads(num_cores())
            atexit.register(_end)
        return _threads


_threads: CompilationThreads | None = None
_threads_lock = threading.Lock()
_is_ending = False

_END_TIMEOUT_S = 2.0


def _end() -> None:
    """Waits a little for what runs; what is queued, and what comes from here on, runs on the thread that wants it."""
    global _is_ending
    _is_ending = True
    if _threads is not None:
        _threads.shutdown(cancel_futures=True, timeout_s=_END_TIMEOUT_S)


def _renew_after_fork() -> None:
    global _threads, _threads_lock
    _threads = None  # they stayed in the parent
    _threads_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


def _perform(step: Step) -> object:
    function, arguments = step.task()
    return function(*arguments)


def _submitted(executor: Executor, step: Step) -> Future[object] | None:
    """The step's future, or `None` where the executor has been shut down; a broken one gives a failed future."""
    from concurrent.futures import BrokenExecutor, Future

    function, arguments = step.task()
    try:
        return executor.submit(function, *arguments)
    except BrokenExecutor as failure:  # a kernel may have ended its workers: not to be tried in this process
        failed: Future[object] = Future()
        failed.set_exception(failure)
        return failed
    except RuntimeError as refusal:
        import logging

        logging.getLogger(__name__).debug("compiling on the calling thread: %s", refusal)
        return None


def _outcome(future: Future[object]) -> object:
    """The future's result, or the exception itself where the worker failed."""
    error = future.exception()
    return future.result() if error is None else error
