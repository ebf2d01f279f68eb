"""Expressions: from nodes of `ast` to values, left to right."""

from __future__ import annotations

import ast
import builtins
import types
from typing import Final, TypeVar

from quernel.dtypes import VectorType
from quernel.ir import nodes
from quernel.lang.calls import call
from quernel.lang.choices import Thunk, either, either_compound, short_circuit
from quernel.lang.comparisons import compare
from quernel.lang.compounds import equality, item_at, member, negated, operate
from quernel.lang.constants import compare_constants, constant
from quernel.lang.conversions import as_scalar, shortened, truth
from quernel.lang.elements import Element, element_at, length_along, load, part_of, written_indices
from quernel.lang.instead import instead_of_name
from quernel.lang.lowering import FunctionLowering
from quernel.lang.names import attribute, captured, find_name
from quernel.lang.operators import binary, unary
from quernel.lang.trees import Leaf, map_leaves
from quernel.lang.values import (
    COMPONENTS,
    ArrayValue,
    Compound,
    ObjectValue,
    Scalar,
    StructValue,
    TupleValue,
    Value,
    VectorValue,
    describe,
)

__all__ = ["condition", "element", "evaluate", "evaluate_operands", "evaluate_statement_call", "locate", "scalar"]

_REFUSED: Final[dict[type[ast.expr], tuple[str, str]]] = {
    ast.Lambda: ("a lambda", "write a @qn.func outside the kernel"),
    ast.ListComp: ("a comprehension", "write a loop"),
    ast.SetComp: ("a comprehension", "write a loop"),
    ast.DictComp: ("a comprehension", "write a loop"),
    ast.GeneratorExp: ("a generator expression", "write a loop"),
    ast.List: ("a list", "use locals, or pass an array as an argument"),
    ast.Dict: ("a dict", "pass the values as arguments"),
    ast.Set: ("a set", "compare with each value: `x == 1 or x == 2`"),
    ast.NamedExpr: ("an assignment within an expression (`:=`)", "assign on a line of its own"),
    ast.Yield: ("`yield`", "write the values into an array"),
    ast.YieldFrom: ("`yield from`", "write the values into an array"),
    ast.Await: ("`await`", "wait on the host"),
    ast.JoinedStr: ("an f-string", "format on the host"),
    ast.Starred: ("`*` before an argument", "write the arguments one by one"),
    ast.Slice: ("a slice", "index one element: `a[i]`"),
}


def evaluate(lowering: FunctionLowering, node: ast.expr) -> Value:
    """The value of an expression.

    Raises:
        KernelSyntaxError: it has no meaning in a kernel.
        KernelTypeError: its types do not fit.
    """
    value = _evaluate(lowering, node)
    if value is None:
        assert isinstance(node, ast.Call)
        name = ast.unparse(node.func)
        raise lowering.refuse.type(
            node, f"`{name}` returns nothing, so the call has no value", f"let `{name}` return one, or call it alone"
        )
    return value


def evaluate_statement_call(lowering: FunctionLowering, node: ast.Call) -> None:
    """A call as a statement: its value, if any, is not used."""
    _evaluate(lowering, node)


def scalar(lowering: FunctionLowering, node: ast.expr) -> Scalar:
    """The value of an expression that must be a scalar.

    Raises:
        KernelTypeError: it is an array, a tuple or an object.
    """
    return as_scalar(lowering, evaluate(lowering, node), node)


def evaluate_operands(lowering: FunctionLowering, operands: list[ast.expr]) -> list[Value]:
    """The values of operands, evaluated from left to right; what precedes a call is read before it."""
    values: list[Value] = []
    marks: list[tuple[int, int]] = []
    for operand in operands:
        values.append(evaluate(lowering, operand))
        marks.append(lowering.mark())
    lowering.loads_before(values, marks, operands)
    return values


