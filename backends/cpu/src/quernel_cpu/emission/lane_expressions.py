"""Expressions of all threads that run together: each value as narrow as it may lie, loads under the mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from quernel.dtypes import DType, ValueType, bool_
from quernel.ir.nodes import (
    Binary,
    Bitcast,
    Cast,
    Compare,
    Const,
    Expr,
    Field,
    Fma,
    Load,
    Local,
    LocalVariable,
    Math,
    Param,
    Root,
    RootKind,
    Select,
    Shape,
    StructMake,
    ThreadIndex,
    Unary,
    UnaryOp,
    VecGet,
    VecMake,
)
from quernel.ir.walk import fold_expression
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.lane_memory import LaneMemory, Offset
from quernel_cpu.emission.lane_parts import LaneParts
from quernel_cpu.emission.lane_scope import LaneScope
from quernel_cpu.emission.lane_values import LaneArithmetic, Value, uniform
from quernel_cpu.emission.leaves import part_at
from quernel_cpu.emission.mathematics import emit_math
from quernel_cpu.emission.shapes import UNIFORM, Lanes, Layout, Shapes, combined
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import literal, register_type, scalar, wide

__all__ = ["LaneExpressions"]


class LaneExpressions:
    """Writes expressions for all threads that run together, of what locals hold and who is on at that point."""

    def __init__(
        self,
        unit: Unit,
        code: Code,
        scope: LaneScope,
        variables: tuple[LocalVariable, ...],
        shapes: Shapes,
        lanes: LaneArithmetic,
        mask: Value | None,
    ) -> None:
        self._unit = unit
        self._code = code
        self._scope = scope
        self._shapes = shapes
        self._lanes = lanes
        self._memory = LaneMemory(unit, code, lanes)
        self._parts = LaneParts(unit, code, lanes, self._memory)
        self._mask = mask
        self._wholes: frozenset[int] = frozenset()
        """`id`s of loads of parts of elements of which most is loaded."""
        self._alike: Mapping[int, tuple[Load, ...]] = {}
        """The loads of parts of one element that may be done together, by the `id` of each."""
        self._loaded: dict[int, Value] = {}
        """What such loads have given, until something may change it."""
        self._types = {variable.name: scalar(variable.type) for variable in variables}
        self._slots = {name: self._allocate(name) for name in self._types}

    def value(self, expr: Expr) -> Value:
        """An expression of all threads."""
        return fold_expression(expr, self._combined)

    def _combined(self, expr: Expr, values: tuple[Value, ...]) -> Value:
        match expr:
            case Const():
                return uniform(literal(expr.value, expr.type))
            case Local():
                return self.local(expr.name)
            case Param():
                return self._scope.scalars[expr.name]
            case ThreadIndex():
                return self._scope.indices[expr.kind, expr.axis]
            case Shape():
                return uniform(self._scope.arrays[expr.param].shape[expr.axis])
            case Load():
                return self._load(expr, values)
            case Unary(op=UnaryOp.UNIFORM):
                return self._first_lane(values[0], scalar(expr.type))
            case VecMake() | VecGet() | StructMake() | Field():
                raise AssertionError(f"{type(expr).__name__} was not taken apart")
            case Unary() | Binary() | Compare() | Fma() | Select() | Cast() | Bitcast() | Math():
                layout = combined(expr, tuple(value.layout for value in values))
                typed = zip(values, _operand_types(expr), strict=True)
                return self._lanes.operate(layout, self._operation(expr), *typed)
            case _:
                assert_never(expr)

    def _operation(self, expr: Unary | Binary | Compare | Fma | Select | Cast | Bitcast | Math) -> Callable[..., str]:
        dtype = scalar(expr.type)

        def operation(arithmetic: Arithmetic, *operands: str) -> str:
            match expr:
                case Unary():
                    return arithmetic.unary(expr.op, dtype, *operands)
                case Binary():
                    return arithmetic.binary(expr.op, dtype, *operands)
                case Compare():
                    return arithmetic.compare(expr.op, scalar(expr.left.type), *operands)
                case Fma():
                    return arithmetic.fma(dtype, *operands)
                case Select():
                    return arithmetic.select(operands[0], arithmetic.type(dtype), *operands[1:])
                case Cast():
                    return arithmetic.cast(scalar(expr.operand.type), dtype, *operands)
                case Bitcast():
                    return arithmetic.bitcast(scalar(expr.operand.type), dtype, *operands)
                case Math():
                    operand = scalar(expr.operands[0].type)
                    result = emit_math(self._unit, self._code, arithmetic, expr.function, operand, operands)
                    if expr.type is operand or expr.type.is_bool:
                        return result
                    return arithmetic.cast(operand, expr.type, result)
                case _:
                    assert_never(expr)

        return operation

    def _load(self, expr: Load, indices: tuple[Value, ...]) -> Value:
        root = expr.place.root
        array, offset = self._place(root, indices)
        if isinstance(array.element, DType):
            loaded = self._memory.load(array.element, array.pointer, offset, self._mask)
        else:
            loaded = self._load_part(expr, array, offset)
        if root in self._shapes.axes.atomics:
            vectors = self._lanes.vectors(loaded, scalar(expr.type))
            return Value(Layout(Lanes.VECTOR, 0, True), tuple(vectors.part(row) for row in range(self._lanes.rows)))
        return loaded

    def _load_part(self, load: Load, array: ArrayOperands, offset: Offset) -> Value:
        if id(load) not in self._loaded:
            self._load_together(self._alike.get(id(load), ()), array, offset)
        if id(load) in self._loaded:
            return self._loaded[id(load)]
        part, is_whole = part_at(array.element, load.place.view), id(load) in self._wholes
        return self._parts.load(array, part, offset, self._mask, is_whole=is_whole)

    def _load_together(self, loads: tuple[Load, ...], array: ArrayOperands, offset: Offset) -> None:
        """Loads the parts of one element that are apart, if that is better than one by one."""
        if not self._parts.are_loaded_together(len(loads), offset, self._mask):
            return
        parts = {id(load): part_at(array.element, load.place.view) for load in loads}
        is_whole = id(loads[0]) in self._wholes
        apart = [
            part
            for part in dict.fromkeys(parts.values())
            if self._parts.is_apart(array.element, part, offset, is_whole=is_whole)
        ]
        if self._parts.are_loaded_together(len(apart), offset, self._mask):
            found = dict(zip(apart, self._parts.load_together(array, apart, offset, self._mask), strict=True))
            self._loaded |= {key: found[part] for key, part in parts.items() if part in found}

    def _first_lane(self, value: Value, dtype: DType) -> Value:
        """What the first lane has, which promises to be what all have."""
        if value.layout.is_uniform:
            return value
        if self._mask is None:
            part = self._lanes.vectors(value, dtype).part(0)
            llvm = wide(register_type(dtype), self._lanes.width)
            return uniform(self._code.value(f"extractelement {llvm} {part}, i64 0"))
        vectors, mask = self._lanes.vectors(value, dtype), self._mask
        llvm = wide(register_type(dtype), self._lanes.width)
        found = ""
        for row in range(self._lanes.rows):
            on = mask.part(row)
            lane = self._memory.last_lane(on)
            bounded = self._code.value(f"and i64 {lane}, {self._lanes.width - 1}")
            here = self._code.value(f"extractelement {llvm} {vectors.part(row)}, i64 {bounded}")
            if found:
                is_on = self._lanes.any_lane(on)
                here = self._lanes.scalar.select(is_on, register_type(dtype), here, found)
            found = here
        return uniform(found)

    # --- places -------------------------------------------------------------------------------------------------------

    def local(self, name: str) -> Value:
        """What a local holds now."""
        layout = self._layout(name)
        llvm = self._slot_type(name)
        return Value(layout, tuple(self._code.value(f"load {llvm}, ptr {slot}") for slot in self._slots[name]))

    def _layout(self, name: str) -> Layout:
        return self._shapes.locals.get(name, UNIFORM)

    def _slot_type(self, name: str) -> str:
        llvm = register_type(self._types[name])
        return wide(llvm, self._lanes.width) if self._layout(name).lanes is Lanes.VECTOR else llvm

    def _allocate(self, name: str) -> list[str]:
        llvm = self._slot_type(name)
        return [self._code.allocate(llvm) for _ in self._lanes.rows_of(self._layout(name))]

    def _element(self, root: Root) -> ValueType:
        """The type of an array's elements."""
        private = root.kind is RootKind.PRIVATE
        return (self._scope.private[root.name].array if private else self._scope.arrays[root.name]).element

    def _place(self, root: Root, indices: tuple[Value, ...]) -> tuple[ArrayOperands, Offset]:
        """The array, and the element of it that each thread means."""
        if root.kind is RootKind.PRIVATE:
            private = self._scope.private[root.name]
            return private.array, self._memory.private_offset(private, indices)
        array = self._scope.arrays[root.name]
        return array, self._memory.offset(array, indices)


def _operand_types(expr: Expr) -> tuple[DType, ...]:
    match expr:
        case Binary() | Compare():
            return (scalar(expr.left.type), scalar(expr.right.type))
        case Unary() | Cast() | Bitcast():
            return (scalar(expr.operand.type),)
        case Fma():
            return (scalar(expr.type),) * 3
        case Select():
            return (bool_, scalar(expr.type), scalar(expr.type))
        case Math():
            return tuple(scalar(operand.type) for operand in expr.operands)
        case _:
            raise TypeError(f"{type(expr).__name__} has no operands")
