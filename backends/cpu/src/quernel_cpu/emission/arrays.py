"""Arrays as operands: the address of element zero, lengths and strides, and the address of an element."""

from __future__ import annotations

import attrs

from quernel.dtypes import DType
from quernel_cpu.emission.text import Code
from quernel_cpu.emission.values import memory_type

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
    """

    element: DType
    pointer: str
    shape: dict[int, str]
    strides: dict[int, str]
    metadata: str = ""


def element_address(code: Code, array: ArrayOperands, indices: tuple[str, ...]) -> str:
    """The address of an element.

    Its offset cannot overflow unless an index is out of bounds, which is undefined, so the arithmetic says `nsw`.
    """
    offset = ""
    for axis, index in enumerate(indices):
        if index == "0":
            continue
        stride = array.strides[axis]
        term = index if stride == "1" else code.value(f"mul nsw i64 {index}, {stride}")
        offset = code.value(f"add nsw i64 {offset}, {term}") if offset else term
    if not offset:
        return array.pointer
    return code.value(f"getelementptr inbounds {memory_type(array.element)}, ptr {array.pointer}, i64 {offset}")
