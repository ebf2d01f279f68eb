"""Iterating over and rewriting the IR, one way for all passes.

Expressions are walked without recursion, because a chain of a thousand operators is a thousand nodes deep. Statements
recurse with the nesting of bodies, and a chain of `elif` counts as one level. A rewrite returns the very same object
where nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, assert_never, overload

import attrs

from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Bitcast,
    Break,
    Breakpoint,
    Call,
    Cast,
    Compare,
    Const,
    Continue,
    Expr,
    Field,
    Fma,
    For,
    Function,
    If,
    Kernel,
    Load,
    Local,
    Loop,
    Math,
    Module,
    Param,
    Place,
    Print,
    Return,
    Select,
    Shape,
    Stmt,
    Store,
    StructMake,
    Subgroup,
    ThreadIndex,
    Unary,
    VecGet,
    VecMake,
)

__all__ = [
    "Body",
    "bodies",
    "children",
    "expressions_of",
    "fold_expression",
    "map_bodies",
    "map_expressions",
    "map_statements",
    "place_of",
    "walk_expressions",
    "walk_statements",
    "with_bodies",
    "with_children",
    "with_expressions",
]

Body = tuple[Stmt, ...]
"""Statements that run one after the other."""

Root = Expr | Stmt | Body | Function | Kernel | Module
"""What `walk_expressions` starts from."""

_ResultT = TypeVar("_ResultT")


# --- one expression ---------------------------------------------------------------------------------------------------


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly below `expr`, in the order of their evaluation; those of a load are its indices."""
    match expr:
        case Local() | Const() | Param() | ThreadIndex() | Shape():
            return ()
        case Binary() | Compare():
            return (expr.left, expr.right)
        case Load():
            return expr.place.indices
        case Unary() | Cast() | Bitcast() | VecGet() | Field():
            return (expr.operand,)
        case Fma():
            return (expr.a, expr.b, expr.c)
        case Select():
            return (expr.condition, expr.then, expr.otherwise)
        case Math():
            return expr.operands
        case VecMake():
            return expr.components
        case StructMake():
            return expr.values
        case _:
            assert_never(expr)


def with_children(expr: Expr, replaced: tuple[Expr, ...]) -> Expr:
    """`expr` with other expressions below it, in the order of `children`; `expr` itself where all are the same."""
    if _all_same(children(expr), replaced):
        return expr
    match expr:
        case Local() | Const() | Param() | ThreadIndex() | Shape():
            return expr
        case Binary() | Compare():
            left, right = replaced
            return attrs.evolve(expr, left=left, right=right)
        case Load():
            return attrs.evolve(expr, place=attrs.evolve(expr.place, indices=replaced))
        case Unary() | Cast() | Bitcast() | VecGet() | Field():
            return attrs.evolve(expr, operand=replaced[0])
        case Fma():
            a, b, c = replaced
            return attrs.evolve(expr, a=a, b=b, c=c)
        case Select():
            condition, then, otherwise = replaced
            return attrs.evolve(expr, condition=condition, then=then, otherwise=otherwise)
        case Math():
            return attrs.evolve(expr, operands=replaced)
        case VecMake():
            return attrs.evolve(expr, components=replaced)
        case StructMake():
            return attrs.evolve(expr, values=replaced)
        case _:
            assert_never(expr)


def fold_expression(expr: Expr, combine: Callable[[Expr, tuple[_ResultT, ...]], _ResultT]) -> _ResultT:
    """The value of `combine(node, values of its children)` at `expr`, worked out from the leaves up."""
    pending: list[tuple[Expr, int | None]] = [(expr, None)]
    done: list[_ResultT] = []
    while pending:
        node, num_children = pending.pop()
        if num_children is None:
            below = children(node)
            pending.append((node, len(below)))
            pending.extend((child, None) for child in reversed(below))
            continue
        split = len(done) - num_children
        results = tuple(done[split:])
        del done[split:]
        done.append(combine(node, results))
    return done[0]


# --- one statement ----------------------------------------------------------------------------------------------------


def place_of(stmt: Stmt) -> Place | None:
    """The place that the statement itself writes or updates."""
    return stmt.place if isinstance(stmt, Store | Atomic) else None


