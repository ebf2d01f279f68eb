"""Folders that belong to this user alone, and what makes one unfit for a store."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from quernel.errors import StoreError

__all__ = [
    "check_database",
    "check_file",
    "check_folder",
    "check_root",
    "make_folder",
    "network_filesystem",
    "translated",
]

_MOVE = "set QUERNEL_ENVIRONMENT to a folder of your own on a local disk"

# Where SQLite's locks and shared memory cannot be relied on.
_NETWORK_FILESYSTEMS = frozenset(
    [
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
    ]
)


def translated(what: str, error: Exception) -> StoreError:
    """The `StoreError` that says `what` could not be done and why; raise it from `error`."""
    return StoreError(f"{what}: {error}", fix=_MOVE)


def check_folder(path: str) -> bool:
    """Whether the folder is there; if so it is this user's own, and no one else can enter it afterwards.

    Raises:
        StoreError: a symbolic link, no folder, or another user's.
    """
    mode = _checked_mode(path, stat.S_ISDIR, "folder")
    if mode is None:
        return False
    if mode & 0o077:
        try:
            os.chmod(path, 0o700)
        except OSError as error:
            raise translated(f"cannot make {path} private", error) from error
    return True


def check_root(path: str) -> bool:
    """Whether an environment's own folder is there; its mode is left as it is.

    Raises:
        StoreError: a symbolic link, no folder, or another user's.
    """
    return _checked_mode(path, stat.S_ISDIR, "folder") is not None


def check_file(path: str) -> bool:
    """Whether the file is there; if so it is a regular one of this user's own.

    Raises:
        StoreError: a symbolic link, no regular file, or another user's.
    """
    return _checked_mode(path, stat.S_ISREG, "file") is not None


def check_database(path: str) -> bool:
    """Whether the database is there; if so it is a regular file of this user's own, and so is what lies beside it.

    SQLite takes into a database whatever stands in a log or journal beside it.

    Raises:
        StoreError: a symbolic link, no regular file, or another user's.
    """
    if not check_file(path):
        return False
    for suffix in ("-wal", "-shm", "-journal"):
        check_file(path + suffix)
    return True


def make_folder(path: str) -> None:
    """Makes the folder `path` and its parent where they are missing: only their owner may enter.

    Raises:
        StoreError: they cannot be made, or are unfit (see `check_folder`).
    """
    root = os.path.dirname(path)
    try:
        if not check_root(root):
            os.makedirs(root, 0o700, exist_ok=True)
            check_root(root)
        if not check_folder(path):
            os.makedirs(path, 0o700, exist_ok=True)
            check_folder(path)
    except StoreError:
        raise
    except OSError as error:
        raise translated(f"cannot make the folder {path}", error) from error


def network_filesystem(path: str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """The type of the network file system that holds `path`, or `None`: a local one, or no way to tell."""
    try:
        device = os.stat(path).st_dev
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            wanted = f"{os.major(device)}:{os.minor(device)}"
            for line in lines:
                left, _, right = line.partition(" - ")
                if left.split()[2:3] == [wanted] and right.split()[:1]:
                    kind = right.split()[0]
                    return kind if kind in _NETWORK_FILESYSTEMS else None
    except OSError:
        return None
    return None


def _checked_mode(path: str, is_kind: Callable[[int], bool], kind: str) -> int | None:
    """The mode of `path` after the checks, or `None` where nothing is there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise translated(f"cannot look at {path}", error) from error
    if stat.S_ISLNK(found.st_mode):
        raise StoreError(f"{path} is a symbolic link", fix="name the folder that it points to, or remove the link")
    if not is_kind(found.st_mode):
        raise StoreError(f"{path} is not a {kind}", fix=f"remove {path} or move it away, or {_MOVE}")
    user = os.geteuid() if hasattr(os, "geteuid") else found.st_uid
    if found.st_uid != user:
        raise StoreError(
            f"{path} belongs to user {found.st_uid}, not to user {user}",
            fix=f"if you trust what it holds, run: chown -R {user} {path}; otherwise {_MOVE}",
        )
    return found.st_mode
