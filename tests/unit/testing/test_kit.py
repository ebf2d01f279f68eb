"""The kit as a plugin: devices chosen on the command line, gates that say what is missing, gaps that must fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import quernel as qn
from quernel.api.wiring import catalog
from quernel.testing.plugin import names_of_the_kit

PLUGIN = '''
import attrs
from quernel.reference import plugin
QUERNEL_PLUGIN_API = 1


class Limited(plugin.ReferenceBackend):
    """The interpreter under another name, without barriers, and with gaps of its own."""

    name = "limited"

    def devices(self):
        return tuple(attrs.evolve(info, backend=self.name) for info in super().devices())

    def target_info(self, target):
        info = super().target_info(target)
        return attrs.evolve(info, backend=self.name, capabilities=attrs.evolve(info.capabilities, barriers=False))

    def known_gaps(self):
        return {gap: "so it was decided" for gap in GAPS}


def quernel_backend():
    return Limited()
'''
LOSES_PRINTS = """
from quernel.reference.prints import Printer
Printer.print = lambda self, global_id, site, values: None
"""


def run(folder: Path, *arguments: str, gaps: tuple[str, ...] = (), fault: str = "") -> subprocess.CompletedProcess[str]:
    """pytest in a process that also finds the backend `limited`."""
    info = folder / "limited-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: limited\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quernel.backends]\nlimited = limited_backend\n")
    (folder / "limited_backend.py").write_text(f"GAPS = {gaps!r}\n{PLUGIN}{fault}")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


ONE = "quernel.testing.test_together"
OVER = "test_what_needs_a_block"


def test_what_a_backend_does_not_declare_is_skipped_and_named(tmp_path: Path) -> None:
    done = run(tmp_path, "--pyargs", ONE, "--quernel-backend", "limited", "-k", OVER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "needs barriers, which limited does not declare" in done.stdout
    assert "limited: 0 passed, 0 failed, 4 not run, 0 owed as known gaps" in done.stdout


def test_a_known_gap_that_does_not_fail_is_a_failure(tmp_path: Path) -> None:
    arguments = ("--pyargs", "quernel.testing.test_cases", "--quernel-backend", "limited", "-k", "test_floor_division")
    done = run(tmp_path, *arguments, gaps=("test_cases::test_floor_*",))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "[XPASS(strict)] so it was decided" in done.stdout
    assert run(tmp_path, *arguments).returncode == 0


def test_a_known_gap_that_fails_is_owed_with_its_reason(tmp_path: Path) -> None:
    arguments = ("--pyargs", "quernel.testing.test_checked", "--quernel-backend", "limited", "-k", "prints_are")
    done = run(tmp_path, *arguments, gaps=("test_checked::test_prints_are_*",), fault=LOSES_PRINTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 owed as known gaps" in done.stdout
    assert "1 × owes: so it was decided" in done.stdout


@pytest.mark.parametrize(
    ("asked", "what", "fix"),
    [
        (["--quernel-backend", "absent"], "no backend is named 'absent'; installed: .*limited", "check the name"),
        (["--quernel-backend", "limitde"], "no backend is named 'limitde'; installed: .*", "did you mean 'limited'"),
        (["--quernel-device", "absent"], "no backend is named 'absent'; installed: .*limited", "check the name"),
        (["--quernel-device", "limited:7"], "limited has these devices: limited:0", r"see qn\.devices"),
        (["--quernel-backend", "limited:0"], "'limited:0' is not the name of a backend", "--quernel-device limited:0"),
        (["--quernel-device", "absent", "-n", "2"], "no backend is named 'absent'", "check the name"),
    ],
)
def test_a_name_that_is_not_there_is_an_error_of_use_with_its_fix(
    tmp_path: Path, asked: list[str], what: str, fix: str
) -> None:
    done = run(tmp_path, "--pyargs", ONE, *asked)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stdout == ""
    assert re.fullmatch(rf"ERROR: {asked[0]} {asked[1]}: .*{what}.*\n  fix: .*{fix}.*\n\n", done.stderr)


def test_help_is_shown_whatever_is_asked_for(tmp_path: Path) -> None:
    done = run(tmp_path, "--quernel-backend", "absent", "--help")
    assert done.returncode == 0
    assert "--quernel-backend=NAME" in done.stdout


USERS_TEST = """
import numpy as np
import pytest
import quernel as qn

@qn.kernel
def increment(x):
    x[qn.global_id()] += 1

def test_increment(quernel_device):
    x = np.zeros(3)
    increment.over(3, device=quernel_device)(x)
    assert x.tolist() == [1, 1, 1]

