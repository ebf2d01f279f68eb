"""What to type to install a part of Quernel: from the package index, or from the checkout that the core came from.

Imported only where something is refused, so that it costs no start.
"""

from __future__ import annotations

import json
import os
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

__all__ = ["install_backend", "install_extra", "upgrade"]

_CORE = "quernel"


def install_backend(name: str, *, extra: str = "") -> str:
    """The command that installs the backend `name`, with an extra of its own where one is given, such as `pocl`."""
    origin = _origin(_CORE)
    option = f"[{extra}]" if extra else ""
    core = _folder(origin)
    if core is not None:
        backend = os.path.join(os.path.dirname(core), "backends", name)
        if os.path.isfile(os.path.join(backend, "pyproject.toml")):
            return _from_folder(origin, backend + option)
    if "vcs_info" in origin and origin.get("subdirectory") == "core":
        return _pip(f"{_CORE}-{name}{option} @ {_repository(origin)}#subdirectory=backends/{name}")
    return _pip(f"{_CORE}-{name}{option}" if extra else f"{_CORE}[{name}]")


def install_extra(extra: str) -> str:
    """The command that installs what an extra of the core needs, such as `demo`."""
    origin = _origin(_CORE)
    core = _folder(origin)
    if core is not None:
        return _from_folder(origin, f"{core}[{extra}]")
    if "vcs_info" in origin:
        return _pip(f"{_CORE}[{extra}] @ {_repository(origin)}#subdirectory={origin.get('subdirectory', '')}")
    return _pip(f"{_CORE}[{extra}]")


def upgrade(name: str) -> str:
    """The command that brings an installed distribution up to date: again from where it came from."""
    origin = _origin(name)
    folder = _folder(origin)
    return f"pip install --upgrade {shlex.quote(name)}" if folder is None else _from_folder(origin, folder)


def _origin(name: str) -> dict[str, Any]:
    """Where a distribution was installed from (PEP 610); empty for one from an index, and for none."""
    try:
        text = distribution(name).read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def _folder(origin: dict[str, Any]) -> str | None:
    """The folder of sources that a distribution was installed from, if it is still there."""
    url = urlsplit(origin.get("url", ""))
    if "dir_info" not in origin or url.scheme != "file":
        return None
    folder = url2pathname(url.path)
    return folder if os.path.isfile(os.path.join(folder, "pyproject.toml")) else None


def _from_folder(origin: dict[str, Any], folder: str) -> str:
    editable = "-e " if origin["dir_info"].get("editable") else ""
    return f"pip install {editable}{_quoted(folder)}"


def _repository(origin: dict[str, Any]) -> str:
    control: dict[str, str] = origin["vcs_info"]
    return f"{control['vcs']}+{origin['url']}@{control['commit_id']}"


def _pip(requirement: str) -> str:
    return f"pip install {_quoted(requirement)}"


def _quoted(text: str) -> str:
    """As one word of any shell; `"` where that is enough, as it is for Windows too."""
    if shlex.quote(text) == text:
        return text
    return shlex.quote(text) if any(special in text for special in '"$`\\!') else f'"{text}"'
