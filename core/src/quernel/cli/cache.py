"""`quernel cache`: what the store holds, whether it is whole, and emptying it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any

import attrs
import click

from quernel.cli.consoles import console
from quernel.wording import counted

if TYPE_CHECKING:
    from quernel.store import LocalLayer, StoredKernel

__all__ = ["cache"]

_DAY_0 = date(1970, 1, 1).toordinal()
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def _layer() -> LocalLayer:
    from quernel.store import LocalLayer, current_environment

    return LocalLayer(current_environment())


@click.group()
def cache() -> None:
    """Look at, check and empty the store of the current environment."""


@cache.command()
@_JSON
def info(as_json: bool) -> None:
    """Show where the store is and how much it holds."""
    from quernel.store import info as store_info

    found = store_info(_layer())
    if as_json:
        click.echo(json.dumps(attrs.asdict(found)))
        return
    click.echo(f"folder    {found.path}")
    click.echo(f"kernels   {found.num_kernels}")
    click.echo(f"payloads  {found.num_payloads}, {_mebibytes(found.payload_bytes)}")
    click.echo(f"on disk   {_mebibytes(found.database_bytes + found.file_bytes)}")
    click.echo(f"limit     {_mebibytes(found.size_limit_bytes)}")


_ORDERS: dict[str, Callable[[StoredKernel], tuple[Any, ...]]] = {
    "used": lambda kernel: (-kernel.last_used_day, kernel.kernel_name, kernel.backend),
    "name": lambda kernel: (kernel.kernel_name, kernel.backend, -kernel.last_used_day),
    "backend": lambda kernel: (kernel.backend, kernel.kernel_name, -kernel.last_used_day),
    "bytes": lambda kernel: (-kernel.payload_bytes, kernel.kernel_name, kernel.backend),
}


@cache.command("list")
@click.option("--order", type=click.Choice(tuple(_ORDERS)), default="used", show_default=True, help="What comes first.")
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Show the first N alone.")
@_JSON
def list_kernels(order: str, reverse: bool, limit: int | None, as_json: bool) -> None:
    """List the stored kernels, the latest used first, or by name, backend or bytes (the largest first)."""
    from quernel.store import stored_kernels

    everything = sorted(stored_kernels(_layer()), key=_ORDERS[order], reverse=reverse)
    kernels = everything[:limit]
    if as_json:
        click.echo(json.dumps([attrs.asdict(kernel) for kernel in kernels]))
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table("kernel", "backend", "bytes", "last used", "key")
    for kernel in kernels:
        # A clock that is far off is no reason to list nothing.
        used = date.fromordinal(min(_DAY_0 + kernel.last_used_day, date.max.toordinal())).isoformat()
        table.add_row(
            escape(kernel.kernel_name), escape(kernel.backend), str(kernel.payload_bytes), used, kernel.key[:12]
        )
    output = console()
    output.print(table)
    if len(kernels) < len(everything):
        output.print(f"{counted(len(kernels), 'kernel')} of {len(everything)}")


@cache.command()
@click.option("--repair", is_flag=True, help="Delete what is damaged.")
@_JSON
def verify(repair: bool, as_json: bool) -> int:
    """Read every row and payload and check all digests. Exit status 1 where something is damaged."""
    from quernel.store import verify as verify_store

    report = verify_store(_layer(), repair=repair)
    if as_json:
        click.echo(json.dumps(attrs.asdict(report)))
    else:
        for problem in report.problems:
            click.echo(click.unstyle(problem).encode("ascii", "backslashreplace").decode(), err=True)
        state = (
            "whole"
            if report.is_whole
            else f"{counted(len(report.problems), 'problem')}, {counted(report.num_removed, 'row')} removed"
        )
        click.echo(f"{counted(report.num_rows, 'row')}: {state}")
    return 0 if report.is_whole or repair else 1


@cache.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(yes: bool) -> None:
    """Delete every stored kernel. They are compiled again when they are next used."""
    from quernel.store import clear as clear_store

    layer = _layer()
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on: pass --yes")
    if not yes:
        click.confirm(f"delete all compiled kernels in {layer.folder}?", abort=True)
    click.echo(f"{counted(clear_store(layer), 'row')} deleted")


def _mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
