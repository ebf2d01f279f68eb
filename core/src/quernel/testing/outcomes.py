"""What became of each case of the kit, by device and part: counted as reports come in, shown as a table at the end."""

from __future__ import annotations

import collections
import json
import re
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

__all__ = ["DEVICE", "PART", "DeviceOutcomes", "Outcomes", "not_declared"]

DEVICE: Final = "quernel_device"
"""The property of a report that names the device on which a case of the kit ran."""
PART: Final = "quernel_part"
"""The property that names the part of the kit."""

_NOT_DECLARED: Final = re.compile(r"needs (.+), which \S+ does not declare")


def not_declared(names: list[str], backend: str) -> str:
    """Why a case is not run on a backend that does not claim what the case is about."""
    return f"needs {', '.join(names)}, which {backend} does not declare"


@attrs.define(eq=False)
class Counts:
    """How many cases of one part ended how."""

    passed: int = 0
    failed: int = 0
    not_run: int = 0
    owed: int = 0


@attrs.define(eq=False)
class DeviceOutcomes:
    """What was found of one device.

    Attributes:
        parts: counts by the part of the kit.
        not_claimed: how often each name was needed that the backend does not declare.
        reasons: why cases were not run or are owed, with their number, as lines to show.
        failed: the cases that failed, as `module::test[parameters]`.
        unexplained: cases that were not run for a reason that is no claim of the backend: nobody knows about them.
    """

    parts: dict[str, Counts] = attrs.field(factory=lambda: collections.defaultdict(Counts))
    not_claimed: collections.Counter[str] = attrs.field(factory=collections.Counter)
    reasons: collections.Counter[str] = attrs.field(factory=collections.Counter)
    failed: list[str] = attrs.field(factory=list)
    unexplained: list[str] = attrs.field(factory=list)

    def total(self) -> Counts:
        """The counts of all parts together."""
        parts = self.parts.values()
        return Counts(*(sum(getattr(part, field.name) for part in parts) for field in attrs.fields(Counts)))


class Outcomes:
    """A pytest plugin that counts, and ends the run with what it counted."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.devices: dict[str, DeviceOutcomes] = collections.defaultdict(DeviceOutcomes)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes one report in. Of a case that passes, only the call counts."""
        properties: dict[str, Any] = dict(getattr(report, "user_properties", ()))
        spec = properties.get(DEVICE)
        if spec is None or (report.passed and report.when != "call"):
            return
        found = self.devices[spec]
        counts = found.parts[properties[PART]]
        name = f"test_{properties[PART]}::{report.nodeid.partition('::')[2]}"
        if hasattr(report, "wasxfail") and report.skipped:
            counts.owed += 1
            found.reasons[f"owes: {report.wasxfail}"] += 1
        elif report.passed:
            counts.passed += 1
        elif report.failed:
            counts.failed += 1
            found.failed.append(name)
        else:
            counts.not_run += 1
            self._note_skip(found, name, report)

    def _note_skip(self, found: DeviceOutcomes, name: str, report: pytest.TestReport) -> None:
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        found.reasons[f"not run: {reason}"] += 1
        claim = _NOT_DECLARED.fullmatch(reason)
        if claim is None:
            found.unexplained.append(f"{name}: {reason}")
        else:
            found.not_claimed.update(claim[1].split(", "))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Writes the report that was asked for. A case that was left out without a claim is a failure."""
        if hasattr(self._config, "workerinput"):
            return
        if any(found.unexplained for found in self.devices.values()) and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        file = self._config.getoption("--quernel-report")
        if file is not None:
            Path(file).write_text(json.dumps(self.tree(), indent=2) + "\n", encoding="utf-8")

    def tree(self) -> dict[str, Any]:
        """What was counted, as JSON has it."""
        return {
            spec: {
                "total": attrs.asdict(found.total()),
                "parts": {part: attrs.asdict(counts) for part, counts in sorted(found.parts.items())},
                "not_claimed": dict(sorted(found.not_claimed.items())),
                "owed": {
                    reason.removeprefix("owes: "): number
                    for reason, number in found.reasons.most_common()
                    if reason.startswith("owes: ")
                },
                "failed": sorted(found.failed),
                "unexplained": sorted(found.unexplained),
            }
            for spec, found in sorted(self.devices.items())
        }

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says of each device what passed, what it does not claim, and what its backend still owes."""
        if not self.devices:
            return
        terminalreporter.section("conformance with Quernel")
        for spec, found in sorted(self.devices.items()):
            for line in _table(spec, found):
                terminalreporter.write_line(line)


def _table(spec: str, found: DeviceOutcomes) -> list[str]:
    total = found.total()
    lines = [f"{'part':<16}{'passed':>8}{'failed':>8}{'not run':>9}{'owed':>6}"]
    lines += [
        f"{part:<16}{counts.passed:>8}{counts.failed:>8}{counts.not_run:>9}{counts.owed:>6}"
        for part, counts in sorted(found.parts.items())
    ]
    lines.append(
        f"{spec}: {total.passed} passed, {total.failed} failed, "
        f"{total.not_run} not run, {total.owed} owed as known gaps"
    )
    lines += [f"    {number:4} × {reason}" for reason, number in found.reasons.most_common()]
    if found.unexplained:
        lines.append(f"    {len(found.unexplained)} not run without a claim that says so, which counts as failed:")
        lines += [f"        {case}" for case in sorted(found.unexplained)]
    return lines