def _evaluate(lowering: FunctionLowering, node: ast.expr) -> Value | None:
    with lowering.nested(node):
        match node:
            case ast.Constant():
                return _literal(lowering, node)
            case ast.Name():
                return _name(lowering, node)
            case ast.Attribute() | ast.Subscript():
                found = locate(lowering, node)
                return load(lowering, found, node) if isinstance(found, Element) else found
            case ast.BinOp():
                return _operators(lowering, node)
            case ast.UnaryOp(op=ast.Not()):
                return unary(lowering, ast.Not, condition(lowering, node.operand), node)
            case ast.UnaryOp():
                operand = evaluate(lowering, node.operand)
                if isinstance(operand, VectorValue):
                    return negated(lowering, type(node.op), operand, node)
                return unary(lowering, type(node.op), as_scalar(lowering, operand, node.operand), node)
            case ast.Compare():
                return _comparison(lowering, node)
            case ast.BoolOp():
                parts = [_thunk(lowering, part) for part in node.values]
                return short_circuit(lowering, node, isinstance(node.op, ast.And), parts)
            case ast.IfExp():
                return _conditional(lowering, node)
            case ast.Call():
                return _call(lowering, node)
            case ast.Tuple():
                return TupleValue(tuple(evaluate_operands(lowering, node.elts)))
            case _:
                what, fix = _REFUSED.get(type(node), (f"`{type(node).__name__}`", "write it another way"))
                raise lowering.refuse.syntax(node, f"{what} has no meaning in a kernel", fix)


def _literal(lowering: FunctionLowering, node: ast.Constant) -> Value:
    value = node.value
    if value is None or isinstance(value, str):
        return ObjectValue(value)
    if isinstance(value, bool | int | float):
        return constant(value)
    if isinstance(value, complex):
        raise lowering.refuse.syntax(node, "a complex number has no meaning in a kernel", "compute with two floats")
    raise lowering.refuse.syntax(node, f"`{ast.unparse(node)}` has no meaning in a kernel", "use numbers")


def _name(lowering: FunctionLowering, node: ast.Name) -> Value:
    name = node.id
    scope = lowering.scope
    if not scope.is_local(name):
        is_found, value = find_name(lowering.function, name)
        if not is_found:
            raise lowering.refuse.type(node, f"the name `{name}` is not defined", instead_of_name(name))
        return _resolved(lowering, captured(lowering.refuse, node, name, value))
    if scope.assigned is None or name not in scope.assigned:
        fix = f"assign `{name}` before, on every way that leads here"
        if find_name(lowering.function, name)[0] and not hasattr(builtins, name):  # `sum += …` wants no builtin
            fix += "; it is a local, as it is assigned here: to read the one outside, give the local another name"
        raise lowering.refuse.type(node, f"`{name}` may be read here before it is assigned", fix)
    if name in scope.bound:
        return scope.bound[name]
    if name in scope.layouts:
        return map_leaves(scope.layouts[name][0], lambda path, leaf: _read_leaf(lowering, node, path, leaf), name)
    if not scope.is_variable(name) or name not in scope.joins:
        return scope.parameters[name]
    return _variable(lowering, node, name)


def _variable(lowering: FunctionLowering, node: ast.Name, path: str) -> Scalar:
    entry = lowering.scope.joins[path]
    expr = nodes.Local(name=lowering.scope.ir_name(path), type=entry.type.dtype, loc=lowering.where(node))
    return Scalar(entry.type, expr, origins=entry.origins)


def _read_leaf(lowering: FunctionLowering, node: ast.Name, path: str, leaf: Leaf) -> Value:
    return _variable(lowering, node, path) if isinstance(leaf, Scalar) else leaf


def _resolved(lowering: FunctionLowering, value: Value) -> Value:
    """A type variable as the type for which it stands here."""
    if isinstance(value, ObjectValue) and isinstance(value.value, TypeVar):
        return ObjectValue(lowering.type_variables.get(value.value, value.value))
    return value


def locate(lowering: FunctionLowering, node: ast.Subscript | ast.Attribute) -> Element | Value:
    """The element of an array, or the part of one, that `node` names, not read yet; or any other value that it has."""
    with lowering.nested(node):
        owner: Element | Value
        if isinstance(node.value, ast.Subscript | ast.Attribute):
            owner = locate(lowering, node.value)
        else:
            owner = evaluate(lowering, node.value)
        if isinstance(node, ast.Attribute):
            return _attribute(lowering, node, owner)
        return _subscript(lowering, node, owner)


def _attribute(lowering: FunctionLowering, node: ast.Attribute, owner: Element | Value) -> Element | Value:
    if isinstance(owner, Element):
        part = part_of(owner, node.attr)
        if part is not None:
            return part
        owner = load(lowering, owner, node.value)
    match owner:
        case ArrayValue():
            return _array_attribute(lowering, node, owner)
        case ObjectValue():
            return _resolved(lowering, attribute(lowering.refuse, node, owner, node.attr))
        case TupleValue() | VectorValue() | StructValue():
            return member(lowering, node, owner)
        case Scalar() if node.attr == "dtype" and not owner.weak:
            return ObjectValue(owner.dtype)
        case Scalar() if node.attr == "value" and owner.constant is not None and _is_captured(lowering, node.value):
            return owner  # The number of an `IntEnum` member.
        case _:
            raise lowering.refuse.type(
                node, f"{describe(owner)} has no attribute `{node.attr}` in a kernel", "write it as an expression"
            )


