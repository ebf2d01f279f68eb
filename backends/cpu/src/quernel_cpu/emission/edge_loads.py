"""Loads at an edge: lanes within bounds read what lies side by side, those at the bound read the one element there.

Which lanes those are is a condition like any other, so the load becomes a branch in the IR: `x[max(i - 1, 0)]` reads
`x[i - 1]` where that is no less than zero, and else `x[0]`, which is read once for all lanes and only if there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from quernel.ir.nodes import (
    Assign,
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Expr,
    If,
    Load,
    Local,
    LocalVariable,
    RootKind,
    Select,
    Stmt,
)
from quernel.ir.walk import Body, expressions_of, fold_expression, map_statements, with_children, with_expressions
from quernel_cpu.emission.shapes import Lanes, Shapes

__all__ = ["with_edge_loads"]

Definitions: TypeAlias = Callable[[str], Expr | None]
"""The value of a local wherever it is read, of nothing that changes; `None` if there is none."""


@attrs.frozen
class _Choice:
    """An index by a condition, each side of which all lanes may take at once."""

    condition: Expr
    then: _Choice | Expr
    otherwise: _Choice | Expr


def with_edge_loads(body: Body, shapes: Shapes, defined: Definitions) -> tuple[Body, tuple[LocalVariable, ...]]:
    """The body with such loads taken apart, and the locals that hold what they read."""
    variables: list[LocalVariable] = []

    def statement(stmt: Stmt) -> Body:
        before: list[Stmt] = []

        def combine(node: Expr, below: tuple[Expr, ...]) -> Expr:
            node = with_children(node, below)
            if not isinstance(node, Load):
                return node
            found = _bounded_axis(node, shapes, defined)
            if found is None:
                return node
            variable = LocalVariable(name=f"edge.{len(variables)}", type=node.type)
            variables.append(variable)
            before.extend(_reads(variable.name, node, *found))
            return Local(name=variable.name, type=node.type)

        replaced = tuple(fold_expression(expr, combine) for expr in expressions_of(stmt))
        return (*before, with_expressions(stmt, replaced))

    return map_statements(body, statement), tuple(variables)


def _bounded_axis(load: Load, shapes: Shapes, defined: Definitions) -> tuple[int, _Choice] | None:
    """The one index of a load that lanes have anywhere, if that is by bounds."""
    if load.place.root.kind is RootKind.PRIVATE or load.place.root in shapes.axes.atomics:
        return None
    apart = [n for n, index in enumerate(load.place.indices) if shapes.layout(index).lanes is Lanes.VECTOR]
    if len(apart) != 1:
        return None
    choice = _choice(load.place.indices[apart[0]], shapes, defined)
    return (apart[0], choice) if isinstance(choice, _Choice) else None


def _choice(index: Expr, shapes: Shapes, defined: Definitions) -> _Choice | Expr | None:
    if shapes.layout(index).lanes is not Lanes.VECTOR:
        return index
    match index:
        case Local():
            value = defined(index.name)
            return None if value is None else _choice(value, shapes, defined)
        case Binary(op=BinaryOp.MIN | BinaryOp.MAX):
            op = CompareOp.LE if index.op is BinaryOp.MIN else CompareOp.GE
            for kept, limit in ((index.left, index.right), (index.right, index.left)):
                inner = _choice(kept, shapes, defined)
                if inner is not None and shapes.layout(limit).lanes is Lanes.UNIFORM:
                    return _Choice(Compare(op=op, left=kept, right=limit), inner, limit)
            return None
        case Select(condition=Compare()):
            then, otherwise = (_choice(side, shapes, defined) for side in (index.then, index.otherwise))
            return None if then is None or otherwise is None else _Choice(index.condition, then, otherwise)
        case _:
            return None


def _reads(name: str, load: Load, axis: int, choice: _Choice | Expr) -> Body:
    if isinstance(choice, _Choice):
        then, otherwise = (_reads(name, load, axis, side) for side in (choice.then, choice.otherwise))
        return (If(condition=choice.condition, then=then, otherwise=otherwise),)
    indices = (*load.place.indices[:axis], choice, *load.place.indices[axis + 1 :])
    return (Assign(name=name, value=attrs.evolve(load, place=attrs.evolve(load.place, indices=indices))),)
