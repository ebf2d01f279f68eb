"""The kit sees what is wrong with a backend, in the part that is about it and in no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.testing.wrong_backends import FAULTS

ROOT = Path(__file__).resolve().parents[3]


def outcomes_of(folder: Path, faults: list[str], *arguments: str) -> dict[str, Any]:
    """What the kit finds of backends with those faults, by fault."""
    info = folder / "wrong-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    entries = [f"wrong-{fault} = wrong_{fault.replace('-', '_')}\n" for fault in faults]
    (info / "entry_points.txt").write_text("[quernel.backends]\n" + "".join(entries))
    for fault in faults:
        (folder / f"wrong_{fault.replace('-', '_')}.py").write_text(
            f"from tests.unit.testing.{FAULTS[fault].module} import QUERNEL_PLUGIN_API, backend_of\n"
            f"quernel_backend = lambda: backend_of({fault!r})\n"
        )
    path = os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH")]))
    report = folder / "report.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", *arguments]
    command += ["--quernel-report", str(report), *(f"--quernel-backend=wrong-{fault}" for fault in faults)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    return {spec.removeprefix("wrong-"): outcomes for spec, outcomes in found.items()}


def failed_in(outcomes: dict[str, Any]) -> set[str]:
    """`part::test` of each test that failed."""
    return {case.partition("[")[0].removeprefix("test_") for case in outcomes["failed"]}


IN_PROCESSES = [
    name for name, fault in FAULTS.items() if fault.part in ("discovery", "identity", "closing", "persistence")
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_about_processes", [False, True])
def test_each_fault_is_seen_by_the_test_that_is_about_it_and_by_no_other(
    tmp_path: Path, is_about_processes: bool
) -> None:
    faults = [name for name in FAULTS if (name in IN_PROCESSES) is is_about_processes]
    modules = [f"quernel.testing.test_{FAULTS[name].part}" for name in faults]
    tests = " or ".join(FAULTS[name].seen_by for name in faults)
    found = outcomes_of(tmp_path, faults, *dict.fromkeys(modules), "--quernel-quick", "-k", tests)
    for name in faults:
        fault = FAULTS[name]
        seen = {test for test in failed_in(found[name]) if test.partition("::")[0] not in fault.touches}
        assert {f"{fault.part}::{fault.seen_by}"} == seen, name


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen_in_no_other_part(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("quernel_quick") is not False:
        pytest.skip("needs --quernel-whole")
    fault = FAULTS[name]
    (outcomes,) = outcomes_of(tmp_path, [name], "quernel.testing", "--quernel-quick").values()
    failed = {part for part, counts in outcomes["parts"].items() if counts["failed"]}
    assert {fault.part} <= failed <= {fault.part} | fault.touches, outcomes["failed"]


def test_every_part_has_a_fault_that_it_must_see() -> None:
    import quernel.testing

    modules = {path.stem.removeprefix("test_") for path in Path(quernel.testing.__file__).parent.glob("test_*.py")}
    assert modules == {part for fault in FAULTS.values() for part in {fault.part} | fault.touches}