def _is_captured(lowering: FunctionLowering, node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and not lowering.scope.is_local(node.id)


def _array_attribute(lowering: FunctionLowering, node: ast.Attribute, array: ArrayValue) -> Value:
    ndim = array.type.ndim
    assert ndim is not None
    lengths = [length_along(lowering, array, axis, node) for axis in range(ndim)]
    match node.attr:
        case "shape":
            return TupleValue(tuple(lengths))
        case "ndim":
            return constant(ndim)
        case "size":
            size = lengths[0]
            for length in lengths[1:]:
                size = binary(lowering, ast.Mult, size, length, node)
            return size
        case "dtype":
            return ObjectValue(array.type.element)
        case _:
            raise lowering.refuse.type(
                node,
                f"an array has no `.{node.attr}` in a kernel",
                "use `.shape`, `.ndim`, `.size` or `.dtype`; prepare anything else before the launch",
            )


def _subscript(lowering: FunctionLowering, node: ast.Subscript, owner: Element | Value) -> Element | Value:
    if isinstance(owner, Element):
        if isinstance(owner.type, VectorType):
            return _component(lowering, node, owner, owner.type)
        owner = load(lowering, owner, node.value)
    match owner:
        case ArrayValue():
            return element(lowering, node, owner)
        case TupleValue() | VectorValue():
            return item_at(lowering, node, owner, scalar(lowering, node.slice))
        case ObjectValue(value=type()) | ObjectValue(value=types.ModuleType()):
            raise lowering.refuse.syntax(
                node, f"`{ast.unparse(node)}` has no meaning in a kernel", "write types in the annotations only"
            )
        case _:
            raise lowering.refuse.type(node, f"{describe(owner)} cannot be indexed", "index an array")


def _component(lowering: FunctionLowering, node: ast.Subscript, owner: Element, type_: VectorType) -> Element:
    """A component of a vector in memory, by a constant index."""
    numbers = tuple(constant(number) for number in range(type_.length))
    found = item_at(lowering, node, VectorValue(type_, numbers), scalar(lowering, node.slice))
    assert isinstance(found, Scalar)
    part = part_of(owner, COMPONENTS[int(found.constant or 0)])
    assert part is not None
    return part


def element(lowering: FunctionLowering, node: ast.Subscript, array: ArrayValue) -> Element:
    """The element of `array` that `node` names.

    Raises:
        KernelTypeError: not one integer per axis, or a negative constant.
        KernelSyntaxError: a slice, or an element type that the language does not have yet.
    """
    written = written_indices(lowering, node, node.slice)
    return element_at(lowering, node, node.value, array, written, evaluate_operands(lowering, written))


def _operators(lowering: FunctionLowering, node: ast.BinOp) -> Value:
    """A chain of operators, walked down its left side without recursion."""
    chain = [node]
    while isinstance(chain[-1].left, ast.BinOp):
        chain.append(chain[-1].left)
    result = evaluate(lowering, chain[-1].left)
    for operation in reversed(chain):
        values = [result]
        marks = [lowering.mark()]
        right = evaluate(lowering, operation.right)
        lowering.loads_before(values, marks, [operation.right])
        sources = (operation.left, operation.right)
        result = operate(lowering, type(operation.op), values[0], right, operation, sources)
    return result


# --- what is evaluated only sometimes ---------------------------------------------------------------------------------


def _thunk(lowering: FunctionLowering, node: ast.expr) -> Thunk:
    return lambda: scalar(lowering, node)


def condition(lowering: FunctionLowering, node: ast.expr) -> Scalar:
    """The truth of an expression, as a bool."""
    if isinstance(node, ast.BoolOp):
        with lowering.nested(node):
            parts: list[Thunk] = [_condition_thunk(lowering, part) for part in node.values]
            return short_circuit(lowering, node, isinstance(node.op, ast.And), parts)
    value = evaluate(lowering, node)
    if isinstance(value, ObjectValue) and (value.value is None or isinstance(value.value, str)):
        return constant(bool(value.value))
    return truth(lowering, as_scalar(lowering, value, node), node)


def _condition_thunk(lowering: FunctionLowering, node: ast.expr) -> Thunk:
    return lambda: condition(lowering, node)


def _conditional(lowering: FunctionLowering, node: ast.IfExp) -> Value:
    test = condition(lowering, node.test)
    if test.constant is not None:
        return evaluate(lowering, node.body if test.constant else node.orelse)
    with lowering.new_block() as then_body:
        then = evaluate(lowering, node.body)
    with lowering.new_block() as other_body:
        other = evaluate(lowering, node.orelse)
    if isinstance(then, Compound) and isinstance(other, Compound):
        return either_compound(lowering, node, test, (then, then_body), (other, other_body))
    one, two = as_scalar(lowering, then, node.body), as_scalar(lowering, other, node.orelse)
    return either(lowering, node, test, one, then_body, two, other_body)


def _comparison(lowering: FunctionLowering, node: ast.Compare) -> Scalar:
    """A comparison, or a chain of them joined by `and` in which each operand is evaluated once."""
    operands = [node.left, *node.comparators]
    for op in node.ops:
        if isinstance(op, ast.In | ast.NotIn):
            raise lowering.refuse.syntax(
                node, "`in` has no meaning in a kernel", "compare with each value: `x == 1 or x == 2`"
            )
    if len(node.ops) == 1:
        left, right = evaluate_operands(lowering, operands)
        return compared(lowering, node, type(node.ops[0]), left, right)
    held: list[Value] = [evaluate(lowering, operands[0])]

    def link(index: int) -> Thunk:
        def compare_next() -> Scalar:
            right_node = operands[index + 1]
            values = [held[0]]
            marks = [lowering.mark()]
            right = evaluate(lowering, right_node)
            lowering.loads_before(values, marks, [operands[index]])
            if isinstance(right, Scalar) and index + 1 < len(node.ops):
                right = lowering.leaf(right, right_node)
            held[0] = right
            return compared(lowering, node, type(node.ops[index]), values[0], right)

        return compare_next

    links = [link(index) for index in range(len(node.ops))]
    return short_circuit(lowering, node, True, links, lambda: held[0])


def compared(lowering: FunctionLowering, node: ast.Compare, op: type[ast.cmpop], left: Value, right: Value) -> Scalar:
    """One comparison of the chain `node`, of operands that are evaluated already."""
    if isinstance(left, ObjectValue) or isinstance(right, ObjectValue):
        return _compared_objects(lowering, node, op, left, right)
    if isinstance(left, TupleValue) and isinstance(right, TupleValue):
        return equality(lowering, op, left, right, node)
    if op in (ast.Is, ast.IsNot):
        raise lowering.refuse.syntax(node, "`is` between values has no meaning in a kernel", "write `==` or `!=`")
    a = as_scalar(lowering, left, node.left)
    b = as_scalar(lowering, right, node.comparators[0])
    return compare(lowering, op, a, b, node)


def _compared_objects(
    lowering: FunctionLowering, node: ast.Compare, op: type[ast.cmpop], left: Value, right: Value
) -> Scalar:
    """A comparison with a string, a type, an enum member or `None`: decided when the kernel is compiled."""
    sides = []
    for value in (left, right):
        match value:
            case ObjectValue(value=held):
                sides.append(held)
            case Scalar(constant=known) if known is not None:
                sides.append(known)
            case _ if op in (ast.Is, ast.IsNot, ast.Eq, ast.NotEq) and None in sides + _held(right):
                sides.append(NotImplemented)
            case _:
                raise lowering.refuse.type(
                    node,
                    f"{describe(left)} and {describe(right)} cannot be compared in a kernel",
                    "compare numbers, or constants known when the kernel is compiled",
                )
    if op not in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot):
        raise lowering.refuse.type(
            node, f"{describe(left)} and {describe(right)} have no order in a kernel", "write `==` or `!=`"
        )
    return constant(compare_constants(op, sides[0], sides[1]))


def _held(value: Value) -> list[object]:
    return [value.value] if isinstance(value, ObjectValue) else []


def _call(lowering: FunctionLowering, node: ast.Call) -> Value | None:
    function = evaluate(lowering, node.func)
    for keyword in node.keywords:
        if keyword.arg is None:
            raise lowering.refuse.syntax(
                keyword, "`**` before an argument has no meaning in a kernel", "write the arguments one by one"
            )
    written = [*node.args, *(keyword.value for keyword in node.keywords)]
    values = evaluate_operands(lowering, written)
    arguments = values[: len(node.args)]
    named = dict(zip((keyword.arg or "" for keyword in node.keywords), values[len(node.args) :], strict=True))
    if isinstance(function, ObjectValue):
        return call(lowering, node, function.value, arguments, named)
    raise lowering.refuse.type(
        node, f"`{shortened(node.func)}` is {describe(function)} and cannot be called", "call a function"
    )
