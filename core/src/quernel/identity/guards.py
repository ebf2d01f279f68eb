"""What a capture has read, kept so that a launch can tell in well under a microsecond whether it still holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import CellType
from typing import Any, final

__all__ = ["Guards"]

_EMPTY = CellType()


@final
class Guards:
    """The places that a capture has read and the very objects that it found there. Immutable.

    Attributes:
        reads: (mapping, name, value): a global, a builtin, an attribute of a module or class.
        absences: (mapping, names): names that were looked up there in vain.
        cells: (cell, value): a closure's variable.
        empty_cells: cells that held nothing.
        attributes: (object, attribute, value): an attribute that a module's own `__getattr__` makes.

    They are plain tuples so that a compiled launcher can make the same comparisons.
    """

    __slots__ = ("_only_names", "_unheld", "absences", "attributes", "cells", "empty_cells", "reads")

    def __init__(
        self,
        *,
        reads: Iterable[tuple[Mapping[str, Any], str, object]] = (),
        absences: Iterable[tuple[Mapping[str, Any], frozenset[str]]] = (),
        cells: Iterable[tuple[CellType, object]] = (),
        empty_cells: Iterable[CellType] = (),
        attributes: Iterable[tuple[object, str, object]] = (),
    ) -> None:
        self.reads = tuple(reads)
        self.absences = tuple(absences)
        self.cells = tuple(cells)
        self.empty_cells = tuple(empty_cells)
        self.attributes = tuple(attributes)
        # A view follows its mapping, so the check of all absent names of a mapping is one call made beforehand.
        self._unheld = tuple([(mapping.keys().isdisjoint, names) for mapping, names in self.absences])
        self._only_names = not (self.cells or self.empty_cells or self.attributes)

    def __len__(self) -> int:
        return sum(
            map(len, (self.reads, self.absences, self.cells, self.empty_cells, self.attributes)),
        )

    def is_current(self) -> bool:
        """Whether every place still holds the very same object. On the launch path; keeps nothing, takes no lock."""
        try:
            for mapping, name, value in self.reads:
                if mapping[name] is not value:
                    return False
        except KeyError:
            return False
        for is_without, names in self._unheld:
            if not is_without(names):
                return False
        return self._only_names or self._others_are_current()

    def _others_are_current(self) -> bool:
        try:
            for cell, value in self.cells:
                if cell.cell_contents is not value:
                    return False
            for owner, attribute, value in self.attributes:
                if getattr(owner, attribute) is not value:
                    return False
        except (ValueError, AttributeError):  # gone since: a cell's content, an attribute
            return False
        return all(cell == _EMPTY for cell in self.empty_cells)
