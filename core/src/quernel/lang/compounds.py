"""Vectors, structs and tuples: made, taken apart, and operated on item by item."""

from __future__ import annotations

import ast

from quernel.dtypes import DType, ScalarType, StructType, ValueType, VectorType
from quernel.errors import KernelTypeError
from quernel.ir import nodes
from quernel.ir.nodes import BinaryOp
from quernel.lang.comparisons import compare
from quernel.lang.constants import constant
from quernel.lang.conversions import as_scalar, cast, stored
from quernel.lang.lowering import FunctionLowering
from quernel.lang.operators import binary, unary
from quernel.lang.refusals import Node
from quernel.lang.types import declared_type
from quernel.lang.values import (
    COMPONENTS,
    Compound,
    ObjectValue,
    Scalar,
    StructValue,
    TupleValue,
    Value,
    VectorValue,
    describe,
)
from quernel.structs import fields_of
from quernel.wording import counted

__all__ = ["equality", "item_at", "make_struct", "make_vector", "member", "negated", "operate", "vector"]


def vector(lowering: FunctionLowering, components: tuple[Scalar, ...]) -> VectorValue:
    """The vector of components of one type."""
    element = components[0].dtype
    assert all(component.dtype is element for component in components)
    return VectorValue(VectorType(element, len(components)), components)


def make_vector(lowering: FunctionLowering, node: ast.Call, type_: VectorType, arguments: list[Value]) -> VectorValue:
    """`vector(x, y, …)`, `vector(x)` with one value for all components, or another vector cast.

    Raises:
        KernelTypeError: neither one value, nor one per component.
    """
    if len(arguments) == 1 and isinstance(arguments[0], VectorValue):
        parts: list[Scalar] = list(arguments[0].items)
    else:
        parts = [as_scalar(lowering, value, at) for value, at in zip(arguments, node.args, strict=True)]
    if len(parts) == 1:
        parts = [lowering.leaf(parts[0], node)] * type_.length
    if len(parts) != type_.length or node.keywords:
        given = counted(len(parts), "value") if parts else "nothing"
        names = ", ".join(COMPONENTS[: type_.length])
        raise lowering.refuse.type(
            node, f"{type_} is made of {given}", f"give one value for all components, or each: `({names})`"
        )
    return VectorValue(type_, tuple(cast(lowering, part, type_.element, node) for part in parts))


def make_struct(
    lowering: FunctionLowering, node: ast.Call, cls: type, arguments: list[Value], keywords: dict[str, Value]
) -> StructValue:
    """`Particle(x, y)`: a struct of a class, each field converted to its declared type as where it is stored.

    Raises:
        KernelTypeError: fields are missing or unknown, or do not fit.
    """
    try:
        fields = fields_of(cls)
    except KernelTypeError as error:
        raise lowering.refuse.type(node, error.what, error.fix or "annotate the fields") from None
    names = [name for name, _ in fields]
    given = dict(zip(names, arguments, strict=False)) | keywords
    doubled = set(names[: len(arguments)]) & set(keywords)
    if len(arguments) > len(names) or doubled or set(given) != set(names):
        raise lowering.refuse.type(
            node, f"`{cls.__name__}` has the fields {', '.join(names)}", "give each of them one value"
        )
    sources = dict(zip(names, node.args, strict=False))
    sources |= {keyword.arg or "": keyword.value for keyword in node.keywords}
    items = tuple(_field(lowering, cls, name, declared, given[name], sources[name]) for name, declared in fields)
    return StructValue(cls.__name__, tuple(names), items)


def _field(lowering: FunctionLowering, cls: type, name: str, declared: object, value: Value, at: ast.expr) -> Value:
    wanted = declared_type(lowering, declared, at)
    converted = _as_stored(lowering, wanted, value, at)
    if converted is None:
        raise lowering.refuse.type(
            at,
            f"field `{name}` of `{cls.__name__}` is {wanted}, and the value is {describe(value)}",
            "give a value of the field's type",
        )
    return converted


def _as_stored(lowering: FunctionLowering, wanted: ValueType, value: Value, at: ast.expr) -> Value | None:
    """`value` converted as where it is stored; a struct by the names of its fields. `None` if it is another thing."""
    match wanted, value:
        case DType(), Scalar():
            return lowering.made(ScalarType(wanted), stored(lowering, value, wanted, at), at, value)
        case VectorType(element=element, length=length), VectorValue(items=items) if len(items) == length:
            parts = [(stored(lowering, item, element, at), item) for item in items]
            return VectorValue(
                wanted, tuple(lowering.made(ScalarType(element), expr, at, item) for expr, item in parts)
            )
        case StructType(name=name, fields=fields), StructValue() if {field.name for field in fields} == set(
            value.fields
        ):
            inner = dict(zip(value.fields, value.items, strict=True))
            found = [_as_stored(lowering, field.type, inner[field.name], at) for field in fields]
            converted = tuple(item for item in found if item is not None)
            names = tuple(field.name for field in fields)
            return StructValue(name, names, converted) if len(converted) == len(found) else None
        case _:
            return None


# --- taking apart -----------------------------------------------------------------------------------------------------


