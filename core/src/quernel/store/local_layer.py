"""The writable layer: a SQLite database with a folder of large payloads, private to this user."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from quernel.digests import sha256
from quernel.errors import StoreError
from quernel.forks import around, renewed
from quernel.store.database import SQLITE_FAILURES, DamagedStoreError, Found, StoreReader, open_writable
from quernel.store.names import StoredArtifact
from quernel.store.rows import (
    DIGEST_SLICE,
    MAP_RANGES,
    DamagedRowError,
    MapRow,
    today,
)
from quernel.store.value_files import read_value_file
from quernel.store.writer import StoreWriter, check_writable
from quernel.values import evolve

if TYPE_CHECKING:
    from quernel.store.environments import Environment
    from quernel.store.upkeep import StoreInfo, VerifyReport

__all__ = ["SIZE_LIMIT_BYTES", "LocalLayer", "read_payload"]

SIZE_LIMIT_BYTES = 2 * 2**30
"""How large a store may grow before its oldest artifacts are collected."""

_RAW, _BINARY = 1, 2
T = TypeVar("T")


class LocalLayer:
    """What an environment keeps of compiled kernels, by the names of `StoreNames`. Any thread may call.

    A look-up reads and writes nothing; what it learns (that a row was used today) is written at the next `put` or
    at `close`. After a fork the child opens handles of its own.
    """

    name = "local store"

    def __init__(self, environment: Environment, *, size_limit_bytes: int = SIZE_LIMIT_BYTES) -> None:
        self.folder = environment.store_path
        self.locks_folder = environment.locks_path
        self.size_limit_bytes = size_limit_bytes
        self.reader = StoreReader(self.folder)
        self._writer = StoreWriter(self.folder, self.locks_folder)
        self._used: dict[str, bytes] = {}
        _layers[id(self)] = self
        renewed(self)

    def open(self) -> None:
        """Makes sure that there is a store to read, or that one can be made.

        Raises:
            StoreError: neither.
        """
        if not self._or_anew(self.reader.open, False):
            check_writable(self.folder)

    def find(self, name: str) -> StoredArtifact | None:
        """The artifact under a map's name, after its echoed name, length and digest were checked.

        A row that fails a check is deleted, and not found. On the path of a warm start.

        Raises:
            StoreError: the database cannot be read.
        """
        found = self._or_anew(lambda: self.reader.find(name), None)
        if found is None:
            return None
        try:
            return self._checked(name, found)
        except FileNotFoundError:
            # Between the two reads another process stored the same payload again, under a new file name.
            again = self.reader.find(name)
            if again is None:
                return None
            try:
                return self._checked(name, again)
            except (FileNotFoundError, DamagedRowError) as damage:
                self._delete_damaged(name, again, damage)
        except DamagedRowError as damage:
            self._delete_damaged(name, found, damage)
        return None

    def put(self, payload: bytes, rows: Sequence[MapRow], others: Sequence[tuple[str, bytes]] = ()) -> None:
        """Stores the payload, the maps' rows that name it and further rows in one transaction; then collects.

        Raises:
            StoreError: nothing of it was stored.
        """
        if not self.reader.is_current():
            self.reader.close()
        try:
            self._put(payload, rows, others)
        except DamagedStoreError as damage:
            self._begin_anew(damage)
            self._put(payload, rows, others)
        self.record_uses()
        self._collect_if_large(frozenset(row.name for row in rows))

    def _put(self, payload: bytes, rows: Sequence[MapRow], others: Sequence[tuple[str, bytes]]) -> None:
        with self._writer.transaction() as transaction:
            transaction.set(f"b/{rows[0].payload_digest}", payload)
            for row in rows:
                transaction.set(row.name, row.encode())
            for name, value in others:
                transaction.set(name, value)

    def value(self, name: str) -> bytes | None:
        """The plain value under `name`, or `None`.

        Raises:
            StoreError: the database cannot be read.
        """
        return self._or_anew(lambda: self.reader.value(name), None)

    def _or_anew(self, read: Callable[[], T], nothing: T) -> T:
        try:
            return read()
        except DamagedStoreError as damage:
            self._begin_anew(damage)
            return nothing

    def _begin_anew(self, damage: DamagedStoreError) -> None:
        """Sets the damaged database aside, so that the next write makes another; the files of its payloads go later.

        Raises:
            StoreError: it cannot be set aside, or another process holds the lock.
        """
        from quernel.store.upkeep import set_aside

        self.reader.close()
        self._writer.close()
        if set_aside(self.folder, self.locks_folder):
            import logging

            logging.getLogger(__name__).warning(
                "%s; it was set aside as cache.db.damaged, and another is begun", damage.what
            )

    def drop(self, name: str) -> None:
        """Deletes the row, the IR and source rows of the same artifact, and its payload unless a row still names it.

        Raises:
            StoreError: the store cannot be read or written.
        """
        if not self.reader.query("SELECT 1 FROM Cache WHERE key = ? AND raw = 1", (name,)):
            return
        with self._writer.transaction() as transaction:
            value = self.reader.value(name)
            transaction.delete(name)
            try:
                row = MapRow.decode(name, value)
            except DamagedRowError:
                return
            naming = self._rows_naming(row.payload_digest)
            same = {other for other in naming if self._is_second_map(other, row)}
            for other in same:
                transaction.delete(other)
            if not set(naming) - same - {name}:
                transaction.delete(f"b/{row.payload_digest}")

    def record_uses(self) -> None:
        """Writes the day of use of the rows that were found today and last used before. Never fails: it can wait."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            connection = open_writable(self.folder)
        except StoreError:
            return
        try:
            day = today()
            connection.execute("BEGIN IMMEDIATE")
            for name, value in list(used.items()):
                fresh = _with_day(name, value, day)
                connection.execute(
                    "UPDATE Cache SET value = ? WHERE key = ? AND raw = 1 AND value = ?", (fresh, name, value)
                )
            connection.execute("COMMIT")
        except SQLITE_FAILURES:
            return
        finally:
            connection.close()

    def size_bytes(self) -> int:
        """What the database's pages and the payload files take together.

        Raises:
            StoreError: the database cannot be read.
        """
        rows = self.reader.query(
            "SELECT page_count * page_size"
            " + CAST(COALESCE((SELECT value FROM Settings WHERE key = 'size'), 0) AS INTEGER)"
            " FROM pragma_page_count, pragma_page_size"
        )
        return int(str(rows[0][0])) if rows else 0

    def info(self) -> StoreInfo:
        """Sizes and counts (see `quernel.store.info`)."""
        from quernel.store.upkeep import info

        return info(self)

    def verify(self, *, repair: bool = False) -> VerifyReport:
        """Checks every row and payload (see `quernel.store.verify`)."""
        from quernel.store.upkeep import verify

        return verify(self, repair=repair)

    def clear(self) -> int:
        """Empties the store (see `quernel.store.clear`)."""
        from quernel.store.upkeep import clear

        return clear(self)

    def close(self) -> None:
        """Writes what waits and closes the handles. A later call opens new ones."""
        self.record_uses()
        # The last connection to close folds the write-ahead log into the database; a read-only one could not.
        self.reader.close()
        self._writer.close()

    def _checked(self, name: str, found: Found) -> StoredArtifact:
        """The artifact of a found row.

        Raises:
            DamagedRowError: a check failed.
            FileNotFoundError: the payload's file is gone.
        """
        if found.mode != _RAW:
            raise DamagedRowError(f"its mode is {found.mode!r}")
        row = MapRow.decode(name, found.value)
        payload = read_payload(self.folder, row, found)
        if row.day < today() and isinstance(found.value, bytes):
            self._used[name] = found.value
        return StoredArtifact(row.header, payload)

    def _delete_damaged(self, name: str, found: Found, damage: Exception) -> None:
        """Deletes the row, and its payload's row where that is what is damaged, unless both changed meanwhile."""
        _log_debug("dropped the stored artifact %s: %s", name, damage)
        try:
            with self._writer.transaction() as transaction:
                if self.reader.find(name) != found:
                    return
                transaction.delete(name)
                try:
                    digest = MapRow.decode(name, found.value).payload_digest
                except DamagedRowError:
                    return
                if found.payload_mode is not None:
                    transaction.delete(f"b/{digest}")
        except StoreError as error:
            _log_debug("cannot delete the row %s: %s", name, error)

    def _rows_naming(self, payload_digest: str) -> list[str]:
        """The names of all maps' rows of this payload, by one statement."""
        ranges = " OR ".join(f"key >= '{start}' AND key < '{end}'" for start, end in MAP_RANGES)
        rows = self.reader.query(
            f"SELECT key FROM Cache WHERE raw = 1 AND ({ranges})"
            f" AND substr(value, {DIGEST_SLICE[0]}, {DIGEST_SLICE[1]}) = ?",
            (bytes.fromhex(payload_digest),),
        )
        return [str(key) for (key,) in rows]

    def _is_second_map(self, name: str, row: MapRow) -> bool:
        """Whether `name` is an IR or source row, in the namespace of `row`, of the same artifact."""
        if name[:1] == "k" or name.split("/")[1] != row.name.split("/")[1]:
            return False
        try:
            return MapRow.decode(name, self.reader.value(name)).header == row.header
        except DamagedRowError:
            return False

    def _collect_if_large(self, just_stored: frozenset[str]) -> None:
        try:
            if self.size_bytes() <= self.size_limit_bytes:
                return
            from quernel.store.collection import collect

            collect(self, pinned=just_stored)
        except StoreError as error:
            _log_debug("cannot collect old artifacts: %s", error)

    def renew_after_fork(self) -> None:
        """In a forked child: handles of its own."""
        self._used = {}
        _keep_for_ever((self.reader.abandon(), self._writer.abandon()))


