"""Statements: branches and returns, with the names that are surely assigned on every way through them."""

from __future__ import annotations

import ast
from typing import Final

from quernel.errors import KernelTypeError
from quernel.ir import nodes
from quernel.lang.assertions import lower_assert
from quernel.lang.assignments import assign, augmented, in_type
from quernel.lang.branches import IfChain
from quernel.lang.conversions import as_scalar
from quernel.lang.expressions import condition, evaluate, evaluate_statement_call
from quernel.lang.loops import leave_loop, lower_for, lower_while
from quernel.lang.lowering import FunctionLowering
from quernel.lang.scope import meet, stored_names
from quernel.lang.trees import has_layout_of, leaves
from quernel.lang.values import ArrayValue, ObjectValue, Scalar, TupleValue, Value, describe, named

__all__ = ["lower_body"]

_REFUSED: Final[dict[type[ast.stmt], tuple[str, str]]] = {
    ast.FunctionDef: ("a function within a kernel", "write a @qn.func outside the kernel"),
    ast.AsyncFunctionDef: ("a function within a kernel", "write a @qn.func outside the kernel"),
    ast.ClassDef: ("a class within a kernel", "write it outside the kernel"),
    ast.Delete: ("`del`", "leave the name alone"),
    ast.AsyncFor: ("`async for`", "write `for k in range(…):`"),
    ast.With: ("`with`", "enter the context on the host"),
    ast.AsyncWith: ("`async with`", "enter the context on the host"),
    ast.Match: ("`match`", "write `if … elif …`"),
    ast.Raise: ("`raise`", "write an error code into an array, and raise on the host"),
    ast.Try: ("`try`", "test for the condition with `if`"),
    ast.TryStar: ("`try`", "test for the condition with `if`"),
    ast.Import: ("`import`", "import at the top of the module"),
    ast.ImportFrom: ("`import`", "import at the top of the module"),
    ast.Global: ("`global`", "write into an array instead; reading a global needs no declaration"),
    ast.Nonlocal: ("`nonlocal`", "write into an array instead; reading needs no declaration"),
}


def lower_body(lowering: FunctionLowering, statements: list[ast.stmt]) -> None:
    """Lowers statements into the current block; what no way reaches is left out."""
    for statement in statements:
        if lowering.scope.assigned is None:
            return
        depths = lowering.depths()
        before = lowering.scope.assigned
        try:
            with lowering.nested(statement):
                _statement(lowering, statement)
        except KernelTypeError:
            if not lowering.is_tolerant:
                raise
            lowering.restore(depths)
            scope = lowering.scope
            stored = {name for name in stored_names([statement]) if name in scope.joins or name in scope.layouts}
            lowering.scope.assigned = before | stored


def _statement(lowering: FunctionLowering, node: ast.stmt) -> None:
    match node:
        case ast.Assign():
            assign(lowering, node)
        case ast.AugAssign():
            augmented(lowering, node)
        case ast.Expr():
            _expression(lowering, node)
        case ast.If():
            _if(lowering, node)
        case ast.For():
            lower_for(lowering, node, lower_body)
        case ast.While():
            lower_while(lowering, node, lower_body)
        case ast.Break() | ast.Continue():
            leave_loop(lowering, node)
        case ast.Return():
            _return(lowering, node)
        case ast.Pass():
            pass
        case ast.AnnAssign():
            raise _annotated(lowering, node)
        case ast.Assert():
            lower_assert(lowering, node)
        case _:
            what, fix = _REFUSED.get(type(node), (f"`{type(node).__name__}`", "write it another way"))
            raise lowering.refuse.syntax(node, f"{what} has no meaning in a kernel", fix)


def _expression(lowering: FunctionLowering, node: ast.Expr) -> None:
    match node.value:
        case ast.Constant(value=value) if isinstance(value, str) or value is ...:
            pass
        case ast.Call() as call:
            evaluate_statement_call(lowering, call)
        case _:
            evaluate(lowering, node.value)
            raise lowering.refuse.syntax(node, "this expression has no effect", "assign it, or leave it out")


