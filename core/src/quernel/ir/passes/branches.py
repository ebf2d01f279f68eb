"""Removal of what never runs or never matters.

Dead branches, loops that run zero times, statements behind a return, break or continue, assignments that nothing reads,
calls that do nothing but return what nothing reads, locals and allocations that nothing mentions and device functions
that nothing calls.

A load goes with what nothing reads, so whoever wants every index checked inserts the checks before this pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TypeVar, assert_never

import attrs

from quernel.ir import semantics
from quernel.ir.analysis import assigned_names, read_names
from quernel.ir.flow import completes, has_one_trip
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Break,
    Breakpoint,
    Call,
    Const,
    Continue,
    For,
    Function,
    If,
    Kernel,
    Load,
    Local,
    Loop,
    Module,
    Print,
    Return,
    RootKind,
    Space,
    Stmt,
    Store,
    Subgroup,
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
    functions: dict[str, Function] = {}
    pure: set[str] = set()
    for function in _callees_first(module.functions):
        functions[function.name] = _cleaned(function, pure)
        if _is_pure(functions[function.name].body, pure):
            pure.add(function.name)
    kernel = _cleaned(module.kernel, pure)
    called: dict[str, None] = {}
    pending = [kernel.body]
    while pending:
        for stmt in walk_statements(pending.pop()):
            if isinstance(stmt, Call) and stmt.function not in called:
                called[stmt.function] = None
                pending.append(functions[stmt.function].body)
    return Module(kernel=kernel, functions=tuple(functions[f.name] for f in module.functions if f.name in called))


def _callees_first(functions: tuple[Function, ...]) -> Iterator[Function]:
    waits = {
        function.name: {stmt.function for stmt in walk_statements(function.body) if isinstance(stmt, Call)}
        for function in functions
    }
    done: set[str] = set()
    while len(done) < len(functions):
        left = [f for f in functions if f.name not in done]
        ready = [f for f in left if waits[f.name] <= done] or left  # Functions in a circle are refused elsewhere.
        yield from ready
        done.update(function.name for function in ready)


def _cleaned(owner: _OwnerT, pure: Set[str]) -> _OwnerT:
    before: Body = ()
    body: Body = owner.body
    while body is not before:
        before, body = body, _needed(_reachable(body), pure)
    mentioned = {*assigned_names(body), *read_names(body)}
    variables = tuple(variable for variable in owner.locals if variable.name in mentioned)
    return attrs.evolve(owner, body=body, locals=variables)


def _is_pure(body: Body, pure: Set[str]) -> bool:
    """Whether a device function surely ends, and does nothing that anyone sees but return values."""
    return all(_does_nothing(stmt, pure) for stmt in walk_statements(body))


def _does_nothing(stmt: Stmt, pure: Set[str]) -> bool:
    match stmt:
        case Assign() | If() | For() | Break() | Continue() | Return():
            return True
        case Store():
            return stmt.place.root.kind is RootKind.PRIVATE
        case Alloc():
            return stmt.space is Space.PRIVATE
        case Call():
            return stmt.function in pure
        case Loop():
            return has_one_trip(stmt)
        case Atomic() | Subgroup() | Barrier() | Assert() | Print() | Breakpoint():
            return False
        case _:
            assert_never(stmt)


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


def _needed(body: Body, pure: Set[str]) -> Body:
    """`body` without assignments and pure calls whose values reach nothing but such, and without unused allocations."""
    needed = _needed_names(body, pure)
    arrays = _arrays(body)

    def kept(stmt: Stmt) -> Stmt | Body:
        match stmt:
            case Assign() if stmt.name not in needed:
                return ()
            case Call() if stmt.function in pure and needed.isdisjoint(stmt.results):
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


def _needed_names(body: Body, pure: Set[str]) -> set[str]:
    feeds: dict[str, set[str]] = {}
    pending: list[str] = []
    for stmt in walk_statements(body):
        read = {
            expr.name for outer in expressions_of(stmt) for expr in walk_expressions(outer) if isinstance(expr, Local)
        }
        if isinstance(stmt, Assign):
            feeds.setdefault(stmt.name, set()).update(read)
        elif isinstance(stmt, Call) and stmt.function in pure:
            for name in stmt.results:
                feeds.setdefault(name, set()).update(read)
        else:
            pending.extend(read)
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(feeds.get(name, ()))
    return needed
