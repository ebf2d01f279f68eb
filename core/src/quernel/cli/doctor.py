"""`quernel doctor`: what is installed, what works, what is missing, and how to get it."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import attrs
import click

from quernel.cli.consoles import console
from quernel.wording import counted

__all__ = ["doctor"]

_LIBRARIES = ("numpy", "attrs", "pluggy", "diskcache", "filelock", "click", "rich", "platformdirs")
_IN_TREE = ("cpu",)


@attrs.frozen
class _Finding:
    """Something that does not work, and its mend."""

    where: str
    reason: str
    fix: str


def _versions() -> dict[str, str]:
    found = {"python": f"{platform.python_version()} ({sys.executable})", "platform": platform.platform()}
    for name in ("quernel", *_LIBRARIES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _backend_reports(findings: list[_Finding], notes: list[_Finding]) -> list[dict[str, Any]]:
    import quernel as qn
    from quernel.errors import QuernelError
    from quernel.installing import install_backend
    from quernel.plugins import BackendCatalog
    from quernel.runtime.asking import ask_compiler, ask_devices, ask_health
    from quernel.runtime.operations import Unavailable

    catalog = BackendCatalog()
    reports = []
    infos = qn.backends()
    for info in infos:
        report: dict[str, Any] = {"name": info.name, "from": f"{info.distribution} {info.version}", "ok": info.ok}
        if not info.ok:
            findings.append(_Finding(f"backend {info.name}", info.reason, info.fix))
        else:
            backend = catalog.load(info.name)
            try:
                health, devices = ask_health(backend), ask_devices(backend)
                if not isinstance(devices, Unavailable) and devices:
                    ask_compiler(backend, "")
            except QuernelError as error:
                findings.append(_Finding(f"backend {info.name}", error.what, error.fix or ""))
                reports.append(report | {"ok": False})
                continue
            report["versions"] = dict(health.versions)
            findings.extend(
                _Finding(f"backend {info.name}", problem.reason, problem.fix) for problem in health.problems
            )
            notes.extend(_Finding(f"backend {info.name}", note.reason, note.fix) for note in health.notes)
            if isinstance(devices, Unavailable):
                said = notes if any(note.reason == devices.reason for note in health.notes) else findings
                said.append(_Finding(f"devices of {info.name}", devices.reason, devices.fix))
                report["devices"] = []
            else:
                report["devices"] = [device.name for device in devices]
        reports.append(report)
    installed = {info.name for info in infos}
    findings.extend(
        _Finding(f"backend {name}", "it is not installed", install_backend(name))
        for name in _IN_TREE
        if name not in installed
    )
    return reports


def _settings_report(findings: list[_Finding]) -> dict[str, str]:
    """What the environment's variables set, each looked at as a launch would."""
    from difflib import get_close_matches

    from quernel import settings
    from quernel.errors import QuernelError
    from quernel.runtime.directory import directory

    findings.extend(_Finding("settings", error.what, error.fix or "") for error in settings.refusals())
    for name in settings.unknown_variables():
        meant = get_close_matches(name, settings.VARIABLES, 1)
        fix = f"did you mean {meant[0]}?" if meant else f"unset it; there are {', '.join(settings.VARIABLES)}"
        findings.append(_Finding("settings", f"the variable {name} sets nothing", fix))
    device = settings.device()
    if device is None:
        return {}
    try:
        found = directory.device(device)
    except QuernelError as error:
        chain = "".join(f"; {line}" for line in error.chain)
        findings.append(_Finding(f"QUERNEL_DEVICE={device}", error.what + chain, error.fix or "name another device"))
        return {"QUERNEL_DEVICE": f"{device}: there is none such"}
    return {"QUERNEL_DEVICE": f"{device}: {found.name} ({found.info.name})"}


def _store_report(findings: list[_Finding]) -> dict[str, Any]:
    from quernel.errors import StoreError
    from quernel.store import LocalLayer, current_environment, info

    environment = current_environment()
    report: dict[str, Any] = {"environment": environment.path}
    try:
        found = info(LocalLayer(environment))
    except StoreError as error:
        findings.append(_Finding("store", error.what, error.fix or "set QUERNEL_ENVIRONMENT to another folder"))
        return report
    report["kernels"] = found.num_kernels
    report["bytes"] = found.database_bytes + found.file_bytes
    return report


def _each_once(findings: list[_Finding], said: Collection[_Finding]) -> list[_Finding]:
    """The first of each reason, but for what was said already."""
    before = {finding.reason for finding in said}
    once = {finding.reason: finding for finding in reversed(findings) if finding.reason not in before}
    return list(once.values())[::-1]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def doctor(as_json: bool) -> int:
    """Check the installation and say how to mend it. Exit status 1 where something does not work."""
    findings: list[_Finding] = []
    notes: list[_Finding] = []
    versions = _versions()
    settings = _settings_report(findings)
    backends = _backend_reports(findings, notes)
    store = _store_report(findings)
    findings = _each_once(findings, ())
    notes = _each_once(notes, findings)
    if as_json:
        tree = {
            "versions": versions,
            "backends": backends,
            "settings": settings,
            "store": store,
            "problems": [attrs.asdict(finding) for finding in findings],
            "notes": [attrs.asdict(note) for note in notes],
        }
        click.echo(json.dumps(tree))
        return 1 if findings else 0

    from rich.markup import escape
    from rich.table import Table

    output = console()
    table = Table("component", "version", title="Versions", title_justify="left")
    for name, text in versions.items():
        table.add_row(name, escape(text))
    for report in backends:
        for name, text in report.get("versions", {}).items():
            table.add_row(escape(f"{report['name']}: {name}"), escape(text))
    output.print(table)
    table = Table("backend", "from", "works", "devices", title="Backends", title_justify="left")
    for report in backends:
        names = ", ".join(report.get("devices", []))
        table.add_row(report["name"], escape(report["from"]), "yes" if report["ok"] else "no", escape(names))
    output.print(table)
    size = f", {counted(store['kernels'], 'kernel')}, {store['bytes'] / 2**20:.1f} MiB" if "kernels" in store else ""
    for name, text in settings.items():
        output.print(f"{name}: {escape(text)}")
    output.print(f"Store: {escape(store['environment'])}{size}")
    for note in notes:
        output.print(f"[bold]{escape(note.where)}[/]: {escape(note.reason)}\n  to use it: {escape(note.fix)}")
    for finding in findings:
        output.print(f"[bold red]{escape(finding.where)}[/]: {escape(finding.reason)}\n  fix: {escape(finding.fix)}")
    output.print("Everything works." if not findings else f"{counted(len(findings), 'problem')}.")
    return 1 if findings else 0
