"""Build ids: which sources stand behind an artifact's bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module

from quernel.digests import sha256, sha256_of_much
from quernel.identity.encoding import encode
from quernel.identity.ids import BuildId

__all__ = ["UNCOUNTED_SOURCES", "build_id_hash", "sources_are_unchanged", "sources_digest"]

UNCOUNTED_SOURCES = ("api", "cli", "installing", "plugins", "runtime", "store", "testing")
"""What of the core cannot change what a kernel becomes. All else counts; of a backend, every file."""


def build_id_hash(*packages: str | os.PathLike[str]) -> BuildId:
    """The build id of some packages together, each by its import name or as a folder of sources.

    A wheel carries its digest in a module `_build_id`, written when it was built; the sources of an editable install
    are read, once in a process.
    """
    digests = [_package_digest(package) for package in packages]
    names = tuple(package for package in packages if isinstance(package, str))
    digest = sha256(encode(("build", *digests))).hexdigest()
    return BuildId(digest, names if len(names) == len(packages) else ())


def sources_digest(folder: str | os.PathLike[str], without: tuple[str, ...] = ()) -> str:
    """The digest of the Python sources below `folder`: paths with forward slashes, and contents with plain newlines.

    `without` names the modules and subpackages that do not count. The build hook of each distribution computes the
    same.
    """
    digest = sha256_of_much(b"quernel sources 1\0")
    for path in sorted(_counted_paths(os.fspath(folder), without)):
        with open(os.path.join(folder, path), "rb") as file:
            content = file.read().replace(b"\r\n", b"\n")
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def sources_are_unchanged() -> bool:
    """Whether the sources that this process's build ids were read from are still those that it has imported.

    Those of an editable install may change under a running process, which then compiles with old code, new code or
    both, and must not keep the result under either's build id. Looks at the time of every file.
    """
    imported_ns: int = import_module("quernel")._imported_ns
    for folder, without in _read_folders:
        for path in _counted_paths(folder, without):
            try:
                status = os.stat(os.path.join(folder, path))
            except OSError:
                return False
            if max(status.st_mtime_ns, status.st_ctime_ns) > imported_ns:
                return False
    return True


_read_folders: list[tuple[str, tuple[str, ...]]] = []


def _counted_paths(folder: str, without: tuple[str, ...]) -> Iterator[str]:
    return (path for path in _source_paths(folder) if path.split("/")[0].removesuffix(".py") not in without)


def _source_paths(folder: str, prefix: str = "") -> Iterator[str]:
    with os.scandir(os.path.join(folder, prefix)) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _source_paths(folder, f"{prefix}{entry.name}/")
            elif entry.name.endswith(".py") and entry.name != "_build_id.py":
                yield prefix + entry.name


def _package_digest(package: str | os.PathLike[str]) -> str:
    return _installed_digest(package) if isinstance(package, str) else sources_digest(package)


@cache
def _installed_digest(package: str) -> str:
    try:
        built: str = import_module(f"{package}._build_id").DIGEST
    except ModuleNotFoundError:
        (folder,) = import_module(package).__path__
        without = UNCOUNTED_SOURCES if package == "quernel" else ()
        _read_folders.append((folder, without))
        return sources_digest(folder, without)
    return built
