"""Examples in Markdown: blocks of code with their headings, and `code` → `value` in running text and tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import attrs

__all__ = ["Block", "Example", "blocks_of", "examples_of"]

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXAMPLE: Final = re.compile(r"`([^`\n]+)` (→|≈) `([^`\n]+)`")
_HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)


@attrs.frozen
class Block:
    """A fenced block.

    Attributes:
        language: what stands behind the fence.
        text: what it holds.
        heading: the nearest heading above it.
        line: of its first line in the page.
    """

    language: str
    text: str
    heading: str
    line: int


@attrs.frozen
class Example:
    """An expression and its value.

    Attributes:
        code: the expression.
        value: the value, as Python text.
        is_exact: whether it must be that value, or only close to it.
        line: where it stands in the page.
    """

    code: str
    value: str
    is_exact: bool
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    outside = _FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)
    headings = [(found.start(), found[1]) for found in _HEADING.finditer(outside)]
    blocks = []
    for fence in _FENCE.finditer(text):
        heading = [title for start, title in headings if start < fence.start()][-1]
        blocks.append(Block(fence[1], fence[2], heading, text.count("\n", 0, fence.start()) + 2))
    return blocks


def examples_of(page: Path) -> list[Example]:
    """Every `code` → `value` outside of the blocks, in order."""
    text = page.read_text(encoding="utf-8")
    outside = _FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)
    return [
        Example(found[1].replace("\\|", "|"), found[3], found[2] == "→", outside.count("\n", 0, found.start()) + 1)
        for found in _EXAMPLE.finditer(outside)
    ]
