"""The page of the command line has every command, argument and option, in the words of the command line itself."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from quernel.cli import _root, main
from quernel.testing.pages import blocks_of

FILE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
PAGE = FILE.read_text(encoding="utf-8")
LINES = [line for block in blocks_of(FILE) if block.language == "sh" for line in block.text.splitlines()]
KERNELS = """
import quernel as qn

@qn.kernel
def saxpy(a: qn.f32, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]

@qn.kernel
def blur(image, out, radius: qn.Const[int]):
    i, j = qn.global_id()
    total = 0.0
    for k in range(-radius, radius + 1):
        total += image[i, j + k]
    out[i, j] = total
"""


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


def test_the_page_has_lines_to_try() -> None:
    assert len(LINES) >= 4


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_page_does_what_was_asked_for(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "mypackage").mkdir()
    for place in (tmp_path, tmp_path / "mypackage"):
        (place / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    program, *arguments = shlex.split(line.partition(" | ")[0])
    assert program == "quernel"
    loaded = set(sys.modules)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    for name in {"kernels", "mypackage", "mypackage.kernels"} - loaded:
        sys.modules.pop(name, None)
    assert ended.value.code == 0 or arguments[0] == "doctor"  # whose status is that of this machine
    written = tmp_path / "saxpy.cubin"
    assert (written.read_bytes() if "-o" in arguments else capfdbinary.readouterr().out) != b""
