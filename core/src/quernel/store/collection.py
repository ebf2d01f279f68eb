"""Makes room: the least recently used artifacts go, then payloads that nothing names, then files left behind."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from quernel.store.database import SQLITE_FAILURES, open_writable
from quernel.store.folders import make_folder, translated
from quernel.store.rows import DAY_SLICE, DIGEST_SLICE, FLAGS_SLICE, MAP_RANGES, PARTS_RANGE, PAYLOAD_RANGE
from quernel.store.value_files import remove_value_file, value_files

if TYPE_CHECKING:
    from quernel.store.local_layer import LocalLayer

__all__ = ["Collected", "collect", "remove_files", "remove_stray_files"]

_TARGET = 0.8
_BATCH = 64
_STRAY_AGE_S = 3600.0

_IS_MAP = "(" + " OR ".join(f"key >= '{start}' AND key < '{end}'" for start, end in MAP_RANGES) + ")"
_IS_PAYLOAD = f"key >= '{PAYLOAD_RANGE[0]}' AND key < '{PAYLOAD_RANGE[1]}'"
_IS_PARTS = f"key >= '{PARTS_RANGE[0]}' AND key < '{PARTS_RANGE[1]}'"
_DIGEST = f"lower(hex(substr(value, {DIGEST_SLICE[0]}, {DIGEST_SLICE[1]})))"
_STORED = "CAST(store_time AS REAL)"  # whatever else a damaged row holds
_SELECT_MAPS = (
    f"SELECT rowid, key, {_STORED}, length(value), {_DIGEST}, hex(substr(value, {FLAGS_SLICE[0]}, {FLAGS_SLICE[1]})),"
    f" hex(substr(value, {DAY_SLICE[0]}, {DAY_SLICE[1]})) FROM Cache WHERE raw = 1 AND {_IS_MAP}"
)
_SELECT_UNNAMED = (
    f"SELECT rowid, store_time, filename FROM Cache WHERE raw = 1 AND {_IS_PAYLOAD}"
    f" AND substr(key, 3) NOT IN (SELECT {_DIGEST} FROM Cache WHERE raw = 1 AND {_IS_MAP}) LIMIT {_BATCH}"
)


@attrs.frozen
class Collected:
    """What a collection removed."""

    num_maps: int = 0
    num_payloads: int = 0
    num_files: int = 0


@attrs.define
class _Group:
    """Rows that go together: the maps of one payload, or one kernel's parts."""

    rows: list[tuple[int, float]] = attrs.Factory(list)
    num_bytes: int = 0
    day: int = 0
    stored: float = 0.0
    pinned: bool = False


def collect(
    layer: LocalLayer, *, pinned: frozenset[str] = frozenset(), limit_bytes: int | None = None
) -> Collected | None:
    """Brings the store to four fifths of its limit if it is above the limit, and removes what nothing names.

    Returns `None` where another process is collecting at this moment. Rows of `pinned` names and rows stored as
    pinned stay. An artifact is as old as the latest use or storing of any map that names it.

    Raises:
        StoreError: the store cannot be read or written.
    """
    limit = layer.size_limit_bytes if limit_bytes is None else limit_bytes
    with _collector_lock(layer.locks_folder) as is_ours:
        if not is_ours:
            return None
        with contextlib.closing(open_writable(layer.folder)) as connection:
            try:
                size = layer.size_bytes()
                excess = size - int(limit * _TARGET) if size > limit else 0
                num_maps = _delete_oldest(connection, excess, pinned) if excess > 0 else 0
                num_payloads = _delete_unnamed(connection, layer.folder)
                num_files = remove_stray_files(connection, layer.folder)
            except (*SQLITE_FAILURES, OSError) as error:
                raise translated(f"cannot collect in {layer.folder}", error) from error
    return Collected(num_maps, num_payloads, num_files)


