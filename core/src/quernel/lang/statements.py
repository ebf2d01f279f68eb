"""Statements: branches, loops and returns, with the names that are surely assigned on every way through them."""

from __future__ import annotations

import ast
from typing import Final

from quernel.dtypes import ScalarType, i64
from quernel.errors import KernelTypeError
from quernel.ir import nodes
from quernel.ir.nodes import UnaryOp
from quernel.lang.assignments import assign, assign_name, augmented, in_type
from quernel.lang.branches import IfChain
from quernel.lang.constants import literal
from quernel.lang.conversions import as_scalar
from quernel.lang.expressions import condition, evaluate, evaluate_statement_call
from quernel.lang.lowering import FunctionLowering
from quernel.lang.ranges import CountedRange, counted_range
from quernel.lang.scope import LoopFrame, meet, stored_names
from quernel.lang.values import Scalar, TupleValue, named

__all__ = ["MAX_UNROLLED", "lower_body"]

MAX_UNROLLED: Final = 1024
"""The most copies of its body that an unrolled loop may make."""

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
            stored = {name for name in stored_names([statement]) if name in lowering.scope.joins}
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
            _for(lowering, node)
        case ast.While():
            _while(lowering, node)
        case ast.Break() | ast.Continue():
            _leave(lowering, node)
        case ast.Return():
            _return(lowering, node)
        case ast.Pass():
            pass
        case ast.AnnAssign():
            raise _annotated(lowering, node)
        case ast.Assert():
            raise lowering.refuse.later(node, "`assert` in a kernel is", "write what fails into an array")
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


# --- loops ------------------------------------------------------------------------------------------------------------


def _for(lowering: FunctionLowering, node: ast.For) -> None:
    if node.orelse:
        raise _loop_else(lowering, node)
    target = node.target
    if not isinstance(target, ast.Name):
        raise lowering.refuse.syntax(target, "the variable of a `for` must be one name", "write `for k in range(…):`")
    counted = counted_range(lowering, node.iter)
    if counted.is_unrolled:
        _unrolled(lowering, node, target, counted)
        return
    start, stop, step = (lowering.expr(end, node.iter) for end in counted.ends)
    name = target.id
    _declare_range_variable(lowering, target)
    before = lowering.scope.assigned
    assert before is not None
    lowering.scope.assigned = before | {name}
    frame = LoopFrame()
    body = _loop_body(lowering, node.body, frame)
    ran = meet([lowering.scope.assigned, *frame.continues])
    lowering.emit(
        nodes.For(
            variable=lowering.scope.ir_name(name),
            start=start,
            stop=stop,
            step=step,
            body=tuple(body),
            loc=lowering.where(node),
        )
    )
    lowering.scope.assigned = meet([ran if counted.trips else before, *frame.breaks])


def _declare_range_variable(lowering: FunctionLowering, target: ast.Name) -> None:
    """Joins i64, the type of a range variable, into the local's type."""
    with lowering.new_block():
        before = lowering.scope.assigned
        zero = Scalar(ScalarType(i64), literal(0, i64, lowering.where(target)))
        if isinstance(lowering.scope.parameters.get(target.id), Scalar | None):
            assign_name(lowering, target, target.id, zero, target)
        else:
            raise lowering.refuse.type(
                target, f"`{target.id}` is a parameter that is no number", "give the variable a name of its own"
            )
        lowering.scope.assigned = before


def _loop_body(lowering: FunctionLowering, statements: list[ast.stmt], frame: LoopFrame) -> list[nodes.Stmt]:
    lowering.loops.append(frame)
    with lowering.new_block() as body:
        lower_body(lowering, statements)
    lowering.loops.pop()
    return body


