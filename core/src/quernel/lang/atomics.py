"""Atomics: one element of an array read, changed and written without another thread in between."""

from __future__ import annotations

import ast
from typing import Final

from quernel import intrinsics
from quernel.dtypes import DType, ScalarType
from quernel.intrinsics import Intrinsic
from quernel.ir import nodes
from quernel.ir.nodes import AtomicOp, Space
from quernel.lang.conversions import as_scalar, stored
from quernel.lang.elements import Element, element_at, written_indices
from quernel.lang.lowering import FunctionLowering
from quernel.lang.values import ArrayValue, Scalar, Value, describe

__all__ = ["ATOMICS", "atomic"]

ATOMICS: Final[dict[Intrinsic, AtomicOp]] = {
    intrinsics.atomic.add: AtomicOp.ADD,
    intrinsics.atomic.sub: AtomicOp.SUB,
    intrinsics.atomic.min: AtomicOp.MIN,
    intrinsics.atomic.max: AtomicOp.MAX,
    intrinsics.atomic.and_: AtomicOp.AND,
    intrinsics.atomic.or_: AtomicOp.OR,
    intrinsics.atomic.xor: AtomicOp.XOR,
    intrinsics.atomic.exchange: AtomicOp.EXCHANGE,
    intrinsics.atomic.cas: AtomicOp.COMPARE_EXCHANGE,
}
_OF_BITS: Final = frozenset({AtomicOp.AND, AtomicOp.OR, AtomicOp.XOR})


def atomic(lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic, arguments: list[Value]) -> Scalar:
    """The old value of the element. Operands convert to the element's type, as where they are stored.

    Raises:
        KernelTypeError: no element of 32 or 64 bits, private memory, or operands that do not fit.
    """
    op = ATOMICS[intrinsic]
    name = f"qn.{intrinsic.name}"
    form = f"{name}(a, index, expected, desired)" if op is AtomicOp.COMPARE_EXCHANGE else f"{name}(a, index, value)"
    num_operands = 2 if op is AtomicOp.COMPARE_EXCHANGE else 1
    if len(arguments) != 2 + num_operands:
        raise lowering.refuse.type(
            node, f"`{name}` takes {2 + num_operands} arguments, not {len(arguments)}", f"write `{form}`"
        )
    array = arguments[0]
    if not isinstance(array, ArrayValue):
        raise lowering.refuse.type(
            node.args[0], f"`{name}` changes an element of an array, not {describe(array)}", f"write `{form}`"
        )
    written = written_indices(lowering, node, node.args[1])
    element = element_at(lowering, node, node.args[0], array, written, [arguments[1]])
    dtype = _checked(lowering, node, op, array, element)
    operands = tuple(
        stored(lowering, as_scalar(lowering, value, at, f"an operand of `{name}`"), dtype, at)
        for value, at in zip(arguments[2:], node.args[2:], strict=True)
    )
    old = lowering.scope.temporary(dtype)
    loc = lowering.where(node)
    place = element.place(lowering, node)
    lowering.emit(nodes.Atomic(op=op, place=place, operands=operands, result=old, loc=loc))
    lowering.num_calls += 1
    return Scalar(ScalarType(dtype), nodes.Local(name=old, type=dtype, loc=loc))


def _checked(lowering: FunctionLowering, node: ast.Call, op: AtomicOp, array: ArrayValue, element: Element) -> DType:
    dtype = element.type
    name = ast.unparse(node.args[0])
    if array.space is Space.PRIVATE:
        raise lowering.refuse.type(
            node.args[0], f"`{name}` is private to a thread, and needs no atomics", f"write `{name}[…] += …`"
        )
    if not isinstance(dtype, DType) or dtype.is_bool or dtype.bits < 32:
        raise lowering.refuse.type(
            node.args[0],
            f"atomics work on elements of 32 and 64 bits, and `{name}` is {array.type}",
            "use an array of i32, u32, i64, u64, f32 or f64",
        )
    if dtype.is_float and op in _OF_BITS:
        raise lowering.refuse.type(
            node.args[0], f"bitwise atomics work on integers, and `{name}` is {array.type}", "use an array of integers"
        )
    return dtype
