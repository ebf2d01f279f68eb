"""Vectors of all lanes' elements, one behind the other, taken apart into their units and woven out of them.

A unit is an integer of one size; a piece is a vector of them, as wide as there are lanes. Even units are parted from
odd ones, and again, so that the units of one element share the first shuffles, of which LLVM keeps one each.
"""

from __future__ import annotations

from quernel.dtypes import DType
from quernel_cpu.emission.text import Code
from quernel_cpu.emission.values import memory_type, splat, wide

__all__ = ["Weaving"]


class Weaving:
    """Writes shuffles into the code of one function."""

    def __init__(self, code: Code, width: int) -> None:
        self._code = code
        self._width = width

    def taken(self, llvm: str, pieces: list[str], number: int) -> str:
        """Every so-manieth integer of the pieces, one behind the other, from `number` on."""
        count, width = len(pieces), self._width
        if count == 1:
            return pieces[0]
        if count % 2 == 0:
            order = [number % 2 + 2 * lane for lane in range(width)]
            halves = [self._shuffled(llvm, pieces[at], pieces[at + 1], order) for at in range(0, count, 2)]
            return self.taken(llvm, halves, number // 2)
        wanted = [number + count * lane for lane in range(width)]
        return self._picked(llvm, pieces, wanted)

    def woven(self, llvm: str, parts: list[str]) -> list[str]:
        """The first of each part, then the second of each, and so on: the inverse of `taken`."""
        count, width = len(parts), self._width
        if count == 1:
            return parts
        if count % 2:
            places = [[number * width + lane for lane in range(width)] for number in range(count)]
            return [
                self._picked(llvm, parts, [(place % count) * width + place // count for place in piece])
                for piece in places
            ]
        evens, odds = self.woven(llvm, parts[0::2]), self.woven(llvm, parts[1::2])
        woven = []
        for even, odd in zip(evens, odds, strict=True):
            for half in range(2):
                order = [(lane % 2) * width + half * width // 2 + lane // 2 for lane in range(width)]
                woven.append(self._shuffled(llvm, even, odd, order))
        return woven

    def _picked(self, llvm: str, vectors: list[str], wanted: list[int]) -> str:
        """What stands at these places in vectors one behind the other."""
        width = self._width
        found = self._shuffled(llvm, vectors[0], vectors[1], [place if place < 2 * width else 0 for place in wanted])
        for number, vector in enumerate(vectors[2:], start=2):
            order = [
                width + place - number * width if number * width <= place < (number + 1) * width else lane
                for lane, place in enumerate(wanted)
            ]
            found = self._shuffled(llvm, found, vector, order)
        return found

    def spread(self, on: str, num_units: int, number: int) -> str:
        """A mask of elements as one of their units, for one piece of the run."""
        width = self._width
        return self._code.part(f"<{width} x i1>", on, [(number * width + lane) // num_units for lane in range(width)])

    def units(self, stored: str, size: int, unit_bytes: int) -> list[str]:
        """The units of a part of so many bytes, lowest first."""
        count, width = size // unit_bytes, self._width
        if count == 1:
            return [stored]
        smaller = wide(f"i{unit_bytes * 8}", count * width)
        apart = self._code.value(f"bitcast {wide(f'i{size * 8}', width)} {stored} to {smaller}")
        return [self._code.part(smaller, apart, range(number, count * width, count)) for number in range(count)]

    def narrowed(self, unit: str, unit_bytes: int, size: int, offset_bytes: int) -> str:
        """So many bytes of each unit, as an integer."""
        if unit_bytes == size:
            return unit
        llvm, vector = f"i{unit_bytes * 8}", wide(f"i{unit_bytes * 8}", self._width)
        if offset_bytes:
            count = splat(llvm, str(offset_bytes * 8), self._width)
            unit = self._code.value(f"lshr {vector} {unit}, {count}")
        return self._code.value(f"trunc {vector} {unit} to {wide(f'i{size * 8}', self._width)}")

    def recast(self, operand: str, dtype: DType, *, into_memory: bool) -> str:
        """Between what memory holds of a type and an integer of its size."""
        number, memory = wide(f"i{dtype.itemsize * 8}", self._width), wide(memory_type(dtype), self._width)
        if number == memory:
            return operand
        given, wanted = (memory, number) if into_memory else (number, memory)
        return self._code.value(f"bitcast {given} {operand} to {wanted}")

    def _shuffled(self, llvm: str, left: str, right: str, order: list[int]) -> str:
        vector, listed = wide(llvm, self._width), ", ".join(f"i32 {lane}" for lane in order)
        return self._code.value(f"shufflevector {vector} {left}, {vector} {right}, <{self._width} x i32> <{listed}>")
