"""Removal of what never runs or never matters.

Dead branches, loops that run zero times, statements behind a return, break or continue, assignments that nothing reads,
locals and allocations that nothing mentions and device functions that nothing calls.

A load goes with what nothing reads, so whoever wants every index checked inserts the checks before this pass.
"""

from __future__ import annotations

from typing import TypeVar

import attrs

from quernel.ir import semantics
from quernel.ir.analysis import assigned_names, read_names
from quernel.ir.flow import completes
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    Call,
    Const,
    For,
    Function,
    If,
    Kernel,
    Load,
    Local,
    Module,
    Stmt,
)
from quernel.ir.walk import (
    Body,
    bodies,
    expressions_of,
    map_statements,
    place_of,
    walk_expressions,
    walk_statements,
    with_bodies,
)

__all__ = ["remove_dead_code"]

_OwnerT = TypeVar("_OwnerT", Kernel, Function)


def remove_dead_code(module: Module) -> Module:
    """`module` without what never runs or never matters."""
    kernel = _cleaned(module.kernel)
    functions = {function.name: _cleaned(function) for function in module.functions}
    called: dict[str, None] = {}
    pending = [kernel.body]
    while pending:
        for stmt in walk_statements(pending.pop()):
            if isinstance(stmt, Call) and stmt.function not in called:
                called[stmt.function] = None
                pending.append(functions[stmt.function].body)
    return Module(kernel=kernel, functions=tuple(f for name, f in functions.items() if name in called))


def _cleaned(owner: _OwnerT) -> _OwnerT:
    before: Body = ()
    body: Body = owner.body
    while body is not before:
        before, body = body, _needed(_reachable(body))
    mentioned = {*assigned_names(body), *read_names(body)}
    variables = tuple(variable for variable in owner.locals if variable.name in mentioned)
    return attrs.evolve(owner, body=body, locals=variables)


# --- what never runs --------------------------------------------------------------------------------------------------


def _reachable(body: Body) -> Body:
    return _truncated(map_statements(body, _simplified))


def _simplified(stmt: Stmt) -> Stmt | Body:
    stmt = with_bodies(stmt, tuple(_truncated(inner) for inner in bodies(stmt)))
    match stmt:
        case If(condition=Const(value=value)):
            return stmt.then if value else stmt.otherwise
        case If(then=(), otherwise=()):
            return ()
        case For() if _runs_never(stmt):
            return ()
        case Assert(condition=Const(value=True)):
            return ()
        case _:
            return stmt


def _runs_never(loop: For) -> bool:
    match loop.start, loop.stop, loop.step:
        case Const(value=start), Const(value=stop), Const(value=step):
            return semantics.trip_count(int(start), int(stop), int(step)) == 0
        case _, _, Const(value=0):
            return True
        case _:
            return False


def _truncated(body: Body) -> Body:
    """`body` up to the first statement behind which nothing is reached."""
    for count, stmt in enumerate(body, start=1):
        if not completes((stmt,)):
            return body if count == len(body) else body[:count]
    return body


# --- what never matters -----------------------------------------------------------------------------------------------


def _needed(body: Body) -> Body:
    """`body` without assignments whose value reaches nothing but such assignments, and without unused allocations."""
    needed = _needed_names(body)
    arrays = _arrays(body)

    def kept(stmt: Stmt) -> Stmt | Body:
        match stmt:
            case Assign() if stmt.name not in needed:
                return ()
            case Alloc() if stmt.name not in arrays:
                return ()
            case For(body=()) if stmt.variable not in needed:
                return ()
            case Atomic(result=str()) if stmt.result not in needed:
                return attrs.evolve(stmt, result=None)
            case _:
                return stmt

    return map_statements(body, kept)


def _arrays(body: Body) -> set[str]:
    """The arrays that `body` accesses or hands to a device function."""
    names = {expr.place.root.name for expr in walk_expressions(body) if isinstance(expr, Load)}
    for stmt in walk_statements(body):
        place = place_of(stmt)
        if place is not None:
            names.add(place.root.name)
        if isinstance(stmt, Call):
            names.update(argument.root.name for argument in stmt.arguments if isinstance(argument, ArrayRef))
    return names


def _needed_names(body: Body) -> set[str]:
    feeds: dict[str, set[str]] = {}
    pending: list[str] = []
    for stmt in walk_statements(body):
        read = {
            expr.name for outer in expressions_of(stmt) for expr in walk_expressions(outer) if isinstance(expr, Local)
        }
        if isinstance(stmt, Assign):
            feeds.setdefault(stmt.name, set()).update(read)
        else:
            pending.extend(read)
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(feeds.get(name, ()))
    return needed
