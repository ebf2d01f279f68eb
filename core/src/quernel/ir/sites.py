"""Sites: the asserts and prints of a module, numbered, so that a record of a launch names one of them.

A compiled kernel holds numbers only. When a launch reports one, the live function is expanded again and the number
tells the line, the message and the types of the recorded values.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import assert_never

import attrs

from quernel.diagnostics import Record, value_of
from quernel.dtypes import DType, bf16, f32
from quernel.errors import KernelAssertionError, OutOfBoundsError
from quernel.ir.nodes import Assert, Module, Print, Stmt
from quernel.ir.walk import map_bodies, map_statements, walk_statements
from quernel.locations import Location, call_chain

__all__ = [
    "Site",
    "SiteKind",
    "assertion_error",
    "has_diagnostics",
    "num_sites",
    "number_sites",
    "outside_error",
    "site_of",
    "sites",
    "violation_error",
]


class SiteKind(enum.Enum):
    """What reports at a site."""

    BOUNDS = "bounds"
    ASSERT = "assert"
    PRINT = "print"


@attrs.frozen
class Site:
    """One assert or print of a module.

    Attributes:
        kind: a bounds check, a user's assertion, or a print.
        loc: where it stands in the user's source.
        types: types of the recorded values; of a bounds check the indices, then the lengths.
        message: what the user says about an assertion.
        texts: what each recorded value of an assertion is called; empty, or one for each value.
        array: the array whose bounds are checked.
        format: the pieces of text round the printed values; empty for spaces between.
    """

    kind: SiteKind
    loc: Location
    types: tuple[DType, ...]
    message: str = ""
    array: str | None = None
    format: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def values(self, cells: Sequence[int]) -> tuple[bool | int | float, ...]:
        """The values in a record's raw cells."""
        return tuple(value_of(cell, dtype) for cell, dtype in zip(cells, self.types, strict=False))

    def text(self, cells: Sequence[int]) -> str:
        """What a print of these raw cells shows, as Python's `print` would but for the end of the line."""
        shown = self._shown(cells)
        if not self.format:
            return " ".join(shown)
        return "".join(itertools.chain.from_iterable(itertools.zip_longest(self.format, shown, fillvalue="")))

    def named(self, cells: Sequence[int]) -> str:
        """The values in these raw cells by their names, as in `i = 7, n = 5`."""
        shown = self._shown(cells)
        if not self.texts:
            return f"the values are {', '.join(shown)}" if shown else ""
        return ", ".join(f"{text} = {value}" for text, value in zip(self.texts, shown, strict=False))

    def _shown(self, cells: Sequence[int]) -> list[str]:
        # NumPy alone has no bf16; each of its values is one of f32.
        types = [f32 if dtype is bf16 else dtype for dtype in self.types]
        return [str(dtype(value)) for value, dtype in zip(self.values(cells), types, strict=False)]


def violation_error(module: Module, record: Record) -> OutOfBoundsError | KernelAssertionError:
    """The error of a violation that a launch of the module recorded: what failed, where, and in which thread."""
    site = sites(module)[record.site]
    values = site.values(record.values)
    thread = f"in thread {_tuple_text(record.global_id)}"
    if site.kind is SiteKind.BOUNDS:
        num_axes = len(values) // 2
        index, shape = tuple(map(int, values[:num_axes])), tuple(map(int, values[num_axes:]))
        return outside_error(site.array or "the array", index, shape, site.loc, thread)
    return assertion_error(site, record.values, thread)


def assertion_error(site: Site, cells: Sequence[int], thread: str = "") -> KernelAssertionError:
    """The error of an assertion that does not hold for the values in these raw cells; `thread` says for whom."""
    known = "; ".join(part for part in (site.message, site.named(cells)) if part)
    what = f"this assertion does not hold: {known}" if known else "this assertion does not hold"
    return KernelAssertionError(f"{what} ({thread})" if thread else what, where=site.loc, chain=call_chain(site.loc))


def outside_error(
    array: str, index: tuple[int, ...], shape: tuple[int, ...], where: Location | None, thread: str = ""
) -> OutOfBoundsError:
    """The error of an index that is not inside its array; `thread` says who used it."""
    behind = f" ({thread})" if thread else ""
    return OutOfBoundsError(
        f"index {_tuple_text(index)} is outside {array}, whose shape is {shape}{behind}",
        where=where,
        chain=call_chain(where),
        fix="compare the index with the array's shape first, or launch fewer threads",
    )


def _tuple_text(index: tuple[int, ...]) -> str:
    return str(index[0]) if len(index) == 1 else str(index)


def sites(module: Module) -> tuple[Site, ...]:
    """Every assert and print of a module, in the order in which `number_sites` counts them."""
    return tuple(site_of(stmt) for stmt in _reporting(module))


def num_sites(module: Module) -> int:
    """How many asserts and prints a module has."""
    return sum(1 for _ in _reporting(module))


def has_diagnostics(module: Module) -> bool:
    """Whether a launch of the module needs a diagnostics buffer."""
    return any(True for _ in _reporting(module))


def number_sites(module: Module) -> Module:
    """`module` with its asserts and prints numbered from 0: the kernel first, then the functions, in source order."""
    numbers: dict[int, list[int]] = {}
    for number, stmt in enumerate(_reporting(module)):
        # A statement without names may stand in several places as one object; it takes one number in each.
        numbers.setdefault(id(stmt), []).append(number)
    taken = {key: iter(values) for key, values in numbers.items()}

    def numbered(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Assert | Print):
            return stmt
        number = next(taken[id(stmt)])
        return stmt if stmt.site == number else attrs.evolve(stmt, site=number)

    return map_bodies(module, lambda body: map_statements(body, numbered))


def _reporting(module: Module) -> Iterator[Assert | Print]:
    for body in (module.kernel.body, *(function.body for function in module.functions)):
        for stmt in walk_statements(body):
            if isinstance(stmt, Assert | Print):
                yield stmt


def site_of(stmt: Assert | Print) -> Site:
    """What one assert or print reports."""
    types = tuple(value.type for value in stmt.values if isinstance(value.type, DType))
    match stmt:
        case Assert(array=None):
            return Site(SiteKind.ASSERT, stmt.loc, types, message=stmt.message, texts=stmt.texts)
        case Assert():
            return Site(SiteKind.BOUNDS, stmt.loc, types, array=stmt.array)
        case Print():
            return Site(SiteKind.PRINT, stmt.loc, types, format=stmt.format)
        case _:
            assert_never(stmt)
