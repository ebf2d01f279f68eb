"""Stores of one element's parts, one behind the other: what writes them together looks for them here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quernel.dtypes import DType, ValueType
from quernel.ir.nodes import Expr, Load, Place, Root, Store
from quernel.ir.walk import Body, bodies, walk_expressions
from quernel_cpu.emission.leaves import part_at

__all__ = ["stores_together"]

_MOST_INDEX_NODES = 16
"""Longer indices are not compared."""


def stores_together(body: Body, element_of: Callable[[Root], ValueType]) -> Iterator[tuple[Store, ...]]:
    """Runs of stores to different parts of one element, none of which reads what another one has written.

    `element_of`: the type of an array's elements.
    """
    pending = [body]
    while pending:
        run: list[Store] = []
        for stmt in pending.pop():
            pending += bodies(stmt)
            part = stmt if isinstance(stmt, Store) and not isinstance(element_of(stmt.place.root), DType) else None
            if run and not (part and _joins(run, part, element_of(part.place.root))):
                yield from _several(run)
                run = []
            if part:
                run.append(part)
        yield from _several(run)


def _several(run: list[Store]) -> Iterator[tuple[Store, ...]]:
    if len(run) > 1:
        yield tuple(run)


def _joins(run: list[Store], stmt: Store, element: ValueType) -> bool:
    """Whether a store writes another part of the element that the run writes, and reads no memory itself."""
    first = run[0].place
    if stmt.place.root != first.root or _reads(stmt.value) or not _is_same(first.indices, stmt.place.indices):
        return False
    begin, end = _bytes_of(element, stmt.place)
    written = (_bytes_of(element, other.place) for other in run)
    return all(end <= other_begin or begin >= other_end for other_begin, other_end in written)


def _bytes_of(element: ValueType, place: Place) -> tuple[int, int]:
    begin = part_at(element, place.view).offset_bytes
    return begin, begin + place.type.itemsize


def _reads(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk_expressions(expr))


def _is_same(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> bool:
    for index in (*left, *right):
        for count, node in enumerate(walk_expressions(index)):
            if count == _MOST_INDEX_NODES or isinstance(node, Load):
                return False
    return left == right
