"""The session's log of compilations: one append-only file of JSON lines per process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quernel import settings
from quernel.errors import StoreError
from quernel.forks import renewed
from quernel.store.folders import make_folder, translated
from quernel.store.records import CompilationBatchRecord, CompilationOutcome, CompilationRecord
from quernel.values import field_names

if TYPE_CHECKING:
    from quernel.settings import RecordsLevel
    from quernel.store.environments import Environment

__all__ = ["RecordLog", "prune_sessions", "read_records"]

_SCHEMA = 1
_FORMAT = "quernel records"
_SUFFIX = ".jsonl"
_MAX_SESSIONS = 500
_MAX_BYTES = 64 * 2**20
_MIN_AGE_S = 3600.0

Record = CompilationRecord | CompilationBatchRecord


class RecordLog:
    """Appends to this process's file in the environment's `records`, made at the first record. Any thread may call.

    A failure to write never reaches the caller: it is warned about once per environment, and the log stops. After a
    fork the child writes a file of its own.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._path: str | None = None
        self._is_stopped = False
        self._torn = False
        renewed(self)

    @property
    def path(self) -> str | None:
        """The file written to, or `None` before the first record."""
        return self._path

    def append(
        self,
        records: Sequence[CompilationRecord],
        batch: CompilationBatchRecord | None = None,
        *,
        level: RecordsLevel | None = None,
    ) -> bool:
        """Appends a closed batch, one write per record, the batch's own last; whether it was kept. Off the launch path.

        `level` is what `QUERNEL_RECORDS` said in the caller; without it the setting is read here.
        """
        level = settings.records_level() if level is None else level
        kept: list[Record] = [*records] if batch is None else [*records, batch]
        if level == "off" or not kept:
            return False
        import json

        with self._lock:
            if self._is_stopped:
                return False
            try:
                for record in kept:
                    self._write(json.dumps(_encoded(record, level), separators=(",", ":")))
            except (OSError, StoreError) as error:
                self._is_stopped = True
                self._environment.say_unusable(
                    error if isinstance(error, StoreError) else translated("cannot write records", error),
                    what="records of compilations",
                )
                return False
        return True

    def close(self) -> None:
        """Closes the file; idempotent. A later record opens a new one."""
        with self._lock:
            handle, self._handle, self._path = self._handle, None, None
            if handle is not None:
                os.close(handle)

    def _write(self, line: str) -> None:
        if self._handle is None:
            self._open()
        assert self._handle is not None
        data = (b"\n" if self._torn else b"") + line.encode() + b"\n"
        self._torn = True
        written = os.write(self._handle, data)
        if written != len(data):
            raise OSError(f"only {written} of {len(data)} bytes of a record were written")
        self._torn = False

    def _open(self) -> None:
        import json

        folder = self._environment.records_path
        make_folder(folder)
        prune_sessions(folder)
        started = time.time_ns()
        name = f"{max(0, started) // 1_000_000:014d}-{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}"
        path = os.path.join(folder, name)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self._handle, self._path = os.open(path, flags, 0o600), path
        header = {"format": _FORMAT, "schema": _SCHEMA, "started_ns": started, "pid": os.getpid()}
        self._write(json.dumps(header, separators=(",", ":")))

    def renew_after_fork(self) -> None:
        """In a forked child: a file of its own."""
        # The parent's file stays open here, unused: a descriptor is all that it costs.
        self._lock = threading.Lock()
        self._handle, self._path, self._torn = None, None, False


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """The records of a session's file, or of every session in a folder, oldest first.

    Lines that cannot be read (the last one of a process that was killed) are skipped, and in a folder so are files
    that are not sessions.

    Raises:
        StoreError: there is no such file, it is not a session's, or is of a newer schema.
    """
    path = os.fspath(path)
    if not os.path.isdir(path):
        return _session(path)
    found: list[Record] = []
    for name in _session_names(path):
        try:
            found += _session(os.path.join(path, name))
        except StoreError:
            continue
    return found


