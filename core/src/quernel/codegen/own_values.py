"""Values that are alike in all threads, where threads that part ways bring different ones together.

Some compilers that run threads as lanes of a vector take what is computed from values alike in all threads for alike
itself, also where a branch decides, for each thread, which of two such values goes on. A dialect can name a function
that makes a value the thread's own (`Dialect.own`). One of the two is enough, and both would be too many: what both
ways end with, compilers move behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from quernel.codegen.declarations import declarations
from quernel.ir.analysis import assigned_names
from quernel.ir.nodes import (
    Assign,
    Call,
    Const,
    Expr,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Local,
    Module,
    Return,
    Select,
    Stmt,
    Subgroup,
    ThreadIndex,
)
from quernel.ir.uniformity import Level, analyse_uniformity
from quernel.ir.walk import Body, bodies, walk_expressions, walk_statements

__all__ = ["OwnValues"]

_Levels: TypeAlias = Callable[[Expr], Level]


class OwnValues:
    """Which values of a kernel or function a thread makes its own, where the dialect has a way to."""

    def __init__(self, module: Module, owner: Kernel | Function) -> None:
        is_kernel = owner is module.kernel
        self._level: _Levels = analyse_uniformity(module).level if is_kernel else lambda _: Level.VARYING
        self._last_axis = module.kernel.ndim - 1
        self._varying: set[str] = set()
        self._find_varying_locals(owner)
        self._ids = self._assigned(owner.body, declarations(owner.body, owner.locals).at)
        returns = [stmt for stmt in walk_statements(owner.body) if isinstance(stmt, Return) and stmt.values]
        if len(returns) > 1:
            self._ids.add(id(returns[-1]))

    def has(self, stmt: Assign | Call | For | Return | Subgroup) -> bool:
        """Whether what the statement assigns or gives back becomes the thread's own."""
        return id(stmt) in self._ids and not (isinstance(stmt, Assign) and self._varies(stmt.value))

    def has_select(self, select: Select) -> bool:
        """Whether the second of the values that it chooses from does."""
        parts = (select.then, select.otherwise)
        if all(isinstance(part, Const) for part in parts) or any(map(self._varies, parts)):
            return False
        return self._level(select.condition) == Level.VARYING

    def _varies(self, expr: Expr) -> bool:
        """Whether any compiler sees that threads side by side have different values: one goes back to their number."""
        for node in walk_expressions(expr):
            match node:
                case ThreadIndex():
                    if node.axis == self._last_axis and node.kind in (IndexKind.GLOBAL_ID, IndexKind.LOCAL_ID):
                        return True
                case Local():
                    if node.name in self._varying:
                        return True
                case _:
                    pass
        return False

    def _find_varying_locals(self, owner: Kernel | Function) -> None:
        """Finds the locals of which every assignment varies: all do, until one is seen that does not."""
        values: dict[str, list[Expr]] = {}
        others: set[str] = set()
        for stmt in walk_statements(owner.body):
            if isinstance(stmt, Assign):
                values.setdefault(stmt.name, []).append(stmt.value)
            else:
                others.update(assigned_names((stmt,)) if not bodies(stmt) else ())
                others.update((stmt.variable,) if isinstance(stmt, For) else ())
        self._varying = values.keys() - others
        changed = True
        while changed:
            changed = False
            for name in values:  # In the order of the text, in which one leads to the next.
                if name in self._varying and not all(map(self._varies, values[name])):
                    self._varying.remove(name)
                    changed = True

    def _assigned(self, body: Body, declared: Mapping[int, str]) -> set[int]:
        """Of each branch on which threads part ways, the last assignment of each local on the way that stands last.

        `declared`: locals by the statements from which on they are there, up to the end of the nest. They go no further
        than their way, and what is made of them there would be the thread's own on both ways.
        """
        names: dict[int, dict[str, Stmt]] = {}  # by statement: the locals that it assigns, and where it does so last
        found: set[int] = set()
        for stmt in reversed(list(walk_statements(body))):
            last: dict[str, Stmt] = {}
            for inner in bodies(stmt):  # What stands later replaces what stood before.
                for part in inner:
                    last.update(names[id(part)])
                for part in inner:
                    last.pop(declared.get(id(part), ""), None)
            match stmt:
                case Assign():
                    last[stmt.name] = stmt
                case Call():
                    last.update(dict.fromkeys(stmt.results, stmt))
                case Subgroup():
                    last[stmt.result] = stmt
                case For():
                    last.setdefault(stmt.variable, stmt)
                case If() if self._level(stmt.condition) == Level.VARYING:
                    found.update(map(id, last.values()))
                case _:
                    pass
            names[id(stmt)] = last
        return found
