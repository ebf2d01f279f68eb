"""`quernel conform`: the conformance kit on one backend, and a table of what it claims, passes and owes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

__all__ = ["conform"]

_NEEDED = ("pytest", "hypothesis", "mpmath", "ml_dtypes")


@click.command()
@click.argument("backend")
@click.option("--device", "devices", multiple=True, metavar="SPEC", help="On this device; may be repeated.")
@click.option("--quick", is_flag=True, help="Of each test the first and the last set of parameters only.")
@click.option("-k", "selected", metavar="EXPRESSION", help="Only tests whose names match, as pytest's -k.")
@click.option("-n", "workers", metavar="NUMBER", help="Processes to run in; by default one per core with pytest-xdist.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcomes as JSON, and pytest's lines elsewhere.")
def conform(
    backend: str, devices: tuple[str, ...], quick: bool, selected: str | None, workers: str | None, as_json: bool
) -> int:
    """Run the conformance kit on BACKEND: on its first device, unless others are named.

    It ends with what passed in each part, what the backend does not claim, and what it still owes. Exit status 0:
    nothing failed, every known gap still is one, and nothing was left out but what the backend does not declare.
    """
    _require_tools()
    specs = _devices_of(backend, devices)
    with tempfile.TemporaryDirectory(prefix="quernel-conform-") as folder:
        report = Path(folder, "report.json")
        command = _command(specs, quick, selected, workers, report)
        done = subprocess.run(command, stdout=sys.stderr if as_json else None, check=False)
        outcomes: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
    if as_json:
        click.echo(json.dumps({"backend": backend, "status": done.returncode, "devices": outcomes}))
    has_run = any(device["total"]["passed"] + device["total"]["owed"] for device in outcomes.values())
    if done.returncode == 0 and not has_run:
        click.echo(f"Error: no case of the kit ran on {backend}", err=True)
        return 1
    return done.returncode


def _require_tools() -> None:
    from quernel.errors import PluginError
    from quernel.installing import install_extra

    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise PluginError(f"the kit needs {', '.join(missing)}", fix=install_extra("testing"))


def _devices_of(backend: str, devices: tuple[str, ...]) -> list[str]:
    """The devices to run on, each of which is the backend's.

    Raises:
        QuernelError: the backend does not work, or has no such device.
    """
    import quernel as qn
    from quernel.errors import DeviceError

    if not devices:
        name = qn.device(backend).info.backend
        if name != backend:
            more = "" if name == backend.lower() else f" --device {backend}"
            raise DeviceError(f"{backend!r} is not the name of a backend", fix=f"quernel conform {name}{more}")
        return [backend]
    for spec in devices:
        device = qn.device(spec)
        if device.info.backend != backend:
            raise DeviceError(
                f"{spec!r} is a device of {device.info.backend}, not of {backend}",
                fix=f"quernel conform {device.info.backend} --device {spec}",
            )
    return list(devices)


def _command(specs: list[str], quick: bool, selected: str | None, workers: str | None, report: Path) -> list[str]:
    """How the kit is run: by pytest in a process of its own, under a configuration of its own."""
    kit = find_spec("quernel.testing")
    assert kit is not None
    assert kit.origin is not None
    folder = Path(kit.origin).parent
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(folder / "conform.ini"), "-p", "no:cacheprovider"]
    command += ["--pyargs", "quernel.testing", "--quernel-report", str(report)]
    for spec in specs:
        command += ["--quernel-device", spec]
    command += ["--quernel-quick"] if quick else ["--quernel-whole"]
    command += ["-k", selected] if selected is not None else []
    if find_spec("xdist") is not None:
        command += ["-n", workers or "auto", "--dist", "worksteal"]
    return command
