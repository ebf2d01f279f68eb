"""Which calls of device functions become copies of their bodies, and which stay calls with a mask.

A copy costs nothing when it runs; but a function that calls another one twice, which calls a third one twice, and so
on, has exponentially many. The rule: a kernel that is short with every call copied has every call copied. In a longer
one a function stays a function, unless it is tiny or called from one place only, when a copy makes nothing longer. So
code grows as what the user wrote does.

A private array lies spread between those of other threads, which a function could not know: what is handed one is
copied in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import attrs

from quernel.dtypes import ValueType
from quernel.ir.nodes import ArrayRef, Assign, Call, Function, Kernel, Local, LocalVariable, Module, RootKind, Stmt
from quernel.ir.passes.inline import inline
from quernel.ir.walk import Body, map_statements, walk_statements

__all__ = ["with_few_calls"]

_MOST_COPIED = 600
"""Statements of a kernel with every call copied, up to which every call is."""
_TINY = 8
"""Statements of a function that is always copied."""


def with_few_calls(module: Module) -> Module:
    """The module with calls copied by the rule above; results of those left are locals that nothing else assigns."""
    copied = _copied(module)
    functions = tuple(
        _with_own_results(attrs.evolve(function, locals=owner.locals, body=owner.body))
        for function in module.functions
        if function.name not in copied
        for owner in (_inlined(module, function, copied),)
    )
    kernel = _with_own_results(inline(module, copied).kernel)
    used = _reached(kernel, {function.name: function for function in functions})
    return attrs.evolve(
        module, kernel=kernel, functions=tuple(function for function in functions if function.name in used)
    )


def _copied(module: Module) -> frozenset[str]:
    functions = {function.name: function for function in module.functions}
    num_sites: dict[str, int] = {}
    for body in (module.kernel.body, *(function.body for function in module.functions)):
        for call in _calls(body):
            num_sites[call.function] = num_sites.get(call.function, 0) + 1
    if _size(module, frozenset(functions)) <= _MOST_COPIED:
        return frozenset(functions)
    copied = _given_own_arrays(module, functions)
    sizes: dict[str, int] = {}

    def visit(name: str) -> None:
        if name in sizes:
            return
        size = 0
        for stmt in walk_statements(functions[name].body):
            size += 1
            if isinstance(stmt, Call):
                visit(stmt.function)
                size += sizes[stmt.function] if stmt.function in copied else 0
        sizes[name] = size
        if size <= _TINY or num_sites.get(name, 0) <= 1:
            copied.add(name)

    for name in functions:
        visit(name)
    return frozenset(copied)


def _size(module: Module, copied: frozenset[str]) -> int:
    """Statements of the kernel with these calls copied."""
    functions = {function.name: function for function in module.functions}
    known: dict[str, int] = {}

    def size(body: Body) -> int:
        total = 0
        for stmt in walk_statements(body):
            total += 1
            if isinstance(stmt, Call) and stmt.function in copied:
                if stmt.function not in known:
                    known[stmt.function] = size(functions[stmt.function].body)
                total += known[stmt.function]
        return total

    return size(module.kernel.body)


def _given_own_arrays(module: Module, functions: dict[str, Function]) -> set[str]:
    """The functions that are handed a private array, and those that they hand an array on to."""
    found: set[str] = set()
    pending = [
        call.function
        for body in (module.kernel.body, *(function.body for function in module.functions))
        for call in _calls(body)
        if any(isinstance(item, ArrayRef) and item.root.kind is RootKind.PRIVATE for item in call.arguments)
    ]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [
                call.function
                for call in _calls(functions[name].body)
                if any(isinstance(item, ArrayRef) for item in call.arguments)
            ]
    return found


def _calls(body: Body) -> Iterator[Call]:
    return (stmt for stmt in walk_statements(body) if isinstance(stmt, Call))


def _inlined(module: Module, function: Function, copied: frozenset[str]) -> Kernel:
    """A function's own locals and body with calls copied, as if it were a kernel."""
    owner = attrs.evolve(module.kernel, params=function.params, locals=function.locals, body=function.body)
    return inline(attrs.evolve(module, kernel=owner), copied).kernel


def _reached(kernel: Kernel, functions: dict[str, Function]) -> set[str]:
    found: set[str] = set()
    pending = [call.function for call in _calls(kernel.body)]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [call.function for call in _calls(functions[name].body)]
    return found


_OwnerT = TypeVar("_OwnerT", Kernel, Function)


def _with_own_results(owner: _OwnerT) -> _OwnerT:
    """The same with each call's results in locals of its own, which are assigned to the others behind it."""
    types: dict[str, ValueType] = {local.name: local.type for local in owner.locals}
    taken = {*types, *(param.name for param in owner.params)}
    fresh: list[LocalVariable] = []

    def rewrite(stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, Call) or not stmt.results:
            return stmt
        names = []
        for name in stmt.results:
            number = len(fresh)
            while (candidate := f"{stmt.function}_gives_{number}") in taken:
                number += 1
            taken.add(candidate)
            fresh.append(LocalVariable(name=candidate, type=types[name]))
            names.append(candidate)
        behind: Iterator[Stmt] = (
            Assign(name=name, value=Local(name=own, type=types[name], loc=stmt.loc), loc=stmt.loc)
            for name, own in zip(stmt.results, names, strict=True)
        )
        return (attrs.evolve(stmt, results=tuple(names)), *behind)

    body = map_statements(owner.body, rewrite)
    return attrs.evolve(owner, locals=(*owner.locals, *fresh), body=body)
