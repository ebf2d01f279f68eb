"""Loads and stores of one element's parts, one behind the other: what moves them together looks for them here."""

from __future__ import annotations

from collections.abc import Iterator

from quernel.dtypes import ValueType
from quernel.ir.nodes import Assign, Expr, Load, Local, Root, Store
from quernel.ir.walk import Body, bodies, expressions_of, walk_expressions

__all__ = ["is_most", "is_other_part", "loads_together", "stores_together"]

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


def loads_together(body: Body) -> Iterator[tuple[Load, ...]]:
    """Loads of parts of one element, with nothing between them that may change it, or which element it is.

    They stand in assignments one behind the other and a store behind those, so all may be done where the first one is.
    """
    pending = [body]
    while pending:
        groups: dict[_Element, list[Load]] = {}
        readers: dict[str, set[_Element]] = {}
        for stmt in pending.pop():
            pending += bodies(stmt)
            if isinstance(stmt, Assign | Store):
                for node in (part for expr in expressions_of(stmt) for part in walk_expressions(expr)):
                    if isinstance(node, Load) and node.place.view and all(map(_is_short, node.place.indices)):
                        element = (node.place.root, node.place.indices)
                        if element not in groups:
                            for name in _names(element[1]):
                                readers.setdefault(name, set()).add(element)
                        groups.setdefault(element, []).append(node)
            if isinstance(stmt, Assign):
                for element in readers.pop(stmt.name, ()):
                    if element in groups:
                        yield tuple(groups.pop(element))
            else:
                yield from map(tuple, groups.values())
                groups, readers = {}, {}
        yield from map(tuple, groups.values())


def is_most(loads: tuple[Load, ...], element: ValueType) -> bool:
    """Whether these parts of an element are more than half of it."""
    return sum({load.place.view: load.type.itemsize for load in loads}.values()) * 2 > element.itemsize


_Element = tuple[Root, tuple[Expr, ...]]


def _names(indices: tuple[Expr, ...]) -> set[str]:
    return {node.name for index in indices for node in walk_expressions(index) if isinstance(node, Local)}


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
