"""What is evaluated only sometimes: the right side of `and` and `or`, one side of a conditional.

The IR evaluates every expression whole. So a choice is a `Select` where both sides may be evaluated, and an `If` into a
temporary as soon as one side reads memory or makes a statement.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

import attrs

from quernel.dtypes import DType
from quernel.ir import nodes
from quernel.ir.analysis import assigned_names
from quernel.ir.walk import walk_expressions
from quernel.lang.constants import constant, literal
from quernel.lang.conversions import meeting, truth
from quernel.lang.lowering import FunctionLowering
from quernel.lang.origins import merged
from quernel.lang.promotion import join
from quernel.lang.trees import has_layout_of, leaves, map_leaves
from quernel.lang.values import Compound, Scalar, TupleValue, Value, describe, named

__all__ = ["Thunk", "either", "either_compound", "short_circuit"]

Thunk = Callable[[], Scalar]
"""An operand that is evaluated only when it is called."""


def short_circuit(
    lowering: FunctionLowering,
    node: ast.expr,
    is_and: bool,
    parts: list[Thunk],
    carried: Callable[[], Value] = lambda: TupleValue(()),
) -> Scalar:
    """`and` or `or`: the first part that decides, else the last; nothing behind the deciding one is evaluated.

    `carried` gives what the part evaluated last leaves for the next one.
    """
    result = parts[0]()
    for number, part in enumerate(parts[1:], 2):
        if result.constant is not None:
            if bool(result.constant) is not is_and:
                return result
            result = part()
            continue
        with lowering.new_block() as body:
            right = part()
        if number < len(parts):
            _set_before(lowering, node, carried(), body)
        result = _chosen_by_itself(lowering, node, is_and, result, right, body)
    return result


def _set_before(lowering: FunctionLowering, node: ast.expr, carried: Value, body: list[nodes.Stmt]) -> None:
    """Assigns what a value takes from `body`, which may be left out: whatever reads the value then reads something."""
    made = set(assigned_names(body))
    if not made:
        return
    loc = lowering.where(node)
    for _, leaf in leaves(carried):
        for part in walk_expressions(leaf.expr) if isinstance(leaf, Scalar) and leaf.expr is not None else ():
            if isinstance(part, nodes.Local) and part.name in made and isinstance(part.type, DType):
                made.discard(part.name)
                lowering.emit(nodes.Assign(name=part.name, value=literal(0, part.type, loc), loc=loc))


def _chosen_by_itself(
    lowering: FunctionLowering, node: ast.expr, is_and: bool, left: Scalar, right: Scalar, body: list[nodes.Stmt]
) -> Scalar:
    if left.dtype.is_bool and right.dtype.is_bool:
        goes_on = left
        left = constant(not is_and)
    else:
        left = lowering.leaf(left, node)
        goes_on = truth(lowering, left, node)
    if not is_and:
        return either(lowering, node, goes_on, left, [], right, body)
    return either(lowering, node, goes_on, right, body, left, [])


def either(
    lowering: FunctionLowering,
    node: ast.expr,
    test: Scalar,
    then: Scalar,
    then_body: list[nodes.Stmt],
    other: Scalar,
    other_body: list[nodes.Stmt],
) -> Scalar:
    """One of two values: a `Select` where both may be evaluated, else an `If` into a temporary."""
    type_ = join(then.type, other.type)
    if type_ is None:
        raise lowering.refuse.type(
            node,
            f"this is {named(then.type)} on one side and {named(other.type)} on the other",
            "cast one side to the type of the other",
        )
    assert isinstance(type_.dtype, DType)
    loc = lowering.where(node)
    is_plain = not (then_body or other_body or then.has_load or other.has_load)
    if is_plain:
        a = meeting(lowering, then, type_.dtype, node)
        b = meeting(lowering, other, type_.dtype, node)
        expr = nodes.Select(
            condition=lowering.expr(test, node),
            then=lowering.expr(a, node),
            otherwise=lowering.expr(b, node),
            loc=loc,
        )
        chosen = lowering.made(type_, expr, node, test, a, b)
        return attrs.evolve(chosen, origins=merged(then.origins, other.origins))
    name = lowering.scope.temporary(type_.dtype)
    bodies = []
    for value, body in ((then, then_body), (other, other_body)):
        with lowering.new_block() as assignment:
            converted = meeting(lowering, value, type_.dtype, node)
            assignment.append(nodes.Assign(name=name, value=lowering.expr(converted, node), loc=loc))
        bodies.append((*body, *assignment))
    lowering.emit(nodes.If(condition=lowering.expr(test, node), then=bodies[0], otherwise=bodies[1], loc=loc))
    local = nodes.Local(name=name, type=type_.dtype, loc=loc)
    return Scalar(type_, local, origins=merged(then.origins, other.origins))


def either_compound(
    lowering: FunctionLowering,
    node: ast.expr,
    test: Scalar,
    then: tuple[Compound, list[nodes.Stmt]],
    other: tuple[Compound, list[nodes.Stmt]],
) -> Value:
    """One of two values of the same layout, each with the statements that make it: an `If` into temporaries.

    Raises:
        KernelTypeError: the layouts differ, or the types of two leaves do not join.
    """
    if not has_layout_of(then[0], other[0]):
        raise lowering.refuse.type(
            node,
            f"this is {describe(then[0])} on one side and {describe(other[0])} on the other",
            "make both sides of the same parts",
        )
    loc = lowering.where(node)
    pairs = zip(leaves(then[0]), leaves(other[0]), strict=True)
    chosen: dict[str, Scalar] = {}
    bodies = (list(then[1]), list(other[1]))
    for (path, one), (_, two) in pairs:
        if not (isinstance(one, Scalar) and isinstance(two, Scalar)):
            continue
        type_ = join(one.type, two.type)
        if type_ is None:
            raise lowering.refuse.type(
                node,
                f"an item is {named(one.type)} on one side and {named(two.type)} on the other",
                "cast one side to the type of the other",
            )
        assert isinstance(type_.dtype, DType)
        name = lowering.scope.temporary(type_.dtype)
        for value, body in ((one, bodies[0]), (two, bodies[1])):
            with lowering.new_block() as before:
                converted = lowering.expr(meeting(lowering, value, type_.dtype, node), node)
            body.extend((*before, nodes.Assign(name=name, value=converted, loc=loc)))
        local = nodes.Local(name=name, type=type_.dtype, loc=loc)
        chosen[path] = Scalar(type_, local, origins=merged(one.origins, two.origins))
    condition = lowering.expr(test, node)
    lowering.emit(nodes.If(condition=condition, then=tuple(bodies[0]), otherwise=tuple(bodies[1]), loc=loc))
    return map_leaves(then[0], lambda path, leaf: chosen.get(path, leaf))
