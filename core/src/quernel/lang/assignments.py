"""Assignments: to names, elements and several targets at once, plain and augmented."""

from __future__ import annotations

import ast

from quernel.dtypes import DType, ScalarType, u64
from quernel.intrinsics import Intrinsic
from quernel.ir import nodes
from quernel.lang.conversions import as_scalar, meeting, stored
from quernel.lang.elements import Element, load
from quernel.lang.expressions import element, evaluate, evaluate_operands, scalar
from quernel.lang.lowering import FunctionLowering
from quernel.lang.memory import SPACES, allocate
from quernel.lang.operators import binary
from quernel.lang.promotion import kind_of
from quernel.lang.refusals import Node
from quernel.lang.scope import Entry
from quernel.lang.values import ArrayValue, ObjectValue, Scalar, TupleValue, Value, named

__all__ = ["assign", "assign_name", "augmented"]


def assign(lowering: FunctionLowering, node: ast.Assign) -> None:
    """`target = value`, with any number of targets."""
    space = _allocation(lowering, node.value)
    if space is not None:
        _allocate(lowering, node, space)
        return
    value = evaluate(lowering, node.value)
    if len(node.targets) > 1 and isinstance(value, Scalar):
        value = lowering.leaf(value, node.value)
    for target in node.targets:
        _assign_to(lowering, target, value, node.value)


def _allocation(lowering: FunctionLowering, value: ast.expr) -> Intrinsic | None:
    """`qn.shared` or `qn.private`, where that is what is called."""
    name = value.func if isinstance(value, ast.Call) else value
    while isinstance(name, ast.Attribute):
        name = name.value
    if not isinstance(value, ast.Call) or not isinstance(name, ast.Name):
        return None
    function = evaluate(lowering, value.func)
    held = function.value if isinstance(function, ObjectValue) else None
    return held if isinstance(held, Intrinsic) and held in SPACES else None


def _allocate(lowering: FunctionLowering, node: ast.Assign, intrinsic: Intrinsic) -> None:
    call = node.value
    assert isinstance(call, ast.Call)
    match node.targets:
        case [ast.Name(id=name) as target]:
            array = allocate(lowering, call, intrinsic, name, evaluate_operands(lowering, call.args))
            _bind(lowering, target, name, array, call)
        case _:
            raise lowering.refuse.syntax(
                node.targets[0],
                f"`qn.{intrinsic.name}` is assigned to something other than one name",
                "give the array a name: `tile = qn.shared(32, qn.f32)`",
            )


def _assign_to(lowering: FunctionLowering, target: ast.expr, value: Value, source: ast.expr) -> None:
    match target:
        case ast.Name(id=name):
            _bind(lowering, target, name, value, source)
        case ast.Subscript():
            values, marks = [value], [lowering.mark()]
            where = _target(lowering, target)
            lowering.loads_before(values, marks, [source])
            held = as_scalar(lowering, values[0], source, "what is stored")
            converted = stored(lowering, held, where.dtype, source)
            lowering.emit(nodes.Store(place=where.place(lowering, target), value=converted, loc=lowering.where(target)))
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            _unpack(lowering, target, targets, value, source)
        case ast.Starred():
            raise lowering.refuse.syntax(target, "`*` in an assignment has no meaning in a kernel", "name each value")
        case _:
            raise lowering.refuse.syntax(
                target,
                f"`{ast.unparse(target)}` cannot be assigned in a kernel",
                "assign to a local or to an element of an array",
            )


def _target(lowering: FunctionLowering, target: ast.Subscript) -> Element:
    owner = evaluate(lowering, target.value)
    if not isinstance(owner, ArrayValue):
        name = ast.unparse(target.value)
        raise lowering.refuse.type(
            target, f"`{name}` is no array, so its elements cannot be assigned", "assign to an element of an array"
        )
    return element(lowering, target, owner)


def _unpack(
    lowering: FunctionLowering, target: ast.expr, targets: list[ast.expr], value: Value, source: ast.expr
) -> None:
    """Several targets; every value is taken before the first of them changes."""
    if not isinstance(value, TupleValue):
        raise lowering.refuse.type(
            target, f"one value is unpacked into {len(targets)} names", "give as many values as names"
        )
    if len(value.items) != len(targets):
        raise lowering.refuse.type(
            target,
            f"{len(value.items)} values are unpacked into {len(targets)} names",
            "give as many values as names",
        )
    items = [_taken(lowering, item, source) for item in value.items]
    sources = list(source.elts) if isinstance(source, ast.Tuple) else [source] * len(items)
    for inner, item, item_source in zip(targets, items, sources, strict=True):
        _assign_to(lowering, inner, item, item_source)


def _taken(lowering: FunctionLowering, value: Value, source: ast.expr) -> Value:
    match value:
        case Scalar(expr=None) | Scalar(expr=nodes.Param() | nodes.ThreadIndex() | nodes.Shape() | nodes.Const()):
            return value
        case Scalar(expr=nodes.Local(name=name)) if lowering.scope.is_temporary(name):
            return value
        case Scalar():
            return lowering.held(value, source)
        case TupleValue(items):
            return TupleValue(tuple(_taken(lowering, item, source) for item in items))
        case _:
            return value