def expressions_of(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that the statement itself evaluates, in order: indices of its place first, no bodies."""
    match stmt:
        case Assign():
            return (stmt.value,)
        case Store():
            return (*stmt.place.indices, stmt.value)
        case Atomic():
            return (*stmt.place.indices, *stmt.operands)
        case Subgroup():
            return stmt.operands
        case Call():
            return tuple(argument for argument in stmt.arguments if not isinstance(argument, ArrayRef))
        case If():
            return (stmt.condition,)
        case Assert():
            return (stmt.condition, *stmt.values)
        case For():
            return (stmt.start, stmt.stop, stmt.step)
        case Return() | Print():
            return stmt.values
        case Barrier() | Loop() | Break() | Breakpoint() | Continue() | Alloc():
            return ()
        case _:
            assert_never(stmt)


def with_expressions(stmt: Stmt, replaced: tuple[Expr, ...]) -> Stmt:
    """`stmt` with other expressions, in the order of `expressions_of`; `stmt` itself where all are the same."""
    if _all_same(expressions_of(stmt), replaced):
        return stmt
    match stmt:
        case Assign():
            return attrs.evolve(stmt, value=replaced[0])
        case Store():
            return attrs.evolve(stmt, place=attrs.evolve(stmt.place, indices=replaced[:-1]), value=replaced[-1])
        case Atomic():
            split = len(stmt.place.indices)
            place = attrs.evolve(stmt.place, indices=replaced[:split])
            return attrs.evolve(stmt, place=place, operands=replaced[split:])
        case Subgroup():
            return attrs.evolve(stmt, operands=replaced)
        case Call():
            values = iter(replaced)
            arguments = tuple(item if isinstance(item, ArrayRef) else next(values) for item in stmt.arguments)
            return attrs.evolve(stmt, arguments=arguments)
        case If():
            return attrs.evolve(stmt, condition=replaced[0])
        case Assert():
            return attrs.evolve(stmt, condition=replaced[0], values=replaced[1:])
        case For():
            start, stop, step = replaced
            return attrs.evolve(stmt, start=start, stop=stop, step=step)
        case Return() | Print():
            return attrs.evolve(stmt, values=replaced)
        case Barrier() | Loop() | Break() | Breakpoint() | Continue() | Alloc():
            return stmt
        case _:
            assert_never(stmt)


def bodies(stmt: Stmt) -> tuple[Body, ...]:
    """The bodies directly inside the statement: two of an `If`, one of a loop."""
    match stmt:
        case If():
            return (stmt.then, stmt.otherwise)
        case For() | Loop():
            return (stmt.body,)
        case Assign() | Store() | Atomic() | Subgroup() | Barrier() | Call():
            return ()
        case Break() | Breakpoint() | Continue() | Return() | Assert() | Print() | Alloc():
            return ()
        case _:
            assert_never(stmt)


def with_bodies(stmt: Stmt, replaced: tuple[Body, ...]) -> Stmt:
    """`stmt` with other bodies, in the order of `bodies`; `stmt` itself where all are the same."""
    if _all_same(bodies(stmt), replaced):
        return stmt
    match stmt:
        case If():
            then, otherwise = replaced
            return attrs.evolve(stmt, then=then, otherwise=otherwise)
        case For() | Loop():
            return attrs.evolve(stmt, body=replaced[0])
        case Assign() | Store() | Atomic() | Subgroup() | Barrier() | Call():
            return stmt
        case Break() | Breakpoint() | Continue() | Return() | Assert() | Print() | Alloc():
            return stmt
        case _:
            assert_never(stmt)


def _all_same(before: tuple[object, ...], after: tuple[object, ...]) -> bool:
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))


# --- whole trees ------------------------------------------------------------------------------------------------------


def walk_statements(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement of `body` and of the bodies inside, in source order, the outer before the inner."""
    pending = [iter(body)]
    while pending:
        stmt = next(pending[-1], None)
        if stmt is None:
            pending.pop()
            continue
        yield stmt
        pending.extend(iter(inner) for inner in reversed(bodies(stmt)))


def walk_expressions(root: Root) -> Iterator[Expr]:
    """Every expression of `root`, in source order, the outer before the inner; indices of places included."""
    for outermost in _roots(root):
        pending = [outermost]
        while pending:
            expr = pending.pop()
            yield expr
            pending.extend(reversed(children(expr)))


def _roots(root: Root) -> Iterator[Expr]:
    if isinstance(root, Module):
        yield from _roots(root.kernel)
        for function in root.functions:
            yield from _roots(function)
    elif isinstance(root, Kernel | Function):
        yield from _roots(root.body)
    elif isinstance(root, tuple):
        for stmt in walk_statements(root):
            yield from expressions_of(stmt)
    elif isinstance(root, Expr):
        yield root
    else:
        yield from _roots((root,))


_OwnerT = TypeVar("_OwnerT", Function, Kernel)


def map_bodies(module: Module, rewrite: Callable[[Body], Body]) -> Module:
    """`module` with `rewrite` applied to the body of the kernel and of each device function."""
    kernel = _with_body(module.kernel, rewrite)
    functions = tuple(_with_body(function, rewrite) for function in module.functions)
    if kernel is module.kernel and _all_same(module.functions, functions):
        return module
    return attrs.evolve(module, kernel=kernel, functions=functions)


def _with_body(owner: _OwnerT, rewrite: Callable[[Body], Body]) -> _OwnerT:
    body = rewrite(owner.body)
    return owner if body is owner.body else attrs.evolve(owner, body=body)


def map_statements(body: Body, rewrite: Callable[[Stmt], Stmt | Body]) -> Body:
    """`body` with each statement replaced by what `rewrite` gives: one statement or several, or `()` to drop it.

    Inner statements are rewritten first. What `rewrite` returns is not rewritten again.
    """
    rewritten: list[Stmt] = []
    for stmt in body:
        result = rewrite(_with_rewritten_bodies(stmt, rewrite))
        if isinstance(result, tuple):
            rewritten.extend(result)
        else:
            rewritten.append(result)
    return body if _all_same(body, tuple(rewritten)) else tuple(rewritten)


def _with_rewritten_bodies(stmt: Stmt, rewrite: Callable[[Stmt], Stmt | Body]) -> Stmt:
    """`stmt` with its bodies rewritten; an `If` that ends the `otherwise` of another one is a link of one chain."""
    chain: list[If] = []
    while isinstance(stmt, If) and stmt.otherwise and isinstance(stmt.otherwise[-1], If):
        chain.append(stmt)
        stmt = stmt.otherwise[-1]
    stmt = with_bodies(stmt, tuple(map_statements(inner, rewrite) for inner in bodies(stmt)))
    for outer in reversed(chain):
        result = rewrite(stmt)
        between = map_statements(outer.otherwise[:-1], rewrite)
        otherwise = (*between, *(result if isinstance(result, tuple) else (result,)))
        if _all_same(outer.otherwise, otherwise):
            otherwise = outer.otherwise
        stmt = with_bodies(outer, (map_statements(outer.then, rewrite), otherwise))
    return stmt


@overload
def map_expressions(root: Body, rewrite: Callable[[Expr], Expr]) -> Body: ...
@overload
def map_expressions(root: Function, rewrite: Callable[[Expr], Expr]) -> Function: ...
@overload
def map_expressions(root: Kernel, rewrite: Callable[[Expr], Expr]) -> Kernel: ...
@overload
def map_expressions(root: Module, rewrite: Callable[[Expr], Expr]) -> Module: ...
@overload
def map_expressions(root: Stmt, rewrite: Callable[[Expr], Expr]) -> Stmt: ...
@overload
def map_expressions(root: Expr, rewrite: Callable[[Expr], Expr]) -> Expr: ...
def map_expressions(root: Root, rewrite: Callable[[Expr], Expr]) -> Root:
    """`root` with every expression replaced by what `rewrite` gives, inner ones first; indices of places included."""

    def rewritten(expr: Expr) -> Expr:
        return fold_expression(expr, lambda node, below: rewrite(with_children(node, below)))

    def rewritten_statement(stmt: Stmt) -> Stmt:
        return with_expressions(stmt, tuple(rewritten(expr) for expr in expressions_of(stmt)))

    def rewritten_body(body: Body) -> Body:
        return map_statements(body, rewritten_statement)

    if isinstance(root, Module):
        return map_bodies(root, rewritten_body)
    if isinstance(root, Kernel):
        return _with_body(root, rewritten_body)
    if isinstance(root, Function):
        return _with_body(root, rewritten_body)
    if isinstance(root, tuple):
        return rewritten_body(root)
    if isinstance(root, Expr):
        return rewritten(root)
    return map_statements((root,), rewritten_statement)[0]
