"""`quernel records`: what was compiled in the current environment, when, where, and why."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs
import click

from quernel.cli.consoles import console

if TYPE_CHECKING:
    from quernel.store import CompilationRecord

__all__ = ["records"]

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
_LAST = 50
_KEY_DIGITS = 12
_SHORT_KEY_DIGITS = 8
_NAME_COLUMNS = 14


@click.group()
def records() -> None:
    """Look at what was compiled in the current environment."""


@records.command("list")
@click.option("--last", "number", type=click.IntRange(min=1), metavar="N", help=f"The last N; {_LAST} by default.")
@click.option("--all", "is_all", is_flag=True, help="All that are kept.")
@click.option("--kernel", metavar="NAME", help="Only kernels whose name holds NAME.")
@click.option("--outcome", type=click.Choice(["compiled", "loaded", "rekeyed"]), help="Only those that ended so.")
@_JSON
def list_records(number: int | None, is_all: bool, kernel: str | None, outcome: str | None, as_json: bool) -> None:
    """List the kernels compiled or loaded, the latest last."""
    if is_all and number is not None:
        raise click.UsageError("--all and --last exclude each other")
    everything = _records()
    found = [record for record in everything if _is_wanted(record, kernel, outcome)]
    shown = found if is_all else found[-(number or _LAST) :]
    if as_json:
        click.echo(json.dumps([_encoded(record) for record in shown]))
        return
    if not shown:
        click.echo(_nothing(len(everything)), err=True)
        return
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    names = ("when", "kernel", "key", "backend", "outcome", "ms", "process", "missed for")
    table = Table(*names, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in (0, 2, 5):
        table.columns[column].no_wrap = True
    table.columns[1].overflow = "fold"
    table.columns[1].min_width = min(max(len(record.kernel) for record in shown), _NAME_COLUMNS)
    table.columns[4].min_width = len("compiled")
    table.columns[5].justify = "right"
    for record in shown:
        when, key, process = _when(record)[5:], record.key[:_SHORT_KEY_DIGITS], record.worker.partition("/")[0]
        cells = (when, record.kernel, key, record.backend, _outcome(record), _milliseconds(record), process)
        table.add_row(*(escape(_plain(cell)) for cell in (*cells, _why_missed(record))))
    console().print(table)
    if len(shown) < len(found):
        click.echo(f"{len(found) - len(shown)} earlier ones are not shown: --all shows them", err=True)


@records.command()
@click.argument("key")
@_JSON
def show(key: str, as_json: bool) -> None:
    """Show all records of the kernel whose key starts with KEY, or whose name is KEY."""
    found = _of_one_kernel(_records(), key)
    if as_json:
        click.echo(json.dumps([_encoded(record) for record in found]))
        return
    for number, record in enumerate(found):
        if number:
            click.echo()
        for name, value in _lines(record):
            click.echo(_plain(f"{name:13} {value}"))
        for title, text in (("IR", record.ir), ("source", record.source)):
            if text is not None:
                click.echo(f"\n{title}:")
                click.echo("\n".join(_plain(line) for line in text.splitlines()))


def _records() -> list[CompilationRecord]:
    from quernel.store import CompilationRecord, current_environment, read_records

    folder = current_environment().records_path
    if not os.path.isdir(folder):
        return []
    return [record for record in read_records(folder) if isinstance(record, CompilationRecord)]


def _is_wanted(record: CompilationRecord, kernel: str | None, outcome: str | None) -> bool:
    return (kernel is None or kernel in record.kernel) and (outcome is None or record.outcome.value == outcome)


def _of_one_kernel(found: list[CompilationRecord], key: str) -> list[CompilationRecord]:
    """The records of the one kernel that is meant.

    Raises:
        click.UsageError: there is none, or there are several.
    """
    if not found:
        raise click.UsageError(_nothing(0))
    named = [record for record in found if record.kernel == key or record.kernel.rpartition(".")[2] == key]
    is_digits = bool(key) and all(digit in "0123456789abcdef" for digit in key.lower())
    meant = named or [record for record in found if is_digits and record.key.startswith(key.lower())]
    if not meant:
        raise click.UsageError(
            f"no record is of a kernel {key!r}: quernel records list --all shows their names and keys"
        )
    names = {record.key: record.kernel for record in meant}
    if len(names) > 1:
        listed = "\n".join(f"  {found_key[:_KEY_DIGITS]}  {_plain(name)}" for found_key, name in names.items())
        raise click.UsageError(f"{key!r} may be any of these; give more of a key:\n{listed}")
    return meant


def _nothing(num_records: int) -> str:
    from quernel import settings
    from quernel.store import current_environment

    if num_records:
        return f"none of {num_records} records is wanted by these options"
    if settings.records_level() == "off":
        return "there are no records: QUERNEL_RECORDS=off keeps none"
    return f"there are no records in {current_environment().records_path}: nothing was compiled or loaded yet"


def _lines(record: CompilationRecord) -> list[tuple[str, str]]:
    """What a person wants to know of a record, by name."""
    lines = [
        ("kernel", record.kernel),
        ("key", record.key),
        ("when", _when(record)),
        *([("target", f"{record.backend} {record.target}")] if record.backend else []),
        ("outcome", _outcome(record)),
        ("time", f"{_milliseconds(record)} ms"),
        *((f"  {stage}", f"{spent_ns / 1e6:.2f} ms") for stage, spent_ns in record.stages),
        ("artifact", f"{record.artifact_bytes} bytes"),
    ]
    if record.registers is not None:
        lines.append(("registers", str(record.registers)))
    if record.spills is not None:
        lines.append(("spills", f"{record.spills} bytes"))
    for name, text in (("toolchain", record.toolchain), ("worker", record.worker)):
        if text:
            lines.append((name, text))
    if why := _why_missed(record):
        lines.append(("why it missed", why))
    return lines + [("warning", text) for text in record.warnings]


def _encoded(record: CompilationRecord) -> dict[str, Any]:
    return {**attrs.asdict(record), "outcome": record.outcome.value, "stages": dict(record.stages)}


def _when(record: CompilationRecord) -> str:
    try:
        return datetime.fromtimestamp(record.started_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return "unknown"


def _outcome(record: CompilationRecord) -> str:
    return f"{record.outcome.value} by {record.rekeyed_by}" if record.rekeyed_by else record.outcome.value


def _why_missed(record: CompilationRecord) -> str:
    """In what the kernel differs from those kept; of what was loaded nothing does, whatever was noted on the way."""
    return "" if record.outcome.value == "loaded" else ", ".join(record.why_missed)


def _milliseconds(record: CompilationRecord) -> str:
    return f"{record.duration_ns / 1e6:.2f}"


def _plain(text: str) -> str:
    """The text as a terminal may have it: what a record holds may be anyone's, escape sequences too."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
