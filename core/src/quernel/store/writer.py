"""The writing half of a store: diskcache, opened at the first write, one transaction at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from quernel.errors import StoreError
from quernel.store.database import (
    SETTINGS,
    SQLITE_FAILURES,
    DamagedStoreError,
    database_path,
    file_id,
    is_damage,
    open_writable,
)
from quernel.store.folders import check_database, make_folder, network_filesystem, translated

if TYPE_CHECKING:
    from quernel.store.byte_disk import BytesDisk

__all__ = ["StoreWriter", "Transaction", "check_writable", "opening_lock"]

_PATIENCE_S = 1.0
"""How long a launch waits for another process that holds a lock of the store."""


class Transaction(Protocol):
    """What may be done within a transaction."""

    def set(self, key: str, value: bytes) -> bool:
        """Puts a row in place."""

    def delete(self, key: str) -> bool:
        """Removes a row; whether it was there."""


class StoreWriter:
    """Writes rows and payload files; any thread may call, one at a time."""

    def __init__(self, folder: str, locks_folder: str) -> None:
        self._folder = folder
        self._locks_folder = locks_folder
        self._lock = threading.RLock()
        self._cache: Any = None
        self._opened_file: tuple[int, int] | None = None
        self._connections: dict[threading.Thread, object] = {}

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Everything written inside becomes visible together, or not at all.

        Raises:
            StoreError: the store cannot be written, or stayed locked by another process for a second.
        """
        with self._lock:
            try:
                cache = self._open()
            except StoreError:
                raise
            except _failures() as error:
                self._reset()
                raise self._refused("cannot open the store in", error) from error
            disk: BytesDisk = cache.disk
            disk.begin()
            try:
                with cache.transact(retry=False):
                    self._keep_connection(cache)
                    yield cache
            except BaseException as error:
                # The connection may be left inside a transaction that could not be rolled back.
                disk.rollback()
                self._reset()
                if isinstance(error, _failures()) and not isinstance(error, StoreError):
                    raise self._refused("cannot write to the store in", _named(error)) from error
                raise
            disk.commit()

    def is_current(self) -> bool:
        """Whether the database at the store's path is still the one that this writer opened, if it opened one."""
        return self._opened_file is None or self._opened_file == file_id(database_path(self._folder))

    def close(self) -> None:
        """Closes this thread's connection and lets go of the others; the next write opens the store again."""
        with self._lock:
            self._reset()

    def rest(self) -> bool:
        """Before a fork: waits up to a second for the call in progress; whether none begins before `go_on`."""
        return self._lock.acquire(timeout=1.0)

    def go_on(self) -> None:
        """In the parent, after the fork."""
        self._lock.release()

    def abandon(self) -> object:
        """In a forked child: starts afresh and returns the parent's handles, which must be kept unclosed."""
        inherited = (self._cache, self._connections)
        self._lock = threading.RLock()
        self._cache, self._opened_file, self._connections = None, None, {}
        return inherited

    def _refused(self, what: str, error: Exception) -> StoreError:
        if is_damage(error) or is_damage(error.__context__ if isinstance(error, OSError) else None):
            return DamagedStoreError(f"the store in {self._folder} is damaged: {error}", fix="run: quernel cache clear")
        return translated(f"{what} {self._folder}", error)

    def _open(self) -> Any:
        if self._cache is not None and not self.is_current():
            self._reset()
        if self._cache is None:
            from quernel.store.byte_disk import BytesDisk, PatientCache

            check_writable(self._folder)
            is_complete = _check_existing(self._folder)
            with contextlib.nullcontext() if is_complete else opening_lock(self._locks_folder):
                self._cache = PatientCache(
                    self._folder,
                    disk=BytesDisk,
                    timeout=_PATIENCE_S,
                    eviction_policy="none",
                    cull_limit=0,
                    statistics=0,
                    sqlite_mmap_size=0,
                    disk_min_file_size=SETTINGS["disk_min_file_size"],
                    disk_pickle_protocol=SETTINGS["disk_pickle_protocol"],
                )
            self._opened_file = file_id(database_path(self._folder))
        return self._cache

    def _keep_connection(self, cache: Any) -> None:
        # diskcache keeps one connection per thread in thread-local storage, which a fork destroys, and so closes, for
        # every thread but the forking one. Holding them here leaves that to `abandon`.
        ended = [thread for thread in self._connections if not thread.is_alive()]
        for thread in ended:
            del self._connections[thread]
        self._connections[threading.current_thread()] = cache._con

    def _reset(self) -> None:
        cache, self._cache, self._opened_file = self._cache, None, None
        self._connections.clear()
        if cache is not None:
            with contextlib.suppress(*SQLITE_FAILURES):
                cache.close()


def check_writable(folder: str) -> None:
    """Makes the store's folder if it is missing, and refuses one in which a store cannot be kept.

    Raises:
        StoreError: it cannot be made or written, is not private, or lies on a network file system.
    """
    if os.path.expandvars(folder) != folder:
        raise StoreError(f"the path {folder} names an environment variable", fix="use a path without $")
    make_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"the folder {folder} is read-only", fix="make it writable, or set QUERNEL_ENVIRONMENT to another folder"
        )
    kind = network_filesystem(folder)
    if kind is not None:
        raise StoreError(
            f"the folder {folder} is on a network file system ({kind}), where SQLite's locks are not reliable",
            fix="set QUERNEL_ENVIRONMENT to a folder on a local disk",
        )


def _check_existing(folder: str) -> bool:
    """Lets only a missing, an empty or an own database reach diskcache; whether it has its tables already."""
    path = database_path(folder)
    if not check_database(path) or os.stat(path).st_size == 0:
        return False
    try:
        with contextlib.closing(open_writable(folder)) as connection:
            found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'Cache'").fetchone()
            return bool(found == (1,))
    except StoreError as error:
        if "no such table" not in str(error):
            raise
    return False


@contextlib.contextmanager
def opening_lock(folder: str) -> Iterator[bool]:
    """One process at a time sets a database up; whether this one has the lock, which may be impossible or slow."""
    from filelock import FileLock

    lock = FileLock(os.path.join(folder, "store-open.lock"), timeout=_PATIENCE_S)
    with contextlib.suppress(OSError, NotImplementedError):
        make_folder(folder)
        lock.acquire()
    try:
        yield lock.is_locked
    finally:
        lock.release()


def _failures() -> tuple[type[Exception], ...]:
    import diskcache

    return OSError, *SQLITE_FAILURES, diskcache.Timeout


def _named(error: Exception) -> Exception:
    """diskcache's time-out carries no text, and stands for whatever kept a transaction from starting."""
    if str(error):
        return error
    reason = error.__context__
    if reason is None or "locked" in str(reason):
        return OSError("it stayed locked by another process")
    return OSError(str(reason))
