from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import quernel
from quernel.identity import BuildId, build_id_hash
from quernel.identity import build as build_module
from quernel.identity.build import (
    UNCOUNTED_SOURCES,
    _installed_digest,
    _read_folders,
    sources_are_unchanged,
    sources_digest,
)

ROOT = Path(__file__).resolve().parents[3]
DISTRIBUTIONS = {"quernel": ROOT / "core", "quernel_cpu": ROOT / "backends" / "cpu"}


def uncounted_of(package: str) -> tuple[str, ...]:
    return UNCOUNTED_SOURCES if package == "quernel" else ()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "nodes.py").write_bytes(b"A = 1\n")
    (tmp_path / "dtypes.py").write_bytes(b"B = 1\n")
    (tmp_path / "cli.py").write_bytes(b"C = 1\n")
    return tmp_path


def test_build_id_is_of_paths_and_contents(folder: Path) -> None:
    seen = {sources_digest(folder)}
    (folder / "cli.py").write_bytes(b"C = 2\n")
    seen.add(sources_digest(folder))
    (folder / "cli.py").rename(folder / "cli2.py")
    seen.add(sources_digest(folder))
    (folder / "ir" / "more.py").write_bytes(b"")
    seen.add(sources_digest(folder))
    assert len(seen) == 4


def test_build_id_ignores_what_is_no_source(folder: Path) -> None:
    before = sources_digest(folder)
    (folder / "py.typed").write_bytes(b"")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "dtypes.cpython-311.pyc").write_bytes(b"x")
    (folder / "_build_id.py").write_bytes(b"DIGEST = 1\n")
    (folder / "dtypes.py").write_bytes(b"B = 1\r\n")
    assert sources_digest(folder) == before


def test_build_id_leaves_out_what_does_not_count(folder: Path) -> None:
    before = sources_digest(folder, ("cli", "api"))
    (folder / "cli.py").write_bytes(b"C = 2\n")
    (folder / "api").mkdir()
    (folder / "api" / "cli2.py").write_bytes(b"")
    assert sources_digest(folder, ("cli", "api")) == before
    (folder / "dtypes.py").write_bytes(b"B = 2\n")
    changed = sources_digest(folder, ("cli", "api"))
    assert changed != before
    (folder / "ir" / "nodes.py").write_bytes(b"A = 2\n")
    assert sources_digest(folder, ("cli", "api")) not in (before, changed)


LOWER = r"""
import importlib, logging, pkgutil, sys
from pathlib import Path
import quernel.lang, quernel.ir.passes, quernel_cpu.emission
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition, Specialization
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import ArrayType, f64
from quernel.geometry import LaunchForm
from quernel.identity import KernelId
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.targets import host_target

folder = Path(sys.argv[1])
source = "from quernel.intrinsics import global_id\ndef k(x):\n    x[global_id()] = x[global_id()] / 3\n"
(folder / "kernels_of_a_test.py").write_text(source)
sys.path.insert(0, str(folder))
from kernels_of_a_test import k
for package in (quernel.lang, quernel.ir, quernel.ir.passes, quernel_cpu.emission):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
types = (("x", ArrayType(f64, 1)),)
made = Specialization(types, (), LaunchForm.OVER, (256,))
expand = lambda: quernel.lang.expand(
    k, name="k", parameter_types=dict(types), constants={}, form=made.form, block=made.block
)
definition = KernelDefinition(KernelId("k", "0" * 64), made, expand=expand)
compiler = CpuCompiler(host_target())
id = ArtifactId(definition.id, compiler.default_variant(made.signature))
lowered = compiler.lower(definition, id, CompilationRecording(), logging.getLogger())
assert compiler.finalize(id, lowered).payload
print(*sorted({name.split(".")[1] for name in sys.modules if name.startswith("quernel.")}))
"""


def test_every_module_that_lowering_loads_counts(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOWER, str(tmp_path)], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"ir", "lang", "structs", "diagnostics", "options"} <= loaded
    assert loaded & set(UNCOUNTED_SOURCES) == set()


def test_what_does_not_count_is_there() -> None:
    for name in UNCOUNTED_SOURCES:
        place = ROOT / "core" / "src" / "quernel" / name
        assert (place / "__init__.py").is_file() or place.with_suffix(".py").is_file()


