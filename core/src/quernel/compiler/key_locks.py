"""One compilation per kernel among the processes that share an environment: a file lock for each key.

Locks are taken without waiting, all that can be had; those of other processes are waited for with none in hand, so two
processes never wait for each other. A process that ends, however it ends, frees its locks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from quernel import settings
from quernel.errors import StoreError

if TYPE_CHECKING:
    from quernel.compiler.inflight import Job
    from quernel.store import Environment

__all__ = ["KeyLocks"]

_MAX_HELD = 256
"""More kernels than this are compiled in several rounds: each lock is an open file. No more than a share of those that
the system allows a process: macOS allows 256."""
_SHARE_HELD = 0.25
_NUM_DIGITS = 3
"""Digits of a key that name its lock file, so that there are at most 4096 files. Keys that share one wait in vain."""
_POLL_S = 0.01


class KeyLocks:
    """The locks that one batch takes in one environment. One thread."""

    def __init__(self, environment: Environment | None) -> None:
        self._environment = environment
        self._timeout_s = settings.lock_timeout_s()
        self._held: dict[str, tuple[Any, set[Job]]] = {}
        self._is_possible = environment is not None and self._timeout_s > 0
        self._is_folder_made = False

    def take(self, jobs: Sequence[Job], name_of: Callable[[Job], str | None]) -> list[Job]:
        """Those of `jobs`, at least one, that this batch is to make now: their locks are free, or there is no locking.

        Waits, until another process is done, only where none is free, and holds no lock then. Past the time limit of
        the settings, nothing is waited for any more.
        """
        names = {job: name_of(job) if self._is_possible else None for job in jobs}
        taken = [job for job in jobs[: _most_held()] if self._try(job, names[job], 0.0)]
        if taken:
            return taken
        if self._try(jobs[0], names[jobs[0]], self._timeout_s):
            return [jobs[0]]
        self._is_possible = False
        _say(
            f"another process has been compiling {jobs[0].name} for {self._timeout_s:g} s; compiling it here too, "
            "and the rest of its batch"
        )
        return list(jobs)

    def holds(self, job: Job) -> bool:
        """Whether the job's lock was taken."""
        return any(job in jobs for _, jobs in self._held.values())

    def release(self, job: Job) -> None:
        """Frees the job's lock, unless other jobs need it."""
        for path, (lock, jobs) in list(self._held.items()):
            jobs.discard(job)
            if not jobs:
                del self._held[path]
                _free(lock)

    def release_all(self) -> None:
        """Frees what is held."""
        while self._held:
            _free(self._held.popitem()[1][0])

    def _try(self, job: Job, name: str | None, timeout_s: float) -> bool:
        """Whether the job may be made now; its lock is held then, unless that is impossible."""
        if name is None or not self._is_possible or self._environment is None:
            return True
        from filelock import FileLock, Timeout

        path = os.path.join(self._environment.locks_path, f"compile-{name[:_NUM_DIGITS]}.lock")
        held = self._held.get(path)
        if held is not None:
            held[1].add(job)
            return True
        try:
            self._make_folder()
            lock = FileLock(path, thread_local=False)
            self._held[path] = (lock, {job})  # known before it is held, so that an interrupt leaves nothing behind
            lock.acquire(timeout=timeout_s, poll_interval=_POLL_S)
        except Timeout:
            del self._held[path]
            return False
        except (OSError, NotImplementedError, RuntimeError, StoreError) as error:
            self._held.pop(path, None)
            self._is_possible = False
            _say(f"compiling without asking other processes, as they cannot be locked out: {error}")
        return True

    def _make_folder(self) -> None:
        if not self._is_folder_made:
            from quernel.store.folders import make_folder

            assert self._environment is not None
            make_folder(self._environment.locks_path)
            self._is_folder_made = True


def _most_held() -> int:
    try:
        import resource
    except ImportError:  # Windows, which allows thousands
        return _MAX_HELD
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_HELD if limit == resource.RLIM_INFINITY else max(1, min(_MAX_HELD, int(limit * _SHARE_HELD)))


def _free(lock: Any) -> None:
    try:
        lock.release()
    except (OSError, RuntimeError) as error:
        _say(f"a lock could not be freed: {error}")


def _say(text: str) -> None:
    import logging

    logging.getLogger("quernel.compiler").info("%s", text)
