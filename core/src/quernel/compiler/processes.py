"""Our own compile workers: processes that cost their kernel when they crash, and nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any, ParamSpec, TypeVar

import attrs

from quernel import settings
from quernel.compiler.results import WorkerLostError
from quernel.compiler.worker_process import WorkerProcess, packed_call
from quernel.forks import renewed

__all__ = ["CompilationProcesses"]

P = ParamSpec("P")
T = TypeVar("T")

_IDLE_S = 300.0
"""A worker that had nothing to do for so long ends."""
_END_S = 2.0

_logger = logging.getLogger("quernel.compiler")


@attrs.frozen(eq=False)
class _Task:
    future: Future[Any]
    call: bytes
    limit_s: float | None


class CompilationProcesses(Executor):
    """Runs tasks in at most `size` processes, each started when there is work that no other waits for, and kept.

    They run `python -m quernel.compiler.worker`, so nothing of the caller's main module runs again: an unguarded
    script, `python -c` and a notebook may use them. What they are to run is imported there by name.

    A task during which its process crashes, is killed or takes longer than `QUERNEL_COMPILE_LIMIT` fails with
    `WorkerLostError`; another process takes its place.
    """

    def __init__(self, size: int, *, is_lazy: bool = False) -> None:
        """`is_lazy`: processes start when `grow` says so, and not for a task that is submitted."""
        self._max_workers = size
        self._is_lazy = is_lazy
        self._tasks: deque[_Task] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._workers: set[WorkerProcess] = set()
        self._num_idle = 0
        self._is_closed = False
        self._failure: str | None = None
        self._warm_up: bytes | None = None
        renewed(self)

    @property
    def num_workers(self) -> int:
        """Processes that are there, or about to be."""
        return len(self._threads)

    @property
    def num_ready(self) -> int:
        """Processes that wait for a task."""
        return self._num_idle

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The future of `fn(*args, **kwargs)`, pickled here and now.

        Raises:
            RuntimeError: it has been shut down.
            BrokenExecutor: processes do not start here.
        """
        call = packed_call(fn, args, kwargs)
        limit_s = settings.compile_limit_s()
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the compile workers have ended")
            if self._failure is not None and not self._is_lazy:
                raise BrokenExecutor(self._failure)
            future: Future[T] = Future()
            self._tasks.append(_Task(future, call, limit_s))
            self._changed.notify()
            if not self._is_lazy and len(self._tasks) > self._num_idle:
                self._add_workers(1)
        return future

    def grow(self, size: int, warm_up: Callable[..., object] | None = None, *arguments: object) -> None:
        """Has `size` processes, as far as it may; each runs the call `warm_up` before its first task. Starts them only.

        The call is kept for those that replace them.
        """
        call = None if warm_up is None else packed_call(warm_up, arguments, {})
        with self._changed:
            self._warm_up = call
            if not self._is_closed and self._failure is None:
                self._add_workers(size - len(self._threads))

    def wait_until_ready(self, size: int, timeout_s: float) -> bool:
        """Waits until `size` processes wait for a task; whether they do."""
        end_s = time.monotonic() + timeout_s
        with self._changed:
            while self._num_idle < size:
                rest_s = end_s - time.monotonic()
                if rest_s <= 0 or self._failure is not None or not self._changed.wait(rest_s):
                    return self._num_idle >= size
        return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, timeout_s: float | None = None) -> None:
        """Takes no more tasks; those queued still run, or are cancelled, and then the processes end.

        Waits for all that, or for at most `timeout_s`, after which the processes are killed.
        """
        with self._changed:
            self._is_closed = True
            if cancel_futures or not self._threads:
                for task in self._tasks:
                    task.future.cancel()
                self._tasks.clear()
            self._changed.notify_all()
        if not wait:
            return
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(None if end_s is None else max(0.0, end_s - time.monotonic()))
        for worker in list(self._workers):
            worker.kill()

    def _add_workers(self, number: int) -> None:
        for _ in range(min(number, self._max_workers - len(self._threads))):
            thread = threading.Thread(target=self._serve, name=f"quernel-worker_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            try:
                thread.start()
            except RuntimeError as failure:  # no more threads
                self._threads.remove(thread)
                if not self._threads:
                    self._fail(failure)
                return

    def _serve(self) -> None:
        """Starts a process and hands it tasks, one at a time; when it is lost and there is more to do, another."""
        try:
            while self._serve_one():
                pass
        except Exception as failure:
            self._fail(failure)
        finally:
            with self._changed:
                self._threads.remove(threading.current_thread())
                self._changed.notify_all()

    def _serve_one(self) -> bool:
        """Serves with one process until it ends; whether another one should take its place.

        Raises:
            WorkerLostError, OSError: it does not start.
        """
        worker = WorkerProcess()
        self._workers.add(worker)
        try:
            self._prepare(worker)
            while (task := self._next_task()) is not None:
                if not self._perform(worker, task):
                    return self._is_needed()
                del task  # an idle thread keeps nothing alive
            return False
        finally:
            self._workers.discard(worker)
            worker.end(_END_S)

    def _prepare(self, worker: WorkerProcess) -> None:
        if self._warm_up is None:
            return
        try:
            worker.call(self._warm_up)
        except (WorkerLostError, OSError):
            raise
        except Exception as error:
            _logger.debug("a compile worker could not be warmed: %s", error)
        for line in worker.written():
            _logger.debug("a compile worker wrote: %s", line)

    def _perform(self, worker: WorkerProcess, task: _Task) -> bool:
        """Runs the task there; whether the process is still there."""
        if not task.future.set_running_or_notify_cancel():
            return True
        try:
            result = worker.call(task.call, task.limit_s)
        except WorkerLostError as loss:
            task.future.set_exception(loss)
            return False
        except BaseException as error:
            task.future.set_exception(error)
        else:
            task.future.set_result(result)
        for line in worker.written():
            _logger.warning("a compile worker wrote: %s", line)
        return True

    def _next_task(self) -> _Task | None:
        """The next task, waited for; `None` where there will be none, or was none for long."""
        with self._changed:
            end_s = time.monotonic() + _IDLE_S
            while not self._tasks:
                rest_s = end_s - time.monotonic()
                if self._is_closed or rest_s <= 0:
                    return None
                self._num_idle += 1
                self._changed.notify_all()
                try:
                    self._changed.wait(rest_s)
                finally:
                    self._num_idle -= 1
            return self._tasks.popleft()

    def _is_needed(self) -> bool:
        with self._changed:
            return bool(self._tasks) or not self._is_closed

    def _fail(self, failure: Exception) -> None:
        """Notes that processes do not start here. Who can run its tasks itself will; the tasks of others fail."""
        _logger.warning("compiling without worker processes, as one did not start: %s", failure)
        with self._changed:
            self._failure = str(failure)
            if self._is_lazy:
                return
            tasks = list(self._tasks)
            self._tasks.clear()
        for task in tasks:
            if task.future.set_running_or_notify_cancel():
                task.future.set_exception(BrokenExecutor(self._failure))

    def renew_after_fork(self) -> None:
        """In a forked child: the processes are the parent's, and the threads that served them are not here."""
        self._changed = threading.Condition()
        self._workers = set()
        self._threads = []
        self._tasks = deque()
        self._num_idle = 0
