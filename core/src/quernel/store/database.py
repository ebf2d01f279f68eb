"""The store's database file, opened with `sqlite3` alone: read-only for look-ups, writable for upkeep."""

from __future__ import annotations

import functools
import os
import sqlite3
import threading
from typing import NamedTuple

from quernel.errors import StoreError
from quernel.store.folders import check_database, check_folder, check_root, translated
from quernel.store.rows import DIGEST_SLICE

__all__ = [
    "SETTINGS",
    "SQLITE_FAILURES",
    "DamagedStoreError",
    "Found",
    "StoreReader",
    "check_settings",
    "check_tables",
    "database_path",
    "file_id",
    "is_damage",
    "open_writable",
]

SETTINGS = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "none",
    "size_limit": 2**30,
    "cull_limit": 0,
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 2**13,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 0,
    "sqlite_synchronous": 1,
    "disk_min_file_size": 2**20,
    "disk_pickle_protocol": 5,
}
"""Every setting of the database with the value that it must have. diskcache turns rows of its table Settings into
attributes and pragmas, so a row or value of someone else's making is refused before it gets that far."""
SQLITE_FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""What sqlite3 raises. The second comes where a message of SQLite quotes a damaged database: it is decoded strictly."""
_COUNTERS = frozenset({"count", "size", "hits", "misses"})

_FIND = (
    "SELECT map.mode, map.value, kept.mode, kept.filename, kept.value FROM Cache AS map LEFT JOIN Cache AS kept"
    f" ON kept.key = 'b/' || lower(hex(substr(map.value, {DIGEST_SLICE[0]}, {DIGEST_SLICE[1]}))) AND kept.raw = 1"
    " WHERE map.key = ? AND map.raw = 1"
)
_PLAIN = "SELECT mode, value FROM Cache WHERE key = ? AND raw = 1"


class DamagedStoreError(StoreError):
    """The database itself is damaged: it is set aside, and another begun."""


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says that the file is no database, not a whole one, or none in which statements of ours work."""
    if isinstance(error, UnicodeDecodeError) or type(error) is sqlite3.DatabaseError:
        return True
    return isinstance(error, sqlite3.DatabaseError) and any(words in str(error) for words in _DAMAGE)


_DAMAGE = ("malformed", "unsupported file format", "no such column", "syntax error", "unrecognized token")


def check_tables(connection: sqlite3.Connection) -> None:
    """Looks nothing up by each statement of a look-up: tables that lost a column fail here.

    Raises:
        sqlite3.Error, UnicodeDecodeError: they cannot be read.
    """
    for statement in (_FIND, _PLAIN):
        connection.execute(statement, ("",)).fetchall()


class Found(NamedTuple):
    """A map's row and the payload's row that it names, of one moment, unchecked."""

    mode: object
    value: object
    payload_mode: object
    payload_file: object
    payload_value: object


def database_path(folder: str) -> str:
    """Where diskcache keeps the database of the store in `folder`."""
    return os.path.join(folder, "cache.db")


