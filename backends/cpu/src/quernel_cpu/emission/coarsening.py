"""How many threads run together: lanes of a vector, vectors side by side, rows of threads."""

from __future__ import annotations

import attrs

__all__ = ["Step"]


@attrs.frozen
class Step:
    """The threads that run together.

    Attributes:
        width: along the last axis, a power of two.
        rows: along the axis before.
    """

    width: int
    rows: int = 1
