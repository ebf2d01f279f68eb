"""Elements of arrays and their parts: one integer per axis, never wrapped, never a slice."""

from __future__ import annotations

import ast

import attrs

from quernel.dtypes import DType, ScalarType, StructType, ValueType, VectorType, i64
from quernel.ir import nodes
from quernel.lang.conversions import as_scalar, stored, to_index
from quernel.lang.lowering import FunctionLowering
from quernel.lang.refusals import Node
from quernel.lang.values import COMPONENTS, ArrayValue, Scalar, StructValue, TupleValue, Value, VectorValue, describe
from quernel.wording import counted

__all__ = ["Element", "element_at", "length_along", "load", "part_of", "store", "written_indices"]


@attrs.frozen
class Element:
    """An element of an array, or a part of one: the array, one i64 value per axis, the way to the part, its type."""

    root: nodes.Root
    indices: tuple[Scalar, ...]
    type: ValueType
    view: tuple[str | int, ...] = ()

    def place(self, lowering: FunctionLowering, node: ast.expr) -> nodes.Place:
        """The element as a place of the IR."""
        indices = tuple(lowering.expr(index, node) for index in self.indices)
        return nodes.Place(root=self.root, indices=indices, type=self.type, view=self.view, loc=lowering.where(node))

    def held(self, lowering: FunctionLowering, node: ast.expr) -> Element:
        """The element with indices that may be written twice."""
        return attrs.evolve(self, indices=tuple(lowering.leaf(index, node) for index in self.indices))


def part_of(element: Element, step: str) -> Element | None:
    """The field or component of that name, if the element has it."""
    match element.type:
        case StructType() as struct:
            field = struct.field(step)
            return attrs.evolve(element, type=field.type, view=(*element.view, step)) if field is not None else None
        case VectorType(element=dtype, length=length) if step in COMPONENTS[:length]:
            return attrs.evolve(element, type=dtype, view=(*element.view, COMPONENTS.index(step)))
        case _:
            return None


# --- reading and writing ----------------------------------------------------------------------------------------------


def load(lowering: FunctionLowering, element: Element, node: ast.expr) -> Value:
    """The value of an element. A vector is read at once, and a struct field by field; both before what follows."""
    match element.type:
        case DType() as dtype:
            expr = nodes.Load(place=element.place(lowering, node), loc=lowering.where(node))
            return lowering.made(ScalarType(dtype), expr, node, *element.indices, has_load=True)
        case VectorType() as type_:
            loc = lowering.where(node)
            name = lowering.scope.temporary(type_)
            lowering.emit(nodes.Assign(name=name, value=nodes.Load(place=element.place(lowering, node)), loc=loc))
            whole = nodes.Local(name=name, type=type_, loc=loc)
            return vector_of(lowering, whole, type_, node)
        case StructType() as struct:
            element = element.held(lowering, node)
            items = []
            for field in struct.fields:
                part = part_of(element, field.name)
                assert part is not None
                value = load(lowering, part, node)
                items.append(lowering.held(value, node) if isinstance(value, Scalar) else value)
            return StructValue(struct.name, tuple(field.name for field in struct.fields), tuple(items))


def vector_of(lowering: FunctionLowering, whole: nodes.Expr, type_: VectorType, node: Node) -> VectorValue:
    """A vector of the IR as its components."""
    loc = lowering.where(node)
    return VectorValue(
        type_,
        tuple(
            Scalar(ScalarType(type_.element), nodes.VecGet(operand=whole, index=index, type=type_.element, loc=loc))
            for index in range(type_.length)
        ),
    )


def store(lowering: FunctionLowering, element: Element, value: Value, target: ast.expr, source: ast.expr) -> None:
    """Writes `value` into an element: integers wrap, floats round; a vector at once, a struct field by field.

    Raises:
        KernelTypeError: it does not fit the element.
    """
    loc = lowering.where(target)
    match element.type, value:
        case DType() as dtype, _:
            held = as_scalar(lowering, value, source, "what is stored")
            converted = stored(lowering, held, dtype, source)
            lowering.emit(nodes.Store(place=element.place(lowering, target), value=converted, loc=loc))
        case VectorType(element=dtype, length=length) as type_, VectorValue(items=items) if len(items) == length:
            components = tuple(stored(lowering, item, dtype, source) for item in items)
            whole = nodes.VecMake(components=components, type=type_, loc=loc)
            lowering.emit(nodes.Store(place=element.place(lowering, target), value=whole, loc=loc))
        case StructType() as struct, StructValue() if {field.name for field in struct.fields} == set(value.fields):
            element = element.held(lowering, target)
            for name, item in zip(value.fields, value.items, strict=True):
                part = part_of(element, name)
                assert part is not None
                store(lowering, part, item, target, source)
        case _:
            raise lowering.refuse.type(
                source,
                f"{describe(value)} is stored into an element of type {element.type}",
                "store a vector or struct of the same length or fields",
            )


