from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Install = Callable[..., None]

BACKEND = """
from quernel.runtime.operations import Backend, Unavailable
QUERNEL_PLUGIN_API = {api}
class Mine(Backend):
    name = {name!r}
    marker = {marker!r}
    def devices(self): return Unavailable("no driver", "get one")
    def target_info(self, target): raise ValueError(target)
    def compiler(self, target): raise ValueError
    def open(self, info): raise ValueError
def quernel_backend(): return Mine()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on the path; modules imported from it are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("plug_"):
            del sys.modules[name]


@pytest.fixture
def install(place: Path) -> Install:
    """Installs a distribution: `install("name", {"group": {"entry": "module"}}, module="source")`."""

    def make(distribution: str, entries: dict[str, dict[str, str]], version: str = "1.0", **modules: str) -> None:
        folder = place / f"{distribution.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        text = "".join(
            f"[{group}]\n" + "".join(f"{name} = {module}\n" for name, module in named.items()) + "\n"
            for group, named in entries.items()
        )
        (folder / "entry_points.txt").write_text(text)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        for module, source in modules.items():
            (place / f"{module}.py").write_text(textwrap.dedent(source))

    return make


def backend_source(name: str, marker: str = "", api: object = 1) -> str:
    return BACKEND.format(name=name, marker=marker, api=api)