def test_build_id_hash_counts_every_package_and_their_order(folder: Path) -> None:
    made = build_id_hash("quernel", folder)
    assert isinstance(made, BuildId)
    assert made == build_id_hash("quernel", folder)
    assert len({made, build_id_hash("quernel"), build_id_hash(folder), build_id_hash(folder, "quernel")}) == 4


def test_build_id_hash_of_an_unknown_package_says_which() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        build_id_hash("no_such_package")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "installed_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    _installed_digest.cache_clear()
    yield package
    _installed_digest.cache_clear()
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[name]


def test_build_id_hash_takes_the_digest_that_a_wheel_carries(installed: Path) -> None:
    (installed / "_build_id.py").write_text(f'DIGEST = "{"a" * 64}"\n')
    assert _installed_digest(installed.name) == "a" * 64


def test_build_id_hash_reads_the_sources_of_an_editable_install(installed: Path) -> None:
    assert _installed_digest(installed.name) == sources_digest(installed)


@pytest.fixture
def imported_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has imported Quernel a minute after its newest source was written."""
    files = [path for folder in DISTRIBUTIONS.values() for path in (folder / "src").rglob("*.py")]
    newest = max(max(path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in files)
    monkeypatch.setattr(quernel, "_imported_ns", max(newest, time.time_ns()) + 60 * 10**9)


@pytest.mark.usefixtures("imported_now")
def test_sources_that_were_written_after_they_were_imported_have_changed(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "_read_folders", [*_read_folders])
    _installed_digest(installed.name)
    assert sources_are_unchanged()
    source = installed / "__init__.py"
    later_ns = quernel._imported_ns + 10**9
    os.utime(source, ns=(later_ns, later_ns))
    assert not sources_are_unchanged()


def test_sources_of_a_wheel_never_change(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "_read_folders", [])
    monkeypatch.setattr(quernel, "_imported_ns", 0)
    (installed / "_build_id.py").write_text(f'DIGEST = "{"a" * 64}"\n')
    _installed_digest(installed.name)
    assert sources_are_unchanged()


def test_build_hooks_are_the_same_in_every_distribution() -> None:
    assert len({(folder / "hatch_build.py").read_text() for folder in DISTRIBUTIONS.values()}) == 1


def test_build_hook_of_the_core_is_told_what_does_not_count() -> None:
    project = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    assert tuple(hook["without"]) == UNCOUNTED_SOURCES == tuple(sorted(UNCOUNTED_SOURCES))


BUILD = """
import sys
from hatchling.build import build_sdist, build_wheel
print(dict(sdist=build_sdist, wheel=build_wheel)[sys.argv[1]](sys.argv[2]))
"""


def build(kind: str, project: Path, into: Path) -> Path:
    command = [sys.executable, "-c", BUILD, kind, str(into)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    return into / done.stdout.split()[-1]


def digest_in(wheel: Path, package: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith("hatch_build.py")] == []
        found = re.search(
            r'^DIGEST = "([0-9a-f]{64})"$', archive.read(f"{package}/_build_id.py").decode(), re.MULTILINE
        )
    assert found is not None
    return found[1]


@pytest.mark.parametrize("package", sorted(DISTRIBUTIONS))
def test_wheel_carries_the_digest_of_its_sources(package: str, tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling")
    pytest.importorskip("pip", reason="building a wheel as users do needs pip")
    project = DISTRIBUTIONS[package]
    wheel = tmp_path / "wheel"
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(wheel), str(project)], check=True)
    (made,) = wheel.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "unpacked")
    assert digest_in(made, package) == sources_digest(tmp_path / "unpacked" / package, uncounted_of(package))
    assert not (project / "src" / package / "_build_id.py").exists()


@pytest.mark.parametrize("package", sorted(DISTRIBUTIONS))
def test_wheel_made_from_a_source_distribution_carries_the_digest_too(package: str, tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling")
    archive = build("sdist", DISTRIBUTIONS[package], tmp_path)
    subprocess.run(["tar", "xzf", str(archive), "-C", str(tmp_path)], check=True)
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    made = build("wheel", unpacked, tmp_path)
    assert digest_in(made, package) == sources_digest(unpacked / "src" / package, uncounted_of(package))
