"""Expressions of one thread, and what the names in them stand for.

Locals are slots of the frame, which LLVM turns into registers. A value is a tuple of scalars, as `leaves` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import attrs

from quernel.dtypes import ValueType
from quernel.ir.nodes import (
    Binary,
    Bitcast,
    Cast,
    Compare,
    Const,
    Expr,
    Field,
    Fma,
    IndexKind,
    Load,
    Local,
    LocalVariable,
    Math,
    Param,
    Place,
    Select,
    Shape,
    StructMake,
    ThreadIndex,
    Unary,
    VecGet,
    VecMake,
)
from quernel.ir.walk import fold_expression
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.arrays import ArrayOperands, element_address
from quernel_cpu.emission.functions import DeviceFunction
from quernel_cpu.emission.leaves import Leaf, leaf_alignment, leaves, part, part_at
from quernel_cpu.emission.mathematics import emit_math
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import literal, register_type, scalar

__all__ = ["ExpressionEmitter", "Operands", "Scope"]

Operands = tuple[str, ...]
"""A value: one operand for each of its leaves."""


@attrs.frozen
class Scope:
    """What the names of one function stand for.

    Attributes:
        scalars: value parameters.
        arrays: arrays by name: parameters, the block's, and those that a thread keeps between segments.
        functions: the device functions that may be called.
        indices: thread indices and dimensions, as operands.
        leave: ends the thread, or returns values from the device function.
        diagnostics: the address of the diagnostics buffer, where anything is reported.
    """

    scalars: dict[str, Operands]
    arrays: dict[str, ArrayOperands]
    functions: dict[str, DeviceFunction]
    indices: dict[tuple[IndexKind, int], str]
    leave: Callable[[Operands], None]
    diagnostics: str = "null"

    @property
    def global_id(self) -> Operands:
        """The thread's place in the launch, by axis."""
        return tuple(operand for (kind, _), operand in sorted(self.indices.items(), key=_axis) if _is_id(kind))


def _axis(item: tuple[tuple[IndexKind, int], str]) -> int:
    return item[0][1]


def _is_id(kind: IndexKind) -> bool:
    return kind is IndexKind.GLOBAL_ID


