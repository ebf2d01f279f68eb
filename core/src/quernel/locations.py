"""Where in the user's source something stands."""

from __future__ import annotations

import attrs


@attrs.frozen
class Location:
    """A place in a source file: path, 1-based line, 0-based column in characters, and the end of the range.

    `end_line` and `end_column` are 0 where the range is not known.
    """

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"


NOWHERE = Location("<nowhere>", 0)
"""The location of nodes that no source line made (tests, parsed text, inserted guards)."""


def known_location(location: Location) -> Location | None:
    """The location, or `None` for `NOWHERE`, as errors take it."""
    return None if location == NOWHERE else location
