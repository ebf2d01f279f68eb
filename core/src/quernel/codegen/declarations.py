"""Where each local is declared: at its first assignment where that surely comes first, else at the top."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from quernel.ir.analysis import assigned_names
from quernel.ir.nodes import Assign, Atomic, Call, Expr, For, If, Local, LocalVariable, Loop, Stmt, Subgroup
from quernel.ir.walk import Body, bodies, expressions_of, walk_expressions

__all__ = ["Declarations", "declarations"]


@attrs.frozen
class Declarations:
    """Where locals are declared.

    Attributes:
        at_top: locals declared at the start of the function, in their own order.
        at: by the identity of the statement, the local that it declares: the name that it assigns, or its variable.
    """

    at_top: tuple[LocalVariable, ...]
    at: dict[int, str]


def declarations(body: Body, variables: tuple[LocalVariable, ...]) -> Declarations:
    """The places of the declarations of all locals that `body` mentions."""
    mentions = _Mentions()
    at: dict[int, str] = {}
    at_top = []
    for variable in variables:
        if variable.name not in mentions.of_body(body):
            continue
        places = _places(body, variable.name, mentions)
        if places is None:
            at_top.append(variable)
        else:
            at.update(dict.fromkeys(map(id, places), variable.name))
    return Declarations(tuple(at_top), at)


class _Mentions:
    """The locals that statements read or assign, each statement worked out once."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[str]] = {}

    def of_body(self, body: Body) -> frozenset[str]:
        return frozenset().union(*(self.of(stmt) for stmt in body))

    def of(self, stmt: Stmt) -> frozenset[str]:
        """Worked out from the innermost statements outwards, so that a long chain of `elif` needs no recursion."""
        pending = [stmt]
        while pending:
            top = pending[-1]
            if id(top) in self._known:
                pending.pop()
                continue
            inner = [below for body in bodies(top) for below in body if id(below) not in self._known]
            if inner:
                pending += inner
                continue
            own = read_by(expressions_of(top)) | set(_targets(top))
            self._known[id(top)] = own.union(*(self._known[id(below)] for body in bodies(top) for below in body))
            pending.pop()
        return self._known[id(stmt)]


def read_by(exprs: Iterable[Expr]) -> frozenset[str]:
    """The locals that expressions read."""
    return frozenset(found.name for expr in exprs for found in walk_expressions(expr) if isinstance(found, Local))


def _targets(stmt: Stmt) -> tuple[str, ...]:
    return assigned_names((stmt,)) if isinstance(stmt, Assign | Atomic | Call | For | Subgroup) else ()


def _places(body: Body, name: str, mentions: _Mentions) -> tuple[Stmt, ...] | None:
    """The statements that declare the local, each for what follows it in its own nest; `None`: there are none."""
    while True:
        found = [stmt for stmt in body if name in mentions.of(stmt)]
        if all(_is_own_loop(stmt, name, mentions) for stmt in found):
            return tuple(found)
        first = found[0]
        if _starts(first, name):
            return (first,)
        inner = [nest for nest in bodies(first) if name in mentions.of_body(nest)]
        is_inside = isinstance(first, If | Loop) or (isinstance(first, For) and first.variable != name)
        if len(found) > 1 or not is_inside or len(inner) != 1 or name in read_by(expressions_of(first)):
            return None
        body = inner[0]


def _is_own_loop(stmt: Stmt, name: str, mentions: _Mentions) -> bool:
    """Whether the local is the variable of this loop, assigned by nothing else in it."""
    return (
        isinstance(stmt, For)
        and stmt.variable == name
        and name not in read_by(expressions_of(stmt))
        and name not in assigned_names(stmt.body)
    )


def _starts(stmt: Stmt, name: str) -> bool:
    """Whether the statement gives the local its value, whatever came before."""
    is_simple = isinstance(stmt, Assign | Subgroup | Atomic | Call)
    return is_simple and _targets(stmt) == (name,) and name not in read_by(expressions_of(stmt))
