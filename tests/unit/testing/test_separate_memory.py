"""The kit runs on devices that do not reach the host's memory, here one that the interpreter plays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "conformance"


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A Python process that also finds the backends of `separate_memory`."""
    for name in ("separate", "narrow"):
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[quernel.backends]\n{name} = {name}_memory\n")
    (folder / "separate_memory.py").write_bytes((HERE / "separate_memory.py").read_bytes())
    (folder / "narrow_memory.py").write_text(
        "from separate_memory import QUERNEL_PLUGIN_API, NarrowBackend\nquernel_backend = NarrowBackend\n"
    )
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "FUZZ_EXAMPLES": "5"}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def kit(folder: Path, backend: str, selected: str, *where: str) -> str:
    """What the kit says of the tests selected, all of which pass or are not run."""
    done = run(
        folder,
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--pyargs",
        *where,
        "--quernel-backend",
        backend,
        "-k",
        selected,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("conformance with Quernel")[1]


def test_views_structs_and_reports_reach_the_callers_arrays(tmp_path: Path) -> None:
    selected = "any_strides or one_array or view_reaches or struct or compares or bitonic or prints or promise_is"
    modules = [f"quernel.testing.test_{name}" for name in ("launches", "cases", "checked", "composites", "together")]
    said = kit(tmp_path, "separate", selected, *modules)
    assert "0 failed, 0 not run, 0 owed" in said


def test_what_is_about_the_hosts_arrays_is_not_run_and_says_so(tmp_path: Path) -> None:
    said = kit(tmp_path, "separate", "read_only", "quernel.testing.test_cases")
    assert "1 × not run: needs host_access, which separate does not declare" in said


def test_random_kernels_run(tmp_path: Path) -> None:
    kit(tmp_path, "separate", "random_kernels", "quernel.testing.test_random_kernels")
    done = run(
        tmp_path, "quernel.testing.fuzz", "--examples", "4", "--backend", "separate", "--workers", "1", "--seed", "3",
        "--keep", str(tmp_path / "found"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no mismatch" in done.stdout


@pytest.mark.parametrize("page", ["language", "errors"])
def test_the_examples_of_the_pages_run(tmp_path: Path, page: str) -> None:
    path = str(PAGES / f"test_{page}_page.py")
    done = run(tmp_path, "pytest", "-q", path, "--quernel-backend", "separate", "-k", "array or whole or coroutine")
    assert done.returncode == 0, done.stdout + done.stderr


def test_tests_that_need_f64_are_not_run_where_there_is_none(tmp_path: Path) -> None:
    modules = ("quernel.testing.test_launches", "quernel.testing.test_conversions")
    said = kit(tmp_path, "narrow", "scalars or clamp or rounding", *modules)
    assert "needs f64, which narrow does not declare" in said