def _annotated(lowering: FunctionLowering, node: ast.AnnAssign) -> Exception:
    target = ast.unparse(node.target)
    value = ast.unparse(node.value) if node.value is not None else "0"
    return lowering.refuse.syntax(
        node,
        f"the annotation of `{target}` has no effect in a kernel, as it leaves no trace in the compiled function",
        f"write `{target} = {ast.unparse(node.annotation)}({value})`",
    )


# --- branches ---------------------------------------------------------------------------------------------------------


def _if(lowering: FunctionLowering, node: ast.If) -> None:
    """A chain of `if` and `elif`, walked without recursion; a side that a constant rules out is not looked at."""
    scope = lowering.scope
    outcomes: list[frozenset[str] | None] = []
    chain = IfChain(lowering, lowering.where(node))
    current: ast.If | None = node
    rest: list[ast.stmt] = []
    while current is not None:
        test = condition(lowering, current.test)
        if test.constant is not None and test.constant:
            rest = current.body
            break
        if test.constant is None:
            before = scope.assigned
            with lowering.new_block() as then:
                lower_body(lowering, current.body)
            outcomes.append(scope.assigned)
            scope.assigned = before
            chain.add(lowering.expr(test, current.test), then, lowering.where(current))
        match current.orelse:
            case [ast.If() as inner]:
                current = inner
            case otherwise:
                rest = otherwise
                current = None
    lower_body(lowering, rest)
    outcomes.append(scope.assigned)
    chain.close()
    scope.assigned = meet(outcomes)


# --- return -----------------------------------------------------------------------------------------------------------


def _return(lowering: FunctionLowering, node: ast.Return) -> None:
    loc = lowering.where(node)
    is_empty = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
    if is_empty:
        lowering.emit(nodes.Return(loc=loc))
        lowering.returns_nothing_at = node
    elif lowering.is_kernel:
        raise lowering.refuse.syntax(
            node, "a kernel returns nothing", "write the value into an array: `out[i] = …`, and `return` alone"
        )
    else:
        assert node.value is not None
        lowering.emit(nodes.Return(values=_returned(lowering, node, node.value), loc=loc))
    lowering.scope.assigned = None


def _returned(lowering: FunctionLowering, node: ast.Return, source: ast.expr) -> tuple[nodes.Expr, ...]:
    """The returned scalars in the joined types of the function's results."""
    value = evaluate(lowering, source)
    if isinstance(value, Scalar | ArrayValue | ObjectValue):
        value = as_scalar(lowering, value, source, "what is returned")
    lowering.returns = lowering.returns or (node, value)
    first, known = lowering.returns
    if not has_layout_of(known, value):
        raise _other_layout(lowering, node, value, first, known)
    returned = []
    for index, (_, leaf) in enumerate(leaves(value)):
        item = as_scalar(lowering, leaf, source, "what is returned")
        entry = lowering.scope.joins.add(index, item, lowering.where(node))
        if entry is None:
            found = lowering.scope.joins.found[index]
            raise lowering.refuse.type(
                node,
                f"{named(item.type)} is returned here and {named(found.type)} in line {found.loc.line}",
                "cast one of them to the type of the other",
            )
        returned.append(lowering.expr(in_type(lowering, item, entry.type, source), source))
    return tuple(returned)


def _other_layout(
    lowering: FunctionLowering, node: ast.Return, value: Value, first: ast.Return, known: Value
) -> Exception:
    if isinstance(value, Scalar | TupleValue) and isinstance(known, Scalar | TupleValue):
        here = len(value.items) if isinstance(value, TupleValue) else 1
        there = len(known.items) if isinstance(known, TupleValue) else 1
        if here != there:
            return lowering.refuse.type(
                node,
                f"{here} values are returned here and {there} in line {first.lineno}",
                "return as many values everywhere",
            )
    return lowering.refuse.type(
        node,
        f"{describe(value)} is returned here and {describe(known)} in line {first.lineno}",
        "return values of the same parts everywhere",
    )
