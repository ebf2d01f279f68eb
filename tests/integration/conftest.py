"""Wheels of this tree and an environment with them, made once for all processes of a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "backend-c"
SKELETON = "tile-lang"


class Installed:
    """A virtual environment without anything of the one that runs the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QUERNEL_", "PYTEST_"))
        } | {"QUERNEL_ENVIRONMENT": str(folder / "environment")}

    def run(self, *arguments: object, cwd: Path | None = None) -> str:
        command = [str(self.python), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment, cwd=cwd or self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pip_install(self, *packages: object) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.python)]
        command = [*pip, "install", "--quiet", "--disable-pip-version-check", *map(str, packages)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def plugin_package(folder: Path, name: str, backend: str, code: str) -> Path:
    package = folder / name
    package.mkdir()
    (package / f"{name}.py").write_text(code)
    (package / "pyproject.toml").write_text(
        f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.0"
[project.entry-points."quernel.backends"]
{backend} = "{name}"
[tool.hatch.build.targets.wheel]
only-include = ["{name}.py"]
"""
    )
    return package


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that one of the run's processes fills, and all of them use."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / "ready").touch()
    return folder


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of the core and of the cpu backend."""

    def make(folder: Path) -> None:
        for project in ("core", "backends/cpu"):
            command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT / project]
            subprocess.run(command, check=True, capture_output=True)

    found = sorted(made_once(tmp_path_factory, "wheels", make).glob("*.whl"))
    assert len(found) == 2
    return found


@pytest.fixture(scope="session")
def installed(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """They, the package of the tutorial and one that was just written, beside plugins that are broken."""

    def make(folder: Path) -> None:
        venv.create(folder / "venv")
        Path(folder, "sources").mkdir()
        broken = "raise RuntimeError('no toolchain on this machine')"
        future = "QUERNEL_PLUGIN_API = 999\ndef quernel_backend(): ...\n"
        packages = [
            plugin_package(folder / "sources", "broken_plugin", "broken", broken),
            plugin_package(folder / "sources", "future_plugin", "future", future),
            plugin_package(folder / "sources", "thief_plugin", "cpu", "from quernel_cpu.plugin import *\n"),
            plugin_package(folder / "sources", "thief_of_c", "c", "from quernel_c.plugin import *\n"),
        ]
        skeleton = folder / "skeleton"
        command = [sys.executable, "-m", "quernel.cli", "new-backend", SKELETON, "--directory", skeleton]
        subprocess.run(command, check=True, capture_output=True)
        for project in (TUTORIAL, skeleton, *packages):
            copied = folder / "sources" / "building" / project.name
            shutil.copytree(project, copied)
            build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "wheels", copied]
            subprocess.run(build, check=True, capture_output=True)
        core, cpu = sorted(wheels, key=lambda wheel: "quernel_cpu" in wheel.name)
        others = sorted((folder / "wheels").glob("*.whl"))
        assert len(others) == 6
        Installed(folder).pip_install(f"{core}[testing]", cpu, *others)

    return Installed(made_once(tmp_path_factory, "installed", make))
