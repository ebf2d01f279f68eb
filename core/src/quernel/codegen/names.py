"""The names of the text: the user's own where the language allows them, and never two of one name."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ENTRY_MACRO", "HELPER_PREFIX", "Names"]

ENTRY_MACRO: Final = "QUERNEL_ENTRY"
"""The macro that stands for the entry point's name, so that equal kernels under different names are equal texts."""

HELPER_PREFIX: Final = "qn_"
"""Starts the names of the functions that the text brings along; no user's name keeps it."""

_C_KEYWORDS: Final = re.compile(
    """
      auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long
    | main|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while
    | bool|true|false|asm|typeof|alignas|alignof|thread_local|static_assert|nullptr|constexpr
    """,
    re.VERBOSE,
)
_OTHER: Final = re.compile(r"[^A-Za-z0-9_]")


class Names:
    """Hands out the names of one scope; those of the scopes round it are taken."""

    def __init__(self, reserved: re.Pattern[str], outer: Names | None = None) -> None:
        self._reserved = reserved
        self._outer = outer
        self._taken: set[str] = set()

    def fresh(self, wanted: str) -> str:
        """A name that reads like `wanted` and is nobody else's."""
        name = self._allowed(wanted)
        unique, number = name, 1
        while self._is_taken(unique):
            number += 1
            unique = f"{name}_{number}"
        self._taken.add(unique)
        return unique

    def _is_taken(self, name: str) -> bool:
        return name in self._taken or (self._outer is not None and self._outer._is_taken(name))

    def _allowed(self, wanted: str) -> str:
        name = _OTHER.sub(lambda found: f"u{ord(found[0]):X}", wanted)
        if not name or name[0].isdigit() or name[0] == "_":
            name = f"v{name}"
        if _C_KEYWORDS.fullmatch(name) or name.startswith((HELPER_PREFIX, "QUERNEL")) or self._reserved.fullmatch(name):
            name = f"{name}_"
        return name