# --- indices ----------------------------------------------------------------------------------------------------------


def length_along(lowering: FunctionLowering, array: ArrayValue, axis: int, node: Node) -> Scalar:
    """The length of an array along an axis, as i64."""
    if array.shape is not None:
        return Scalar(ScalarType(i64), constant=array.shape[axis])
    shape = nodes.Shape(param=array.root.name, axis=axis, loc=lowering.where(node))
    return Scalar(ScalarType(i64), shape)


def written_indices(lowering: FunctionLowering, node: ast.expr, index: ast.expr) -> list[ast.expr]:
    """The indices that the index `index` of `node` holds, one per axis.

    Raises:
        KernelSyntaxError: a slice, `...` or `None`.
    """
    written = list(index.elts) if isinstance(index, ast.Tuple) else [index]
    for index in written:
        if isinstance(index, ast.Slice):
            raise lowering.refuse.syntax(
                node,
                "a slice has no meaning in a kernel",
                "index one element: `a[i]`, in a loop over those wanted; or slice on the host before the launch",
            )
        if isinstance(index, ast.Constant) and (index.value is None or index.value is ...):
            raise lowering.refuse.syntax(
                index, f"`{ast.unparse(index)}` in an index has no meaning in a kernel", "index every axis"
            )
    return written


def element_at(
    lowering: FunctionLowering,
    node: ast.expr,
    named: ast.expr,
    array: ArrayValue,
    written: list[ast.expr],
    values: list[Value],
) -> Element:
    """The element of `array`, which `named` names, at the indices `values`.

    Raises:
        KernelTypeError: not one integer per axis, or a negative constant.
    """
    if len(values) == 1 and isinstance(values[0], TupleValue):
        values = list(values[0].items)
        written = written if len(written) == len(values) else written[:1] * len(values)
    ndim = array.type.ndim
    assert ndim is not None
    name = ast.unparse(named)
    if len(values) != ndim:
        given = counted(len(values), "index")
        fix = _one_index_per_axis(name, ndim, written, len(values))
        raise lowering.refuse.type(
            node, f"`{name}` has {counted(ndim, 'axis')} ({array.type}) and is indexed with {given}", fix
        )
    along = tuple(
        _index(lowering, as_scalar(lowering, value, at), at, name, axis)
        for axis, (value, at) in enumerate(zip(values, written, strict=True))
    )
    assert array.type.element is not None
    return Element(array.root, along, array.type.element)


def _one_index_per_axis(name: str, ndim: int, written: list[ast.expr], num_given: int) -> str:
    """What to write instead of too few or too many indices."""
    indices = ", ".join("ijkl"[:ndim]) if ndim <= 4 else "…"
    fix = f"give one index per axis: `{name}[{indices}]`"
    if num_given < ndim:
        over = f"go through it by `for {'ijkl'[num_given:ndim][:1] or 'j'} in range({name}.shape[{num_given}])`"
        return f"{fix}; a kernel has no rows: {over}, or pass an array of {counted(num_given, 'axis')}"
    if all(part is written[0] for part in written):  # a tuple, as the thread's index in a launch of several axes is
        launch = f"launch over {counted(ndim, 'axis')}, or take the parts: `{', '.join('ijk'[:num_given])} = …`"
        return f"{fix}; `{ast.unparse(written[0])}` is a tuple: {launch}"
    return fix


def _index(lowering: FunctionLowering, value: Scalar, at: ast.expr, name: str, axis: int) -> Scalar:
    index = to_index(lowering, value, at, f"an index of `{name}`")
    if isinstance(index.constant, int) and index.constant < 0:
        raise lowering.refuse.type(
            at,
            f"the index {index.constant} of `{name}` is negative, and indices do not wrap in a kernel",
            f"count from the end yourself: `{name}.shape[{axis}] - {-index.constant}`",
        )
    return index