def _unrolled(lowering: FunctionLowering, node: ast.For, target: ast.Name, counted: CountedRange) -> None:
    """The body once per value; the variable is a constant in it, unless it assigns the variable itself."""
    trips = counted.trips
    if trips is None:
        raise lowering.refuse.type(
            node.iter,
            "an unrolled loop must have ends that are known when the kernel is compiled",
            "use literals, captured constants or `qn.Const` parameters, or a plain `range`",
        )
    if len(trips) > MAX_UNROLLED:
        raise lowering.refuse.type(
            node.iter,
            f"this loop would be unrolled into {len(trips)} copies of its body",
            f"unroll at most {MAX_UNROLLED}, or use a plain `range`",
        )
    name = target.id
    is_reassigned = lowering.scope.stores[name] > _num_loops_over(lowering, name)
    lowering.loops.append(LoopFrame(unrolled=True))
    for value in trips:
        if lowering.scope.assigned is None:
            break
        trip = Scalar(ScalarType(i64), constant=value)
        assign_name(lowering, target, name, trip, target)
        if not is_reassigned:
            lowering.scope.bound[name] = trip
        lower_body(lowering, node.body)
    lowering.loops.pop()
    lowering.scope.bound.pop(name, None)


def _num_loops_over(lowering: FunctionLowering, name: str) -> int:
    definition = lowering.refuse.source.definition
    return sum(
        isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name
        for node in ast.walk(definition)
    )


def _while(lowering: FunctionLowering, node: ast.While) -> None:
    """`Loop` with a test at its head, which reads the names as every trip does."""
    if node.orelse:
        raise _loop_else(lowering, node)
    scope = lowering.scope
    frame = LoopFrame()
    lowering.loops.append(frame)
    loc = lowering.where(node)
    with lowering.new_block() as body:
        test = condition(lowering, node.test)
        leaves_normally = scope.assigned if test.constant is None else None
        if test.constant is None:
            stops = nodes.Unary(op=UnaryOp.NOT, operand=lowering.expr(test, node.test), loc=lowering.where(node.test))
            lowering.emit(nodes.If(condition=stops, then=(nodes.Break(loc=loc),), loc=loc))
        if test.constant is None or test.constant:
            lower_body(lowering, node.body)
    lowering.loops.pop()
    if test.constant is not None and not test.constant:
        return
    lowering.emit(nodes.Loop(body=tuple(body), loc=loc))
    scope.assigned = meet([leaves_normally, *frame.breaks])


def _loop_else(lowering: FunctionLowering, node: ast.For | ast.While) -> Exception:
    return lowering.refuse.later(
        node.orelse[0], "`else` of a loop is", "set a local before `break`, and test it after the loop"
    )


def _leave(lowering: FunctionLowering, node: ast.Break | ast.Continue) -> None:
    frame = lowering.loops[-1]
    word = "break" if isinstance(node, ast.Break) else "continue"
    if frame.unrolled:
        raise lowering.refuse.syntax(
            node,
            f"`{word}` cannot leave an unrolled loop",
            "use a plain `range`, or an `if` round the rest",
        )
    assert lowering.scope.assigned is not None
    loc = lowering.where(node)
    if isinstance(node, ast.Break):
        frame.breaks.append(lowering.scope.assigned)
        lowering.emit(nodes.Break(loc=loc))
    else:
        frame.continues.append(lowering.scope.assigned)
        lowering.emit(nodes.Continue(loc=loc))
    lowering.scope.assigned = None


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
    """The returned values in the joined types of the function's results."""
    value = evaluate(lowering, source)
    items = value.items if isinstance(value, TupleValue) else (value,)
    scalars = [as_scalar(lowering, item, source, "what is returned") for item in items]
    lowering.returns = lowering.returns or (node, len(scalars))
    first, number = lowering.returns
    if number != len(scalars):
        raise lowering.refuse.type(
            node,
            f"{len(scalars)} values are returned here and {number} in line {first.lineno}",
            "return as many values everywhere",
        )
    returned = []
    for index, item in enumerate(scalars):
        entry = lowering.scope.joins.add(index, item, lowering.where(node))
        if entry is None:
            known = lowering.scope.joins.found[index]
            raise lowering.refuse.type(
                node,
                f"{named(item.type)} is returned here and {named(known.type)} in line {known.loc.line}",
                "cast one of them to the type of the other",
            )
        returned.append(lowering.expr(in_type(lowering, item, entry.type, source), source))
    return tuple(returned)
