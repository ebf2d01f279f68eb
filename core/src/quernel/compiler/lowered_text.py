"""A kernel lowered to the text of a programming language, which a toolchain has yet to compile."""

from __future__ import annotations

import attrs

from quernel.compiler.artifacts import ArtifactHeader
from quernel.locations import Location

__all__ = ["LoweredText"]


@attrs.frozen
class LoweredText:
    """A kernel as text.

    Attributes:
        header: all that a launch needs.
        text: what the toolchain compiles. The entry point of a lowered kernel is a macro, that of a ready-made source
            has its own name.
        options: what it is compiled with, besides that macro.
        lines: for each line of the text, the place in the user's source that it stands for; none of a ready-made
            source.
    """

    header: ArtifactHeader
    text: str
    options: tuple[str, ...] = ()
    lines: tuple[Location, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether it is a ready-made source."""
        return not self.lines

    @property
    def macros(self) -> tuple[tuple[str, str], ...]:
        """What the toolchain has to define: names and values."""
        from quernel.codegen.names import ENTRY_MACRO

        return () if self.is_foreign else ((ENTRY_MACRO, self.header.entry),)
