"""Loops: counted, unrolled and with a condition; how they are left, and what runs where they are not."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeAlias

from quernel.dtypes import ScalarType, bool_, i64
from quernel.ir import nodes
from quernel.ir.nodes import UnaryOp
from quernel.lang.assignments import assign_name, assign_to, taken
from quernel.lang.constants import literal
from quernel.lang.expressions import condition
from quernel.lang.lowering import FunctionLowering
from quernel.lang.ranges import check_unrolled, counted_range, unrolled_items
from quernel.lang.scope import LoopFrame, looped_names, meet
from quernel.lang.values import Scalar, TupleValue, Value, VectorValue
from quernel.locations import Location

__all__ = ["LowerBody", "leave_loop", "lower_for", "lower_while"]

LowerBody: TypeAlias = Callable[[FunctionLowering, list[ast.stmt]], None]


def lower_for(lowering: FunctionLowering, node: ast.For, lower_body: LowerBody) -> None:
    """`for` over a range, or over what is written out once per item."""
    items = unrolled_items(lowering, node.iter)
    if items is not None:
        _unrolled(lowering, node, items, lower_body)
        return
    target = node.target
    if not isinstance(target, ast.Name):
        raise lowering.refuse.syntax(target, "the variable of a `for` must be one name", "write `for k in range(…):`")
    counted = counted_range(lowering, node.iter)
    start, stop, step = (lowering.expr(end, node.iter) for end in counted.ends)
    name = target.id
    _declare_range_variable(lowering, target)
    before = lowering.scope.assigned
    assert before is not None
    lowering.scope.assigned = before | {name}
    frame = _frame(lowering, node)
    position = len(lowering.block)
    lowering.loops.append(frame)
    with lowering.new_block() as body:
        lower_body(lowering, node.body)
    lowering.loops.pop()
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
    lowering.scope.assigned = ran if counted.trips else before
    _after_loop(lowering, node, frame, position, lower_body)


def lower_while(lowering: FunctionLowering, node: ast.While, lower_body: LowerBody) -> None:
    """`Loop` with a test at its head, which reads the names as every trip does."""
    scope = lowering.scope
    frame = _frame(lowering, node)
    position = len(lowering.block)
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
        lower_body(lowering, node.orelse)
        return
    lowering.emit(nodes.Loop(body=tuple(body), loc=loc))
    scope.assigned = leaves_normally
    _after_loop(lowering, node, frame, position, lower_body)


def leave_loop(lowering: FunctionLowering, node: ast.Break | ast.Continue) -> None:
    """`break` or `continue` of the innermost loop."""
    frame = lowering.loops[-1]
    assert lowering.scope.assigned is not None
    loc = lowering.where(node)
    if isinstance(node, ast.Break):
        frame.breaks.append(lowering.scope.assigned)
        if frame.left is not None:
            lowering.emit(_assigned(frame.left, True, loc))
        lowering.emit(nodes.Break(loc=loc))
    else:
        frame.continues.append(lowering.scope.assigned)
        # A copy of the body of an unrolled loop is a loop of one trip, so leaving it goes on with the next.
        lowering.emit(nodes.Break(loc=loc) if frame.is_unrolled else nodes.Continue(loc=loc))
    lowering.scope.assigned = None


def _assigned(flag: str, value: bool, loc: Location) -> nodes.Assign:
    return nodes.Assign(name=flag, value=literal(value, bool_, loc), loc=loc)


def _frame(lowering: FunctionLowering, node: ast.For | ast.While) -> LoopFrame:
    return LoopFrame(left=lowering.scope.temporary(bool_) if node.orelse else None)


def _after_loop(
    lowering: FunctionLowering, node: ast.For | ast.While, frame: LoopFrame, position: int, lower_body: LowerBody
) -> None:
    """The `else` of a loop, which runs where no `break` left it; the loop itself stands behind `position`."""
    scope = lowering.scope
    if node.orelse and scope.assigned is not None:
        if not frame.breaks:
            lower_body(lowering, node.orelse)
        else:
            assert frame.left is not None
            loc = lowering.where(node)
            lowering.block.insert(position, _assigned(frame.left, False, loc))
            with lowering.new_block() as otherwise:
                lower_body(lowering, node.orelse)
            was_left = nodes.Local(name=frame.left, type=bool_, loc=loc)
            stayed = nodes.Unary(op=UnaryOp.NOT, operand=was_left, loc=loc)
            lowering.emit(nodes.If(condition=stayed, then=tuple(otherwise), loc=loc))
    scope.assigned = meet([scope.assigned, *frame.breaks])


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


# --- unrolled loops ---------------------------------------------------------------------------------------------------


def _unrolled(lowering: FunctionLowering, node: ast.For, items: list[Value], lower_body: LowerBody) -> None:
    """The body once per item; what is known of the item is known in it, unless it assigns the variable itself.

    Where the body has a `continue`, each copy is a loop of one trip; where it has a `break`, all of them are one.
    """
    check_unrolled(lowering, node.iter, len(items))
    words = _words(node.body)
    loc = lowering.where(node)
    scope = lowering.scope
    frame = LoopFrame(is_unrolled=True)
    has_flag = bool(node.orelse) or (ast.Break in words and ast.Continue in words)
    frame.left = scope.temporary(bool_) if ast.Break in words and has_flag else None
    position = len(lowering.block)
    items = [taken(lowering, item, node.iter) for item in items]
    lowering.loops.append(frame)
    lowering.open_block()
    names = _variables(lowering, node)
    for item in items:
        if scope.assigned is None:
            break
        _bind_item(lowering, node.target, item, node.iter, names)
        frame.continues.clear()
        lowering.open_block()
        lower_body(lowering, node.body)
        copy = lowering.close_block()
        scope.assigned = meet([scope.assigned, *frame.continues])
        if ast.Continue not in words:
            lowering.block.extend(copy)
            continue
        lowering.emit(nodes.Loop(body=(*copy, nodes.Break(loc=loc)), loc=loc))
        if ast.Break in words:
            assert frame.left is not None
            left = nodes.Local(name=frame.left, type=bool_, loc=loc)
            lowering.emit(nodes.If(condition=left, then=(nodes.Break(loc=loc),), loc=loc))
    copies = lowering.close_block()
    lowering.loops.pop()
    if ast.Break in words:
        if frame.left is not None and not (node.orelse and frame.breaks and scope.assigned is not None):
            lowering.emit(_assigned(frame.left, False, loc))
        lowering.emit(nodes.Loop(body=(*copies, nodes.Break(loc=loc)), loc=loc))
    else:
        lowering.block.extend(copies)
    for name in names:
        known = scope.bound.get(name)
        if isinstance(known, Scalar) or frame.breaks:
            scope.bound.pop(name, None)
            if not isinstance(known, Scalar | None) and scope.assigned is not None:
                scope.assigned -= {name}
    _after_loop(lowering, node, frame, position, lower_body)


def _words(body: list[ast.stmt]) -> frozenset[type[ast.stmt]]:
    """Which of `break` and `continue` in the body leave this very loop."""
    found: set[type[ast.stmt]] = set()
    pending = list(body)
    while pending:
        match pending.pop():
            case ast.Break():
                found.add(ast.Break)
            case ast.Continue():
                found.add(ast.Continue)
            case ast.If(body=then, orelse=otherwise):
                pending.extend((*then, *otherwise))
            case ast.For(orelse=otherwise) | ast.While(orelse=otherwise):
                pending.extend(otherwise)
            case _:
                pass
    return frozenset(found)


def _variables(lowering: FunctionLowering, node: ast.For) -> frozenset[str]:
    """The names of the target that nothing but loops assigns."""
    scope = lowering.scope
    if scope.looped is None:
        scope.looped = looped_names(lowering.refuse.source.definition.body)
    written = {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
    return frozenset(name for name in written if scope.stores[name] <= scope.looped[name])


def _bind_item(
    lowering: FunctionLowering, target: ast.expr, item: Value, source: ast.expr, names: frozenset[str]
) -> None:
    """The loop's variables for one copy of the body."""
    scope = lowering.scope
    match target, item:
        case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (TupleValue() | VectorValue())) if len(
            targets
        ) == len(item.items):
            for inner, part in zip(targets, item.items, strict=True):
                _bind_item(lowering, inner, part, source, names)
        case ast.Name(id=name), _ if name in names and (not isinstance(item, Scalar) or item.constant is not None):
            if isinstance(item, Scalar):
                assign_name(lowering, target, name, item, target)
            assert scope.assigned is not None
            scope.bound[name] = item
            scope.assigned |= {name}
        case _:
            assign_to(lowering, target, item, source)
