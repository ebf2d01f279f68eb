"""A toolchain's log read for the user: which of their lines it complains of."""

from __future__ import annotations

import re

from quernel.errors import CompilationError
from quernel.locations import NOWHERE, Location, known_location

__all__ = ["located"]


def located(error: CompilationError, kernel: str, lines: tuple[Location, ...], pattern: str) -> CompilationError:
    """The error with the first complaint of its log, which is its `chain`, at the user's line.

    `lines` are the places of the text's lines, none of a ready-made source. `pattern` finds a complaint in a line of
    the log: groups `message`, and where it says so `file` and `line`.
    """
    for entry in error.chain:
        found = re.search(pattern, entry)
        if found is None:
            continue
        where = _place(found["file"], int(found["line"]), lines) if found["line"] else None
        return CompilationError(
            f"kernel {kernel}: {error.what}: {found['message']}",
            where=where,
            fix="report it with the log: the text should compile" if lines else "mend the source",
            chain=error.chain,
        )
    return CompilationError(f"kernel {kernel}: {error.what}", fix=error.fix, chain=error.chain)


def _place(file: str, number: int, lines: tuple[Location, ...]) -> Location | None:
    """The user's place of a line of the text; with line tables, the log names the user's line already."""
    for known in lines:
        if known.line == number and known.file.replace("\\", "/") == file:
            return known
    found = lines[number - 1] if 0 < number <= len(lines) else NOWHERE
    return known_location(found)