def file_id(path: str) -> tuple[int, int] | None:
    """What tells the file at `path` from one that replaces it, or `None` where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class StoreReader:
    """Looks rows up through one read-only connection, opened at the first look-up; any thread may call.

    Neither the database's rows nor its files change by reading, and diskcache is not imported.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def open(self) -> bool:
        """Whether there is a database to read; opens it.

        Raises:
            StoreError: the folder or the database is unfit.
        """
        with self._lock:
            return self._opened() is not None

    def find(self, name: str) -> Found | None:
        """The map's row under `name` with the payload's row, by one statement and so of one moment.

        Raises:
            StoreError: the database cannot be read.
        """
        rows = self.query(_FIND, (name,))
        return Found(*rows[0]) if rows else None

    def value(self, name: str) -> bytes | None:
        """The value kept in the row itself under `name`, or `None`.

        Raises:
            StoreError: the database cannot be read.
        """
        rows = self.query(_PLAIN, (name,))
        return rows[0][1] if rows and rows[0][0] == 1 and type(rows[0][1]) is bytes else None

    def query(self, sql: str, arguments: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """All rows that `sql` selects; none where there is no database.

        Raises:
            StoreError: the database cannot be read.
        """
        with self._lock:
            connection = self._opened()
            if connection is None:
                return []
            try:
                return connection.execute(sql, arguments).fetchall()
            except SQLITE_FAILURES as error:
                self._drop()
                if _is_unfinished(error):
                    return []
                raise _unreadable(self._folder, error) from error

    def is_current(self) -> bool:
        """Whether the database at the store's path is still the one that is open here, if one is."""
        return self._connection is None or self._file == file_id(database_path(self._folder))

    def close(self) -> None:
        """Closes the connection; the next look-up opens another."""
        with self._lock:
            self._drop()

    def rest(self) -> bool:
        """Before a fork: waits up to a second for the call in progress; whether none begins before `go_on`."""
        return self._lock.acquire(timeout=1.0)

    def go_on(self) -> None:
        """In the parent, after the fork."""
        self._lock.release()

    def abandon(self) -> object:
        """In a forked child: starts afresh and returns the parent's connection, which must be kept unclosed."""
        self._lock = threading.Lock()
        inherited, self._connection = self._connection, None
        return inherited

    def _opened(self) -> sqlite3.Connection | None:
        if self._connection is None:
            path = database_path(self._folder)
            check_root(os.path.dirname(self._folder))
            if not (check_folder(self._folder) and check_database(path)):
                return None
            self._connection, self._file = _open_readable(self._folder, path), file_id(path)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def check_settings(connection: sqlite3.Connection, folder: str) -> None:
    """Refuses a database whose table Settings holds a row or a value that this store does not write.

    Raises:
        StoreError: such a row; the error names it.
    """
    for name, value in connection.execute("SELECT key, value FROM Settings"):
        if name in _COUNTERS:
            known = type(value) is int
        else:
            known = name in SETTINGS and type(value) is type(SETTINGS[name]) and value == SETTINGS[name]
        if not known:
            raise StoreError(
                f"the store in {folder} has the foreign setting {name!r} = {value!r}",
                fix=f"run: quernel cache clear, or remove the folder {folder}",
            )


def open_writable(folder: str) -> sqlite3.Connection:
    """A connection for upkeep of an existing store, in autocommit mode.

    Raises:
        StoreError: there is none, or it is unfit.
    """
    path = database_path(folder)
    check_root(os.path.dirname(folder))
    if not (check_folder(folder) and check_database(path)):
        raise StoreError(f"there is no store in {folder}")
    try:
        connection = _connect(path, "rw")
    except SQLITE_FAILURES as error:
        raise _unreadable(folder, error) from error
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA mmap_size = 0")
        check_settings(connection, folder)
    except StoreError:
        connection.close()
        raise
    except SQLITE_FAILURES as error:
        connection.close()
        raise _unreadable(folder, error) from error
    return connection


def _open_readable(folder: str, path: str) -> sqlite3.Connection | None:
    """A read-only connection, or `None` for a database whose tables another process is about to make."""
    try:
        return _checked(_connect(path, "ro"), folder)
    except StoreError:
        raise
    except sqlite3.OperationalError as error:
        if _is_unfinished(error):
            return None
        # A log in write-ahead mode needs files beside the database, which a read-only folder cannot take; where no
        # log is left over, the database alone is complete.
        if os.access(folder, os.W_OK) or _has_content(path + "-wal"):
            raise _unreadable(folder, error) from error
    except SQLITE_FAILURES as error:
        raise _unreadable(folder, error) from error
    try:
        return _checked(_connect(path, "ro&immutable=1"), folder)
    except SQLITE_FAILURES as error:
        raise _unreadable(folder, error) from error


def _checked(connection: sqlite3.Connection, folder: str) -> sqlite3.Connection:
    try:
        connection.execute("PRAGMA query_only = 1")
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute("PRAGMA trusted_schema = 0")
        check_settings(connection, folder)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: str, mode: str) -> sqlite3.Connection:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(
        f"file:{quoted}?mode={mode}", uri=True, timeout=1, isolation_level=None, check_same_thread=False
    )
    # A text that is damaged is then one that the store never wrote, instead of an error in all that selects its row.
    connection.text_factory = _READABLE
    return connection


_READABLE = functools.partial(str, encoding="utf-8", errors="replace")


def _is_unfinished(error: Exception) -> bool:
    """Whether the database lacks a table: another process is about to make it, or was killed before it could."""
    return "no such table" in str(error)


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def _unreadable(folder: str, error: Exception) -> StoreError:
    if is_damage(error):
        return DamagedStoreError(f"the store in {folder} is damaged: {error}", fix="run: quernel cache clear")
    return translated(f"cannot read the store in {folder}", error)
