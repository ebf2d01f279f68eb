"""Assignments: to names, elements and several targets at once, plain and augmented."""

from __future__ import annotations

import ast

from quernel.dtypes import DType, ScalarType, u64
from quernel.geometry import LaunchForm
from quernel.intrinsics import Intrinsic
from quernel.ir import nodes
from quernel.lang.compounds import operate
from quernel.lang.conversions import meeting
from quernel.lang.elements import Element, load, store
from quernel.lang.expressions import evaluate, evaluate_operands, locate
from quernel.lang.lowering import FunctionLowering
from quernel.lang.memory import SPACES, allocate
from quernel.lang.promotion import kind_of
from quernel.lang.ranks import AXES
from quernel.lang.refusals import Node
from quernel.lang.scope import Entry
from quernel.lang.trees import has_layout_of, leaves, map_leaves, shown_path
from quernel.lang.values import (
    ArrayValue,
    Compound,
    ObjectValue,
    Scalar,
    StructValue,
    TupleValue,
    Value,
    VectorValue,
    describe,
    named,
)
from quernel.wording import counted

__all__ = ["assign", "assign_compound", "assign_name", "assign_to", "augmented", "in_type", "taken"]


def assign(lowering: FunctionLowering, node: ast.Assign) -> None:
    """`target = value`, with any number of targets."""
    space = _allocation(lowering, node.value)
    if space is not None:
        _allocate(lowering, node, space)
        return
    value = evaluate(lowering, node.value)
    if len(node.targets) > 1:
        value = map_leaves(value, lambda _, leaf: lowering.leaf(leaf, node.value) if isinstance(leaf, Scalar) else leaf)
    for target in node.targets:
        assign_to(lowering, target, value, node.value)


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


def assign_to(lowering: FunctionLowering, target: ast.expr, value: Value, source: ast.expr) -> None:
    """Assigns a value to a name, an element or several targets; `source` is where the value comes from."""
    match target:
        case ast.Name(id=name):
            _bind(lowering, target, name, value, source)
        case ast.Subscript() | ast.Attribute():
            values, marks = [value], [lowering.mark()]
            where = _element(lowering, target)
            lowering.loads_before(values, marks, [source])
            store(lowering, where, values[0], target, source)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            _unpack(lowering, target, targets, value, source)
        case ast.Starred():
            raise lowering.refuse.syntax(target, "`*` in an assignment has no meaning in a kernel", "name each value")
        case _:
            raise _not_assignable(lowering, target)


def _not_assignable(lowering: FunctionLowering, target: ast.expr) -> Exception:
    return lowering.refuse.syntax(
        target,
        f"`{ast.unparse(target)}` cannot be assigned in a kernel",
        "assign to a local or to an element of an array",
    )


def _element(lowering: FunctionLowering, target: ast.Subscript | ast.Attribute) -> Element:
    """The element, or the part of one, that a target names.

    Raises:
        KernelTypeError: it names a part of a value that is not in memory.
    """
    root: ast.expr = target
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(target, ast.Attribute) and not isinstance(root, ast.Subscript):
        owner = evaluate(lowering, target.value)
        if isinstance(owner, VectorValue | StructValue):
            raise _not_in_memory(lowering, target, owner)
        raise _not_assignable(lowering, target)
    found = locate(lowering, target)
    if isinstance(found, Element):
        return found
    name = ast.unparse(target.value)
    raise lowering.refuse.type(
        target, f"`{name}` is no array, so its elements cannot be assigned", "assign to an element of an array"
    )


def _not_in_memory(lowering: FunctionLowering, target: ast.Attribute, owner: Value) -> Exception:
    return lowering.refuse.type(
        target,
        f"`{ast.unparse(target.value)}` is a value ({describe(owner)}), and its parts do not change",
        "make a new one of its parts and assign that",
    )


def _unpack(
    lowering: FunctionLowering, target: ast.expr, targets: list[ast.expr], value: Value, source: ast.expr
) -> None:
    """Several targets; every value is taken before the first of them changes."""
    if not isinstance(value, TupleValue | VectorValue):
        names = counted(len(targets), "name")
        raise lowering.refuse.type(
            target, f"one value is unpacked into {names}", _as_many(lowering, targets, source, 1)
        )
    if len(value.items) != len(targets):
        values, names = counted(len(value.items), "value"), counted(len(targets), "name")
        raise lowering.refuse.type(
            target, f"{values} are unpacked into {names}", _as_many(lowering, targets, source, len(value.items))
        )
    items = [taken(lowering, item, source) for item in value.items]
    sources = list(source.elts) if isinstance(source, ast.Tuple) else []
    if len(sources) != len(items):
        sources = [source] * len(items)
    for inner, item, item_source in zip(targets, items, sources, strict=True):
        assign_to(lowering, inner, item, item_source)


def _as_many(lowering: FunctionLowering, targets: list[ast.expr], source: ast.expr, num_values: int) -> str:
    """How to have as many values as names; those of a thread's index are the axes of the launch."""
    function = evaluate(lowering, source.func) if isinstance(source, ast.Call) else None
    if not (isinstance(function, ObjectValue) and isinstance(function.value, Intrinsic) and function.value in AXES):
        return "give as many values as names"
    here, wanted = counted(num_values, "axis"), counted(len(targets), "axis")
    name = lowering.function.__name__ if lowering.is_kernel else "kernel"
    lengths = ", ".join(("depth", "height", "width")[-len(targets) :]) if len(targets) <= 3 else "…"
    how = f"`{name}.over(({lengths}))`" if lowering.unit.form is LaunchForm.OVER else f"`{name}[({lengths}), block]`"
    taken_whole = "i" if num_values == 1 else ", ".join("ijk"[:num_values])
    return (
        f"this launch has {here}: launch over {wanted}, {how}, "
        f"or take what there is: `{taken_whole} = {ast.unparse(source)}`"
    )


