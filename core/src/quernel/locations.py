"""Where in the user's source something stands."""

from __future__ import annotations

from quernel.values import evolve, field, frozen


@frozen
class Location:
    """A place in a source file: path, 1-based line, 0-based column in characters, and the end of the range.

    `end_line` and `end_column` are 0 where the range is not known. `called_from` says, of what was inlined, where the
    function that it stands in was called; it counts neither for equality nor for the hash.
    """

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    called_from: Location | None = field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"


NOWHERE = Location("<nowhere>", 0)
"""The location of nodes that no source line made (tests, parsed text, inserted guards)."""


def called_at(location: Location, call: Location) -> Location:
    """A location within a function that was inlined where it was called."""
    if location.called_from is None:
        return evolve(location, called_from=call)
    return evolve(location, called_from=called_at(location.called_from, call))


def call_chain(location: Location | None) -> tuple[str, ...]:
    """A line for each call that leads to what was inlined, the innermost first, as errors show them."""
    lines = []
    while location is not None and (location := location.called_from) is not None:
        lines.append(call_line(location))
    return tuple(lines)


def call_line(call: Location) -> str:
    """The line that says where a function was called."""
    import linecache

    text = linecache.getline(call.file, call.line).strip()
    return f"called from {call}: {text}" if text else f"called from {call}"


def known_location(location: Location) -> Location | None:
    """The location, or `None` for `NOWHERE`, as errors take it."""
    return None if location == NOWHERE else location
