"""Values of the threads that run together: one operand for all of them, or one for each row, a scalar or a vector."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from quernel.dtypes import DType, bool_, i64
from quernel.ir.nodes import BinaryOp
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.shapes import UNIFORM, Lanes, Layout
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import register_type, splat, wide

__all__ = ["LaneArithmetic", "Value", "index_sum", "uniform"]


@attrs.frozen
class Value:
    """A value of all threads.

    Attributes:
        layout: how it lies. Of a linear value the operands are those of the first lane.
        parts: one operand, or one for each row if rows differ.
    """

    layout: Layout
    parts: tuple[str, ...]

    def part(self, row: int) -> str:
        """The operand of a row."""
        return self.parts[row if self.layout.rows else 0]

    @property
    def is_vector(self) -> bool:
        """Whether the operands are vectors."""
        return self.layout.lanes is Lanes.VECTOR


def uniform(operand: str) -> Value:
    """One number for all threads."""
    return Value(UNIFORM, (operand,))


Operation = Callable[..., str]
"""`operation(arithmetic, *operands)`: one operator on the operands of one row."""


class LaneArithmetic:
    """Operators on values of all threads, in scalar code where lanes agree."""

    def __init__(self, unit: Unit, code: Code, width: int, rows: int, *, fast_math: bool) -> None:
        self.width = width
        self.rows = rows
        self.scalar = Arithmetic(unit, code, fast_math=fast_math)
        self.vector = Arithmetic(unit, code, fast_math=fast_math, lanes=width)
        self._code = code

    def rows_of(self, layout: Layout) -> range:
        """The numbers of the operands of a value of this layout."""
        return range(self.rows if layout.rows else 1)

    def operate(self, layout: Layout, operation: Operation, *operands: tuple[Value, DType]) -> Value:
        """An operator's result, in the layout that `shapes.combined` says."""
        if layout.lanes is Lanes.VECTOR:
            values = [self.vectors(value, dtype) for value, dtype in operands]
            arithmetic = self.vector
        else:
            values = [value for value, _ in operands]
            arithmetic = self.scalar
        parts = (operation(arithmetic, *[value.part(row) for value in values]) for row in self.rows_of(layout))
        return Value(layout, tuple(parts))

    def vectors(self, value: Value, dtype: DType) -> Value:
        """The value as vectors."""
        if value.is_vector:
            return value
        layout = Layout(Lanes.VECTOR, 0, value.layout.rows)
        parts = tuple(self._vector(part, dtype, value.layout.stride) for part in value.parts)
        return Value(layout, parts)

    def _vector(self, operand: str, dtype: DType, stride: int) -> str:
        llvm = register_type(dtype)
        if not operand.startswith("%"):
            first = splat(llvm, operand, self.width)
        else:
            first = self.broadcast(operand, llvm)
        if stride == 0:
            return first
        vector = wide(llvm, self.width)
        return self._code.value(f"add {vector} {first}, {self.steps(llvm, stride)}")

    def broadcast(self, operand: str, llvm: str) -> str:
        """A scalar in every lane."""
        vector = wide(llvm, self.width)
        one = self._code.value(f"insertelement {vector} poison, {llvm} {operand}, i64 0")
        lanes = f"<{self.width} x i32> zeroinitializer"
        return self._code.value(f"shufflevector {vector} {one}, {vector} poison, {lanes}")

    def steps(self, llvm: str, stride: int) -> str:
        """The vector of 0, `stride`, 2 · `stride`, …, as a literal."""
        bits = int(llvm[1:])
        numbers = (_wrapped(lane * stride, bits) for lane in range(self.width))
        return f"<{', '.join(f'{llvm} {number}' for number in numbers)}>"

    # --- masks --------------------------------------------------------------------------------------------------------

    def both(self, left: Value | None, right: Value | None) -> Value | None:
        """The lanes that are on in both masks; `None` has all on."""
        if left is None or right is None:
            return left or right
        layout = Layout(Lanes.VECTOR, 0, left.layout.rows or right.layout.rows)
        return self.operate(layout, _and, (left, bool_), (right, bool_))

    def without(self, mask: Value, gone: Value | None) -> Value:
        """The lanes of a mask that are not in another."""
        if gone is None:
            return self.everywhere(mask, "false")
        layout = Layout(Lanes.VECTOR, 0, mask.layout.rows or gone.layout.rows)
        return self.operate(layout, _and_not, (mask, bool_), (gone, bool_))

    def everywhere(self, like: Value, literal: str) -> Value:
        """A mask with every lane alike."""
        return Value(like.layout, (splat("i1", literal, self.width),) * len(like.parts))

    def complement(self, mask: Value) -> Value:
        """The lanes that are off in a mask."""
        return self.operate(mask.layout, lambda arithmetic, x: arithmetic.inverted(x), (mask, bool_))

    def any_of(self, mask: Value) -> str:
        """Whether a lane is on in any row, as an `i1`."""
        together = mask.parts[0]
        for part in mask.parts[1:]:
            together = self._code.value(f"or <{self.width} x i1> {together}, {part}")
        return self.any_lane(together)

    def all_of(self, mask: Value) -> str:
        """Whether every lane is on in all rows, as an `i1`."""
        together = mask.parts[0]
        for part in mask.parts[1:]:
            together = self._code.value(f"and <{self.width} x i1> {together}, {part}")
        return self._code.value(f"icmp eq i{self.width} {self.bits(together)}, -1")

    def any_lane(self, part: str) -> str:
        """Whether a lane of one row is on, as an `i1`."""
        return self._code.value(f"icmp ne i{self.width} {self.bits(part)}, 0")

    def bits(self, part: str) -> str:
        """A row's mask as an integer, the first lane in the lowest bit."""
        return self._code.value(f"bitcast <{self.width} x i1> {part} to i{self.width}")

    # --- indices ------------------------------------------------------------------------------------------------------

    def sum(self, left: Value, right: Value) -> Value:
        """The sum of two i64, neither a vector."""
        if left.parts == ("0",):
            return right
        if right.parts == ("0",):
            return left
        layout = Layout(
            Lanes.LINEAR if left.layout.stride + right.layout.stride else Lanes.UNIFORM,
            left.layout.stride + right.layout.stride,
            left.layout.rows or right.layout.rows,
        )
        return self.operate(layout, index_sum, (left, i64), (right, i64))

    def product(self, value: Value, factor: str) -> Value:
        """A uniform i64 times a number."""
        if factor == "1" or value.parts == ("0",):
            return value
        return self.operate(value.layout, _product, (value, i64), (uniform(factor), i64))


def _and(arithmetic: Arithmetic, left: str, right: str) -> str:
    return arithmetic.binary(BinaryOp.AND, bool_, left, right)


def _and_not(arithmetic: Arithmetic, left: str, right: str) -> str:
    return arithmetic.binary(BinaryOp.AND, bool_, left, arithmetic.inverted(right))


def index_sum(arithmetic: Arithmetic, left: str, right: str) -> str:
    """The sum of two indices."""
    return arithmetic.binary(BinaryOp.ADD, i64, left, right)


def _product(arithmetic: Arithmetic, left: str, right: str) -> str:
    return arithmetic.binary(BinaryOp.MUL, i64, left, right)


def _wrapped(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number
