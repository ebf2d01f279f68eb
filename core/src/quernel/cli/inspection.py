"""`quernel devices` and `quernel backends`."""

from __future__ import annotations

import json

import attrs
import click

from quernel.cli.consoles import console

__all__ = ["backends", "devices"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.argument("backend", required=False)
def devices(backend: str | None, as_json: bool) -> None:
    """List the devices of every backend, or of BACKEND, without opening any."""
    import quernel as qn

    found = qn.devices(backend)
    if as_json:
        click.echo(json.dumps([{**attrs.asdict(info), "spec": f"{info.backend}:{info.index}"} for info in found]))
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table("device", "kind", "name", "memory", "details")
    for info in found:
        memory = f"{info.memory_bytes / 2**30:.1f} GiB" if info.memory_bytes else ""
        details = ", ".join(f"{name} {value}" for name, value in info.details)
        table.add_row(f"{info.backend}:{info.index}", info.kind, escape(info.name), memory, escape(details))
    console().print(table)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def backends(as_json: bool) -> None:
    """List backends; one that does not work is listed with its reason and its mend."""
    import quernel as qn

    found = qn.backends()
    if as_json:
        click.echo(json.dumps([attrs.asdict(info) for info in found]))
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table("backend", "works", "from", "version", "why not, and what to do")
    for info in found:
        note = "" if info.ok else "; ".join(f"{info.reason}\nfix: {info.fix}".splitlines())
        table.add_row(info.name, "yes" if info.ok else "no", info.distribution, info.version, escape(note))
    console().print(table)
