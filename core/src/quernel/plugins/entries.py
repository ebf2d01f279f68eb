"""Which distributions name a plugin of ours: a scan of the installed metadata, cheap enough for every start.

`importlib.metadata` takes tens of milliseconds to import and to look into every distribution. A folder's entry points
are one small text file, so folders on `sys.path` are read directly; whatever else may hold distributions (archives,
finders of other tools) is left to `importlib.metadata`, which is imported only then.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Final, final

__all__ = ["BACKENDS", "PLUGINS", "PluginEntry", "installed_entries", "installed_version"]

BACKENDS: Final = "quernel.backends"
"""The group of backends: the entry's name is the backend's name, its value a module."""
PLUGINS: Final = "quernel.plugins"
"""The group of observers and store layers: the entry's value is a module."""

_METADATA_FOLDERS = (".dist-info", ".egg-info")
_OF_OURS = b"quernel."


@final
class PluginEntry:
    """One entry point: its name, the module that it names, and the distribution that it came with."""

    __slots__ = ("distribution", "group", "module", "name", "version")

    def __init__(self, group: str, name: str, module: str, distribution: str, version: str) -> None:
        self.group = group
        self.name = name
        self.module = module
        self.distribution = distribution
        self.version = version

    def __repr__(self) -> str:
        return f"PluginEntry({self.group}: {self.name} = {self.module}, of {self.distribution} {self.version})"

    @property
    def origin(self) -> str:
        """The distribution and its version, for messages."""
        return f"{self.distribution} {self.version}".strip()


_last_scan: tuple[tuple[str, ...], list[tuple[str, str, str]]] = ((), [])
"""The path and what was found on it, as the groups are asked for one after the other."""


def installed_entries(group: str, path: Iterable[str] | None = None, *, anew: bool = False) -> tuple[PluginEntry, ...]:
    """The entries of a group in the distributions on `path` (default: `sys.path`), sorted by name and distribution.

    Of two distributions of one name the first on the path counts, as for imports. Damaged metadata is passed over. What
    was found for the same path before is used again, unless `anew`.
    """
    global _last_scan
    places = tuple(sys.path if path is None else path)
    scanned, metadata = _last_scan
    if anew or scanned != places:
        metadata = list(_metadata(list(places)))
        _last_scan = (places, metadata)
    seen: set[str] = set()
    found: list[PluginEntry] = []
    for distribution, version, text in metadata:
        normalized = _normalized(distribution)
        if normalized in seen:
            continue
        seen.add(normalized)
        for name, module in _parse(text, group):
            found.append(PluginEntry(group, name, module, normalized, version))
    return tuple(sorted(found, key=lambda entry: (entry.name, entry.distribution != "quernel", entry.distribution)))


def installed_version(distribution: str, path: Iterable[str] | None = None) -> str | None:
    """The version of a distribution by the name of its folder on `path` (default: `sys.path`), or `None`.

    It is that of the first folder which says one; archives and other finders are not asked.
    """
    wanted = _normalized(distribution)
    for place in sys.path if path is None else path:
        try:
            entries = os.scandir(place or os.curdir)
        except OSError:
            continue
        with entries:
            for entry in entries:
                if entry.name.endswith(_METADATA_FOLDERS):
                    name, _, version = entry.name.rpartition(".")[0].partition("-")
                    if version and _normalized(name) == wanted:
                        return version.partition("-")[0]  # what builds call an egg goes on with Python's version
    return None


def _normalized(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _metadata(path: list[str]) -> Iterator[tuple[str, str, str]]:
    """Name, version and entry points of every distribution that mentions us."""
    for place in path:
        try:
            entries = os.scandir(place or os.curdir)
        except NotADirectoryError:
            yield from _metadata_elsewhere([place])
            continue
        except OSError:
            continue
        with entries:
            for entry in sorted(entries, key=lambda found: found.name):
                if entry.name.endswith(_METADATA_FOLDERS) and (text := _entry_points(entry.path)) is not None:
                    yield *_name_and_version(entry), text
    if any(_is_foreign_finder(finder) for finder in sys.meta_path):
        yield from _metadata_elsewhere(path)


def _entry_points(folder: str) -> str | None:
    try:
        with open(os.path.join(folder, "entry_points.txt"), "rb") as file:
            data = file.read()
    except OSError:
        return None
    return data.decode("utf-8", "replace") if _OF_OURS in data else None


def _name_and_version(folder: os.DirEntry[str]) -> tuple[str, str]:
    name, _, version = folder.name.rpartition(".")[0].partition("-")
    if not version:
        try:
            with open(os.path.join(folder.path, "PKG-INFO"), encoding="utf-8", errors="replace") as file:
                version = next((line[8:].strip() for line in file if line.startswith("Version:")), "")
        except OSError:
            version = ""
    return name, version


def _is_foreign_finder(finder: object) -> bool:
    return hasattr(finder, "find_distributions") and not getattr(finder, "__module__", "").startswith(
        "_frozen_importlib"
    )


def _metadata_elsewhere(path: list[str]) -> Iterator[tuple[str, str, str]]:
    import importlib.metadata

    for distribution in importlib.metadata.distributions(path=path):
        try:
            text = distribution.read_text("entry_points.txt")
            if text is not None and _OF_OURS.decode() in text:
                yield distribution.metadata["Name"], distribution.version, text
        except Exception:
            continue


def _parse(text: str, group: str) -> Iterator[tuple[str, str]]:
    """The entries of one section: `name = module`, with extras after the module left out."""
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == group and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()
