"""Reductions and scans of a block, spelled out in shared memory and barriers.

Each thread writes its value at its place in the row-major block. A reduction folds halves onto each other, whatever the
block's size, so the order in which it combines values depends on that size alone. All threads read the result at one
place, and so it is uniform. The last barrier lets the memory be used again.
"""

from __future__ import annotations

import ast
import math
from typing import Final

import attrs

from quernel import intrinsics
from quernel.dtypes import DType, ScalarType, i64
from quernel.geometry import LaunchForm
from quernel.intrinsics import Intrinsic
from quernel.ir import nodes
from quernel.ir.nodes import BinaryOp, CompareOp, IndexKind, Root, RootKind, Space
from quernel.lang.blocks import needs_blocks
from quernel.lang.constants import literal
from quernel.lang.conversions import as_scalar, cast, truth
from quernel.lang.lowering import FunctionLowering
from quernel.lang.promotion import widened
from quernel.lang.values import Scalar, Value
from quernel.locations import Location

__all__ = ["COLLECTIVES", "collective"]

_COMBINE: Final[dict[Intrinsic, BinaryOp]] = {
    intrinsics.block.sum: BinaryOp.ADD,
    intrinsics.block.min: BinaryOp.MIN,
    intrinsics.block.max: BinaryOp.MAX,
    intrinsics.block.any: BinaryOp.OR,
    intrinsics.block.all: BinaryOp.AND,
    intrinsics.block.scan: BinaryOp.ADD,
}
COLLECTIVES: Final = frozenset(_COMBINE)
_OF_TRUTH: Final = frozenset({intrinsics.block.any, intrinsics.block.all})
_OF_SUMS: Final = frozenset({intrinsics.block.sum, intrinsics.block.scan})


def collective(lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic, arguments: list[Value]) -> Scalar:
    """An operation of `qn.block`. Sums and scans compute as arithmetic does; a scan includes the thread itself.

    Raises:
        KernelSyntaxError: the launch has no blocks.
        KernelTypeError: not one number.
    """
    if lowering.unit.form is LaunchForm.OVER:
        raise needs_blocks(lowering, node, intrinsic)
    name = f"qn.{intrinsic.name}"
    if len(arguments) != 1:
        raise lowering.refuse.type(node, f"`{name}` takes one value", f"write `{name}(x)`")
    value = as_scalar(lowering, arguments[0], node.args[0])
    if intrinsic in _OF_TRUTH:
        value = truth(lowering, value, node)
    dtype = widened(value.dtype) if intrinsic in _OF_SUMS else value.dtype
    expr = lowering.expr(cast(lowering, value, dtype, node), node)
    writer = _Writer(lowering, dtype, lowering.where(node), _COMBINE[intrinsic])
    result = writer.scan(expr) if intrinsic is intrinsics.block.scan else writer.reduce(expr)
    lowering.num_calls += 1
    return Scalar(ScalarType(dtype), result)


