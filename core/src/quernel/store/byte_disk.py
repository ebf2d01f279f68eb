"""diskcache's serialization, reduced to text keys and bytes values. Imports diskcache: only writers load it.

The stock class unpickles what it reads and opens or removes whatever file a row names, so every method that
touches a key, a value or a file is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import diskcache
from diskcache.core import MODE_BINARY, MODE_RAW, UNKNOWN

from quernel.errors import StoreError
from quernel.store.rows import DamagedRowError
from quernel.store.value_files import (
    is_value_file,
    new_value_file,
    read_value_file,
    remove_value_file,
)

__all__ = ["BytesDisk", "PatientCache"]

_log = logging.getLogger(__name__)

_OPENING_S = 1.0
"""How long opening a database waits for other processes that hold its lock."""


class PatientCache(diskcache.Cache):  # type: ignore[misc]  # diskcache has no types
    """A cache that is opened in time or not at all: the stock one tries for a minute, whatever its time-out is."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._opening_end_s = time.monotonic() + _OPENING_S
        super().__init__(*arguments, **settings)

    @property
    def _sql(self) -> Callable[..., Any]:
        execute = super()._sql

        def execute_in_time(statement: str, *arguments: Any) -> Any:
            try:
                return execute(statement, *arguments)
            except sqlite3.OperationalError as error:
                # diskcache's loops go on for the very words "database is locked" only.
                if "locked" in str(error) and time.monotonic() > self._opening_end_s:
                    raise sqlite3.OperationalError("it stayed locked by another process") from error
                raise

        return execute_in_time


class BytesDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache has no types
    """Takes text keys and bytes values, in rows and in files of the store's own naming; refuses all else.

    Between `begin` and `commit` or `rollback` it keeps files consistent with the database: what a transaction replaced
    is removed after it has succeeded, what it wrote is removed when it has failed.
    """

    def __init__(self, directory: str, min_file_size: int = 0, pickle_protocol: int = 0) -> None:
        super().__init__(directory, min_file_size=min_file_size, pickle_protocol=pickle_protocol)
        self._replaced: list[str] | None = None
        self._written: list[str] = []

    def begin(self) -> None:
        """A transaction starts: removals wait for its end."""
        self._replaced, self._written = [], []

    def commit(self) -> None:
        """The transaction is in the database: the files that it replaced go."""
        replaced, self._replaced = self._replaced or [], None
        for name in replaced:
            self.remove(name)

    def rollback(self) -> None:
        """The transaction failed: the files that it wrote go."""
        self._replaced = None
        for name in self._written:
            self.remove(name)

    def put(self, key: Any) -> tuple[str, bool]:
        """The database's form of a text key.

        Raises:
            StoreError: it is no text.
        """
        if type(key) is not str:
            raise StoreError(f"the store's keys are text, not {type(key).__name__}")
        return key, True

    def get(self, key: Any, raw: Any) -> str:
        """The text key of a row.

        Raises:
            StoreError: it is pickled, and was not read.
        """
        if not raw or type(key) is not str:
            raise StoreError("the store holds a key that is not text", fix=_VERIFY)
        return key

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> tuple[int, int, str | None, bytes | None]:
        """Columns size, mode, filename and value for `value`; large ones are written to a new file.

        Raises:
            StoreError: it is not bytes.
            OSError: the file cannot be written; nothing is left of it.
        """
        if type(value) is not bytes or read:
            raise StoreError(f"the store's values are bytes, not {type(value).__name__}")
        if len(value) < self.min_file_size:
            return 0, MODE_RAW, None, value
        name, path = self.filename(key, value)
        self._written.append(name)
        try:
            with _new_file(path) as file:
                file.write(value)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(path)
            raise
        return len(value), MODE_BINARY, name, None

    def fetch(self, mode: Any, filename: Any, value: Any, read: bool) -> bytes:
        """The bytes of a row in raw or binary mode.

        Raises:
            StoreError: it holds a pickle, a text or the name of a file that is not the store's, and was not read; or
                the file is damaged.
        """
        if not read and mode == MODE_RAW and type(value) is bytes:
            return value
        if not read and mode == MODE_BINARY and is_value_file(filename):
            size = os.lstat(os.path.join(self._directory, filename)).st_size
            try:
                return read_value_file(self._directory, filename, size)
            except DamagedRowError as damage:
                raise StoreError(f"the store holds a damaged row: {damage}", fix=_VERIFY) from None
        raise StoreError("the store holds a row that it never wrote", fix=_VERIFY)

    def filename(self, key: Any = UNKNOWN, value: Any = UNKNOWN) -> tuple[str, str]:
        """A new random name and its full path."""
        name = new_value_file()
        return name, os.path.join(self._directory, name)

    def remove(self, file_path: Any) -> None:
        """Removes a file of the store; one with a foreign name is left alone, and said so."""
        if self._replaced is not None:
            self._replaced.append(file_path)
            return
        try:
            remove_value_file(self._directory, file_path)
        except DamagedRowError as damage:
            level = logging.DEBUG if file_path in _left_alone else logging.WARNING
            _left_alone.add(file_path)
            _log.log(level, "left a file alone that a row of the store named: %s", damage)
        except OSError as error:
            _log.debug("cannot remove %s from the store: %s", file_path, error)


def _new_file(path: str) -> BinaryIO:
    """Opens a new file in a folder that another process may remove, being empty, between the two steps."""
    for _ in range(8):
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            return open(path, "xb")
    raise FileNotFoundError(f"the folder of {path} keeps vanishing")


_VERIFY = "run: quernel cache verify"

_left_alone: set[object] = set()
"""What was warned about in this process: each name once."""
