"""Vectors and structs in arrays, of all threads: each of their scalars is a value of its own.

Scalars of one element lie beside each other, those of neighbouring lanes an element apart. Where neighbours read or
write neighbouring elements, the whole run of elements is moved by vector accesses, and taken apart or put together by
shuffles of units of one size. Every part loads the same run, which LLVM loads once. Elements anywhere are moved whole
by each lane where most of their parts are. Otherwise a part is a scalar at a stride, as in any array.
"""

from __future__ import annotations

from itertools import pairwise

import attrs

from quernel.dtypes import ValueType, u8, u16, u32, u64
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.lane_copies import FEWEST_COPIED, FEWEST_COPIED_WITH_MASKS, LaneCopies
from quernel_cpu.emission.lane_memory import LaneMemory, Offset
from quernel_cpu.emission.lane_values import LaneArithmetic, Value
from quernel_cpu.emission.leaves import Leaf, Part, leaf_alignment
from quernel_cpu.emission.shapes import Lanes, Layout
from quernel_cpu.emission.streaming import Streaming
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import scalar, wide
from quernel_cpu.emission.weaving import Weaving

__all__ = ["LaneParts"]

_WORD_BYTES = 4
"""Parts that are shorter are taken out of the word that they are in."""
_MOST_SHUFFLED_UNITS = 8
"""Elements of more are gathered and scattered: a part takes as many loads and shuffles as an element has units."""


_UNITS = {1: u8, 2: u16, 4: u32, 8: u64}


