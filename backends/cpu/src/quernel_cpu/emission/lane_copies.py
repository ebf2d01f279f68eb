"""Many parts of elements that lie anywhere, copied by each lane that is on.

A gather or scatter for each part becomes two blocks for each lane where processors have no such instruction, and LLVM's
time grows faster than the blocks do: 70 fields of two structs took it ten seconds. So each lane that is on copies its
parts to, or from, where those of all lanes lie side by side, which are vectors: a loop, whatever the number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quernel.dtypes import u8
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.lane_memory import LaneMemory, Offset
from quernel_cpu.emission.lane_values import LaneArithmetic, Value
from quernel_cpu.emission.leaves import Leaf, Part, leaf_alignment
from quernel_cpu.emission.shapes import Lanes, Layout
from quernel_cpu.emission.text import Code
from quernel_cpu.emission.values import memory_type, scalar, wide

__all__ = ["FEWEST_COPIED", "FEWEST_COPIED_WITH_MASKS", "LaneCopies"]

FEWEST_COPIED = 12
"""So many parts of one element are copied where every lane is on; fewer are gathered and scattered."""
FEWEST_COPIED_WITH_MASKS = 2
"""The same where lanes may be off: a part takes a branch for each lane, which are guessed wrong where masks vary."""


class LaneCopies:
    """Writes copies into the code of one function."""

    def __init__(self, code: Code, lanes: LaneArithmetic, memory: LaneMemory) -> None:
        self._code = code
        self._lanes = lanes
        self._memory = memory
        self._slots: dict[tuple[str, int], str] = {}

    def load(self, array: ArrayOperands, parts: list[Part], offset: Offset, mask: Value | None) -> list[Value]:
        """Parts of the element that each thread that is on means; zeros in the others."""
        if mask is not None and mask.layout.rows and not offset.rows:
            mask = Value(Layout(Lanes.VECTOR), (self._memory.any_row(mask),))
        code, arithmetic = self._code, self._lanes.vector
        slots = self._slots_of(parts)
        found: list[list[str]] = [[] for _ in parts]
        for row in self._lanes.rows_of(Layout(rows=offset.rows)):
            if mask is not None:
                for slot, part in zip(slots, parts, strict=True):
                    code.do(f"store {self._vector(part)} zeroinitializer, ptr {slot}")

            def copy(place: str, own: str, llvm: str, alignment: int) -> None:
                code.do(f"store {llvm} {code.value(f'load {llvm}, ptr {place}, align {alignment}')}, ptr {own}")

            self._each_part(array, zip(parts, slots, strict=True), offset, mask, row, copy)
            for operands, slot, part in zip(found, slots, parts, strict=True):
                loaded = code.value(f"load {self._vector(part)}, ptr {slot}")
                operands.append(arithmetic.from_memory(scalar(part.type), loaded))
        return [Value(Layout(Lanes.VECTOR, 0, offset.rows), tuple(operands)) for operands in found]

    def store(self, array: ArrayOperands, given: list[tuple[Part, Value]], offset: Offset, mask: Value | None) -> None:
        """Writes parts of the element of each thread that is on; where several mean one, the last one's are left."""
        code, arithmetic = self._code, self._lanes.vector
        parts = [part for part, _ in given]
        slots = self._slots_of(parts)
        vectors = [self._lanes.vectors(value, scalar(part.type)) for part, value in given]
        rows = offset.rows or (mask is not None and mask.layout.rows) or any(each.layout.rows for each in vectors)
        for row in self._lanes.rows_of(Layout(rows=rows)):
            for slot, part, value in zip(slots, parts, vectors, strict=True):
                stored = arithmetic.to_memory(scalar(part.type), value.part(row))
                code.do(f"store {self._vector(part)} {stored}, ptr {slot}")

            def copy(place: str, own: str, llvm: str, alignment: int) -> None:
                code.do(f"store {llvm} {code.value(f'load {llvm}, ptr {own}')}, ptr {place}, align {alignment}")

            self._each_part(array, zip(parts, slots, strict=True), offset, mask, row, copy)

    def _each_part(
        self,
        array: ArrayOperands,
        parts: Iterable[tuple[Part, str]],
        offset: Offset,
        mask: Value | None,
        row: int,
        copy: Callable[[str, str, str, int], None],
    ) -> None:
        """Copies the parts of each lane of a row that is on: `copy(place, own, llvm, alignment)`, of the place."""
        code, element = self._code, array.element
        located = self._elements(array, offset, row)

        def lane(number: str) -> None:
            address = located(number)
            for part, slot in parts:
                dtype = scalar(part.type)
                alignment = leaf_alignment(element, Leaf(dtype, part.offset_bytes), part.offset_bytes)
                llvm = memory_type(dtype)
                place = code.value(f"getelementptr i8, ptr {address}, i64 {part.offset_bytes}")
                copy(place, code.value(f"getelementptr {llvm}, ptr {slot}, i64 {number}"), llvm, alignment)

        self._memory.each_lane(None if mask is None else mask.part(row), lane)

    def _elements(self, array: ArrayOperands, offset: Offset, row: int) -> Callable[[str], str]:
        """What gives the address of a lane's element."""
        code = self._code
        bytes_away = self._memory.in_units(offset, array.element.itemsize, 0)
        if offset.vector is None:
            first = self._memory.row_address(u8, array.pointer, bytes_away, row)

            def at(lane: str) -> str:
                away = code.value(f"mul i64 {lane}, {bytes_away.stride}")
                return code.value(f"getelementptr i8, ptr {first}, i64 {away}")

            return at
        slot = self._slot(wide("ptr", self._lanes.width), -1)
        addresses = self._memory.addresses(u8, array.pointer, bytes_away, row)
        code.do(f"store {wide('ptr', self._lanes.width)} {addresses}, ptr {slot}")
        return lambda lane: code.value(f"load ptr, ptr {code.value(f'getelementptr ptr, ptr {slot}, i64 {lane}')}")

    # --- where the parts of all lanes lie -----------------------------------------------------------------------------

    def _vector(self, part: Part) -> str:
        return wide(memory_type(scalar(part.type)), self._lanes.width)

    def _slots_of(self, parts: list[Part]) -> list[str]:
        return [self._slot(self._vector(part), number) for number, part in enumerate(parts)]

    def _slot(self, vector: str, number: int) -> str:
        if (vector, number) not in self._slots:
            self._slots[vector, number] = self._code.allocate(vector)
        return self._slots[vector, number]
