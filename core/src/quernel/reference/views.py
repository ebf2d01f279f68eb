"""Arrays as a running kernel sees them: single elements, read and written as exact Python values, always checked."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

import numpy as np

from quernel.dtypes import DType, bf16, bool_, u16
from quernel.errors import OutOfBoundsError
from quernel.ir.nodes import AtomicOp, BinaryOp, CompareOp
from quernel.ir.semantics import Value, binary, bitcast, compare
from quernel.locations import Location

__all__ = ["ElementView", "allocated_view", "view_at"]

_UNINITIALISED: Final = 0xA5
"""Fills fresh shared and private memory, so that a kernel that reads before it writes gives odd numbers at once."""

_atomics = threading.Lock()

_ATOMIC_BINARY: Final = {
    AtomicOp.ADD: BinaryOp.ADD,
    AtomicOp.SUB: BinaryOp.SUB,
    AtomicOp.MIN: BinaryOp.MIN,
    AtomicOp.MAX: BinaryOp.MAX,
    AtomicOp.AND: BinaryOp.AND,
    AtomicOp.OR: BinaryOp.OR,
    AtomicOp.XOR: BinaryOp.XOR,
}


class ElementView:
    """An array of one element type over memory that somebody else owns.

    Attributes:
        name: what errors call it.
        dtype: the element type.
        shape: the length of each axis.
    """

    __slots__ = ("_elements", "dtype", "name", "shape")

    def __init__(self, name: str, dtype: DType, elements: np.ndarray[Any, Any]) -> None:
        self.name = name
        self.dtype = dtype
        self.shape: tuple[int, ...] = elements.shape
        self._elements = elements

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Value:
        return self.load(index if isinstance(index, tuple) else (index,), None)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype.name} {list(self.shape)} {self._elements!r}>"

    def load(self, index: tuple[int, ...], where: Location | None) -> Value:
        """The element at `index`.

        Raises:
            OutOfBoundsError: there is no such element; a negative index never wraps.
        """
        if min(index) < 0:
            raise self._outside(index, where)
        try:
            value: Value = self._elements.item(index)
        except IndexError:
            raise self._outside(index, where) from None
        return value

    def store(self, index: tuple[int, ...], value: Value, where: Location | None) -> None:
        """Writes the element at `index`.

        Raises:
            OutOfBoundsError: there is no such element; a negative index never wraps.
        """
        if min(index) < 0:
            raise self._outside(index, where)
        try:
            self._elements[index] = value
        except IndexError:
            raise self._outside(index, where) from None

    def atomic(
        self, op: AtomicOp, index: tuple[int, ...], operands: tuple[Value, ...], where: Location | None
    ) -> Value:
        """Changes the element at `index` with no other thread in between; the old value.

        Raises:
            OutOfBoundsError: there is no such element.
        """
        with _atomics:
            old = self.load(index, where)
            match op:
                case AtomicOp.EXCHANGE:
                    new = operands[0]
                case AtomicOp.COMPARE_EXCHANGE:
                    expected, desired = operands
                    new = desired if compare(CompareOp.EQ, old, expected) else old
                case _:
                    new = binary(_ATOMIC_BINARY[op], old, operands[0], self.dtype)
            self.store(index, new, where)
        return old

    def _outside(self, index: tuple[int, ...], where: Location | None) -> OutOfBoundsError:
        shown = str(index[0]) if len(index) == 1 else str(index)
        return OutOfBoundsError(
            f"index {shown} is outside {self.name}, whose shape is {self.shape}",
            where=where,
            fix="compare the index with the array's shape first, or launch fewer threads",
        )


class _BoolView(ElementView):
    """Bools are bytes, true wherever they are not zero."""

    __slots__ = ()

    def load(self, index: tuple[int, ...], where: Location | None) -> Value:
        return super().load(index, where) != 0


class _Bf16View(ElementView):
    """NumPy alone has no bf16: the elements are kept as 16-bit patterns."""

    __slots__ = ()

    def load(self, index: tuple[int, ...], where: Location | None) -> Value:
        return bitcast(super().load(index, where), u16, bf16)

    def store(self, index: tuple[int, ...], value: Value, where: Location | None) -> None:
        super().store(index, bitcast(value, bf16, u16), where)


def view_at(name: str, dtype: DType, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> ElementView:
    """The array whose element (0, …, 0) stands at `address`; `strides` count elements and may be negative or zero."""
    storage = _storage_dtype(dtype)
    if 0 in shape:
        return _view(name, dtype, np.empty(shape, storage))
    reaches = [(length - 1) * stride * storage.itemsize for length, stride in zip(shape, strides, strict=True)]
    before = -sum(reach for reach in reaches if reach < 0)
    nbytes = before + sum(reach for reach in reaches if reach > 0) + storage.itemsize
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(address - before)
    steps = tuple(stride * storage.itemsize for stride in strides)
    return _view(name, dtype, np.ndarray(shape, storage, memory, before, steps))


def allocated_view(name: str, dtype: DType, shape: tuple[int, ...]) -> ElementView:
    """A fresh array for a kernel's shared or private memory."""
    elements = np.empty(shape, _storage_dtype(dtype))
    elements.view(np.uint8).fill(_UNINITIALISED)
    return _view(name, dtype, elements)


def _view(name: str, dtype: DType, elements: np.ndarray[Any, Any]) -> ElementView:
    if dtype is bool_:
        return _BoolView(name, dtype, elements)
    if dtype is bf16:
        return _Bf16View(name, dtype, elements)
    return ElementView(name, dtype, elements)


def _storage_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype is bool_:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16) if dtype is bf16 else dtype.numpy
