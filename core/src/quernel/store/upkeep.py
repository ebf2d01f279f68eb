"""Looking after a store from the command line: what is in it, whether it is whole, and emptying it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING

import attrs

from quernel.errors import StoreError
from quernel.store.collection import remove_files, remove_stray_files
from quernel.store.database import (
    SQLITE_FAILURES,
    DamagedStoreError,
    check_tables,
    database_path,
    is_damage,
    open_writable,
)
from quernel.store.folders import check_file, check_folder, translated
from quernel.store.local_layer import read_payload
from quernel.store.rows import MAP_RANGES, PARTS_RANGE, PAYLOAD_RANGE, DamagedRowError, MapRow
from quernel.store.value_files import value_files
from quernel.store.writer import opening_lock

if TYPE_CHECKING:
    from quernel.store.local_layer import LocalLayer

__all__ = ["StoreInfo", "StoredKernel", "VerifyReport", "clear", "info", "stored_kernels", "verify"]

_BATCH = 64
_ASIDE = ".damaged"


@attrs.frozen(kw_only=True)
class StoreInfo:
    """Sizes and counts of a store."""

    path: str
    num_kernels: int
    num_rows: int
    num_payloads: int
    payload_bytes: int
    database_bytes: int
    file_bytes: int
    size_limit_bytes: int


@attrs.frozen(kw_only=True)
class StoredKernel:
    """One kernel's artifact as a listing shows it. Texts come from the store: escape them before display."""

    key: str
    backend: str
    kernel_name: str
    entry: str
    payload_bytes: int
    last_used_day: int
    pinned: bool
    statistics: dict[str, object]


@attrs.frozen(kw_only=True)
class VerifyReport:
    """What a verification found. Payloads and files that nothing names are waste, not problems."""

    num_rows: int
    problems: tuple[str, ...]
    num_unnamed_payloads: int
    num_stray_files: int
    num_removed: int

    @property
    def is_whole(self) -> bool:
        """Whether every row holds what was stored under its name."""
        return not self.problems


def info(layer: LocalLayer) -> StoreInfo:
    """Sizes and counts, by a few statements however many rows there are.

    Raises:
        StoreError: the store cannot be read.
    """
    query = layer.reader.query
    maps = sum(_count(layer, start, end) for start, end in MAP_RANGES)
    kernels = _count(layer, "k/", "k0")
    sums = query(
        "SELECT count(*), CAST(total(size + COALESCE(length(value), 0)) AS INTEGER), CAST(total(size) AS INTEGER)"
        " FROM Cache WHERE raw = 1 AND key >= ? AND key < ?",
        PAYLOAD_RANGE,
    )
    num_payloads, payload_bytes, file_bytes = (int(str(number)) for number in sums[0]) if sums else (0, 0, 0)
    return StoreInfo(
        path=layer.folder,
        num_kernels=kernels,
        num_rows=maps,
        num_payloads=num_payloads,
        payload_bytes=payload_bytes,
        database_bytes=max(0, layer.size_bytes() - file_bytes),
        file_bytes=file_bytes,
        size_limit_bytes=layer.size_limit_bytes,
    )


def stored_kernels(layer: LocalLayer) -> list[StoredKernel]:
    """Every kernel in the store, the latest used first; damaged rows are left out.

    Raises:
        StoreError: the store cannot be read.
    """
    import json

    found = []
    for key, value in layer.reader.query("SELECT key, value FROM Cache WHERE raw = 1 AND key >= 'k/' AND key < 'k0'"):
        try:
            row = MapRow.decode(str(key), value)
            statistics = json.loads(row.statistics)
        except ValueError:
            continue
        found.append(
            StoredKernel(
                key=row.name.rpartition("/")[2],
                backend=row.backend,
                kernel_name=row.kernel_name,
                entry=row.entry,
                payload_bytes=row.payload_bytes,
                last_used_day=row.day,
                pinned=row.pinned,
                statistics=statistics if isinstance(statistics, dict) else {},
            )
        )
    return sorted(found, key=lambda kernel: (-kernel.last_used_day, kernel.kernel_name, kernel.key))