def remove_stray_files(connection: sqlite3.Connection, folder: str, older_than_s: float = _STRAY_AGE_S) -> int:
    """Removes payload files that no row names and that are older than that; younger ones may be about to be named.

    Raises:
        OSError, sqlite3.Error, UnicodeDecodeError: the folder or the database cannot be read.
    """
    latest = time.time() - older_than_s
    old = {name for name, written in value_files(folder) if written <= latest}
    if not old:
        return 0
    # Read after the listing: what was named in between is not stray.
    old.difference_update(
        name for (name,) in connection.execute("SELECT filename FROM Cache WHERE filename IS NOT NULL")
    )
    return remove_files(folder, sorted(old))


def remove_files(folder: str, names: list[str]) -> int:
    """Removes those of the files that the store itself may have named; how many were there."""
    removed = 0
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            removed += remove_value_file(folder, name)
    return removed


def _delete_oldest(connection: sqlite3.Connection, excess: int, pinned: frozenset[str]) -> int:
    chosen: list[tuple[int, float]] = []
    groups = sorted(_groups(connection, pinned), key=lambda group: (group.day, group.stored))
    for group in groups:
        if excess <= 0:
            break
        if not group.pinned:
            chosen += group.rows
            excess -= group.num_bytes
    for start in range(0, len(chosen), _BATCH):
        connection.execute("BEGIN IMMEDIATE")
        # A row that was stored again meanwhile has another time, and stays.
        connection.executemany(f"DELETE FROM Cache WHERE rowid = ? AND {_STORED} IS ?", chosen[start : start + _BATCH])
        connection.execute("COMMIT")
    return len(chosen)


def _groups(connection: sqlite3.Connection, pinned: frozenset[str]) -> list[_Group]:
    sizes = dict(
        connection.execute(
            "SELECT substr(key, 3), COALESCE(size, 0) + COALESCE(length(value), 0) FROM Cache"
            f" WHERE raw = 1 AND {_IS_PAYLOAD}"
        ).fetchall()
    )
    groups: dict[object, _Group] = {}
    for rowid, key, stored, num_bytes, digest, flags, day in connection.execute(_SELECT_MAPS).fetchall():
        group = groups.setdefault(digest, _Group(num_bytes=sizes.get(digest, 0)))
        group.rows.append((rowid, stored))
        group.num_bytes += num_bytes or 0
        group.day = max(group.day, int(day or "0", 16))
        group.stored = max(group.stored, stored or 0.0)  # nothing, where the clock told no time
        group.pinned |= key in pinned or int(flags or "0", 16) & 1 == 1
    for rowid, key, stored, num_bytes in connection.execute(
        f"SELECT rowid, key, {_STORED}, length(value) FROM Cache WHERE raw = 1 AND {_IS_PARTS}"
    ).fetchall():
        groups[key] = _Group([(rowid, stored)], num_bytes or 0, int((stored or 0.0) // 86400), stored or 0.0)
    return list(groups.values())


def _delete_unnamed(connection: sqlite3.Connection, folder: str) -> int:
    removed = 0
    while True:
        # The choice is made under the write lock: no other process can be storing a map that names one of them.
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute(_SELECT_UNNAMED).fetchall()
        connection.executemany("DELETE FROM Cache WHERE rowid = ?", [(rowid,) for rowid, _, _ in rows])
        connection.execute("COMMIT")
        remove_files(folder, [filename for _, _, filename in rows if filename is not None])
        removed += len(rows)
        if len(rows) < _BATCH:
            return removed


@contextlib.contextmanager
def _collector_lock(folder: str) -> Iterator[bool]:
    """Whether this process is the only one that collects, for as long as the block lasts."""
    from filelock import FileLock

    make_folder(folder)
    lock = FileLock(os.path.join(folder, "store-collect.lock"), timeout=0)
    try:
        lock.acquire()
    except TimeoutError:
        yield False
        return
    except (OSError, NotImplementedError) as error:
        raise translated("cannot lock the store for collecting", error) from error
    try:
        yield True
    finally:
        lock.release()
