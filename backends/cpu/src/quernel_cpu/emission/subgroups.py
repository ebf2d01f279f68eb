"""Operations among the threads of a subgroup, which are the lanes of one row.

The last subgroup of a block may be partial: its lanes are then the first ones, those of the mask. A lane that the
subgroup does not have gives a thread its own value; `scan` is the inclusive sum.
"""

from __future__ import annotations

from typing import assert_never

from quernel.dtypes import DType, bool_, i64
from quernel.ir.nodes import BinaryOp, SubgroupOp
from quernel_cpu.emission.lane_memory import LaneMemory, Offset
from quernel_cpu.emission.lane_values import LaneArithmetic, Value, uniform
from quernel_cpu.emission.shapes import VECTOR
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import memory_type, register_type, splat, type_suffix, wide, zero

__all__ = ["SubgroupEmitter"]

_FOLDED = {SubgroupOp.SUM: BinaryOp.ADD, SubgroupOp.MIN: BinaryOp.MIN, SubgroupOp.MAX: BinaryOp.MAX}


class SubgroupEmitter:
    """Writes subgroup operations into the code of one function."""

    def __init__(self, unit: Unit, code: Code, lanes: LaneArithmetic, memory: LaneMemory) -> None:
        self._unit = unit
        self._code = code
        self._lanes = lanes
        self._memory = memory
        self._width = lanes.width

    def emit(self, op: SubgroupOp, dtype: DType, values: tuple[Value, ...], lane_type: DType, on: str | None) -> Value:
        """The operation on values of `dtype`; a lane's number, where there is one, is of `lane_type`."""
        x = self._lanes.vectors(values[0], dtype).part(0)
        match op:
            case SubgroupOp.ANY:
                return uniform(self._lanes.any_lane(self._where(x, on)))
            case SubgroupOp.ALL:
                fails = self._where(self._lanes.vector.inverted(x), on)
                return uniform(self._lanes.scalar.inverted(self._lanes.any_lane(fails)))
            case SubgroupOp.BALLOT:
                bits = self._lanes.bits(self._where(x, on))
                return uniform(bits if self._width == 64 else self._code.value(f"zext i{self._width} {bits} to i64"))
            case SubgroupOp.SUM | SubgroupOp.MIN | SubgroupOp.MAX:
                return uniform(self._folded(_FOLDED[op], dtype, x, on))
            case SubgroupOp.SCAN:
                return Value(VECTOR, (self._scanned(dtype, x),))
            case SubgroupOp.BROADCAST:
                moved = self._moved(dtype, x, self._source(op, values[1], lane_type), on)
                return uniform(self._element(dtype, moved, 0))
            case SubgroupOp.SHUFFLE | SubgroupOp.SHUFFLE_XOR | SubgroupOp.SHUFFLE_UP | SubgroupOp.SHUFFLE_DOWN:
                return Value(VECTOR, (self._moved(dtype, x, self._source(op, values[1], lane_type), on),))
            case _:
                assert_never(op)

    def _where(self, x: str, on: str | None) -> str:
        return x if on is None else self._code.value(f"and <{self._width} x i1> {x}, {on}")

    def _element(self, dtype: DType, vector: str, lane: int) -> str:
        return self._code.value(f"extractelement {self._lanes.vector.type(dtype)} {vector}, i64 {lane}")

    def _folded(self, op: BinaryOp, dtype: DType, x: str, on: str | None) -> str:
        """All lanes' values, folded: as a tree where the order cannot be told, else from the first lane on."""
        vector = self._lanes.vector.type(dtype)
        if dtype.is_integer:
            if on is not None:
                # Lanes that are not there bring what changes nothing: zero, or what the first lane brings.
                neutral = zero(dtype) if op is BinaryOp.ADD else self._element(dtype, x, 0)
                other = self._lanes.vectors(uniform(neutral), dtype).part(0)
                x = self._lanes.vector.select(on, vector, x, other)
            name = op.value if op is BinaryOp.ADD else f"{'s' if dtype.is_signed else 'u'}{op.value}"
            result = register_type(dtype)
            symbol = self._unit.declare(result, f"llvm.vector.reduce.{name}.{type_suffix(vector)}", vector)
            return self._code.value(f"call {result} {symbol}({vector} {x})")
        folded = self._element(dtype, x, 0)
        for lane in range(1, self._width):
            following = self._lanes.scalar.binary(op, dtype, folded, self._element(dtype, x, lane))
            if on is not None:
                is_on = self._element(bool_, on, lane)
                following = self._lanes.scalar.select(is_on, register_type(dtype), following, folded)
            folded = following
        return folded

    def _scanned(self, dtype: DType, x: str) -> str:
        """Sums of neighbours one, two, four … lanes away; lanes that are not there come last and touch no other."""
        vector = self._lanes.vector.type(dtype)
        nothing = splat(register_type(dtype), zero(dtype), self._width)
        distance = 1
        while distance < self._width:
            order = [self._width if lane < distance else lane - distance for lane in range(self._width)]
            listed = ", ".join(f"i32 {lane}" for lane in order)
            before = self._code.value(
                f"shufflevector {vector} {x}, {vector} {nothing}, <{self._width} x i32> <{listed}>"
            )
            total = self._lanes.vector.binary(BinaryOp.ADD, dtype, x, before)
            order = [lane if lane < distance else lane + self._width for lane in range(self._width)]
            listed = ", ".join(f"i32 {lane}" for lane in order)
            x = self._code.value(f"shufflevector {vector} {x}, {vector} {total}, <{self._width} x i32> <{listed}>")
            distance *= 2
        return x

    def _source(self, op: SubgroupOp, operand: Value, lane_type: DType) -> str:
        """The lane that each lane asks for, as i64."""
        own = self._lanes.steps("i64", 1)
        asked = self._lanes.vectors(operand, lane_type).part(0)
        asked = self._lanes.vector.cast(lane_type, i64, asked)
        match op:
            case SubgroupOp.SHUFFLE_XOR:
                return self._lanes.vector.binary(BinaryOp.XOR, i64, own, asked)
            case SubgroupOp.SHUFFLE_UP:
                return self._lanes.vector.binary(BinaryOp.SUB, i64, own, asked)
            case SubgroupOp.SHUFFLE_DOWN:
                return self._lanes.vector.binary(BinaryOp.ADD, i64, own, asked)
            case _:
                return asked

    def _moved(self, dtype: DType, x: str, source: str, on: str | None) -> str:
        """What each lane asks for, by way of memory; its own value where there is no such lane."""
        arithmetic, own = self._lanes.vector, self._lanes.steps("i64", 1)
        indices = wide("i64", self._width)
        count = str(self._width)
        if on is not None:
            narrow = f"i{self._width}"
            ones = self._unit.declare(narrow, f"llvm.ctpop.{narrow}", narrow)
            count = self._code.value(f"call {narrow} {ones}({narrow} {self._lanes.bits(on)})")
            if self._width < 64:
                count = self._code.value(f"zext {narrow} {count} to i64")
        limit = self._lanes.vectors(uniform(count), i64).part(0)
        is_there = self._code.value(f"icmp ult {indices} {source}, {limit}")
        chosen = arithmetic.select(is_there, indices, source, own)
        kept = self._code.allocate(f"[{self._width} x {memory_type(dtype)}]", 64)
        row = Offset(uniform("0"), 1, None)
        self._memory.store(dtype, kept, row, Value(VECTOR, (x,)), None)
        return self._memory.load(dtype, kept, Offset(uniform("0"), 0, Value(VECTOR, (chosen,))), None).part(0)
