"""Loads at an edge: lanes within bounds read what lies side by side, those at the bound read the one element there.

Which lanes those are is a condition like any other, so the load becomes a branch in the IR: `x[max(i - 1, 0)]` reads
`x[i - 1]` where that is no less than zero, and else `x[0]`, which is read once for all lanes and only if there are any.
What a statement reads at equal indices is read in one such branch.
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
from quernel.ir.walk import (
    Body,
    expressions_of,
    fold_expression,
    map_statements,
    walk_expressions,
    with_children,
    with_expressions,
)
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


@attrs.frozen
class _Read:
    """A load into a local, whose index along `axis` is chosen."""

    name: str
    load: Load
    axis: int

    def at(self, index: Expr) -> Assign:
        """It with that index."""
        place = self.load.place
        indices = (*place.indices[: self.axis], index, *place.indices[self.axis + 1 :])
        return Assign(name=self.name, value=attrs.evolve(self.load, place=attrs.evolve(place, indices=indices)))


def with_edge_loads(body: Body, shapes: Shapes, defined: Definitions) -> tuple[Body, tuple[LocalVariable, ...]]:
    """The body with such loads taken apart, and the locals that hold what they read."""
    variables: list[LocalVariable] = []
    own: set[str] = set()

    def statement(stmt: Stmt) -> Body:
        before: list[Stmt] = []
        together: dict[_Choice, tuple[int, list[_Read]]] = {}

        def combine(node: Expr, below: tuple[Expr, ...]) -> Expr:
            node = with_children(node, below)
            if not isinstance(node, Load):
                return node
            found = _bounded_axis(node, shapes, defined)
            if found is None:
                return node
            variable = LocalVariable(name=f"edge.{len(variables)}", type=node.type)
            axis, choice = found
            if any(isinstance(part, Local) and part.name in own for part in walk_expressions(node)):
                together.clear()  # It has to stand behind what it reads, and so does all that is read after it.
            if choice not in together:
                together[choice] = len(before), []
                before.append(_reads(choice, []))
            position, reads = together[choice]
            reads.append(_Read(variable.name, node, axis))
            before[position] = _reads(choice, reads)
            own.add(variable.name)
            variables.append(variable)
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


def _reads(choice: _Choice, reads: list[_Read]) -> If:
    then, otherwise = (
        (_reads(side, reads),) if isinstance(side, _Choice) else tuple(read.at(side) for read in reads)
        for side in (choice.then, choice.otherwise)
    )
    return If(condition=choice.condition, then=then, otherwise=otherwise)
