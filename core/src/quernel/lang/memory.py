"""Arrays that a kernel allocates: shared by the threads of a block, or private to one thread."""

from __future__ import annotations

import ast
from typing import Final

from quernel import intrinsics
from quernel.dtypes import ArrayType
from quernel.geometry import LaunchForm
from quernel.intrinsics import Intrinsic
from quernel.ir import nodes
from quernel.ir.nodes import Root, RootKind, Space
from quernel.lang.blocks import needs_blocks
from quernel.lang.lowering import FunctionLowering
from quernel.lang.types import type_that
from quernel.lang.values import ArrayValue, Scalar, TupleValue, Value

__all__ = ["SPACES", "allocate"]

SPACES: Final[dict[Intrinsic, Space]] = {intrinsics.shared: Space.SHARED, intrinsics.private: Space.PRIVATE}
_MAX_ELEMENTS: Final = 1 << 31


def allocate(
    lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic, name: str, arguments: list[Value]
) -> ArrayValue:
    """The array that `name = qn.shared(shape, T)` or `qn.private(shape, T)` allocates.

    Raises:
        KernelSyntaxError: below the top level of a function, or shared memory in a launch without blocks.
        KernelTypeError: the shape is not constant, or the type is none.
    """
    space = SPACES[intrinsic]
    if space is Space.SHARED and lowering.unit.form is LaunchForm.OVER:
        raise needs_blocks(lowering, node, intrinsic)
    if not lowering.is_at_top:
        raise lowering.refuse.syntax(
            node,
            f"`qn.{intrinsic.name}` stands in a branch or loop, and memory is allocated once",
            "move it to the top level of the function, and use it here",
        )
    if len(arguments) != 2 or node.keywords:
        raise lowering.refuse.type(
            node, f"`qn.{intrinsic.name}` takes a shape and a type", f"write `qn.{intrinsic.name}((32, 33), qn.f32)`"
        )
    shape = _shape(lowering, node, intrinsic, arguments[0])
    element = type_that(lowering, arguments[1], node.args[1], f"the second argument of `qn.{intrinsic.name}`")
    lowering.allocate(nodes.Alloc(name=name, space=space, element=element, shape=shape, loc=lowering.where(node)))
    return ArrayValue(Root(RootKind(space.value), name), ArrayType(element, len(shape)), shape, space)


def _shape(lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic, value: Value) -> tuple[int, ...]:
    items = value.items if isinstance(value, TupleValue) else (value,)
    shape = []
    for item in items:
        known = item.constant if isinstance(item, Scalar) else None
        if not isinstance(known, int) or isinstance(known, bool):
            raise lowering.refuse.type(
                node.args[0],
                f"the shape of `qn.{intrinsic.name}` must be constant integers",
                "use literals, captured constants or `qn.Const` parameters",
            )
        shape.append(known)
    num_elements = 1
    for length in shape:
        num_elements *= max(length, 0)
    if not 0 < num_elements < _MAX_ELEMENTS:
        raise lowering.refuse.type(
            node.args[0], f"an array of shape {tuple(shape)} cannot be allocated", "use a positive length per axis"
        )
    return tuple(shape)
