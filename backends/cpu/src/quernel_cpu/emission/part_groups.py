"""Loads and stores of one element's parts, one behind the other: what moves them together looks for them here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quernel.dtypes import ValueType
from quernel.ir.nodes import Assign, Expr, Load, Root, Store
from quernel.ir.walk import Body, bodies, walk_expressions

__all__ = ["is_other_part", "loads_together", "stores_together"]

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


def loads_together(body: Body, element_of: Callable[[Root], ValueType]) -> Iterator[Load]:
    """Loads of parts that make up more than half of one element, by assignments one behind the other.

    `element_of`: the type of an array's elements.
    """
    pending = [body]
    while pending:
        groups: dict[tuple[Root, tuple[Expr, ...]], list[Load]] = {}
        for stmt in pending.pop():
            pending += bodies(stmt)
            if not isinstance(stmt, Assign):
                yield from _most_of_elements(groups, element_of)
                groups = {}
                continue
            for node in walk_expressions(stmt.value):
                if isinstance(node, Load) and node.place.view and all(map(_is_short, node.place.indices)):
                    groups.setdefault((node.place.root, node.place.indices), []).append(node)
        yield from _most_of_elements(groups, element_of)


def _most_of_elements(
    groups: dict[tuple[Root, tuple[Expr, ...]], list[Load]], element_of: Callable[[Root], ValueType]
) -> Iterator[Load]:
    for (root, _), loads in groups.items():
        num_bytes = sum({load.place.view: load.type.itemsize for load in loads}.values())
        if num_bytes * 2 > element_of(root).itemsize:
            yield from loads


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
    return all(map(_is_short, (*left, *right))) and left == right


def _is_short(index: Expr) -> bool:
    """Whether an index takes a few operators, and reads no memory."""
    return not any(
        count == _MOST_INDEX_NODES or isinstance(node, Load) for count, node in enumerate(walk_expressions(index))
    )
