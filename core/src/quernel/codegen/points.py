"""Several points per thread: an `over` kernel whose every thread handles neighbours along the last axis.

A thread that asks for one element of 4 bytes keeps too little of a GPU's memory busy; about 16 bytes reach its peak.
So the points of a thread lie side by side and their statements alternate: all that is loaded for them is asked for
before anything is stored. That is one of the orders in which the threads of the points could have run, so nobody can
tell, and it is done only where every access moves along with the points, in straight-line code.
"""

from __future__ import annotations

from typing import Final

import attrs

from quernel.dtypes import i64
from quernel.geometry import LaunchForm
from quernel.ir.nodes import (
    Assign,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    IndexKind,
    Kernel,
    Load,
    Local,
    LocalVariable,
    Math,
    MathFunction,
    Module,
    Param,
    Place,
    Return,
    RootKind,
    Stmt,
    Store,
    ThreadIndex,
)
from quernel.ir.walk import fold_expression, map_expressions, walk_expressions

__all__ = ["SeveralPoints", "points_per_thread", "several_points"]

_BYTES_IN_FLIGHT: Final = 16
_MAX_POINTS: Final = 4
_MAX_NODES: Final = 96
"""Longer kernels compute more than they load; their points would only take each other's registers."""
_QUICK: Final = frozenset(
    {
        MathFunction.SQRT,
        MathFunction.RSQRT,
        MathFunction.FLOOR,
        MathFunction.CEIL,
        MathFunction.TRUNC,
        MathFunction.RINT,
        MathFunction.COPYSIGN,
        MathFunction.ISNAN,
        MathFunction.ISINF,
        MathFunction.ISFINITE,
        MathFunction.POPCOUNT,
        MathFunction.CLZ,
        MathFunction.CTZ,
        MathFunction.EXP,
        MathFunction.EXP2,
        MathFunction.LOG,
        MathFunction.LOG2,
    }
)
"""Functions without a long way round for some operands; a kernel with another one is compute, not memory."""
_NODES_OF_QUICK: Final = 16

_NO_LANE: Final = 0
_Moves = int | None
"""By how much a value changes from one point to its neighbour; `None` where that is not one constant."""


@attrs.frozen
class SeveralPoints:
    """What a thread does that has as many points left.

    Attributes:
        points: how many.
        kernel: the statements for all of them, with the first one's `global_id`.
    """

    points: int
    kernel: Kernel