@pytest.mark.quernel_needs(memory_bytes=1 << 60)
def test_huge(quernel_device):
    raise AssertionError
"""


def test_a_users_suite_has_the_fixture_and_the_mark(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(USERS_TEST)
    done = run(tmp_path, "test_user.py", "-vv", "--quernel-device", "reference", "--quernel-device", "limited:0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_increment[reference] PASSED" in done.stdout
    assert "test_increment[limited:0] PASSED" in done.stdout
    assert "2 passed, 2 skipped" in done.stdout
    assert "1073741824.0 GiB of memory" in done.stdout


def test_a_gap_that_names_no_test_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, "--pyargs", ONE, "--quernel-backend", "limited", "-k", OVER, gaps=("test_cases::test_gone",))
    assert done.returncode != 0
    assert "has a known gap 'test_cases::test_gone', but the kit has no such test" in done.stdout + done.stderr


SKIPS = """
import pytest
from quernel.testing.test_launches import test_an_empty_extent_runs_nothing

@pytest.fixture(autouse=True)
def unwell():
    pytest.skip("the device is unwell today")
"""


def test_a_case_that_is_left_out_without_a_claim_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_skips.py").write_text(SKIPS)
    report = tmp_path / "report.json"
    arguments = ("test_skips.py", "--quernel-backend", "limited", "--quernel-quick", "--quernel-report", str(report))
    done = run(tmp_path, *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 not run without a claim that says so, which counts as failed" in done.stdout
    found = json.loads(report.read_text())["limited"]
    assert found["total"] == {"passed": 0, "failed": 0, "not_run": 2, "owed": 0}
    assert [case.rpartition(": ")[2] for case in found["unexplained"]] == ["the device is unwell today"] * 2


def test_the_report_counts_by_part_and_names_what_is_not_claimed(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run(tmp_path, "--pyargs", ONE, "--quernel-backend", "limited", "-k", OVER, "--quernel-report", str(report))
    found = json.loads(report.read_text())["limited"]
    assert found["parts"] == {"together": {"passed": 0, "failed": 0, "not_run": 4, "owed": 0}}
    assert found["not_claimed"] == {"barriers": 4}


def test_conform_runs_the_kit_and_says_what_it_found(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quernel.cli", "conform", "reference", "--quick", "--json", "-n", "0"]
    done = subprocess.run([*command, "-k", "empty_extent"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["backend"], found["status"]) == ("reference", 0)
    assert found["devices"]["reference"]["parts"]["launches"]["passed"] == 2
    none = subprocess.run([*command, "-k", "no_such"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert none.returncode != 0


@pytest.mark.parametrize(
    ("given", "what", "fix"),
    [
        (["reference", "--device", "cpu"], "'cpu' is a device of cpu, not of reference", "conform cpu --device cpu"),
        (["reference", "--device", "absent"], "no backend is named 'absent'; installed: .*reference", "check the name"),
        (["absent"], "no backend is named 'absent'; installed: .*reference", "check the name"),
        (["reference:0"], "'reference:0' is not the name", "conform reference --device reference:0"),
        (["Reference"], "'Reference' is not the name of a backend", "quernel conform reference\n"),
    ],
)
def test_conform_says_which_backends_there_are(tmp_path: Path, given: list[str], what: str, fix: str) -> None:
    if "cpu" in given:
        pytest.importorskip("quernel_cpu")
    command = [sys.executable, "-m", "quernel.cli", "conform", *given]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"Error: {what}[^\n]*\n  fix: .*{fix}.*", done.stderr, re.DOTALL)


@pytest.mark.timeout(900)
def test_a_backend_that_claims_nothing_fails_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("quernel_quick") is not False:
        pytest.skip("needs --quernel-whole")
    info = tmp_path / "meagre-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: meagre\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quernel.backends]\nmeagre = meagre\n")
    (tmp_path / "meagre.py").write_bytes((Path(__file__).parent / "meagre.py").read_bytes())
    done = run(tmp_path, "--pyargs", "quernel.testing", "--quernel-backend", "meagre")
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize("name", [backend.name for backend in qn.backends() if backend.ok])
def test_every_known_gap_names_a_test_of_the_kit(name: str) -> None:
    tests = names_of_the_kit()
    assert len(tests) > 150
    for pattern in catalog().load(name).known_gaps():
        assert any(fnmatchcase(test, pattern) for test in tests), pattern


def test_every_module_of_the_kit_is_run_on_the_backends_of_this_repository() -> None:
    here = {path.stem for path in (Path(__file__).parents[2] / "conformance").glob("test_*.py")}
    assert {name.split("::")[0] for name in names_of_the_kit()} <= here