def taken(lowering: FunctionLowering, value: Value, source: Node) -> Value:
    """`value` as it is now, whatever is assigned next."""
    return map_leaves(
        value, lambda _, leaf: _taken_scalar(lowering, leaf, source) if isinstance(leaf, Scalar) else leaf
    )


def _taken_scalar(lowering: FunctionLowering, value: Scalar, source: Node) -> Scalar:
    match value.expr:
        case None | nodes.Param() | nodes.ThreadIndex() | nodes.Shape() | nodes.Const():
            return value
        case nodes.Local(name=name) if lowering.scope.is_temporary(name):
            return value
        case nodes.VecGet(operand=nodes.Local(name=name)) if lowering.scope.is_temporary(name):
            return value
        case _:
            return lowering.held(value, source)


# --- names ------------------------------------------------------------------------------------------------------------


def _bind(lowering: FunctionLowering, target: ast.Name, name: str, value: Value, source: ast.expr) -> None:
    """A name for a value; what is known when the kernel is compiled keeps one name for good."""
    scope = lowering.scope
    parameter = scope.parameters.get(name)
    if not isinstance(parameter, ArrayValue | ObjectValue):
        if isinstance(value, Scalar):
            assign_name(lowering, target, name, value, source)
            return
        if isinstance(value, Compound):
            assign_compound(lowering, target, name, value, source)
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


def assign_compound(lowering: FunctionLowering, target: Node, name: str, value: Compound, source: Node) -> None:
    """`name = value`: a variable for each leaf.

    Raises:
        KernelTypeError: the local holds something made of other parts elsewhere.
    """
    scope = lowering.scope
    loc = lowering.where(target)
    if name in scope.joins.found:
        known = scope.joins.found[name]
        raise _other_parts(lowering, target, name, named(known.type), known.loc.line, value)
    layout, first = scope.layouts.setdefault(name, (value, loc))
    if not has_layout_of(layout, value):
        raise _other_parts(lowering, target, name, describe(layout), first.line, value)
    scope.bound.pop(name, None)
    for path, leaf in leaves(taken(lowering, value, source), name):
        if isinstance(leaf, Scalar):
            _assign_variable(lowering, target, path, leaf, source)
    _mark_assigned(lowering, name)


def _other_parts(lowering: FunctionLowering, target: Node, name: str, known: str, line: int, value: Value) -> Exception:
    return lowering.refuse.type(
        target,
        f"`{name}` is {known} in line {line} and {describe(value)} here; a local keeps the parts it is made of",
        "give the other value a name of its own",
    )


def assign_name(lowering: FunctionLowering, target: Node, name: str, value: Scalar, source: Node) -> None:
    """`name = value`, after joining the type of the value with those of the local's other assignments.

    Raises:
        KernelTypeError: the kinds differ, or a weak integer does not fit.
    """
    scope = lowering.scope
    if name in scope.layouts:
        layout, first = scope.layouts[name]
        raise _other_parts(lowering, target, name, describe(layout), first.line, value)
    _assign_variable(lowering, target, name, value, source)
    scope.bound.pop(name, None)
    _mark_assigned(lowering, name)


def _assign_variable(lowering: FunctionLowering, target: Node, path: str, value: Scalar, source: Node) -> None:
    """Assigns the variable of a local, or of a leaf of one."""
    scope = lowering.scope
    loc = lowering.where(target)
    entry = scope.joins.add(path, value, loc)
    if entry is None:
        raise _mismatch(lowering, target, shown_path(path), scope.joins.found[path], value)
    converted = in_type(lowering, value, entry.type, source)
    lowering.emit(nodes.Assign(name=scope.ir_name(path), value=lowering.expr(converted, source), loc=loc))


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


# --- augmented --------------------------------------------------------------------------------------------------------


def augmented(lowering: FunctionLowering, node: ast.AugAssign) -> None:
    """`target op= value`; the index of an element is evaluated once, and the old value read before the right side."""
    match node.target:
        case ast.Name() as target:
            read = ast.copy_location(ast.Name(id=target.id, ctx=ast.Load()), target)
            left = evaluate(lowering, read)
            value = _operated(lowering, node, left, read)
            _bind(lowering, target, target.id, value, node.value)
        case ast.Subscript() | ast.Attribute():
            where = _element(lowering, node.target).held(lowering, node.target)
            value = _operated(lowering, node, load(lowering, where, node.target), node.target)
            if isinstance(value, Scalar):
                store(lowering, where, value, node.target, _whole(node))
            else:
                store(lowering, where, value, node.target, node.value)
        case _:
            raise _not_assignable(lowering, node.target)


def _operated(lowering: FunctionLowering, node: ast.AugAssign, left: Value, read: ast.expr) -> Value:
    values: list[Value] = [left]
    marks = [lowering.mark()]
    right = evaluate(lowering, node.value)
    lowering.loads_before(values, marks, [read])
    return operate(lowering, type(node.op), values[0], right, node, (read, node.value))


def _whole(node: ast.AugAssign) -> ast.expr:
    """The operation as an expression that stands where the statement does."""
    return ast.copy_location(ast.BinOp(left=node.target, op=node.op, right=node.value), node)
