"""Vectors and structs in arrays, of all threads: each of their scalars is a value of its own.

Scalars of one element lie beside each other, those of neighbouring lanes an element apart. Where neighbours read or
write neighbouring elements of equal parts, the whole run of elements is moved by vector accesses and taken apart, or
put together, by shuffles: even from odd, and again, so that the parts of one element share the first of them. Every
part loads the same run, which LLVM loads once. Otherwise a part is a scalar at a stride, as in any array.
"""

from __future__ import annotations

import attrs

from quernel.dtypes import DType, ValueType
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.lane_memory import LaneMemory, Offset
from quernel_cpu.emission.lane_values import LaneArithmetic, Value
from quernel_cpu.emission.leaves import Leaf, Part, leaf_alignment, leaves
from quernel_cpu.emission.shapes import Lanes, Layout
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import memory_type, scalar, wide

__all__ = ["LaneParts"]

_MOST_SHUFFLED_PARTS = 8
"""Elements of more parts are gathered and scattered: a part takes as many loads and shuffles as there are."""


class LaneParts:
    """Writes accesses to elements of several scalars into the code of one function."""

    def __init__(self, unit: Unit, code: Code, lanes: LaneArithmetic, memory: LaneMemory) -> None:
        self._unit = unit
        self._code = code
        self._lanes = lanes
        self._memory = memory
        self._width = lanes.width

    def located(self, element: ValueType, part: Part, offset: Offset) -> Offset:
        """Where a part of an element lies, counted in scalars of its type, which is aligned."""
        size = scalar(part.type).itemsize
        return self._memory.in_units(offset, element.itemsize // size, part.offset_bytes // size)

    # --- loads --------------------------------------------------------------------------------------------------------

    def load(self, array: ArrayOperands, part: Part, offset: Offset, mask: Value | None) -> Value:
        """A part of the element that each thread means."""
        element, dtype = array.element, scalar(part.type)
        if not self._is_side_by_side(element, part, offset):
            memory, place = self._apart(element, part, offset)
            return memory.load(dtype, array.pointer, place, mask)
        if mask is not None and mask.layout.rows and not offset.rows:
            mask = Value(Layout(Lanes.VECTOR), (self._memory.any_row(mask),))
        number, found = part.offset_bytes // dtype.itemsize, []
        for row in self._lanes.rows_of(Layout(rows=offset.rows)):
            pieces = self._pieces(array, dtype, offset, None if mask is None else mask.part(row), row)
            taken = self._taken(f"i{dtype.itemsize * 8}", pieces, number)
            found.append(self._lanes.vector.from_memory(dtype, self._recast(taken, dtype, into_memory=False)))
        return Value(Layout(Lanes.VECTOR, 0, offset.rows), tuple(found))

    def _pieces(self, array: ArrayOperands, dtype: DType, offset: Offset, on: str | None, row: int) -> list[str]:
        """The elements of all lanes, as vectors of integers of a part's size."""
        run, code, width = self._run(array, dtype, offset, row), self._code, self._width
        vector, mask = wide(run.llvm, width), f"<{width} x i1>"
        pieces = []
        for number in range(run.num_parts):
            address = self._address(run, number)
            if on is None:
                pieces.append(code.value(f"load {vector}, ptr {address}, align {run.alignment}"))
                continue
            symbol = self._unit.declare(vector, f"llvm.masked.load.v{width}{run.llvm}.p0", "ptr", mask, vector)
            pieces.append(
                code.value(
                    f"call {vector} {symbol}(ptr align {run.alignment} {address}, {mask} "
                    f"{self._spread(on, run.num_parts, number)}, {vector} zeroinitializer)"
                )
            )
        return pieces

    def _taken(self, llvm: str, pieces: list[str], number: int) -> str:
        """Every so-manieth integer of the pieces, one behind the other, from `number` on."""
        count, width = len(pieces), self._width
        if count == 1:
            return pieces[0]
        if count % 2 == 0:
            order = [number % 2 + 2 * lane for lane in range(width)]
            halves = [self._shuffled(llvm, *pieces[at : at + 2], order) for at in range(0, count, 2)]
            return self._taken(llvm, halves, number // 2)
        wanted = [number + count * lane for lane in range(width)]
        return self._picked(llvm, pieces, wanted)

    def _picked(self, llvm: str, vectors: list[str], wanted: list[int]) -> str:
        """What stands at these places in vectors one behind the other."""
        width = self._width
        found = self._shuffled(llvm, *vectors[:2], [place if place < 2 * width else 0 for place in wanted])
        for number, vector in enumerate(vectors[2:], start=2):
            order = [
                width + place - number * width if number * width <= place < (number + 1) * width else lane
                for lane, place in enumerate(wanted)
            ]
            found = self._shuffled(llvm, found, vector, order)
        return found

    # --- stores -------------------------------------------------------------------------------------------------------

    def store(self, array: ArrayOperands, part: Part, offset: Offset, value: Value, mask: Value | None) -> None:
        """Writes a part of the element of each thread that is on."""
        memory, place = self._apart(array.element, part, offset)
        memory.store(scalar(part.type), array.pointer, place, value, mask)

    def store_several(
        self, array: ArrayOperands, whole: Part, offset: Offset, values: list[Value], mask: Value | None
    ) -> None:
        """Writes the element of each thread that is on, or a vector or struct in it: its scalars, in their order."""
        element = array.element
        parts = [Part(leaf.dtype, 0, whole.offset_bytes + leaf.offset_bytes) for leaf in leaves(whole.type)]
        is_run = whole.type == element and _is_filled(element) and self._is_side_by_side(element, parts[0], offset)
        if not is_run:
            for part, value in zip(parts, values, strict=True):
                self.store(array, part, offset, value, mask)
            return
        rows = offset.rows or any(value.layout.rows for value in values) or (mask is not None and mask.layout.rows)
        size = scalar(parts[0].type).itemsize
        llvm, dtype = f"i{size * 8}", scalar(parts[0].type)
        vectors = [self._lanes.vectors(value, scalar(part.type)) for part, value in zip(parts, values, strict=True)]
        for row in self._lanes.rows_of(Layout(rows=rows)):
            stored = [
                self._recast(self._lanes.vector.to_memory(leaf, vector.part(row)), leaf, into_memory=True)
                for leaf, vector in zip((scalar(part.type) for part in parts), vectors, strict=True)
            ]
            on = None if mask is None else mask.part(row)
            self._store_pieces(self._run(array, dtype, offset, row), self._woven(llvm, stored), on)

    def _store_pieces(self, run: _Run, pieces: list[str], on: str | None) -> None:
        code, width = self._code, self._width
        vector, mask = wide(run.llvm, width), f"<{width} x i1>"
        for number, piece in enumerate(pieces):
            address = self._address(run, number)
            if on is None:
                code.do(f"store {vector} {piece}, ptr {address}, align {run.alignment}")
                continue
            symbol = self._unit.declare("void", f"llvm.masked.store.v{width}{run.llvm}.p0", vector, "ptr", mask)
            spread = self._spread(on, run.num_parts, number)
            code.do(f"call void {symbol}({vector} {piece}, ptr align {run.alignment} {address}, {mask} {spread})")

    def _woven(self, llvm: str, parts: list[str]) -> list[str]:
        """The first of each part, then the second of each, and so on: the inverse of `_taken`."""
        count, width = len(parts), self._width
        if count == 1:
            return parts
        if count % 2:
            places = [[number * width + lane for lane in range(width)] for number in range(count)]
            return [
                self._picked(llvm, parts, [(place % count) * width + place // count for place in piece])
                for piece in places
            ]
        evens, odds = self._woven(llvm, parts[0::2]), self._woven(llvm, parts[1::2])
        woven = []
        for even, odd in zip(evens, odds, strict=True):
            for half in range(2):
                order = [(lane % 2) * width + half * width // 2 + lane // 2 for lane in range(width)]
                woven.append(self._shuffled(llvm, even, odd, order))
        return woven

    # --- runs of elements ---------------------------------------------------------------------------------------------

    def _is_side_by_side(self, element: ValueType, part: Part, offset: Offset) -> bool:
        """Whether neighbouring lanes mean neighbouring elements, which are so many scalars of the part's size."""
        size = scalar(part.type).itemsize
        return (
            offset.vector is None
            and offset.stride == 1
            and self._width > 1
            and _alignment(element, part) == size
            and element.itemsize <= _MOST_SHUFFLED_PARTS * size
        )

    def _apart(self, element: ValueType, part: Part, offset: Offset) -> tuple[LaneMemory, Offset]:
        """A part as a scalar of an array of them."""
        alignment = _alignment(element, part)
        if alignment == scalar(part.type).alignment:
            return self._memory, self.located(element, part, offset)
        packed = LaneMemory(self._unit, self._code, self._lanes, alignment)
        return packed, packed.in_units(offset, element.itemsize, part.offset_bytes)

    def _run(self, array: ArrayOperands, dtype: DType, offset: Offset, row: int) -> _Run:
        base, pointer = offset.base.part(row), array.pointer
        if base != "0":
            pointer = self._code.value(f"getelementptr [{array.element.itemsize} x i8], ptr {pointer}, i64 {base}")
        num_parts = array.element.itemsize // dtype.itemsize
        return _Run(pointer, f"i{dtype.itemsize * 8}", num_parts, dtype.alignment)

    def _address(self, run: _Run, number: int) -> str:
        if number == 0:
            return run.address
        return self._code.value(f"getelementptr {run.llvm}, ptr {run.address}, i64 {number * self._width}")

    def _spread(self, on: str, num_parts: int, number: int) -> str:
        """A mask of elements as one of their parts, for one piece of the run."""
        width = self._width
        return self._code.part(f"<{width} x i1>", on, [(number * width + lane) // num_parts for lane in range(width)])

    def _shuffled(self, llvm: str, left: str, right: str, order: list[int]) -> str:
        vector, listed = wide(llvm, self._width), ", ".join(f"i32 {lane}" for lane in order)
        return self._code.value(f"shufflevector {vector} {left}, {vector} {right}, <{self._width} x i32> <{listed}>")

    def _recast(self, operand: str, dtype: DType, *, into_memory: bool) -> str:
        """Between what memory holds of a type and an integer of its size."""
        number, memory = wide(f"i{dtype.itemsize * 8}", self._width), wide(memory_type(dtype), self._width)
        if number == memory:
            return operand
        given, wanted = (memory, number) if into_memory else (number, memory)
        return self._code.value(f"bitcast {given} {operand} to {wanted}")


@attrs.frozen
class _Run:
    """The elements of all lanes of a row, side by side.

    Attributes:
        address: of the first.
        llvm: the integer of a part's size.
        num_parts: of such an integer in an element.
        alignment: of each.
    """

    address: str
    llvm: str
    num_parts: int
    alignment: int


def _alignment(element: ValueType, part: Part) -> int:
    return leaf_alignment(element, Leaf(scalar(part.type), part.offset_bytes), part.offset_bytes)


def _is_filled(element: ValueType) -> bool:
    """Whether the element is scalars of one size, in order, and nothing else."""
    parts = leaves(element)
    size = parts[0].dtype.itemsize
    places = [leaf.offset_bytes for leaf in parts]
    return all(leaf.dtype.itemsize == size for leaf in parts) and places == list(range(0, element.itemsize, size))
