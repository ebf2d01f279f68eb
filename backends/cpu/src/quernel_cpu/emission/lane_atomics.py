"""Atomics of all threads: lane after lane, or all at once where they update one number and nobody asks for the old one.

What a block shares is seen by one worker only, so an update of it is a load and a store. Those stand one behind the
other without a branch: a lane that is off updates a spare element.
"""

from __future__ import annotations

from collections.abc import Callable

from quernel.dtypes import DType
from quernel.ir.nodes import AtomicOp
from quernel_cpu.emission.atomics import emit_atomic, emit_plain_atomic
from quernel_cpu.emission.lane_memory import LaneMemory, Offset
from quernel_cpu.emission.lane_values import LaneArithmetic, Value, uniform
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import register_type, type_suffix, wide

__all__ = ["LaneAtomics"]

_FOLDS = {
    AtomicOp.ADD: "add",
    AtomicOp.SUB: "add",
    AtomicOp.MIN: "min",
    AtomicOp.MAX: "max",
    AtomicOp.AND: "and",
    AtomicOp.OR: "or",
    AtomicOp.XOR: "xor",
}


class LaneAtomics:
    """Writes atomics into the code of one function."""

    def __init__(self, unit: Unit, code: Code, lanes: LaneArithmetic, memory: LaneMemory) -> None:
        self._unit = unit
        self._code = code
        self._lanes = lanes
        self._memory = memory

    def emit(
        self,
        op: AtomicOp,
        dtype: DType,
        pointer: str,
        offset: Offset,
        operands: tuple[Value, ...],
        mask: Value | None,
        *,
        is_own: bool,
        is_asked: bool,
    ) -> tuple[str, ...]:
        """The operation; the old values as a vector for each row, if they are asked for. `is_own`: no other worker sees
        the memory."""
        emit = emit_plain_atomic if is_own else emit_atomic

        def one(address: str, values: tuple[str, ...]) -> str:
            return emit(self._code, self._lanes.scalar, op, dtype, address, values)

        vectors = tuple(self._lanes.vectors(operand, dtype) for operand in operands)
        results: list[str] = []
        for row in range(self._lanes.rows):
            on = None if mask is None else mask.part(row)
            if offset.is_uniform and not is_asked and dtype.is_integer and op in _FOLDS:
                self._together(op, dtype, pointer, offset, vectors[0].part(row), on, row, one)
                continue
            addresses = self._memory.addresses(dtype, pointer, offset, row)
            parts = tuple(vector.part(row) for vector in vectors)
            if on is None or is_own:
                results.append(self._in_line(dtype, addresses, parts, on, one, is_asked=is_asked))
            else:
                results.append(self._in_turn(dtype, addresses, parts, on, one, is_asked=is_asked))
        return tuple(results)

    def _together(
        self,
        op: AtomicOp,
        dtype: DType,
        pointer: str,
        offset: Offset,
        values: str,
        on: str | None,
        row: int,
        one: Callable[[str, tuple[str, ...]], str],
    ) -> None:
        """What the lanes of a row bring, folded, and one update with it."""
        code, vector, llvm = self._code, wide(register_type(dtype), self._lanes.width), register_type(dtype)
        inside, done = code.label("on"), code.label("on.end")
        if on is not None:
            code.branch_if(self._lanes.any_lane(on), inside, done)
            code.place(inside)
            nothing = "0"
            if _FOLDS[op] in ("min", "max", "and", "or"):  # What some lane brings twice changes nothing.
                nothing = code.value(f"extractelement {vector} {values}, i64 {self._memory.first_lane(on)}")
            other = self._lanes.vectors(uniform(nothing), dtype).part(0)
            values = self._lanes.vector.select(on, vector, values, other)
        name = _FOLDS[op]
        if name in ("min", "max"):
            name = f"{'s' if dtype.is_signed else 'u'}{name}"
        symbol = self._unit.declare(llvm, f"llvm.vector.reduce.{name}.{type_suffix(vector)}", vector)
        one(
            self._memory.row_address(dtype, pointer, offset, row),
            (code.value(f"call {llvm} {symbol}({vector} {values})"),),
        )
        if on is not None:
            code.place(done)

    def _in_line(
        self,
        dtype: DType,
        addresses: str,
        parts: tuple[str, ...],
        on: str | None,
        one: Callable[[str, tuple[str, ...]], str],
        *,
        is_asked: bool,
    ) -> str:
        """All lanes, one behind the other."""
        code, width, llvm = self._code, self._lanes.width, register_type(dtype)
        pointers, vector = f"<{width} x ptr>", wide(llvm, width)
        if on is not None:
            spare = self._lanes.broadcast(self._memory.spare_element(), "ptr")
            addresses = self._lanes.vector.select(on, pointers, addresses, spare)
        old = "zeroinitializer"
        for lane in range(width):
            address = code.value(f"extractelement {pointers} {addresses}, i64 {lane}")
            before = one(address, tuple(code.value(f"extractelement {vector} {part}, i64 {lane}") for part in parts))
            if is_asked:
                old = code.value(f"insertelement {vector} {old}, {llvm} {before}, i64 {lane}")
        return old

    def _in_turn(
        self,
        dtype: DType,
        addresses: str,
        parts: tuple[str, ...],
        on: str,
        one: Callable[[str, tuple[str, ...]], str],
        *,
        is_asked: bool,
    ) -> str:
        """The lanes that are on, in a loop."""
        code, width, llvm = self._code, self._lanes.width, register_type(dtype)
        vector = wide(llvm, width)
        kept = code.allocate(vector) if is_asked else ""
        if is_asked:
            code.do(f"store {vector} zeroinitializer, ptr {kept}")

        def lane_of(lane: str) -> None:
            address = code.value(f"extractelement <{width} x ptr> {addresses}, i64 {lane}")
            before = one(address, tuple(code.value(f"extractelement {vector} {part}, i64 {lane}") for part in parts))
            if is_asked:
                others = code.value(f"load {vector}, ptr {kept}")
                old = code.value(f"insertelement {vector} {others}, {llvm} {before}, i64 {lane}")
                code.do(f"store {vector} {old}, ptr {kept}")

        self._memory.each_lane(on, lane_of)
        return code.value(f"load {vector}, ptr {kept}") if is_asked else ""
