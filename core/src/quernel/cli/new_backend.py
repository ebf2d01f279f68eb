"""`quernel new-backend`: the package of a new backend, which works before anything in it is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Final

import click

__all__ = ["new_backend", "package_files"]

_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_OURS: Final = ("cpu", "cuda", "opencl", "reference")
_AUTOMATIC: Final = "auto"
_PREFIX: Final = "quernel-"
_PACKAGE: Final = "package"
_SUFFIX: Final = ".txt"


@click.command("new-backend")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to; without it, quernel-NAME in this folder.",
)
def new_backend(name: str, directory: Path | None) -> None:
    """Write the package of a backend called NAME, to start from.

    It works at once, by the system's C compiler, and its tests pass. Files that are there are never written over.
    """
    _check(name)
    folder = Path(_distribution(name)) if directory is None else directory
    made = {folder / path: text for path, text in package_files(name).items()}
    there = [path for path in made if path.exists() or path.is_symlink()]
    if there:
        shown = ", ".join(str(path) for path in there[:3]) + (", …" if len(there) > 3 else "")
        raise click.ClickException(f"{shown} would be written over; nothing was written. Choose another --directory.")
    try:
        for path, text in made.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
    except OSError as error:
        raise click.ClickException(f"cannot write to {folder}: {error.strerror}; choose another --directory") from error
    click.echo(f"{len(made)} files in {folder}. Next:\n")
    click.echo(f'    cd {folder}\n    pip install -e ".[test]"\n    quernel doctor\n    pytest\n')
    click.echo("README.md there says which file to change for what.")


def package_files(name: str) -> dict[str, str]:
    """The files of the package of a backend, by their paths in it."""
    module = name.replace("-", "_")
    words = {
        "name": name,
        "distribution": _distribution(name),
        "package": f"quernel_{module}",
        "Class": "".join(part.capitalize() for part in module.split("_")),
    }
    made = {}
    for path, text in _templates(files("quernel.cli") / "templates"):
        place = "/".join(words["package"] if part == _PACKAGE else part for part in path)
        made[place] = Template(text).substitute(words)
    return made


def _templates(folder: Traversable, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _templates(entry, (*place, entry.name))
        elif entry.name.endswith(_SUFFIX):
            yield (*place, entry.name.removesuffix(_SUFFIX)), entry.read_text(encoding="utf-8")


def _distribution(name: str) -> str:
    return _PREFIX + name.replace("_", "-")


def _check(name: str) -> None:
    """Refuses what cannot be, or already is, the name of a backend."""
    if name.lower().startswith(("quernel-", "quernel_")):
        raise click.BadParameter(f"the package will be {name!r}; name the backend {name[len(_PREFIX) :]!r}")
    if not _NAME.fullmatch(name):
        usable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
        hint = f"; {usable!r} would do" if _NAME.fullmatch(usable) else ""
        raise click.BadParameter(
            f"{name!r} is no name for a backend: use lower-case letters and digits, parted by - or _, and start with a "
            f"letter{hint}"
        )
    if name == _AUTOMATIC:
        raise click.BadParameter(f"{name!r} is what device strings call the best device; choose another name")
    from quernel.api.wiring import catalog

    if name in (*_OURS, *catalog().names()):
        raise click.BadParameter(f"the name {name!r} is taken by a backend that exists; choose another name")