def points_per_thread(module: Module) -> int:
    """How many points a thread of the module's kernel should handle; 1 where it gains nothing, or might lose."""
    kernel = module.kernel
    body = _straight(kernel)
    if body is None or kernel.options.checked or kernel.options.debug:
        return 1
    lane = kernel.ndim - 1
    moves: dict[str, _Moves] = {}
    largest, cost = 0, 0
    for stmt in body:
        for expr in (stmt.value, *(stmt.place.indices if isinstance(stmt, Store) else ())):
            for node in walk_expressions(expr):
                cost += _cost(node)
                if isinstance(node, Load):
                    size = _moving_bytes(node.place, lane, moves)
                    if size is None:
                        return 1
                    largest = max(largest, size)
        if isinstance(stmt, Store):
            size = _moving_bytes(stmt.place, lane, moves)
            if not size:  # All points would write one element.
                return 1
            largest = max(largest, size)
        elif stmt.name in moves:
            return 1
        else:
            moves[stmt.name] = _moved(stmt.value, lane, moves)
    if not largest or cost > _MAX_NODES:
        return 1
    return max(1, min(_MAX_POINTS, _BYTES_IN_FLIGHT // largest))


def _cost(node: Expr) -> int:
    if not isinstance(node, Math):
        return 1
    return _NODES_OF_QUICK if node.function in _QUICK else _MAX_NODES


def several_points(kernel: Kernel, points: int) -> SeveralPoints:
    """The kernel for `points` neighbours at once; it has none but the statements that `points_per_thread` allows."""
    body = _straight(kernel)
    assert body is not None
    writer = _Writer(kernel, points)
    for stmt in body:
        writer.write(stmt)
    made = attrs.evolve(kernel, locals=tuple(writer.locals), body=tuple(writer.body))
    return SeveralPoints(points, made)


def _straight(kernel: Kernel) -> tuple[Assign | Store, ...] | None:
    """The kernel's statements, if they are assignments and stores alone."""
    if kernel.form is not LaunchForm.OVER:
        return None
    body = kernel.body
    if body and isinstance(body[-1], Return):
        body = body[:-1]
    straight = tuple(stmt for stmt in body if isinstance(stmt, Assign | Store))
    return straight if len(straight) == len(body) else None


def _moving_bytes(place: Place, lane: int, moves: dict[str, _Moves]) -> int | None:
    """Bytes of an element where neighbours access neighbouring ones, 0 where all access one, `None` for the rest."""
    if place.root.kind is not RootKind.PARAM:
        return None
    *others, last = (_moved(index, lane, moves) for index in place.indices)
    if any(other != _NO_LANE for other in others) or last not in (0, 1):
        return None
    return place.type.itemsize if last else 0


def _moved(expr: Expr, lane: int, moves: dict[str, _Moves]) -> _Moves:
    def combined(node: Expr, below: tuple[_Moves, ...]) -> _Moves:
        match node:
            case ThreadIndex():
                return int(node.kind is IndexKind.GLOBAL_ID and node.axis == lane)
            case Local():
                return moves.get(node.name)
            case Const() | Param():
                return _NO_LANE
            case Cast() if node.type.is_integer:
                return below[0]
            case Binary(op=BinaryOp.ADD) if None not in below:
                return below[0] + below[1]  # type: ignore[operator]  # none of them is None
            case Binary(op=BinaryOp.SUB) if None not in below:
                return below[0] - below[1]  # type: ignore[operator]  # none of them is None
            case _:
                return _NO_LANE if all(part == _NO_LANE for part in below) else None

    return fold_expression(expr, combined)


class _Writer:
    """Writes each statement once for each point; what stores need is worked out for all points before any stores."""

    def __init__(self, kernel: Kernel, points: int) -> None:
        self._lane = kernel.ndim - 1
        self._points = points
        self._taken = {variable.name for variable in kernel.locals} | {param.name for param in kernel.params}
        self._types = {variable.name: variable.type for variable in kernel.locals}
        self._names: dict[str, tuple[str, ...]] = {}
        self.locals: list[LocalVariable] = []
        self.body: list[Stmt] = []

    def write(self, stmt: Assign | Store) -> None:
        """Appends the statement for every point."""
        if isinstance(stmt, Assign):
            values = [self._at(stmt.value, point) for point in range(self._points)]
            for name, value in zip(self._own(stmt.name), values, strict=True):
                self.body.append(Assign(name=name, value=value, loc=stmt.loc))
            return
        stores = []
        for point in range(self._points):
            indices = tuple(self._kept(self._at(index, point), stmt) for index in stmt.place.indices)
            value = self._kept(self._at(stmt.value, point), stmt)
            stores.append(attrs.evolve(stmt, place=attrs.evolve(stmt.place, indices=indices), value=value))
        self.body += stores

    def _own(self, name: str) -> tuple[str, ...]:
        """The local's names, one for each point."""
        if name not in self._names:
            names = tuple(self._fresh(f"{name}_{point}") for point in range(self._points))
            self._names[name] = names
            self.locals += [LocalVariable(name=own, type=self._types[name]) for own in names]
        return self._names[name]

    def _fresh(self, wanted: str) -> str:
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def _kept(self, expr: Expr, stmt: Stmt) -> Expr:
        """The value of an expression that reads memory, taken before any store of this statement."""
        if not any(isinstance(node, Load) for node in walk_expressions(expr)):
            return expr
        name = self._fresh("value")
        self.locals.append(LocalVariable(name=name, type=expr.type))
        self.body.append(Assign(name=name, value=expr, loc=stmt.loc))
        return Local(name=name, type=expr.type, loc=expr.loc)

    def _at(self, expr: Expr, point: int) -> Expr:
        """The expression for one of the points."""

        def moved(node: Expr) -> Expr:
            if isinstance(node, Local):
                return attrs.evolve(node, name=self._own(node.name)[point])
            is_lane = isinstance(node, ThreadIndex) and node.kind is IndexKind.GLOBAL_ID and node.axis == self._lane
            if is_lane and point:
                return Binary(
                    op=BinaryOp.ADD, left=node, right=Const(value=point, type=i64, loc=node.loc), loc=node.loc
                )
            return node

        return map_expressions(expr, moved)