def prune_sessions(
    folder: str, *, max_sessions: int = _MAX_SESSIONS, max_bytes: int = _MAX_BYTES, min_age_s: float = _MIN_AGE_S
) -> int:
    """Deletes whole sessions, the oldest first, until both limits hold; how many.

    A session written to within `min_age_s` may belong to a living process, and stays.
    """
    sizes: dict[str, tuple[int, float]] = {}
    for name in _session_names(folder):
        try:
            found = os.lstat(os.path.join(folder, name))
        except OSError:
            continue
        sizes[name] = found.st_size, found.st_mtime
    count, total, removed = len(sizes), sum(size for size, _ in sizes.values()), 0
    latest = time.time() - min_age_s
    for name, (size, written) in sizes.items():
        if count <= max_sessions and total <= max_bytes:
            break
        if not written <= latest:  # also where the clock tells no time
            continue
        try:
            os.remove(os.path.join(folder, name))
        except OSError:
            continue
        count, total, removed = count - 1, total - size, removed + 1
    return removed


def _session_names(folder: str) -> list[str]:
    """The session files of a folder, oldest first: their names start with the time, in as many digits."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
    except OSError:
        return []


def _session(path: str) -> list[Record]:
    import json

    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except OSError as error:
        raise translated(f"cannot read the records in {path}", error) from error
    header = _parsed(json, lines[0])
    if header.get("format") != _FORMAT or type(header.get("schema")) is not int:
        raise StoreError(f"{path} does not hold records", fix="name a file that ends in .jsonl, or its folder")
    if header["schema"] > _SCHEMA:
        raise StoreError(
            f"{path} holds records of schema {header['schema']}, this version reads {_SCHEMA}", fix="update quernel"
        )
    found: list[Record] = []
    for line in lines[1:]:
        record = _decoded(_parsed(json, line))
        if record is not None:
            found.append(record)
    return found


def _parsed(json: Any, line: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _encoded(record: Record, level: RecordsLevel) -> dict[str, object]:
    is_batch = isinstance(record, CompilationBatchRecord)
    content: dict[str, object] = {"record": "batch" if is_batch else "compilation"}
    content |= {name: getattr(record, name) for name in field_names(type(record))}
    if isinstance(record, CompilationRecord):
        content["outcome"] = record.outcome.value
        if level != "full":
            del content["source"]
        if level != "full" or record.outcome is CompilationOutcome.LOADED:
            del content["ir"]
    return content


def _decoded(content: Mapping[str, Any]) -> Record | None:
    """The record that a line holds, or `None` where a field is missing or of another type."""
    try:
        if content.get("record") == "batch":
            return _checked_batch(content)
        if content.get("record") == "compilation":
            return _checked_compilation(content)
    except (KeyError, TypeError, ValueError):
        return None
    return None


def _checked_batch(content: Mapping[str, Any]) -> CompilationBatchRecord:
    return CompilationBatchRecord(
        asked=_typed(content["asked"], int),
        workers=_typed(content["workers"], int),
        wall_ns=_typed(content["wall_ns"], int),
        started_ns=_typed(content.get("started_ns", 0), int),
    )


def _checked_compilation(content: Mapping[str, Any]) -> CompilationRecord:
    return CompilationRecord(
        kernel=_typed(content["kernel"], str),
        key=_typed(content["key"], str),
        outcome=CompilationOutcome(content["outcome"]),
        rekeyed_by=_optional(content.get("rekeyed_by"), str),
        started_ns=_typed(content.get("started_ns", 0), int),
        duration_ns=_typed(content.get("duration_ns", 0), int),
        stages=tuple((_typed(name, str), _typed(time_ns, int)) for name, time_ns in content.get("stages", ())),
        ir=_optional(content.get("ir"), str),
        source=_optional(content.get("source"), str),
        artifact_bytes=_typed(content.get("artifact_bytes", 0), int),
        registers=_optional(content.get("registers"), int),
        spills=_optional(content.get("spills"), int),
        warnings=tuple(_typed(text, str) for text in content.get("warnings", ())),
        toolchain=_typed(content.get("toolchain", ""), str),
        worker=_typed(content.get("worker", ""), str),
        why_missed=tuple(_typed(text, str) for text in content.get("why_missed", ())),
        backend=_typed(content.get("backend", ""), str),
        target=_typed(content.get("target", ""), str),
    )


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _optional(value: Any, kind: type) -> Any:
    return None if value is None else _typed(value, kind)
