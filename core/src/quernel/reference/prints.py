"""What the threads of a launch print: at once where they run one after the other, else thread by thread at the end."""

from __future__ import annotations

import struct
import sys
from typing import Any, Final, final

from quernel.dtypes import DType
from quernel.ir.sites import Site

__all__ = ["Printer", "cells_of"]

_ALL_BITS: Final = (1 << 64) - 1


@final
class Printer:
    """Takes the prints of one launch.

    Args:
        is_in_order: whether the threads run one after the other, so that each print is in its place.
    """

    def __init__(self, *, is_in_order: bool) -> None:
        self._is_in_order = is_in_order
        self._held: list[tuple[tuple[int, ...], str]] = []

    def print(self, global_id: tuple[int, ...], site: Site, values: tuple[Any, ...]) -> None:
        """Shows what a thread prints, or keeps it."""
        text = site.text(cells_of(site, values))
        if self._is_in_order:
            sys.stdout.write(f"{text}\n")
        else:
            self._held.append((global_id, text))

    def close(self) -> None:
        """Shows what was kept, in the order of the threads."""
        self._held.sort(key=lambda kept: kept[0])
        for _, text in self._held:
            sys.stdout.write(f"{text}\n")
        self._held.clear()


def cells_of(site: Site, values: tuple[Any, ...]) -> list[int]:
    """The values as a record of a launch holds them."""
    return [_cell(value, dtype) for value, dtype in zip(values, site.types, strict=True)]


def _cell(value: Any, dtype: DType) -> int:
    if dtype.is_float:
        return int.from_bytes(struct.pack("<d", value), "little")
    return int(value) & _ALL_BITS
