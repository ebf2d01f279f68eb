"""Wheels built from this tree, installed by pip in an empty environment, beside plugins that are broken."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SAXPY = """
import numpy as np
import quernel as qn

@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]

x = np.arange(1000, dtype=np.float32)
y = np.ones_like(x)
saxpy.over(len(x))(2.0, x, y)
assert np.array_equal(y, 2 * x + 1)
print(qn.device().name)
"""


class Installed:
    """A virtual environment without anything of the one that runs the tests."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", with_pip=True)
        self.python = folder / "venv" / "bin" / "python"
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QUERNEL_"))
        } | {"QUERNEL_ENVIRONMENT": str(folder / "environment")}
        self._folder = folder

    def run(self, *arguments: object) -> str:
        command = [str(self.python), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment, cwd=self._folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pip_install(self, *packages: object) -> None:
        self.run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)


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


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("wheels")
    for project in ("core", "backends/cpu"):
        command = [sys.executable, "-m", "build", "--outdir", folder, ROOT / project]
        subprocess.run(command, check=True, capture_output=True)
    found = sorted(folder.glob("*.whl"))
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def installed(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    made = Installed(folder)
    broken = plugin_package(folder, "broken_plugin", "broken", "raise RuntimeError('no toolchain on this machine')")
    future = plugin_package(folder, "future_plugin", "future", "QUERNEL_PLUGIN_API = 999\ndef quernel_backend(): ...\n")
    thief = plugin_package(
        folder,
        "thief_plugin",
        "cpu",
        "from quernel_cpu.plugin import QUERNEL_PLUGIN_API, quernel_backend\n",
    )
    made.pip_install(*wheels, broken, future, thief)
    return made


def test_installed_wheels_run_a_kernel_beside_broken_plugins(installed, tmp_path):
    (tmp_path / "saxpy.py").write_text(SAXPY)
    assert installed.run(tmp_path / "saxpy.py").startswith("cpu:0")


def test_broken_plugins_are_listed_with_their_reasons_and_hide_nothing(installed):
    listed = json.loads(installed.run("-m", "quernel.cli", "backends", "--json"))
    by_origin = {(row["name"], row["distribution"].replace("_", "-")): row for row in listed}
    assert by_origin["cpu", "quernel-cpu"]["ok"]
    assert by_origin["reference", "quernel"]["ok"]
    assert "no toolchain on this machine" in by_origin["broken", "broken-plugin"]["reason"]
    assert "999" in by_origin["future", "future-plugin"]["reason"]
    assert "taken" in by_origin["cpu", "thief-plugin"]["reason"]
    assert all(row["fix"] for row in listed if not row["ok"])


def test_a_broken_backend_raises_only_when_asked_for_by_name(installed, tmp_path):
    (tmp_path / "ask.py").write_text(
        "import quernel as qn\n"
        "assert qn.device().name\n"
        "try:\n    qn.device('broken')\n"
        "except qn.errors.PluginError as error:\n    print(error)\n"
    )
    assert "no toolchain on this machine" in installed.run(tmp_path / "ask.py")


def test_wheels_carry_types_licence_and_build_id(wheels):
    import zipfile

    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        package = "quernel_cpu" if "quernel_cpu" in wheel.name else "quernel"
        assert f"{package}/py.typed" in names
        assert f"{package}/_build_id.py" in names
        (licence,) = [name for name in names if name.endswith("licenses/LICENSE")]
        assert zipfile.ZipFile(wheel).read(licence) == (ROOT / "LICENSE").read_bytes()
        assert b"TERMS AND CONDITIONS" in (ROOT / "LICENSE").read_bytes()
        assert not [name for name in names if name.startswith("tests")]


def test_warm_start_of_an_installed_package_finds_its_kernel_in_the_store(installed, tmp_path):
    program = tmp_path / "outcome.py"
    program.write_text(
        SAXPY
        + "\nfrom quernel.store import read_records, current_environment\n"
        + "import sys\nprint(sorted({name.split('.')[1] for name in sys.modules if name.startswith('quernel.')}))\n"
    )
    installed.run(program)
    warm = installed.run(program)
    assert "'lang'" not in warm
    assert "'ir'" not in warm