def read_payload(folder: str, row: MapRow, found: Found) -> bytes:
    """The payload that `row` names, after its length and digest were checked.

    Raises:
        DamagedRowError: it is missing or not what was stored.
        FileNotFoundError: its file is gone.
    """
    if found.payload_mode == _RAW and type(found.payload_value) is bytes:
        payload = found.payload_value
    elif found.payload_mode == _BINARY:
        payload = read_value_file(folder, found.payload_file, row.payload_bytes)
    elif found.payload_mode is None:
        raise DamagedRowError("its payload is missing")
    else:
        raise DamagedRowError(f"its payload's mode is {found.payload_mode!r}")
    if len(payload) != row.payload_bytes:
        raise DamagedRowError(f"its payload has {len(payload)} bytes, not {row.payload_bytes}")
    if sha256(payload).hexdigest() != row.payload_digest:
        raise DamagedRowError("its payload's digest does not match")
    return payload


def _with_day(name: str, value: bytes, day: int) -> bytes:
    return evolve(MapRow.decode(name, value), day=day).encode()


def _log_debug(message: str, *arguments: object) -> None:
    # Importing logging costs 2 ms, and a warm start says nothing.
    import logging

    logging.getLogger(__name__).debug(message, *arguments)


_layers: weakref.WeakValueDictionary[int, LocalLayer] = weakref.WeakValueDictionary()


def _keep_for_ever(handles: object) -> None:
    """Adds a reference that nothing drops: SQLite forbids even closing what a parent process opened."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handles))


_resting: list[StoreWriter | StoreReader] = []


def _rest() -> None:
    """Before a fork: waits until no thread is within SQLite, whose own locks the child would find held for ever."""
    try:
        for layer in [reference() for reference in _layers.valuerefs()]:  # Other threads may open some meanwhile.
            if layer is not None:
                _resting.extend(part for part in (layer._writer, layer.reader) if part.rest())
    except BaseException:
        _go_on()
        raise


def _go_on() -> None:
    while _resting:
        _resting.pop().go_on()


around(_rest, _go_on, renew=_resting.clear)
