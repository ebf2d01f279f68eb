"""Several points per thread: an `over` kernel whose every thread handles several points along the last axis.

A thread that asks for one element of 4 bytes keeps too little of a GPU's memory busy; about 16 bytes reach its peak.
The points of a thread lie as far apart as its block is long, so that threads side by side still access elements side by
side. In straight-line code their statements alternate: all that is loaded for them is asked for before anything is
stored. Other bodies run once per point, in a loop. Either is one of the orders in which the threads of the points could
have run, so nobody can tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from quernel.dtypes import i64
from quernel.geometry import LaunchForm
from quernel.ir.names import FreshNames
from quernel.ir.nodes import (
    Assign,
    Atomic,
    AtomicOp,
    Binary,
    BinaryOp,
    Break,
    Const,
    Continue,
    Expr,
    For,
    If,
    IndexKind,
    Kernel,
    Load,
    Local,
    LocalVariable,
    Math,
    MathFunction,
    Module,
    Place,
    Return,
    RootKind,
    Stmt,
    Store,
    ThreadIndex,
)
from quernel.ir.walk import expressions_of, map_expressions, map_statements, place_of, walk_expressions, walk_statements

__all__ = ["SeveralPoints", "points_per_thread", "several_points"]

_BYTES_IN_FLIGHT: Final = 16
_MAX_POINTS: Final = 4
_MAX_NODES: Final = 96
"""Longer kernels compute more than they load, and with few points they would leave most of the device without work."""
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


@attrs.frozen
class SeveralPoints:
    """What a thread does that has several points.

    Attributes:
        points: how many.
        stride: how far apart they are along the last axis: the block's length.
        kernel: the statements for all of them with the first one's `global_id`, or, where `is_loop`, for one of them,
            which a `Continue` outside its loops ends.
        is_loop: the statements run once for each point.
    """

    points: int
    stride: int
    kernel: Kernel
    is_loop: bool


def points_per_thread(module: Module) -> int:
    """How many points a thread of the module's kernel should handle; 1 where it gains nothing, or might lose."""
    kernel = module.kernel
    if kernel.form is not LaunchForm.OVER or kernel.options.checked or kernel.options.debug:
        return 1
    cost = _cost_of_body(kernel.body)
    if cost is None or cost > _MAX_NODES:
        return 1
    sizes = [
        node.type.itemsize for node in walk_expressions(kernel.body) if isinstance(node, Load) if _is_global(node.place)
    ]
    for stmt in walk_statements(kernel.body):
        place = place_of(stmt)
        if place is not None and _is_global(place):
            sizes.append(place.type.itemsize)
    return max(1, min(_MAX_POINTS, _BYTES_IN_FLIGHT // max(sizes))) if sizes else 1


def several_points(kernel: Kernel, points: int) -> SeveralPoints:
    """The kernel for `points` points of each thread; it has none but the statements that `points_per_thread` allows."""
    stride = kernel.block[-1]
    straight = _straight(kernel)
    if straight is None:
        looped = map_statements(kernel.body, _as_end_of_point)
        return SeveralPoints(points, stride, attrs.evolve(kernel, body=looped), is_loop=True)
    writer = _Writer(kernel, points, stride)
    for stmt in straight:
        writer.write(stmt)
    made = attrs.evolve(kernel, locals=tuple(writer.locals), body=tuple(writer.body))
    return SeveralPoints(points, stride, made, is_loop=False)


def _is_global(place: Place) -> bool:
    return place.root.kind is RootKind.PARAM


def _cost_of_body(body: Iterable[Stmt], *, in_loop: bool = False) -> int | None:
    """About how many nodes one point evaluates; `None` where nobody knows, or points may wait for each other."""
    whole = 0
    for stmt in body:
        cost: int | None = sum(_cost(node) for expr in expressions_of(stmt) for node in walk_expressions(expr))
        match stmt:
            case Assign() | Store() | Break() | Continue():
                pass
            case Atomic() if stmt.op is not AtomicOp.COMPARE_EXCHANGE:
                pass
            case Return() if not in_loop:
                pass
            case If():
                cost = _total(cost, *(_cost_of_body(part, in_loop=in_loop) for part in (stmt.then, stmt.otherwise)))
            case For():
                trips, inside = _trips(stmt), _cost_of_body(stmt.body, in_loop=True)
                cost = None if trips is None or inside is None else _total(cost, trips * inside)
            case _:
                cost = None
        if cost is None:
            return None
        whole += cost
    return whole


def _total(*costs: int | None) -> int | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _trips(loop: For) -> int | None:
    """How often a loop runs whose bounds are constants."""
    bounds = (loop.start, loop.stop, loop.step)
    values = [bound.value for bound in bounds if isinstance(bound, Const)]
    if len(values) != len(bounds) or not values[2]:
        return None
    return len(range(*(int(value) for value in values)))


def _cost(node: Expr) -> int:
    if not isinstance(node, Math):
        return 1
    return _NODES_OF_QUICK if node.function in _QUICK else _MAX_NODES


def _as_end_of_point(stmt: Stmt) -> Stmt:
    return Continue(loc=stmt.loc) if isinstance(stmt, Return) else stmt


def _straight(kernel: Kernel) -> tuple[Assign | Store, ...] | None:
    """The kernel's statements, if they are assignments and stores alone."""
    body = kernel.body
    if body and isinstance(body[-1], Return):
        body = body[:-1]
    straight = tuple(stmt for stmt in body if isinstance(stmt, Assign | Store))
    return straight if len(straight) == len(body) else None


class _Writer:
    """Writes each statement once for each point; what stores need is worked out for all points before any stores."""

    def __init__(self, kernel: Kernel, points: int, stride: int) -> None:
        self._lane = kernel.ndim - 1
        self._points = points
        self._stride = stride
        self._fresh = FreshNames(kernel).fresh
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
                away = Const(value=point * self._stride, type=i64, loc=node.loc)
                return Binary(op=BinaryOp.ADD, left=node, right=away, loc=node.loc)
            return node

        return map_expressions(expr, moved)
