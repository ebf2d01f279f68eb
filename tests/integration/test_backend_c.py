"""A backend of a third party: the tutorial's, built as its page says, and installed as its users have it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from quernel.runtime.operations import Unavailable
from quernel_c._toolchain import find_toolchain

pytestmark = pytest.mark.skipif(isinstance(find_toolchain(), Unavailable), reason="needs a C compiler, such as gcc")

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "backend-c"
PAGE = (TUTORIAL / "index.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"^(?:\*\*`(?P<file>[^`]+)`\*\*\n\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$(?:\n\nSaved as `(?P<saved>[^`]+)`)?",
    re.MULTILINE | re.DOTALL,
)
NOT_ON_THE_PAGE = {"README.md", "index.md", "src/quernel_c/py.typed"}


@attrs.frozen
class Part:
    """A block of the page: a file of the package, or something to run once the files before it are there."""

    language: str
    text: str
    file: str | None
    saved: str | None
    line: int


def parts() -> Iterator[Part]:
    for found in BLOCK.finditer(PAGE):
        line = PAGE.count("\n", 0, found.start("text")) + 1
        yield Part(found["language"], found["text"], found["file"], found["saved"], line)


def test_the_page_builds_the_package():
    built = {part.file: part.text for part in parts() if part.file}
    there = {
        path.relative_to(TUTORIAL).as_posix(): path.read_text(encoding="utf-8")
        for path in TUTORIAL.rglob("*")
        if path.is_file() and not any("cache" in part for part in path.parts)
    }
    assert sorted(built) == sorted(there.keys() - NOT_ON_THE_PAGE)
    for name, text in built.items():
        assert text == there[name], name


class Building:
    """The package as far as the page has built it, as `pip install -e` shows it to Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places = [folder / "src", folder / "metadata"]
        scripts = folder / "scripts"
        scripts.mkdir()
        (scripts / "quernel").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m quernel.cli "$@"\n')
        (scripts / "quernel").chmod(0o755)
        self._path = f"{scripts}{os.pathsep}{os.environ['PATH']}"

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if name == "pyproject.toml":
            self._announce(tomllib.loads(text)["project"])

    def run(self, *command: object) -> str:
        modules = os.pathsep.join(filter(None, [*map(str, self._places), os.environ.get("PYTHONPATH")]))
        settings = {"PATH": self._path, "PYTHONPATH": modules, "QUERNEL_ENVIRONMENT": str(self.folder / "environment")}
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env={**os.environ, **settings, "COLUMNS": "200"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _announce(self, project: dict) -> None:
        info = self.folder / "metadata" / f"quernel_c-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        entries = "".join(
            f"{name} = {module}\n" for name, module in project["entry-points"]["quernel.backends"].items()
        )
        (info / "entry_points.txt").write_text(f"[quernel.backends]\n{entries}")


def test_each_step_of_the_page_works_with_what_was_built_before_it(tmp_path):
    building, said, num_run = Building(tmp_path), {}, 0
    for part in parts():
        if part.file:
            building.write(part.file, part.text)
        elif part.language == "python":
            building.write(part.saved or f"line_{part.line}.py", part.text)
            said[part.line] = building.run(sys.executable, part.saved or f"line_{part.line}.py")
            num_run += 1
        elif part.language == "sh":
            said[part.line] = building.run("bash", "-ec", part.text)
            num_run += 1
    assert num_run == 9
    everything = "\n".join(said.values())
    assert "fix: install one, for example gcc" in everything
    assert "fmaf(" in everything
    assert "index 1000" in everything
    assert re.search(r"saxpy.*compiled", list(said.values())[-1])
    building.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_backend.py")


# --- installed by pip, beside plugins that are broken -----------------------------------------------------------------

KERNEL = """
import sys
import numpy as np
import quernel as qn

@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]

x = np.arange(1000, dtype=np.float32)
y = np.ones_like(x)
saxpy.over(len(x), device="c")(2.0, x, y)
assert np.array_equal(y, 2 * x + 1)
print(sorted({name for name in sys.modules if name.startswith(("quernel.ir", "quernel.lang", "quernel_"))}))
"""


def test_a_warm_start_of_the_installed_backend_imports_no_lowering(installed, tmp_path):
    (tmp_path / "saxpy.py").write_text(KERNEL)
    assert "quernel_c.lowering" in installed.run(tmp_path / "saxpy.py")
    warm = installed.run(tmp_path / "saxpy.py")
    assert "quernel_c.target" in warm
    assert not re.search(r"quernel\.(ir|lang)|quernel_c\.lowering|quernel_cpu", warm)


def test_the_backend_works_beside_one_that_claims_its_name(installed):
    listed = json.loads(installed.run("-m", "quernel.cli", "backends", "--json"))
    by_origin = {(row["name"], row["distribution"]): row for row in listed}
    assert by_origin["c", "quernel-c"]["ok"]
    assert by_origin["tile-lang", "quernel-tile-lang"]["ok"]
    assert "the name 'c' is taken by quernel-c 0.1.0" in by_origin["c", "thief-of-c"]["reason"]


@pytest.mark.slow
def test_the_installed_backend_passes_its_own_tests_and_a_part_of_the_kit(installed, tmp_path):
    shutil.copytree(TUTORIAL / "tests", tmp_path / "tests")
    shutil.copy(TUTORIAL / "pyproject.toml", tmp_path)
    own = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_backend.py", cwd=tmp_path)
    assert "4 passed" in own
    kit = ("--pyargs", "quernel.testing.test_together", "quernel.testing.test_statements", "--quernel-backend", "c")
    said = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *kit, "--quernel-quick", cwd=tmp_path)
    assert re.search(r"c: [1-9]\d+ passed, 0 failed", said), said


@pytest.mark.slow
def test_what_new_backend_writes_passes_its_own_tests_once_installed(installed, tmp_path):
    shutil.copytree(installed.folder / "skeleton", tmp_path / "skeleton")
    said = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path / "skeleton")
    assert re.search(r"tile-lang: [1-9]\d+ passed, 0 failed", said), said


def test_the_wheel_holds_the_package_and_its_types(installed):
    import zipfile

    (wheel,) = (installed.folder / "wheels").glob("quernel_c-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"quernel_c/py.typed", "quernel_c/plugin.py"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "src")) or name.endswith("index.md")]


def test_the_installed_core_brings_the_templates_of_new_packages(installed, tmp_path):
    said = installed.run("-m", "quernel.cli", "new-backend", "other", "--directory", tmp_path / "made")
    written = [path for path in (tmp_path / "made").rglob("*") if path.is_file()]
    assert said.startswith(f"{len(written)} files")
    assert len(written) == len([path for path in (installed.folder / "skeleton").rglob("*") if path.is_file()])
