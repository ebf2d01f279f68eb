"""Threads that drive batches which nobody waits for yet, apart from the threads that those batches compile on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from quernel.forks import in_child

if TYPE_CHECKING:
    from quernel.compiler.threads import CompilationThreads

__all__ = ["run_in_background"]


def run_in_background(drive: Callable[[], object]) -> None:
    """Calls `drive` on another thread, soon; on this one while the process ends. What it raises is logged.

    There are as many threads as cores. Each takes all that is queued when it starts, so what comes while all of them
    are busy makes one batch.
    """
    driver = _Drive(drive)
    try:
        _driving_threads().submit(driver)
    except RuntimeError:  # they have been shut down
        driver()


class _Drive:
    def __init__(self, drive: Callable[[], object]) -> None:
        self._drive = drive

    def __call__(self) -> None:
        try:
            self._drive()
        except Exception:
            import logging

            logging.getLogger("quernel.compiler").exception("what was queued could not be compiled")


def _driving_threads() -> CompilationThreads:
    global _threads
    with _lock:
        if _threads is None:
            import atexit

            from quernel.compiler.own_workers import num_cores
            from quernel.compiler.threads import CompilationThreads

            _threads = CompilationThreads(num_cores())
            atexit.register(_end)
        return _threads


_threads: CompilationThreads | None = None
_lock = threading.Lock()
_END_TIMEOUT_S = 2.0


def _end() -> None:
    """What has not started never will; what runs is waited for a little."""
    if _threads is not None:
        _threads.shutdown(cancel_futures=True, timeout_s=_END_TIMEOUT_S)


def _renew_after_fork() -> None:
    global _threads, _lock
    _threads = None  # they stayed in the parent
    _lock = threading.Lock()


in_child(_renew_after_fork)