def verify(layer: LocalLayer, *, repair: bool = False) -> VerifyReport:
    """Reads every row and payload and checks all that a look-up would; with `repair`, deletes what fails.

    Raises:
        StoreError: the database cannot be read at all.
    """
    if not layer.reader.open():
        return VerifyReport(num_rows=0, problems=(), num_unnamed_payloads=0, num_stray_files=0, num_removed=0)
    with contextlib.closing(open_writable(layer.folder)) as connection:
        try:
            problems, damaged = _check_rows(layer, connection)
            removed = _delete_rows(connection, layer.folder, damaged) if repair and damaged else 0
            num_rows = connection.execute("SELECT count(*) FROM Cache").fetchone()[0]
            named = {name for (name,) in connection.execute("SELECT filename FROM Cache WHERE filename IS NOT NULL")}
            stray = sum(name not in named for name, _ in value_files(layer.folder))
            unnamed = _num_unnamed(connection)
        except SQLITE_FAILURES as error:
            if isinstance(error, sqlite3.OperationalError) and not is_damage(error):
                raise translated(f"cannot verify the store in {layer.folder}", error) from error
            problems = [f"the database: {error}; only quernel cache clear helps"]
            num_rows = unnamed = stray = removed = 0
        except OSError as error:
            raise translated(f"cannot verify the store in {layer.folder}", error) from error
    return VerifyReport(
        num_rows=num_rows,
        problems=tuple(problems),
        num_unnamed_payloads=unnamed,
        num_stray_files=stray,
        num_removed=removed,
    )


def clear(layer: LocalLayer) -> int:
    """Empties the store and returns how many rows it had; a database that cannot be read is removed as a file.

    Raises:
        StoreError: the folder is unfit, or something in it cannot be removed.
    """
    layer.close()
    try:
        if not check_folder(layer.folder) or not os.path.lexists(database_path(layer.folder)):
            return 0
        try:
            with contextlib.closing(open_writable(layer.folder)) as connection:
                rows = [rowid for (rowid,) in connection.execute("SELECT rowid FROM Cache")]
                removed = _delete_rows(connection, layer.folder, rows)
                remove_stray_files(connection, layer.folder)
                with contextlib.suppress(FileNotFoundError):
                    os.remove(database_path(layer.folder) + _ASIDE)
                return removed
        except (*SQLITE_FAILURES, StoreError) as error:
            if _is_busy(error, database_path(layer.folder)):
                raise translated(f"cannot clear the store in {layer.folder}", error) from error
        for suffix in ("", "-wal", "-shm", _ASIDE):
            with contextlib.suppress(FileNotFoundError):
                os.remove(database_path(layer.folder) + suffix)
        remove_files(layer.folder, [name for name, _ in value_files(layer.folder)])
        return 0
    except StoreError:
        raise
    except OSError as error:
        raise translated(f"cannot clear the store in {layer.folder}", error) from error


def set_aside(folder: str, locks_folder: str) -> bool:
    """Renames a damaged database, so that another can be begun; whether it still was damaged.

    Another process may have begun the other one meanwhile: the file is looked at again under the lock of those that set
    databases up.

    Raises:
        StoreError: it cannot be renamed, is not this user's own, or another process holds the lock.
    """
    path = database_path(folder)
    with opening_lock(locks_folder) as is_held:
        if not is_held:
            raise StoreError(f"the damaged store in {folder} is locked by another process", fix="try again")
        if not (check_folder(folder) and check_file(path)) or not _is_damaged(folder):
            return False
        try:
            os.replace(path, path + _ASIDE)
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path + suffix)
        except OSError as error:
            raise translated(f"cannot set the damaged store in {folder} aside", error) from error
    return True


def _is_damaged(folder: str) -> bool:
    try:
        with contextlib.closing(open_writable(folder)) as connection:
            found: object = connection.execute("PRAGMA quick_check(1)").fetchone()
            check_tables(connection)
            return found != ("ok",)
    except DamagedStoreError:
        return True
    except SQLITE_FAILURES as error:
        return is_damage(error)


