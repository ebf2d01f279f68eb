"""Stores of one element's parts, one behind the other: what writes them together looks for them here."""

from __future__ import annotations

from collections.abc import Iterator

from quernel.ir.nodes import Expr, Load, Store
from quernel.ir.walk import Body, bodies, walk_expressions

__all__ = ["is_other_part", "stores_together"]

_MOST_INDEX_NODES = 16
"""Longer indices are not compared."""


def stores_together(body: Body) -> Iterator[tuple[Store, ...]]:
    """Runs of stores to different parts of one element, none of which reads what another one has written."""
    pending = [body]
    while pending:
        run: list[Store] = []
        for stmt in pending.pop():
            pending += bodies(stmt)
            part = stmt if isinstance(stmt, Store) and stmt.place.view else None
            if run and not (part and all(is_other_part(other, part) for other in run)):
                yield from _several(run)
                run = []
            if part:
                run.append(part)
        yield from _several(run)


def _several(run: list[Store]) -> Iterator[tuple[Store, ...]]:
    if len(run) > 1:
        yield tuple(run)


def is_other_part(first: Store, second: Store) -> bool:
    """Whether the second store writes another part of the element that the first one writes, and reads no memory."""
    if second.place.root != first.place.root or _reads(second.value):
        return False
    views = list(zip(first.place.view, second.place.view, strict=False))
    return any(one != other for one, other in views) and _is_same(first.place.indices, second.place.indices)


def _reads(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk_expressions(expr))


def _is_same(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> bool:
    for index in (*left, *right):
        for count, node in enumerate(walk_expressions(index)):
            if count == _MOST_INDEX_NODES or isinstance(node, Load):
                return False
    return left == right