def member(lowering: FunctionLowering, node: ast.Attribute, owner: Compound) -> Value:
    """A component of a vector or a field of a struct.

    Raises:
        KernelTypeError: there is none of that name.
    """
    match owner:
        case VectorValue(type=type_) if node.attr == "dtype":
            return ObjectValue(type_)
        case VectorValue(items=items) if node.attr in COMPONENTS[: len(items)]:
            return items[COMPONENTS.index(node.attr)]
        case StructValue(fields=fields, items=items) if node.attr in fields:
            return items[fields.index(node.attr)]
    names = owner.fields if isinstance(owner, StructValue) else COMPONENTS[: len(owner.items)]
    fix = "index it by a constant: `t[0]`" if isinstance(owner, TupleValue) else f"it has {', '.join(names)}"
    raise lowering.refuse.type(node, f"{describe(owner)} has no `{node.attr}` in a kernel", fix)


def item_at(lowering: FunctionLowering, node: ast.Subscript, owner: TupleValue | VectorValue, index: Scalar) -> Value:
    """The item of a tuple or the component of a vector at a constant index.

    Raises:
        KernelTypeError: the index is not constant, or outside.
    """
    what = "a tuple" if isinstance(owner, TupleValue) else "a vector"
    known = index.constant
    if not isinstance(known, int) or isinstance(known, bool):
        raise lowering.refuse.type(
            node.slice, f"{what} is indexed by a constant integer", "write the index as a number"
        )
    num_items = len(owner.items)
    if not -num_items <= known < num_items:
        raise lowering.refuse.type(
            node.slice, f"index {known} of {what} of {num_items}", f"use an index within {what.replace('a', 'the', 1)}"
        )
    return owner.items[known]


# --- operators --------------------------------------------------------------------------------------------------------


def operate(
    lowering: FunctionLowering,
    op: type[ast.operator],
    left: Value,
    right: Value,
    node: Node,
    sources: tuple[ast.expr, ast.expr],
) -> Value:
    """`left op right`: of scalars, of vectors item by item, and the sum of two tuples.

    Raises:
        KernelTypeError: the operator is not defined on these values.
    """
    match left, right:
        case Scalar(), Scalar():
            return binary(lowering, op, left, right, node)
        case TupleValue(items), TupleValue(items=others) if op is ast.Add:
            return TupleValue(items + others)
        case VectorValue(), VectorValue() | Scalar():
            return _item_by_item(lowering, op, left, right, node)
        case Scalar(), VectorValue():
            return _item_by_item(lowering, op, left, right, node)
    for value, source in zip((left, right), sources, strict=True):
        if not isinstance(value, VectorValue):
            as_scalar(lowering, value, source)
    raise AssertionError(left, right)


def _item_by_item(
    lowering: FunctionLowering,
    op: type[ast.operator],
    left: VectorValue | Scalar,
    right: VectorValue | Scalar,
    node: Node,
) -> VectorValue:
    lengths = {len(side.items) for side in (left, right) if isinstance(side, VectorValue)}
    if len(lengths) > 1:
        raise lowering.refuse.type(
            node, f"{describe(left)} and {describe(right)} have different lengths", "use vectors of one length"
        )
    (length,) = lengths
    pairs = zip(_spread(lowering, left, length, node), _spread(lowering, right, length, node), strict=True)
    return vector(lowering, tuple(binary(lowering, op, a, b, node) for a, b in pairs))


def _spread(lowering: FunctionLowering, side: VectorValue | Scalar, length: int, node: Node) -> tuple[Scalar, ...]:
    return side.items if isinstance(side, VectorValue) else (lowering.leaf(side, node),) * length


def negated(lowering: FunctionLowering, op: type[ast.unaryop], operand: VectorValue, node: Node) -> VectorValue:
    """A unary operator on each component."""
    return vector(lowering, tuple(unary(lowering, op, item, node) for item in operand.items))


def equality(
    lowering: FunctionLowering, op: type[ast.cmpop], left: TupleValue, right: TupleValue, node: ast.Compare
) -> Scalar:
    """`==` or `!=` of tuples, item by item.

    Raises:
        KernelTypeError: another comparison, or items that cannot be compared.
    """
    if op not in (ast.Eq, ast.NotEq):
        raise lowering.refuse.type(node, "tuples have no order in a kernel", "compare their items")
    is_equal = constant(True)
    if len(left.items) != len(right.items):
        return constant(op is ast.NotEq)
    for a, b in zip(left.items, right.items, strict=True):
        if isinstance(a, TupleValue) and isinstance(b, TupleValue):
            same = equality(lowering, ast.Eq, a, b, node)
        else:
            first = as_scalar(lowering, a, node.left, "an item of a compared tuple")
            second = as_scalar(lowering, b, node.comparators[0], "an item of a compared tuple")
            same = compare(lowering, ast.Eq, first, second, node)
        is_equal = _both(lowering, is_equal, same, node)
    return unary(lowering, ast.Not, is_equal, node) if op is ast.NotEq else is_equal


def _both(lowering: FunctionLowering, left: Scalar, right: Scalar, node: Node) -> Scalar:
    for side, other in ((left, right), (right, left)):
        if side.constant is not None:
            return other if side.constant else side
    a, b = lowering.expr(left, node), lowering.expr(right, node)
    expr = nodes.Binary(op=BinaryOp.AND, left=a, right=b, loc=lowering.where(node))
    return lowering.made(left.type, expr, node, left, right)