class ExpressionEmitter:
    """Writes expressions of one thread."""

    def __init__(
        self, unit: Unit, code: Code, scope: Scope, variables: tuple[LocalVariable, ...], *, fast_math: bool
    ) -> None:
        self._unit = unit
        self._code = code
        self._scope = scope
        self._arithmetic = Arithmetic(unit, code, fast_math=fast_math)
        self._types: dict[str, ValueType] = {variable.name: variable.type for variable in variables}
        self._slots = {
            name: tuple(code.allocate(register_type(leaf.dtype)) for leaf in leaves(value_type))
            for name, value_type in self._types.items()
        }
        self._arrays = dict(scope.arrays)

    @property
    def arithmetic(self) -> Arithmetic:
        """The operators."""
        return self._arithmetic

    def assign(self, name: str, operands: Operands) -> None:
        """Gives a local a value."""
        for leaf, operand, slot in zip(leaves(self._types[name]), operands, self._slots[name], strict=True):
            self._code.do(f"store {register_type(leaf.dtype)} {operand}, ptr {slot}")

    def local(self, name: str) -> Operands:
        """A local's value."""
        return tuple(
            self._code.value(f"load {register_type(leaf.dtype)}, ptr {slot}")
            for leaf, slot in zip(leaves(self._types[name]), self._slots[name], strict=True)
        )

    def value(self, expr: Expr) -> str:
        """A scalar expression's value."""
        return self.operands(expr)[0]

    def operands(self, expr: Expr) -> Operands:
        """An expression's value."""
        return fold_expression(expr, self._combined)

    def _combined(self, expr: Expr, below: tuple[Operands, ...]) -> Operands:
        match expr:
            case Local():
                return self.local(expr.name)
            case Param():
                return self._scope.scalars[expr.name]
            case Load():
                return self._load(expr.place, tuple(index for (index,) in below))
            case Select():
                return self._select(expr, *below)
            case VecMake() | StructMake():
                return tuple(operand for operands in below for operand in operands)
            case VecGet():
                return self._part(expr.operand.type, expr.index, below[0])
            case Field():
                return self._part(expr.operand.type, expr.name, below[0])
            case _:
                return (self._scalar(expr, tuple(operand for (operand,) in below)),)

    def _scalar(
        self,
        expr: Const | ThreadIndex | Shape | Unary | Binary | Compare | Fma | Cast | Bitcast | Math,
        values: Operands,
    ) -> str:
        match expr:
            case Const():
                return literal(expr.value, expr.type)
            case ThreadIndex():
                return self._scope.indices[expr.kind, expr.axis]
            case Shape():
                return self._scope.arrays[expr.param].shape[expr.axis]
            case Unary():
                return self._arithmetic.unary(expr.op, scalar(expr.type), values[0])
            case Binary():
                return self._arithmetic.binary(expr.op, scalar(expr.type), *values)
            case Compare():
                return self._arithmetic.compare(expr.op, scalar(expr.left.type), *values)
            case Fma():
                return self._arithmetic.fma(scalar(expr.type), *values)
            case Cast():
                return self._arithmetic.cast(scalar(expr.operand.type), expr.type, values[0])
            case Bitcast():
                return self._arithmetic.bitcast(scalar(expr.operand.type), expr.type, values[0])
            case Math():
                return self._math(expr, values)
            case _:
                assert_never(expr)

    def _math(self, expr: Math, values: Operands) -> str:
        operand = scalar(expr.operands[0].type)
        result = emit_math(self._unit, self._code, self._arithmetic, expr.function, operand, values)
        if expr.type is operand or expr.type.is_bool:
            return result
        return self._arithmetic.cast(operand, expr.type, result)

    def _select(self, expr: Select, condition: Operands, then: Operands, otherwise: Operands) -> Operands:
        types = (register_type(leaf.dtype) for leaf in leaves(expr.type))
        return tuple(
            self._code.value(f"select i1 {condition[0]}, {llvm} {one}, {llvm} {other}")
            for llvm, one, other in zip(types, then, otherwise, strict=True)
        )

    def _part(self, value_type: ValueType, step: str | int, whole: Operands) -> Operands:
        found = part(value_type, step)
        return whole[found.first_leaf : found.first_leaf + len(leaves(found.type))]

    # --- memory -------------------------------------------------------------------------------------------------------

    def _load(self, place: Place, indices: Operands) -> Operands:
        array = self._arrays[place.root.name]
        address = element_address(self._code, array, indices)
        return tuple(
            self._arithmetic.load(leaf.dtype, self._leaf_address(address, offset), array.metadata, alignment)
            for leaf, offset, alignment in self._leaves_at(array, place)
        )

    def store(self, place: Place, operands: Operands, address: str) -> None:
        """Writes a value to a place, of whose element the address is given."""
        array = self._arrays[place.root.name]
        for (leaf, offset, alignment), operand in zip(self._leaves_at(array, place), operands, strict=True):
            at = self._leaf_address(address, offset)
            self._arithmetic.store(leaf.dtype, at, operand, array.metadata, alignment)

    def address(self, place: Place) -> str:
        """The address of the element that a place is in."""
        indices = tuple(self.value(index) for index in place.indices)
        return element_address(self._code, self._arrays[place.root.name], indices)

    def leaf_address(self, place: Place) -> str:
        """The address of the scalar that a place is."""
        array = self._arrays[place.root.name]
        return self._leaf_address(self.address(place), part_at(array.element, place.view).offset_bytes)

    def _leaves_at(self, array: ArrayOperands, place: Place) -> list[tuple[Leaf, int, int]]:
        """The leaves of a place, the offset of each in the array's element, and its alignment."""
        found = part_at(array.element, place.view)
        located = [(leaf, found.offset_bytes + leaf.offset_bytes) for leaf in leaves(found.type)]
        return [(leaf, offset, leaf_alignment(array.element, leaf, offset)) for leaf, offset in located]

    def _leaf_address(self, address: str, offset_bytes: int) -> str:
        if not offset_bytes:
            return address
        return self._code.value(f"getelementptr inbounds i8, ptr {address}, i64 {offset_bytes}")
