"""How messages count: one axis, two axes."""

from __future__ import annotations

__all__ = ["counted", "plural"]

_PLURALS = {"axis": "axes", "index": "indices", "was": "were"}


def counted(number: int, noun: str) -> str:
    """`number` with its noun, in the plural where that is due: `1 axis`, `2 axes`, `0 problems`."""
    return f"{number} {plural(number, noun)}"


def plural(number: int, word: str) -> str:
    """A noun, or `was`, as it stands with that number."""
    return word if number == 1 else _PLURALS.get(word, word + "s")
