"""Elements of arrays: one integer per axis, never wrapped, never a slice."""

from __future__ import annotations

import ast

import attrs

from quernel.dtypes import DType, ScalarType, i64
from quernel.ir import nodes
from quernel.lang.conversions import as_scalar, to_index
from quernel.lang.lowering import FunctionLowering
from quernel.lang.refusals import Node
from quernel.lang.values import ArrayValue, Scalar, TupleValue, Value

__all__ = ["Element", "element_at", "length_along", "load", "written_indices"]


@attrs.frozen
class Element:
    """An element of an array: the array, one i64 value per axis, and its type."""

    root: nodes.Root
    indices: tuple[Scalar, ...]
    dtype: DType

    def place(self, lowering: FunctionLowering, node: ast.expr) -> nodes.Place:
        """The element as a place of the IR."""
        indices = tuple(lowering.expr(index, node) for index in self.indices)
        return nodes.Place(root=self.root, indices=indices, type=self.dtype, loc=lowering.where(node))

    def held(self, lowering: FunctionLowering, node: ast.expr) -> Element:
        """The element with indices that may be written twice."""
        return attrs.evolve(self, indices=tuple(lowering.leaf(index, node) for index in self.indices))


def load(lowering: FunctionLowering, element: Element, node: ast.Subscript) -> Scalar:
    """The value of an element."""
    expr = nodes.Load(place=element.place(lowering, node), loc=lowering.where(node))
    return lowering.made(ScalarType(element.dtype), expr, node, *element.indices, has_load=True)


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
                "index one element: `a[i]`; slice on the host before the launch",
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
        KernelSyntaxError: an element type that the language does not have yet.
    """
    if len(values) == 1 and isinstance(values[0], TupleValue):
        values = list(values[0].items)
        written = written if len(written) == len(values) else written[:1] * len(values)
    ndim = array.type.ndim
    assert ndim is not None
    name = ast.unparse(named)
    if len(values) != ndim:
        indices = "i" if ndim == 1 else ", ".join(f"i{axis}" for axis in range(ndim))
        raise lowering.refuse.type(
            node,
            f"`{name}` has {ndim} {'axis' if ndim == 1 else 'axes'} ({array.type}) and is indexed with {len(values)}",
            f"give one index per axis: `{name}[{indices}]`",
        )
    along = tuple(
        _index(lowering, as_scalar(lowering, value, at), at, name, axis)
        for axis, (value, at) in enumerate(zip(values, written, strict=True))
    )
    return Element(array.root, along, lowering.supported(array.type.element, node, "elements"))


def _index(lowering: FunctionLowering, value: Scalar, at: ast.expr, name: str, axis: int) -> Scalar:
    index = to_index(lowering, value, at, f"an index of `{name}`")
    if isinstance(index.constant, int) and index.constant < 0:
        raise lowering.refuse.type(
            at,
            f"the index {index.constant} of `{name}` is negative, and indices do not wrap in a kernel",
            f"count from the end yourself: `{name}.shape[{axis}] - {-index.constant}`",
        )
    return index