@attrs.frozen
class _Writer:
    """Writes one collective."""

    lowering: FunctionLowering
    dtype: DType
    loc: Location
    combine: BinaryOp

    def reduce(self, value: nodes.Expr) -> nodes.Local:
        """`value` of all threads combined, in a local."""
        buffer, thread, size = self._start(value)
        distance = self._held(_constant(_half_of(size), self.loc), i64)
        partner = _binary(BinaryOp.ADD, thread, distance, self.loc)
        is_first = _compare(CompareOp.LT, thread, distance, self.loc)
        has_partner = _compare(CompareOp.LT, partner, _constant(size, self.loc), self.loc)
        combined = _binary(self.combine, self._load(buffer, thread), self._load(buffer, partner), self.loc)
        step = (
            nodes.If(
                condition=_binary(BinaryOp.AND, is_first, has_partner, self.loc),
                then=(self._store(buffer, thread, combined),),
                loc=self.loc,
            ),
            nodes.Barrier(loc=self.loc),
            nodes.Assign(
                name=distance.name,
                value=_binary(BinaryOp.SHR, distance, _constant(1, self.loc), self.loc),
                loc=self.loc,
            ),
        )
        self._repeat(step, size)
        return self._finish(self._load(buffer, _constant(0, self.loc)))

    def scan(self, value: nodes.Expr) -> nodes.Local:
        """The sum of `value` of this thread and of those before it, in a local."""
        buffer, thread, size = self._start(value)
        distance = self._held(_constant(1, self.loc), i64)
        own = self._held(self._load(buffer, thread), self.dtype)
        before = _binary(BinaryOp.SUB, thread, distance, self.loc)
        combined = _binary(self.combine, self._load(buffer, before), own, self.loc)
        doubled = _binary(BinaryOp.SHL, distance, _constant(1, self.loc), self.loc)
        step = (
            nodes.If(
                condition=_compare(CompareOp.GE, thread, distance, self.loc),
                then=(nodes.Assign(name=own.name, value=combined, loc=self.loc),),
                loc=self.loc,
            ),
            nodes.Barrier(loc=self.loc),
            self._store(buffer, thread, own),
            nodes.Barrier(loc=self.loc),
            nodes.Assign(name=distance.name, value=doubled, loc=self.loc),
        )
        self._repeat(step, size)
        return own

    def _start(self, value: nodes.Expr) -> tuple[Root, nodes.Local, int]:
        """Every thread's value in shared memory, at the place of the thread."""
        size = math.prod(self.lowering.unit.block)
        thread = self._held(self._thread(), i64)
        buffer = self._buffer(size)
        self.lowering.emit(self._store(buffer, thread, value))
        self.lowering.emit(nodes.Barrier(loc=self.loc))
        return buffer, thread, size

    def _finish(self, value: nodes.Expr) -> nodes.Local:
        result = self._held(value, self.dtype)
        self.lowering.emit(nodes.Barrier(loc=self.loc))
        return result

    def _repeat(self, step: tuple[nodes.Stmt, ...], size: int) -> None:
        """`step` as often as the block can be halved."""
        num_steps = (size - 1).bit_length()
        number = self.lowering.scope.temporary(i64)
        zero, one, stop = (_constant(known, self.loc) for known in (0, 1, num_steps))
        self.lowering.emit(nodes.For(variable=number, start=zero, stop=stop, step=one, body=step, loc=self.loc))

    def _thread(self) -> nodes.Expr:
        """The place of this thread in its block, by rows."""
        place: nodes.Expr = nodes.ThreadIndex(kind=IndexKind.LOCAL_ID, axis=0, loc=self.loc)
        for axis, length in list(enumerate(self.lowering.unit.block))[1:]:
            along = nodes.ThreadIndex(kind=IndexKind.LOCAL_ID, axis=axis, loc=self.loc)
            rows = _binary(BinaryOp.MUL, place, _constant(length, self.loc), self.loc)
            place = _binary(BinaryOp.ADD, rows, along, self.loc)
        return place

    def _buffer(self, size: int) -> Root:
        """The function's shared array for collectives of this type."""
        known = self.lowering.collective_buffers.get(self.dtype)
        if known is None:
            name = self.lowering.scope.fresh(f"block_{self.dtype}")
            self.lowering.allocate(
                nodes.Alloc(name=name, space=Space.SHARED, element=self.dtype, shape=(size,), loc=self.loc)
            )
            known = self.lowering.collective_buffers[self.dtype] = Root(RootKind.SHARED, name)
        return known

    def _held(self, value: nodes.Expr, type_: DType) -> nodes.Local:
        name = self.lowering.scope.temporary(type_)
        self.lowering.emit(nodes.Assign(name=name, value=value, loc=self.loc))
        return nodes.Local(name=name, type=type_, loc=self.loc)

    def _place(self, buffer: Root, index: nodes.Expr) -> nodes.Place:
        return nodes.Place(root=buffer, indices=(index,), type=self.dtype, loc=self.loc)

    def _load(self, buffer: Root, index: nodes.Expr) -> nodes.Load:
        return nodes.Load(place=self._place(buffer, index), loc=self.loc)

    def _store(self, buffer: Root, index: nodes.Expr, value: nodes.Expr) -> nodes.Store:
        return nodes.Store(place=self._place(buffer, index), value=value, loc=self.loc)


def _half_of(size: int) -> int:
    """The greatest power of two below `size`."""
    return 1 << max((size - 1).bit_length() - 1, 0)


def _constant(value: int, loc: Location) -> nodes.Const:
    return literal(value, i64, loc)


def _binary(op: BinaryOp, left: nodes.Expr, right: nodes.Expr, loc: Location) -> nodes.Binary:
    return nodes.Binary(op=op, left=left, right=right, loc=loc)


def _compare(op: CompareOp, left: nodes.Expr, right: nodes.Expr, loc: Location) -> nodes.Compare:
    return nodes.Compare(op=op, left=left, right=right, loc=loc)
