"""The process's own compilation threads: daemons, so that a long compilation cannot hold up the end of the process.

The standard library's pool is joined at exit however long that takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

__all__ = ["CompilationThreads"]

P = ParamSpec("P")
T = TypeVar("T")

_Task = tuple["Future[Any]", Callable[[], Any]]


class CompilationThreads(Executor):
    """Runs tasks on at most `size` threads, each started when there is work that no other waits for."""

    def __init__(self, size: int) -> None:
        self._max_workers = size
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def size(self) -> int:
        """Threads that it may have."""
        return self._max_workers

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The future of `fn(*args, **kwargs)`.

        Raises:
            RuntimeError: it has been shut down, or no thread can be started.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the compilation threads have ended")
            future: Future[T] = Future()
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._max_workers:
                self._add_thread()
            self._tasks.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, timeout_s: float | None = None) -> None:
        """Takes no more tasks; those queued still run, or are cancelled. Waits for all, or for at most `timeout_s`."""
        with self._lock:
            self._is_closed = True
            if cancel_futures:
                self._cancel_queued()
            for _ in self._threads:
                self._tasks.put(None)
        if wait:
            end_s = None if timeout_s is None else time.monotonic() + timeout_s
            for thread in self._threads:
                thread.join(None if end_s is None else max(0.0, end_s - time.monotonic()))

    def _add_thread(self) -> None:
        """Starts one more; where the system has none to give, those that are there have to do.

        Raises:
            RuntimeError: there are none.
        """
        name = f"quernel-compile_{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _cancel_queued(self) -> None:
        while True:
            try:
                task = self._tasks.get_nowait()
            except Empty:
                return
            if task is not None:
                task[0].cancel()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, call = task
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del task, future, call  # an idle thread keeps nothing alive
            self._idle.release()
