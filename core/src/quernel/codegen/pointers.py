"""How an entry point receives the arrays of a launch; apart from the lowering, because a warm start needs it too."""

from __future__ import annotations

import enum

__all__ = ["Pointers"]


class Pointers(enum.Enum):
    """How an entry point receives the arrays of a launch."""

    ADDRESS = "address"
    """One pointer to element (0, …, 0)."""
    BUFFER = "buffer"
    """A pointer to the start of a buffer, and the offset of element (0, …, 0) in bytes."""
