"""Arrays as a running kernel sees them: single elements, read and written as exact Python values, always checked."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from quernel.dtypes import DType, ValueType, bf16, bool_, u16
from quernel.forks import in_child
from quernel.ir.nodes import AtomicOp, BinaryOp, CompareOp
from quernel.ir.semantics import Value, binary, bitcast, compare
from quernel.ir.sites import outside_error
from quernel.locations import Location
from quernel.reference.values import Element, part_of, read_value, write_value

__all__ = ["ElementView", "allocated_view", "view_at"]

_UNINITIALISED: Final = 0xA5
"""Fills fresh shared and private memory, so that a kernel that reads before it writes gives odd numbers at once."""

_atomics = threading.Lock()


def _renew_after_fork() -> None:
    global _atomics
    _atomics = threading.Lock()


in_child(_renew_after_fork)

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
    """An array of scalars over memory that somebody else owns.

    Attributes:
        name: what errors call it.
        type: the element type.
        shape: the length of each axis.
    """

    __slots__ = ("_elements", "name", "shape", "type")

    def __init__(self, name: str, type_: ValueType, elements: np.ndarray[Any, Any]) -> None:
        self.name = name
        self.type = type_
        self.shape: tuple[int, ...] = elements.shape
        self._elements = elements

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Element:
        return self.load(index if isinstance(index, tuple) else (index,), None)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.type} {list(self.shape)} {self._elements!r}>"

    def load(self, index: tuple[int, ...], where: Location | None) -> Element:
        """The element at `index`.

        Raises:
            OutOfBoundsError: there is no such element; a negative index never wraps.
        """
        if min(index) < 0:
            raise outside_error(self.name, index, self.shape, where)
        try:
            value: Value = self._elements.item(index)
        except IndexError:
            raise outside_error(self.name, index, self.shape, where) from None
        return value

    def store(self, index: tuple[int, ...], value: Any, where: Location | None) -> None:
        """Writes the element at `index`.

        Raises:
            OutOfBoundsError: there is no such element; a negative index never wraps.
        """
        if min(index) < 0:
            raise outside_error(self.name, index, self.shape, where)
        try:
            self._elements[index] = value
        except IndexError:
            raise outside_error(self.name, index, self.shape, where) from None

    def atomic(self, op: AtomicOp, index: tuple[int, ...], operands: tuple[Value, ...], where: Location | None) -> Any:
        """Changes the element at `index` with no other thread in between; the old value.

        Raises:
            OutOfBoundsError: there is no such element.
        """
        with _atomics:
            old: Any = self.load(index, where)
            self.store(index, _changed(op, old, operands, self.type), where)
        return old


class _BoolView(ElementView):
    """Bools are bytes, true wherever they are not zero."""

    __slots__ = ()

    def load(self, index: tuple[int, ...], where: Location | None) -> Element:
        return super().load(index, where) != 0


class _Bf16View(ElementView):
    """NumPy alone has no bf16: the elements are kept as 16-bit patterns."""

    __slots__ = ()

    def load(self, index: tuple[int, ...], where: Location | None) -> Element:
        value: Any = super().load(index, where)
        return bitcast(value, u16, bf16)

    def store(self, index: tuple[int, ...], value: Any, where: Location | None) -> None:
        super().store(index, bitcast(value, bf16, u16), where)


class _PartsView(ElementView):
    """An array of vectors or structs: each element is a row of bytes, a part of it is named by its path."""

    __slots__ = ()

    def __init__(self, name: str, type_: ValueType, elements: np.ndarray[Any, Any]) -> None:
        super().__init__(name, type_, elements)
        self.shape = elements.shape[:-1]

    def __repr__(self) -> str:
        return f"<{self.name}: {self.type} {list(self.shape)}>"

    def load(self, index: tuple[int, ...], where: Location | None) -> Element:
        return self.load_part(index, (), where)

    def store(self, index: tuple[int, ...], value: Any, where: Location | None) -> None:
        self.store_part(index, (), value, where)

    def load_part(self, index: tuple[int, ...], path: tuple[str | int, ...], where: Location | None) -> Element:
        """The value of a part of the element at `index`. Raises as `load`."""
        offset, type_ = part_of(self.type, path)
        return read_value(self._row(index, where), offset, type_)

    def store_part(
        self, index: tuple[int, ...], path: tuple[str | int, ...], value: Any, where: Location | None
    ) -> None:
        """Writes a part of the element at `index`, and nothing else of it. Raises as `store`."""
        offset, type_ = part_of(self.type, path)
        write_value(self._row(index, where), offset, type_, value)

    def atomic_part(
        self,
        op: AtomicOp,
        index: tuple[int, ...],
        path: tuple[str | int, ...],
        operands: tuple[Value, ...],
        where: Location | None,
    ) -> Any:
        """Changes a part of the element at `index` with no other thread in between; its old value."""
        with _atomics:
            old: Any = self.load_part(index, path, where)
            self.store_part(index, path, _changed(op, old, operands, part_of(self.type, path)[1]), where)
        return old

    def _row(self, index: tuple[int, ...], where: Location | None) -> Any:
        if min(index) < 0:
            raise outside_error(self.name, index, self.shape, where)
        try:
            return self._elements[index]
        except IndexError:
            raise outside_error(self.name, index, self.shape, where) from None


def _changed(op: AtomicOp, old: Value, operands: tuple[Value, ...], type_: ValueType) -> Value:
    """What an atomic leaves behind."""
    match op:
        case AtomicOp.EXCHANGE:
            return operands[0]
        case AtomicOp.COMPARE_EXCHANGE:
            expected, desired = operands
            return desired if compare(CompareOp.EQ, old, expected) else old
        case _:
            assert isinstance(type_, DType)
            return binary(_ATOMIC_BINARY[op], old, operands[0], type_)


def view_at(name: str, type_: ValueType, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> ElementView:
    """The array whose element (0, …, 0) stands at `address`; `strides` count elements and may be negative or zero."""
    kind, storage, row = _storage(type_)
    if 0 in shape:
        return kind(name, type_, np.empty((*shape, *row), storage))
    itemsize = type_.itemsize
    reaches = [(length - 1) * stride * itemsize for length, stride in zip(shape, strides, strict=True)]
    before = -sum(reach for reach in reaches if reach < 0)
    nbytes = before + sum(reach for reach in reaches if reach > 0) + itemsize
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(address - before)
    steps = (*(stride * itemsize for stride in strides), *(1 for _ in row))
    return kind(name, type_, np.ndarray((*shape, *row), storage, memory, before, steps))


def allocated_view(name: str, type_: ValueType, shape: tuple[int, ...]) -> ElementView:
    """A fresh array for a kernel's shared or private memory."""
    kind, storage, row = _storage(type_)
    elements = np.empty((*shape, *row), storage)
    elements.view(np.uint8).fill(_UNINITIALISED)
    return kind(name, type_, elements)


def _storage(
    type_: ValueType,
) -> tuple[Callable[[str, ValueType, np.ndarray[Any, Any]], ElementView], np.dtype[Any], tuple[int, ...]]:
    """The class of an array's view, what NumPy holds it in, and the shape of one element there."""
    if not isinstance(type_, DType):
        return _PartsView, np.dtype(np.uint8), (type_.itemsize,)
    if type_ is bool_:
        return _BoolView, np.dtype(np.uint8), ()
    return (_Bf16View, np.dtype(np.uint16), ()) if type_ is bf16 else (ElementView, type_.numpy, ())
