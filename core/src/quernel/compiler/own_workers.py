"""The threads and worker processes that this process compiles on where no executor was given, and their end."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from quernel.forks import in_child

if TYPE_CHECKING:
    from quernel.compiler.processes import CompilationProcesses
    from quernel.compiler.threads import CompilationThreads

__all__ = ["compilation_processes", "compilation_threads", "num_cores"]


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compilation_threads() -> CompilationThreads | None:
    """The process's own threads, one per core, started as work comes; `None` while the process ends."""
    global _threads
    if _is_ending:
        return None
    with _lock:
        if _threads is None:
            import atexit

            from quernel.compiler.threads import CompilationThreads

            _threads = CompilationThreads(num_cores())
            atexit.register(_end)
        return _threads


def compilation_processes() -> CompilationProcesses | None:
    """The process's own compile workers, for all cores but the caller's; none has started before the first `grow`.

    `None` where there is one core, and while the process ends.
    """
    global _processes
    if _is_ending or num_cores() < 2:
        return None
    with _lock:
        if _processes is None:
            import atexit

            from quernel.compiler.processes import CompilationProcesses

            _processes = CompilationProcesses(num_cores() - 1, is_lazy=True)
            atexit.register(_end)
        return _processes


_threads: CompilationThreads | None = None
_processes: CompilationProcesses | None = None
_lock = threading.Lock()
_is_ending = False

_END_TIMEOUT_S = 2.0


def _end() -> None:
    """Waits a little for what runs; what is queued, and what comes from here on, runs on the thread that wants it.

    Ctrl-C ends the wait.
    """
    global _is_ending
    if _is_ending:  # it is registered for the threads and for the processes, and ends both
        return
    _is_ending = True
    end_s = time.monotonic() + _END_TIMEOUT_S
    for workers in (_processes, _threads):
        if workers is None:
            continue
        try:
            workers.shutdown(cancel_futures=True, timeout_s=max(0.0, end_s - time.monotonic()))
        except KeyboardInterrupt:
            end_s = 0.0
            workers.shutdown(cancel_futures=True, timeout_s=0.0)


def _renew_after_fork() -> None:
    global _threads, _processes, _lock
    _threads = _processes = None  # they stayed in the parent
    _lock = threading.Lock()


in_child(_renew_after_fork)