def _bind(lowering: FunctionLowering, target: ast.Name, name: str, value: Value, source: ast.expr) -> None:
    """A name for a value; what is known when the kernel is compiled keeps one name for good."""
    scope = lowering.scope
    if isinstance(value, TupleValue):
        raise lowering.refuse.later(
            target,
            f"`{name}` names a tuple of {len(value.items)} values: locals that hold tuples are",
            "unpack it: `a, b = …`",
        )
    if isinstance(value, Scalar) and not isinstance(scope.parameters.get(name), ArrayValue | ObjectValue):
        assign_name(lowering, target, name, value, source)
        return
    if isinstance(value, ObjectValue) and (value.value is None or isinstance(value.value, str)):
        raise lowering.refuse.type(source, f"{value.value!r} cannot be held in a local", "use numbers")
    if scope.stores[name] > 1 or name in scope.parameters:
        what = "an array" if isinstance(value, ArrayValue) or name in scope.parameters else "a function or type"
        raise lowering.refuse.type(
            target, f"`{name}` is {what}, and its name is bound once", "give the other value a name of its own"
        )
    scope.bound[name] = value
    _mark_assigned(lowering, name)


def _mark_assigned(lowering: FunctionLowering, name: str) -> None:
    assert lowering.scope.assigned is not None
    lowering.scope.assigned |= {name}


def assign_name(lowering: FunctionLowering, target: Node, name: str, value: Scalar, source: Node) -> None:
    """`name = value`, after joining the type of the value with those of the local's other assignments.

    Raises:
        KernelTypeError: the kinds differ, or a weak integer does not fit.
    """
    scope = lowering.scope
    loc = lowering.where(target)
    entry = scope.joins.add(name, value, loc)
    if entry is None:
        raise _mismatch(lowering, target, name, scope.joins.found[name], value)
    scope.bound.pop(name, None)
    converted = in_type(lowering, value, entry.type, source)
    lowering.emit(nodes.Assign(name=scope.ir_name(name), value=lowering.expr(converted, source), loc=loc))
    _mark_assigned(lowering, name)


def in_type(lowering: FunctionLowering, value: Scalar, type_: ScalarType, node: Node) -> Scalar:
    """`value` in the joined type of what it is assigned to."""
    if type_.weak and value.dtype is type_.dtype:
        return value
    assert isinstance(type_.dtype, DType)
    return meeting(lowering, value, type_.dtype, node)


def _mismatch(lowering: FunctionLowering, target: Node, name: str, known: Entry, value: Scalar) -> Exception:
    assert isinstance(known.type.dtype, DType)
    old, new = known.type.dtype, value.dtype
    if kind_of(old) == kind_of(new):
        signed = new if old is u64 else old
        return lowering.refuse.type(
            target,
            f"`{name}` is {old} in line {known.loc.line} and {new} here, which have no common integer type",
            f"cast where it is assigned: `qn.u64(…)` of the {signed}, or `qn.i64(…)` of the u64",
        )
    wide = "float" if "float" in (kind_of(old), kind_of(new)) else "bool" if kind_of(new) == "bool" else kind_of(old)
    fix = (
        f"start it as a float (`{name} = 0.0`), or cast: `int(…)`"
        if wide == "float"
        else "use another name, or cast with `bool(…)` or `int(…)`"
    )
    return lowering.refuse.type(
        target,
        f"`{name}` is {named(known.type)} in line {known.loc.line} and {named(value.type)} here; "
        "a local keeps one kind: bool, integer or float",
        fix,
    )


def augmented(lowering: FunctionLowering, node: ast.AugAssign) -> None:
    """`target op= value`; the index of an element is evaluated once, and the old value read before the right side."""
    match node.target:
        case ast.Name(id=name):
            read = ast.copy_location(ast.Name(id=name, ctx=ast.Load()), node.target)
            left = scalar(lowering, read)
            value = binary(lowering, type(node.op), left, scalar(lowering, node.value), node)
            assign_name(lowering, node.target, name, value, node.value)
        case ast.Subscript():
            where = _target(lowering, node.target).held(lowering, node.target)
            values: list[Value] = [load(lowering, where, node.target)]
            marks = [lowering.mark()]
            right = scalar(lowering, node.value)
            lowering.loads_before(values, marks, [node.target])
            held = values[0]
            assert isinstance(held, Scalar)
            result = binary(lowering, type(node.op), held, right, node)
            converted = stored(lowering, result, where.dtype, node)
            place = where.place(lowering, node.target)
            lowering.emit(nodes.Store(place=place, value=converted, loc=lowering.where(node.target)))
        case _:
            raise lowering.refuse.syntax(
                node.target,
                f"`{ast.unparse(node.target)}` cannot be assigned in a kernel",
                "assign to a local or to an element of an array",
            )
