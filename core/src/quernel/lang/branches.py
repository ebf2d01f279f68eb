"""Chains of `if` and `elif` as nested `If`s, however long."""

from __future__ import annotations

from typing import Final

from quernel.dtypes import bool_
from quernel.ir import nodes
from quernel.lang.constants import literal
from quernel.lang.lowering import FunctionLowering
from quernel.locations import Location

__all__ = ["IfChain"]

_MAX_LINKS: Final = 24
"""Links that nest; a longer chain goes on behind a flag."""


class IfChain:
    """The `If`s of one chain: each stands in the `otherwise` of the one before.

    After `_MAX_LINKS` links the nest is closed, and the chain goes on behind a flag that its last `otherwise` sets.
    """

    def __init__(self, lowering: FunctionLowering, loc: Location) -> None:
        self._lowering = lowering
        self._loc = loc
        self._links: list[tuple[nodes.Expr, list[nodes.Stmt], Location]] = []
        self._flag: str | None = None

    def add(self, test: nodes.Expr, then: list[nodes.Stmt], loc: Location) -> None:
        """One more link; what is written from here on stands in its `otherwise`."""
        self._links.append((test, then, loc))
        self._lowering.open_block()
        if len(self._links) == _MAX_LINKS:
            flag = self._lowering.scope.temporary(bool_)
            self._lowering.emit(nodes.Assign(name=flag, value=literal(True, bool_, self._loc), loc=self._loc))
            self._close(nodes.Assign(name=flag, value=literal(False, bool_, self._loc), loc=self._loc))
            self._flag = flag
            self._lowering.open_block()

    def close(self) -> None:
        """Ends the chain."""
        self._close(None)

    def _close(self, before: nodes.Stmt | None) -> None:
        lowering = self._lowering
        tests = [*self._links]
        if self._flag is not None:
            condition = nodes.Local(name=self._flag, type=bool_, loc=self._loc)
        while tests:
            test, then, loc = tests.pop()
            otherwise = lowering.close_block()
            statement = nodes.If(condition=test, then=tuple(then), otherwise=tuple(otherwise), loc=loc)
            if not tests and self._flag is None and before is not None:
                lowering.emit(before)
            lowering.emit(statement)
        if self._flag is not None:
            body = lowering.close_block()
            if before is not None:
                lowering.emit(before)
            lowering.emit(nodes.If(condition=condition, then=tuple(body), loc=self._loc))
        self._links = []
        self._flag = None
