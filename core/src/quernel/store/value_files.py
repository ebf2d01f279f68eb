"""The files that hold large payloads: their names, and how they are read and removed without following links."""

from __future__ import annotations

import contextlib
import os
import re
import stat

from quernel.store.rows import DamagedRowError

__all__ = ["is_value_file", "new_value_file", "read_value_file", "remove_value_file", "value_files"]

# Compiled where they are used: most warm starts have no large payload.
_PATTERN = r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val"
_FOLDER_PATTERN = r"[0-9a-f]{2}"
# A named pipe put in a file's place must not block the reader, nor a link lead it elsewhere.
_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def is_value_file(name: object) -> bool:
    """Whether `name`, relative to the store's folder, is one that the store itself gives."""
    return isinstance(name, str) and re.fullmatch(_PATTERN, name) is not None


def new_value_file() -> str:
    """A fresh random name, relative to the store's folder."""
    digits = os.urandom(16).hex()
    return f"{digits[:2]}/{digits[2:4]}/{digits[4:]}.val"


def read_value_file(folder: str, name: object, num_bytes: int) -> bytes:
    """The `num_bytes` bytes of the file, read and not mapped: others may truncate it at any time.

    Raises:
        DamagedRowError: a name that the store never gives, no regular file below real folders, or another length.
        FileNotFoundError: it is gone, as after another process replaced it.
    """
    if not isinstance(name, str) or not is_value_file(name):
        raise DamagedRowError(f"it names the file {name!r}")
    path = os.path.join(folder, name)
    try:
        if _has_linked_parent(folder, name):
            raise DamagedRowError(f"its file {name} lies behind a symbolic link")
        handle = os.open(path, _OPEN_FLAGS)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedRowError(f"its file {name} cannot be read: {error}") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size != num_bytes:
            raise DamagedRowError(f"its file {name} does not have the length {num_bytes}")
        return _read(handle, num_bytes)
    finally:
        os.close(handle)


def remove_value_file(folder: str, name: str) -> bool:
    """Removes the file and the folders that this leaves empty; whether it was there. Refused names stay.

    Raises:
        DamagedRowError: a name that the store never gives, or a path through a symbolic link.
        OSError: it cannot be removed.
    """
    if not is_value_file(name) or _has_linked_parent(folder, name):
        raise DamagedRowError(f"{name!r} is not a file of the store")
    try:
        os.remove(os.path.join(folder, name))
    except FileNotFoundError:
        return False
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(folder, name[:5]))
        os.rmdir(os.path.join(folder, name[:2]))
    return True


def value_files(folder: str) -> list[tuple[str, float]]:
    """The store's own files below `folder` with the times they were last written. Links are not followed.

    Raises:
        OSError: a folder cannot be listed.
    """
    found = []
    for outer in _folders(folder):
        for inner in _folders(os.path.join(folder, outer)):
            with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(folder, outer, inner)) as entries:
                for entry in entries:
                    name = f"{outer}/{inner}/{entry.name}"
                    if is_value_file(name) and entry.is_file(follow_symlinks=False):
                        found.append((name, entry.stat(follow_symlinks=False).st_mtime))
    return found


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(
                entry.name
                for entry in entries
                if re.fullmatch(_FOLDER_PATTERN, entry.name) and entry.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return []


def _has_linked_parent(folder: str, name: str) -> bool:
    return any(os.path.islink(os.path.join(folder, name[:end])) for end in (2, 5))


def _read(handle: int, num_bytes: int) -> bytes:
    pieces, offset = [], 0
    while offset < num_bytes:
        left = num_bytes - offset
        piece = os.pread(handle, left, offset) if hasattr(os, "pread") else os.read(handle, left)
        if not piece:
            raise DamagedRowError("its file was truncated while it was read")
        pieces.append(piece)
        offset += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
