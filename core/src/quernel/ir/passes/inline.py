"""Inlining: calls of device functions become their bodies.

A call whose function reaches a barrier, a subgroup operation or an allocation cannot stay a call, since all threads of
a block have to arrive at the barrier together; nor can one in a checked kernel, where a violation ends the thread. The
body runs in a loop of one trip, so that an early return is a break out of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from quernel.dtypes import ArrayType, ScalarType, ValueType, bool_, i64
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
    Expr,
    For,
    Function,
    If,
    Kernel,
    Load,
    Local,
    LocalVariable,
    Loop,
    Module,
    Param,
    Place,
    Print,
    Return,
    Root,
    RootKind,
    Shape,
    Stmt,
    Store,
    Subgroup,
    Unary,
    UnaryOp,
)
from quernel.ir.walk import Body, map_expressions, map_statements, walk_statements, with_bodies
from quernel.locations import Location, called_at

__all__ = ["functions_to_inline", "inline"]


def functions_to_inline(module: Module) -> frozenset[str]:
    """Names of the device functions that reach a `Barrier`, `Subgroup` or `Alloc`, directly or by a call."""
    functions = {function.name: function for function in module.functions}
    known: dict[str, bool] = {}

    def reaches(name: str) -> bool:
        if name not in known:
            known[name] = False
            known[name] = any(
                isinstance(stmt, Barrier | Subgroup | Alloc) or (isinstance(stmt, Call) and reaches(stmt.function))
                for stmt in walk_statements(functions[name].body)
            )
        return known[name]

    return frozenset(name for name in functions if reaches(name))


def inline(module: Module, names: frozenset[str] | None = None) -> Module:
    """`module` with the calls of the named functions replaced by bodies, and those functions dropped.

    Without names these are `functions_to_inline`. A function that reaches a named one has to be named too.
    """
    if names is None:
        names = functions_to_inline(module)
    if not names:
        return module
    inliner = _Inliner(module, names)
    return attrs.evolve(
        module,
        kernel=inliner.kernel(),
        functions=tuple(function for function in module.functions if function.name not in names),
    )


class _Inliner:
    def __init__(self, module: Module, names: frozenset[str]) -> None:
        self._kernel = module.kernel
        self._functions = {function.name: function for function in module.functions}
        self._names = names
        self._allocs: list[Alloc] = [stmt for stmt in module.kernel.body if isinstance(stmt, Alloc)]
        self._locals = list(module.kernel.locals)
        self._taken = {local.name for local in self._locals} | {alloc.name for alloc in self._allocs}
        self._taken |= {parameter.name for parameter in module.kernel.params}

    def kernel(self) -> Kernel:
        body = self._inlined(self._kernel.body)
        rest = tuple(stmt for stmt in body if not isinstance(stmt, Alloc))
        return attrs.evolve(self._kernel, locals=tuple(self._locals), body=(*self._allocs, *rest))

    def _inlined(self, body: Body) -> Body:
        def rewrite(stmt: Stmt) -> Stmt | Body:
            if isinstance(stmt, Call) and stmt.function in self._names:
                return self._expanded(stmt, self._functions[stmt.function])
            return stmt

        return map_statements(body, rewrite)

    def _fresh(self, name: str) -> str:
        number = 0
        while (candidate := f"{name}_{number}") in self._taken:
            number += 1
        self._taken.add(candidate)
        return candidate

    def _fresh_local(self, name: str, type_: ValueType) -> str:
        fresh = self._fresh(name)
        self._locals.append(LocalVariable(name=fresh, type=type_))
        return fresh

    def _expanded(self, call: Call, function: Function) -> Body:
        prefix = function.name
        names = {local.name: self._fresh_local(f"{prefix}_{local.name}", local.type) for local in function.locals}
        scalars: dict[str, Expr] = {}
        roots: dict[Root, Root] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        before: list[Stmt] = []
        for parameter, argument in zip(function.params, call.arguments, strict=True):
            if isinstance(parameter.type, ScalarType) and not isinstance(argument, ArrayRef):
                fresh = self._fresh_local(f"{prefix}_{parameter.name}", parameter.type.dtype)
                before.append(Assign(name=fresh, value=argument, loc=call.loc))
                scalars[parameter.name] = Local(name=fresh, type=parameter.type.dtype, loc=call.loc)
            elif isinstance(parameter.type, ArrayType) and isinstance(argument, ArrayRef):
                roots[Root(RootKind.PARAM, parameter.name)] = argument.root
        for alloc in (stmt for stmt in function.body if isinstance(stmt, Alloc)):
            fresh = self._fresh(f"{prefix}_{alloc.name}")
            kind = RootKind(alloc.space.value)
            roots[Root(kind, alloc.name)] = Root(kind, fresh)
            self._allocs.append(attrs.evolve(alloc, name=fresh))
        for alloc in self._allocs:
            shapes[alloc.name] = alloc.shape
        body = tuple(stmt for stmt in function.body if not isinstance(stmt, Alloc))
        renamed = _Renaming(names, scalars, roots, shapes, call.loc).body(body)
        return (*before, *self._as_loop(self._inlined(renamed), call))

    def _as_loop(self, body: Body, call: Call) -> Body:
        """The body in a loop of one trip, its returns as breaks."""
        if not any(isinstance(stmt, Return) for stmt in walk_statements(body[:-1])) and not _returns_inside(body):
            return _assigned(body, call.results)
        flag = self._fresh_local(f"{call.function}_returned", bool_)
        once = _returns_as_breaks(body, call.results, flag)
        start = Assign(name=flag, value=Const(value=False, type=bool_, loc=call.loc), loc=call.loc)
        if not (once and isinstance(once[-1], Break)):
            once = (*once, Break(loc=call.loc))
        return (start, Loop(body=once, loc=call.loc))


def _returns_inside(body: Body) -> bool:
    return (
        bool(body)
        and not isinstance(body[-1], Return)
        and any(isinstance(stmt, Return) for stmt in walk_statements(body[-1:]))
    )


def _result_assigns(stmt: Return, results: tuple[str, ...]) -> Body:
    return tuple(Assign(name=name, value=value, loc=stmt.loc) for name, value in zip(results, stmt.values, strict=True))


def _assigned(body: Body, results: tuple[str, ...]) -> Body:
    if body and isinstance(body[-1], Return):
        return (*body[:-1], *_result_assigns(body[-1], results))
    return body


def _returns_as_breaks(body: Body, results: tuple[str, ...], flag: str) -> Body:
    """Every return as: results, flag, break; after each inner loop that may have been left so, one break more."""
    rewritten: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Return):
            rewritten.extend(_result_assigns(stmt, results))
            rewritten.append(_raised(flag, stmt.loc))
            rewritten.append(Break(loc=stmt.loc))
            break
        returns = any(isinstance(inner, Return) for inner in walk_statements((stmt,)))
        if not returns:
            rewritten.append(stmt)
        elif isinstance(stmt, If):
            then = _returns_as_breaks(stmt.then, results, flag)
            otherwise = _returns_as_breaks(stmt.otherwise, results, flag)
            rewritten.append(with_bodies(stmt, (then, otherwise)))
        elif isinstance(stmt, For | Loop):
            rewritten.append(with_bodies(stmt, (_returns_as_breaks(stmt.body, results, flag),)))
            left = Local(name=flag, type=bool_, loc=stmt.loc)
            rewritten.append(If(condition=left, then=(Break(loc=stmt.loc),), loc=stmt.loc))
    return tuple(rewritten)


def _raised(flag: str, loc: Location) -> Stmt:
    return Assign(name=flag, value=Const(value=True, type=bool_, loc=loc), loc=loc)


@attrs.frozen
class _Renaming:
    """The callee's names as the kernel's; what may fail also knows where the callee was called."""

    names: Mapping[str, str]
    scalars: Mapping[str, Expr]
    roots: Mapping[Root, Root]
    shapes: Mapping[str, tuple[int, ...]]
    call: Location

    def body(self, body: Body) -> Body:
        return map_statements(map_expressions(body, self._expression), self._statement)

    def _expression(self, expr: Expr) -> Expr:
        match expr:
            case Local():
                return attrs.evolve(expr, name=self.names[expr.name])
            case Param():
                return self.scalars[expr.name]
            case Load():
                return attrs.evolve(expr, place=self._place_of(expr))
            case Unary(op=UnaryOp.UNIFORM):
                return attrs.evolve(expr, loc=called_at(expr.loc, self.call))
            case Shape():
                root = self.roots[Root(RootKind.PARAM, expr.param)]
                if root.kind is RootKind.PARAM:
                    return attrs.evolve(expr, param=root.name)
                return Const(value=self.shapes[root.name][expr.axis], type=i64, loc=expr.loc)
            case _:
                return expr

    def _statement(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Assign():
                return attrs.evolve(stmt, name=self.names[stmt.name])
            case For():
                return attrs.evolve(stmt, variable=self.names[stmt.variable])
            case Store():
                return attrs.evolve(stmt, place=self._place_of(stmt))
            case Atomic():
                result = self.names[stmt.result] if stmt.result is not None else None
                return attrs.evolve(stmt, place=self._place_of(stmt), result=result)
            case Subgroup():
                return attrs.evolve(stmt, result=self.names[stmt.result])
            case Call():
                arguments = tuple(
                    attrs.evolve(item, root=self.roots.get(item.root, item.root))
                    if isinstance(item, ArrayRef)
                    else item
                    for item in stmt.arguments
                )
                results = tuple(self.names[name] for name in stmt.results)
                loc = called_at(stmt.loc, self.call)
                return attrs.evolve(stmt, results=results, arguments=arguments, loc=loc)
            case Assert():
                return attrs.evolve(stmt, loc=called_at(stmt.loc, self.call))
            case Barrier() | Break() | Breakpoint() | Continue() | Return() | Print():
                return attrs.evolve(stmt)  # Analyses tell one copy from the next by identity.
            case _:
                return stmt

    def _place_of(self, access: Load | Store | Atomic) -> Place:
        place = access.place
        return attrs.evolve(place, root=self.roots.get(place.root, place.root), loc=called_at(place.loc, self.call))