def _check_rows(layer: LocalLayer, connection: sqlite3.Connection) -> tuple[list[str], list[int]]:
    """What is wrong, as sentences, and the rows to delete for it."""
    problems: list[str] = []
    damaged: list[int] = []
    for (message,) in connection.execute("PRAGMA integrity_check"):
        if message != "ok":
            problems.append(f"the database: {message}")
    names = {}
    for rowid, key, raw, mode in connection.execute("SELECT rowid, key, raw, mode FROM Cache").fetchall():
        if raw != 1 or not isinstance(key, str) or mode not in (1, 2) or not _is_ours(key):
            problems.append(f"the row {key!r}: the store never wrote it")
            damaged.append(rowid)
        elif any(start <= key < end for start, end in MAP_RANGES):
            names[rowid] = key
    for rowid, name in names.items():
        damage, digest = _damage(layer, name)
        if damage is not None:
            problems.append(f"the row {name}: {damage}")
            damaged.append(rowid)
            damaged += _payload_rows(connection, digest)
    return problems, damaged


def _damage(layer: LocalLayer, name: str) -> tuple[Exception | None, str]:
    """What is wrong with a row, and the digest of its payload where that is what is damaged."""
    damage: Exception | None = None
    # A file may be gone because another process just stored the payload again: the second look tells.
    for _ in range(2):
        found, digest = layer.reader.find(name), ""
        if found is None:
            return None, ""
        try:
            row = MapRow.decode(name, found.value)
            digest = row.payload_digest
            read_payload(layer.folder, row, found)
        except FileNotFoundError as error:
            damage = error
        except DamagedRowError as error:
            return error, digest
        else:
            return None, ""
    return damage, digest


def _payload_rows(connection: sqlite3.Connection, digest: str) -> list[int]:
    rows = connection.execute("SELECT rowid FROM Cache WHERE key = ? AND raw = 1", (f"b/{digest}",)).fetchall()
    return [rowid for (rowid,) in rows]


def _delete_rows(connection: sqlite3.Connection, folder: str, rows: list[int]) -> int:
    """Deletes rows in small transactions, then the store's own files that they named."""
    removed = 0
    for start in range(0, len(rows), _BATCH):
        batch = [(rowid,) for rowid in rows[start : start + _BATCH]]
        marks = ",".join("?" * len(batch))
        connection.execute("BEGIN IMMEDIATE")
        files = connection.execute(
            f"SELECT filename FROM Cache WHERE filename IS NOT NULL AND rowid IN ({marks})",
            [rowid for (rowid,) in batch],
        ).fetchall()
        removed += max(0, connection.executemany("DELETE FROM Cache WHERE rowid = ?", batch).rowcount)
        connection.execute("COMMIT")
        remove_files(folder, [name for (name,) in files])
    return removed


def _num_unnamed(connection: sqlite3.Connection) -> int:
    maps = " OR ".join(f"key >= '{start}' AND key < '{end}'" for start, end in MAP_RANGES)
    row = connection.execute(
        "SELECT count(*) FROM Cache WHERE raw = 1 AND key >= ? AND key < ? AND substr(key, 3) NOT IN"
        f" (SELECT lower(hex(substr(value, 13, 32))) FROM Cache WHERE raw = 1 AND ({maps}))",
        PAYLOAD_RANGE,
    ).fetchone()
    return int(row[0])


def _count(layer: LocalLayer, start: str, end: str) -> int:
    rows = layer.reader.query("SELECT count(*) FROM Cache WHERE raw = 1 AND key >= ? AND key < ?", (start, end))
    return int(str(rows[0][0])) if rows else 0


def _is_ours(key: str) -> bool:
    return key.isascii() and any(start <= key < end for start, end in (*MAP_RANGES, PARTS_RANGE, PAYLOAD_RANGE))


def _is_busy(error: Exception, path: str) -> bool:
    """Whether the database is whole, as far as `error` tells: in use, or not to be written.

    SQLite also calls read-only what its header says that a later version wrote; such a file may be removed.
    """
    return "locked" in str(error) or ("readonly" in str(error) and not os.access(path, os.W_OK))
