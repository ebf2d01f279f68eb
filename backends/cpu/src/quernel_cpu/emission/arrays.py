"""Arrays as operands: the address of element zero, lengths and strides, and the address of an element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from quernel.dtypes import ValueType
from quernel_cpu.emission.leaves import element_type
from quernel_cpu.emission.text import Code

if TYPE_CHECKING:
    from quernel_cpu.emission.streaming import Streaming

__all__ = ["ArrayOperands", "element_address"]


@attrs.frozen
class ArrayOperands:
    """An array in the code of one function.

    Attributes:
        element: the type of its elements.
        pointer: the address of element (0, …, 0).
        shape: the lengths, by axis; only those that the function asks for.
        strides: the strides in elements, by axis; only those that an address needs.
        metadata: what its loads and stores carry.
        streaming: how its stores go past the caches, where they may.
    """

    element: ValueType
    pointer: str
    shape: dict[int, str]
    strides: dict[int, str]
    metadata: str = ""
    streaming: Streaming | None = None


def element_address(code: Code, array: ArrayOperands, indices: tuple[str, ...]) -> str:
    """The address of an element.

    Its offset cannot overflow unless an index is out of bounds, which is undefined, so the arithmetic says `nsw`. The
    last axis is added by an address computation of its own: LLVM then sees that neighbours in a row share what is
    before it, and that what one thread reads right of it is what the next one reads in its own place.
    """
    address, offset = array.pointer, ""
    llvm = element_type(array.element)
    for axis, index in enumerate(indices):
        if index == "0":
            continue
        stride = array.strides[axis]
        term = index if stride == "1" else code.value(f"mul nsw i64 {index}, {stride}")
        if offset and axis == len(indices) - 1:
            address = code.value(f"getelementptr inbounds {llvm}, ptr {address}, i64 {offset}")
            offset = term
        else:
            offset = code.value(f"add nsw i64 {offset}, {term}") if offset else term
    if not offset:
        return address
    return code.value(f"getelementptr inbounds {llvm}, ptr {address}, i64 {offset}")