class LaneParts:
    """Writes accesses to elements of several scalars into the code of one function."""

    def __init__(self, unit: Unit, code: Code, lanes: LaneArithmetic, memory: LaneMemory) -> None:
        self._unit = unit
        self._code = code
        self._lanes = lanes
        self._memory = memory
        self._weaving = Weaving(code, lanes.width)
        self._width = lanes.width
        self._copies = LaneCopies(code, lanes, memory)
        self._spare, self._spare_bytes = "", 0

    def located(self, element: ValueType, part: Part, offset: Offset) -> Offset:
        """Where a part of an element lies, counted in scalars of its type, which is aligned."""
        size = scalar(part.type).itemsize
        return self._memory.in_units(offset, element.itemsize // size, part.offset_bytes // size)

    # --- loads --------------------------------------------------------------------------------------------------------

    def load(
        self, array: ArrayOperands, part: Part, offset: Offset, mask: Value | None, *, is_whole: bool = False
    ) -> Value:
        """A part of the element that each thread means. `is_whole`: most of its other parts are loaded, too."""
        element, dtype = array.element, scalar(part.type)
        size = dtype.itemsize
        if self.is_apart(element, part, offset, is_whole=is_whole):
            memory, place = self._apart(element, part, offset)
            return memory.load(dtype, array.pointer, place, mask)
        if mask is not None and mask.layout.rows and not offset.rows:
            mask = Value(Layout(Lanes.VECTOR), (self._memory.any_row(mask),))
        unit_bytes = self._unit_bytes(element, size, offset)
        found = []
        for row in self._lanes.rows_of(Layout(rows=offset.rows)):
            on = None if mask is None else mask.part(row)
            if self._is_run(element, offset, unit_bytes):
                pieces = self._pieces(self._run(array, unit_bytes, offset, row), on)
            else:
                pieces = self._each(array, unit_bytes, offset, on, row)
            unit = self._weaving.taken(f"i{unit_bytes * 8}", pieces, part.offset_bytes // unit_bytes)
            bits = self._weaving.narrowed(unit, unit_bytes, size, part.offset_bytes % unit_bytes)
            found.append(self._lanes.vector.from_memory(dtype, self._weaving.recast(bits, dtype, into_memory=False)))
        return Value(Layout(Lanes.VECTOR, 0, offset.rows), tuple(found))

    def are_loaded_together(self, num_parts: int, offset: Offset, mask: Value | None) -> bool:
        """Whether so many parts of one element that are apart are best loaded by `load_together`."""
        return self._are_copied(num_parts, offset, mask) and not self._unit.gathers()

    def load_together(self, array: ArrayOperands, parts: list[Part], offset: Offset, mask: Value | None) -> list[Value]:
        """Parts of the element that each thread means, all of them apart."""
        return self._copies.load(array, parts, offset, mask)

    def _are_copied(self, num_parts: int, offset: Offset, mask: Value | None) -> bool:
        fewest = FEWEST_COPIED if mask is None else FEWEST_COPIED_WITH_MASKS
        return "avx512vl" not in self._unit.features and num_parts >= fewest and not offset.is_uniform

    def is_apart(self, element: ValueType, part: Part, offset: Offset, *, is_whole: bool) -> bool:
        """Whether a part is loaded as a scalar of an array of them. `is_whole`: most other parts are loaded, too."""
        size = scalar(part.type).itemsize
        unit_bytes = self._unit_bytes(element, size, offset)
        is_scattered = is_whole and not offset.is_uniform and self._fits(element, unit_bytes)
        return not (is_scattered or self._is_run(element, offset, unit_bytes)) or _alignment(element, part) < size

    def _unit_bytes(self, element: ValueType, size: int, offset: Offset) -> int:
        """The unit of which a part of so many bytes is loaded with its element."""
        return size if self._is_run(element, offset, size) else max(size, _WORD_BYTES)

    def _pieces(self, run: _Run, on: str | None) -> list[str]:
        """The elements of all lanes, as vectors of integers of a unit's size."""
        code, width = self._code, self._width
        vector, mask = wide(run.llvm, width), f"<{width} x i1>"
        pieces = []
        for number in range(run.num_units):
            address = self._address(run, number)
            if on is None:
                pieces.append(code.value(f"load {vector}, ptr {address}, align {run.alignment}"))
                continue
            symbol = self._unit.declare(vector, f"llvm.masked.load.v{width}{run.llvm}.p0", "ptr", mask, vector)
            pieces.append(
                code.value(
                    f"call {vector} {symbol}(ptr align {run.alignment} {address}, {mask} "
                    f"{self._weaving.spread(on, run.num_units, number)}, {vector} zeroinitializer)"
                )
            )
        return pieces

    def _fits(self, element: ValueType, unit_bytes: int) -> bool:
        """Whether an element is a vector of such units, of which some fill one piece."""
        num_units = element.itemsize // unit_bytes
        is_vector = num_units * unit_bytes == element.itemsize and num_units in (2, 4, 8)
        return is_vector and self._width >= num_units and element.alignment >= unit_bytes

    def _each(self, array: ArrayOperands, unit_bytes: int, offset: Offset, on: str | None, row: int) -> list[str]:
        """The elements of all lanes, each loaded by itself, as vectors of integers of a unit's size."""
        code, width, llvm = self._code, self._width, f"i{unit_bytes * 8}"
        num_units = array.element.itemsize // unit_bytes
        loaded = [
            code.value(f"load <{num_units} x {llvm}>, ptr {address}, align {unit_bytes}")
            for address in self._addresses(array, offset, on, row)
        ]
        count = width // num_units
        return [code.joined(llvm, num_units, loaded[at : at + count]) for at in range(0, width, count)]

    def _addresses(self, array: ArrayOperands, offset: Offset, on: str | None, row: int) -> list[str]:
        """Where the element of each lane is; of a lane that is off, where nobody reads it."""
        width, pointers = self._width, f"<{self._width} x ptr>"
        bytes_away = self._memory.in_units(offset, array.element.itemsize, 0)
        found = self._memory.addresses(u8, array.pointer, bytes_away, row)
        if on is not None:
            spare = self._lanes.broadcast(self._spare_element(array.element), "ptr")
            found = self._lanes.vector.select(on, pointers, found, spare)
        return [self._code.value(f"extractelement {pointers} {found}, i64 {lane}") for lane in range(width)]

    def _spare_element(self, element: ValueType) -> str:
        """The address of an element that nobody reads for its value."""
        if element.itemsize > self._spare_bytes:
            self._spare, self._spare_bytes = self._code.allocate(f"[{element.itemsize} x i8]", 64), element.itemsize
        return self._spare

    # --- stores -------------------------------------------------------------------------------------------------------

    def store(
        self,
        array: ArrayOperands,
        parts: list[Part],
        offset: Offset,
        values: list[Value],
        mask: Value | None,
        streaming: Streaming | None = None,
    ) -> None:
        """Writes parts of the element of each thread that is on, and nothing between them."""
        element = array.element
        given = list(zip(parts, values, strict=True))
        unit_bytes = _unit_bytes({scalar(part.type).itemsize for part in parts})
        together = [each for each in given if _step_bytes(element, each[0]) >= unit_bytes]
        num_bytes = sum(scalar(part.type).itemsize for part, _ in together)
        is_run = self._is_run(element, offset, unit_bytes) and num_bytes * 2 > element.itemsize
        is_scattered = not offset.is_uniform and self._fits(element, unit_bytes) and num_bytes == element.itemsize
        if not (is_run or is_scattered) or _overlap(parts):
            together = []
        apart = [each for each in given if each not in together]
        if self._are_copied(len(apart), offset, mask):
            self._copies.store(array, apart, offset, mask)
            apart = []
        for part, value in apart:
            memory, place = self._apart(element, part, offset)
            memory.store(scalar(part.type), array.pointer, place, value, mask)
        if not together:
            return
        rows = offset.rows or (mask is not None and mask.layout.rows)
        rows = rows or any(value.layout.rows for _, value in together)
        numbers = self._lanes.rows_of(Layout(rows=rows))
        typed = [(part, self._lanes.vectors(value, scalar(part.type))) for part, value in together]
        runs = [self._run(array, unit_bytes, offset, row) for row in numbers]
        units = [self._units(typed, run.num_units, unit_bytes, row) for run, row in zip(runs, numbers, strict=True)]
        pieces = [self._weaving.woven(runs[0].llvm, [unit or "poison" for unit in of_row]) for of_row in units]
        done = ""
        if streaming is not None and is_run and len(together) == len(given) and "" not in units[0]:
            addresses = [self._address(run, number) for run in runs for number in range(run.num_units)]
            listed = [piece for of_row in pieces for piece in of_row]
            done = self._memory.stream(_UNITS[unit_bytes], addresses, listed, mask, streaming)
        for row in numbers:
            on = None if mask is None else mask.part(row)
            if is_run:
                self._store_pieces(runs[row], pieces[row], units[row], on)
            else:
                self._store_each(array, runs[row], pieces[row], offset, on, row)
        if done:
            self._code.place(done)

    def _units(self, typed: list[tuple[Part, Value]], num_units: int, unit_bytes: int, row: int) -> list[str]:
        """The units of a row's elements that these parts fill; an empty text for the others."""
        units = [""] * num_units
        for part, value in typed:
            dtype, first = scalar(part.type), part.offset_bytes // unit_bytes
            stored = self._lanes.vector.to_memory(dtype, value.part(row))
            stored = self._weaving.recast(stored, dtype, into_memory=True)
            for number, unit in enumerate(self._weaving.units(stored, dtype.itemsize, unit_bytes)):
                units[first + number] = unit
        return units

    def _store_pieces(self, run: _Run, pieces: list[str], units: list[str], on: str | None) -> None:
        """Writes the units that there are of each element."""
        code, width = self._code, self._width
        vector, mask = wide(run.llvm, width), f"<{width} x i1>"
        for number, piece in enumerate(pieces):
            address, written = self._address(run, number), ""
            if "" in units:
                places = ((number * width + lane) % run.num_units for lane in range(width))
                written = f"<{', '.join('i1 ' + str(units[place] != '').lower() for place in places)}>"
            spread = "" if on is None else self._weaving.spread(on, run.num_units, number)
            if written and spread:
                spread = code.value(f"and {mask} {spread}, {written}")
            spread = spread or written
            if not spread:
                code.do(f"store {vector} {piece}, ptr {address}, align {run.alignment}")
                continue
            symbol = self._unit.declare("void", f"llvm.masked.store.v{width}{run.llvm}.p0", vector, "ptr", mask)
            code.do(f"call void {symbol}({vector} {piece}, ptr align {run.alignment} {address}, {mask} {spread})")

    def _store_each(
        self, array: ArrayOperands, run: _Run, pieces: list[str], offset: Offset, on: str | None, row: int
    ) -> None:
        """Writes whole elements one by one, so that where several lanes mean one, the last one's is left."""
        for lane, address in enumerate(self._addresses(array, offset, on, row)):
            number, place = divmod(lane * run.num_units, self._width)
            part = self._code.part(wide(run.llvm, self._width), pieces[number], range(place, place + run.num_units))
            self._code.do(f"store <{run.num_units} x {run.llvm}> {part}, ptr {address}, align {run.alignment}")

    # --- runs of elements ---------------------------------------------------------------------------------------------

    def _is_run(self, element: ValueType, offset: Offset, unit_bytes: int) -> bool:
        """Whether neighbouring lanes mean neighbouring elements, each of a few units of this size."""
        return (
            offset.vector is None
            and offset.stride == 1
            and self._width > 1
            and element.alignment >= unit_bytes
            and element.itemsize % unit_bytes == 0
            and element.itemsize <= _MOST_SHUFFLED_UNITS * unit_bytes
        )

    def _apart(self, element: ValueType, part: Part, offset: Offset) -> tuple[LaneMemory, Offset]:
        """A part as a scalar of an array of them."""
        alignment = _alignment(element, part)
        if alignment == scalar(part.type).alignment:
            return self._memory, self.located(element, part, offset)
        packed = LaneMemory(self._unit, self._code, self._lanes, alignment)
        return packed, packed.in_units(offset, element.itemsize, part.offset_bytes)

    def _run(self, array: ArrayOperands, unit_bytes: int, offset: Offset, row: int) -> _Run:
        base, pointer = offset.base.part(row), array.pointer
        if base != "0":
            pointer = self._code.value(f"getelementptr [{array.element.itemsize} x i8], ptr {pointer}, i64 {base}")
        return _Run(pointer, f"i{unit_bytes * 8}", array.element.itemsize // unit_bytes, unit_bytes)

    def _address(self, run: _Run, number: int) -> str:
        if number == 0:
            return run.address
        return self._code.value(f"getelementptr {run.llvm}, ptr {run.address}, i64 {number * self._width}")


@attrs.frozen
class _Run:
    """The elements of all lanes of a row, side by side.

    Attributes:
        address: of the first.
        llvm: the integer of a unit's size.
        num_units: of such integers in an element.
        alignment: of each.
    """

    address: str
    llvm: str
    num_units: int
    alignment: int


def _alignment(element: ValueType, part: Part) -> int:
    return leaf_alignment(element, Leaf(scalar(part.type), part.offset_bytes), part.offset_bytes)


def _step_bytes(element: ValueType, part: Part) -> int:
    """The largest unit that a part is made of, where it stands."""
    return min(scalar(part.type).itemsize, _alignment(element, part))


def _unit_bytes(sizes: set[int]) -> int:
    """The unit in which parts of these sizes are written together; shorter ones are written alone."""
    if len(sizes) == 1:
        return next(iter(sizes))
    return min((size for size in sizes if size >= _WORD_BYTES), default=_WORD_BYTES)


def _overlap(parts: list[Part]) -> bool:
    """Whether parts share bytes, as a NumPy dtype's fields may: then their order counts."""
    places = sorted((part.offset_bytes, part.offset_bytes + scalar(part.type).itemsize) for part in parts)
    return any(end > begin for (_, end), (begin, _) in pairwise(places))
