"""Build ids: which sources stand behind an artifact's bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib import import_module

from quernel.identity.encoding import encode
from quernel.identity.ids import BuildId

__all__ = ["CORE_SOURCES", "build_id_hash", "sources_digest"]

CORE_SOURCES = ("capabilities", "codegen", "compiler", "dtypes", "geometry", "intrinsics", "ir", "lang")
"""The modules and subpackages of the core that change what a kernel becomes. Of a backend, every file does."""


def build_id_hash(*packages: str | os.PathLike[str]) -> BuildId:
    """The build id of some packages together, each by its import name or as a folder of sources.

    A wheel carries its digest in a module `_build_id`, written when it was built; the sources of an editable install
    are read, once in a process.
    """
    digests = [_package_digest(package) for package in packages]
    return BuildId(sha256(encode(("build", *digests))).hexdigest())


def sources_digest(folder: str | os.PathLike[str], only: tuple[str, ...] = ()) -> str:
    """The digest of the Python sources below `folder`: paths with forward slashes, and contents with plain newlines.

    `only` names the modules and subpackages that count; by default all do. The build hook of each distribution
    computes the same.
    """
    digest = sha256(b"quernel sources 1\0")
    for path in sorted(_source_paths(os.fspath(folder))):
        if only and path.split("/")[0].removesuffix(".py") not in only:
            continue
        with open(os.path.join(folder, path), "rb") as file:
            content = file.read().replace(b"\r\n", b"\n")
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


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
        return sources_digest(folder, CORE_SOURCES if package == "quernel" else ())
    return built
