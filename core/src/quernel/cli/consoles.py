"""Where the commands print their tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console"]

_UNBOUNDED: Final = 10_000
"""Columns that no table needs."""


def console() -> Console:
    """The standard output, as wide as its terminal.

    A file and a pipe have no width: nothing is broken there, so that whoever searches or cuts finds a row in one line.
    `COLUMNS` gives them one.
    """
    from rich.console import Console

    made = Console()
    is_given = os.environ.get("COLUMNS", "").isdigit()  # what else it holds, nobody takes for a width
    return made if made.is_terminal or is_given else Console(width=_UNBOUNDED)
