from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from quernel.identity import BuildId, build_id_hash
from quernel.identity.build import CORE_SOURCES, _installed_digest, sources_digest

ROOT = Path(__file__).resolve().parents[3]
DISTRIBUTIONS = {"quernel": ROOT / "core", "quernel_cpu": ROOT / "backends" / "cpu"}


def sources_of(package: str) -> tuple[str, ...]:
    return CORE_SOURCES if package == "quernel" else ()


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


def test_build_id_of_the_core_is_of_the_listed_sources(folder: Path) -> None:
    before = sources_digest(folder, CORE_SOURCES)
    (folder / "cli.py").write_bytes(b"C = 2\n")
    assert sources_digest(folder, CORE_SOURCES) == before
    (folder / "dtypes.py").write_bytes(b"B = 2\n")
    changed = sources_digest(folder, CORE_SOURCES)
    assert changed != before
    (folder / "ir" / "nodes.py").write_bytes(b"A = 2\n")
    assert sources_digest(folder, CORE_SOURCES) not in (before, changed)


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


def test_build_hooks_are_the_same_in_every_distribution() -> None:
    assert len({(folder / "hatch_build.py").read_text() for folder in DISTRIBUTIONS.values()}) == 1


def test_build_hook_of_the_core_is_told_the_listed_sources() -> None:
    project = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    assert tuple(hook["sources"]) == CORE_SOURCES == tuple(sorted(CORE_SOURCES))


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
    assert digest_in(made, package) == sources_digest(tmp_path / "unpacked" / package, sources_of(package))
    assert not (project / "src" / package / "_build_id.py").exists()


@pytest.mark.parametrize("package", sorted(DISTRIBUTIONS))
def test_wheel_made_from_a_source_distribution_carries_the_digest_too(package: str, tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling")
    archive = build("sdist", DISTRIBUTIONS[package], tmp_path)
    subprocess.run(["tar", "xzf", str(archive), "-C", str(tmp_path)], check=True)
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    made = build("wheel", unpacked, tmp_path)
    assert digest_in(made, package) == sources_digest(unpacked / "src" / package, sources_of(package))
