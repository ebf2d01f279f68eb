"""The page of the command line has every command, argument and option, in the words of the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from quernel.cli import _root

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its whole name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for part in command.list_commands(context):
        found = command.get_command(context, part)
        assert found is not None
        yield from leaves(found, f"{name} {part}")


def section(name: str, command: click.Command) -> str:
    """What the page must say of a command: its heading, its help, and a row for each option."""
    context = click.Context(command)
    usage = [name, *(param.make_metavar(context) for param in command.params if isinstance(param, click.Argument))]
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    rows = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    cells = [
        (form.replace("|", "\\|"), text.replace("  [", " [").replace("|", "\\|")) for form, text in filter(None, rows)
    ]
    table = [f"| `{form}` | {text} |" for form, text in cells]
    head = ["| option | what |", "| --- | --- |"] if table else []
    return "\n\n".join(filter(None, [f"### `{' '.join(usage)}`", *paragraphs, "\n".join([*head, *table])]))


COMMANDS = dict(leaves(_root, "quernel"))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_says_what_the_command_says(name: str) -> None:
    assert section(name, COMMANDS[name]) in PAGE


def test_the_page_has_no_command_that_is_not_there() -> None:
    headings = re.findall(r"^### `(quernel[a-z -]*)", PAGE, re.MULTILINE)
    assert sorted(heading.strip() for heading in headings) == sorted(COMMANDS)
