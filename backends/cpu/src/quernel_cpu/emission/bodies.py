"""Expressions and statements of one thread, in scalar code; LLVM's vectoriser makes lanes of neighbouring threads.

Locals are slots of the frame, which LLVM turns into registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import attrs

from quernel.dtypes import ArrayType, DType
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Bitcast,
    Break,
    Call,
    Cast,
    Compare,
    Const,
    Continue,
    Expr,
    Field,
    Fma,
    For,
    If,
    IndexKind,
    Load,
    Local,
    LocalVariable,
    Loop,
    Math,
    Param,
    Place,
    Print,
    Return,
    Root,
    RootKind,
    Select,
    Shape,
    Stmt,
    Store,
    StructMake,
    Subgroup,
    ThreadIndex,
    Unary,
    VecGet,
    VecMake,
)
from quernel.ir.walk import fold_expression
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.arrays import ArrayOperands, element_address
from quernel_cpu.emission.functions import DeviceFunction, index_operand
from quernel_cpu.emission.loops import num_trips
from quernel_cpu.emission.mathematics import emit_math
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import literal, memory_type, register_type, scalar, zero

__all__ = ["BodyEmitter", "Scope", "emit_function"]


@attrs.frozen
class Scope:
    """What the names of one function stand for.

    Attributes:
        scalars: scalar parameters, as operands.
        arrays: array parameters.
        functions: the device functions that may be called.
        indices: thread indices and dimensions, as operands.
        leave: ends the thread, or returns values from the device function.
    """

    scalars: dict[str, str]
    arrays: dict[str, ArrayOperands]
    functions: dict[str, DeviceFunction]
    indices: dict[tuple[IndexKind, int], str]
    leave: Callable[[tuple[str, ...]], None]


class BodyEmitter:
    """Writes the body of a kernel's thread, or of a device function."""

    def __init__(
        self, unit: Unit, code: Code, scope: Scope, variables: tuple[LocalVariable, ...], *, fast_math: bool
    ) -> None:
        self._unit = unit
        self._code = code
        self._scope = scope
        self._arithmetic = Arithmetic(unit, code, fast_math=fast_math)
        self._types = {variable.name: scalar(variable.type) for variable in variables}
        self._slots = {name: code.allocate(register_type(dtype)) for name, dtype in self._types.items()}
        self._private: dict[str, ArrayOperands] = {}
        self._loops: list[tuple[str, str]] = []  # Where `continue` and `break` go, the innermost last.

    def emit(self, body: tuple[Stmt, ...]) -> None:
        """The whole body. Locals start at zero: no value of one thread reaches the next, which would tie them."""
        for name, dtype in self._types.items():
            self._code.do(f"store {register_type(dtype)} {zero(dtype)}, ptr {self._slots[name]}")
        self._statements(body)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _statements(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            if self._code.is_closed:
                return
            self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Assign():
                self._assign(stmt.name, self._value(stmt.value))
            case Store():
                # Python evaluates the value before the target's indices; none has side effects, so neither order shows.
                array = self._array(stmt.place.root)
                address = self._address(array, stmt.place)
                self._arithmetic.store(array.element, address, self._value(stmt.value), array.metadata)
            case Call():
                self._call(stmt)
            case If():
                self._if(stmt)
            case For():
                self._for(stmt)
            case Loop():
                self._loop(stmt)
            case Break():
                self._code.branch(self._loops[-1][1])
            case Continue():
                self._code.branch(self._loops[-1][0])
            case Return():
                self._scope.leave(tuple(self._value(value) for value in stmt.values))
            case Alloc():
                self._allocate(stmt)
            case Atomic() | Subgroup() | Barrier() | Assert() | Print():
                raise AssertionError(f"{type(stmt).__name__} was not refused")
            case _:
                assert_never(stmt)

    def _assign(self, name: str, value: str) -> None:
        self._code.do(f"store {register_type(self._types[name])} {value}, ptr {self._slots[name]}")

    def _if(self, stmt: If) -> None:
        code, end = self._code, self._code.label("end")
        is_end_reached = False
        while True:  # A chain of `elif` is one loop, however long it is.
            then, otherwise = code.label("then"), code.label("else")
            code.branch_if(self._value(stmt.condition), then, otherwise)
            code.place(then)
            self._statements(stmt.then)
            if not code.is_closed:
                code.branch(end)
                is_end_reached = True
            code.place(otherwise)
            *before, last = stmt.otherwise or (None,)
            if not isinstance(last, If):
                self._statements(stmt.otherwise)
                break
            self._statements(tuple(stmt.otherwise[: len(before)]))
            if code.is_closed:
                break
            stmt = last
        if is_end_reached:
            code.place(end)

    def _for(self, stmt: For) -> None:
        """Counts upwards by one where the step is 1; otherwise the number of trips is worked out first."""
        code = self._code
        start, stop, step = (self._value(bound) for bound in (stmt.start, stmt.stop, stmt.step))
        counter = code.allocate("i64")
        head, body, latch, end = (code.label(hint) for hint in ("for.head", "for.body", "for.next", "for.end"))
        if step == "1":
            code.do(f"store i64 {start}, ptr {counter}")
            code.place(head)
            current = code.value(f"load i64, ptr {counter}")
            code.branch_if(code.value(f"icmp slt i64 {current}, {stop}"), body, end)
            code.place(body)
            self._assign(stmt.variable, current)
        else:
            trips = num_trips(self._arithmetic, start, stop, step)
            code.do(f"store i64 0, ptr {counter}")
            code.place(head)
            current = code.value(f"load i64, ptr {counter}")
            code.branch_if(code.value(f"icmp ult i64 {current}, {trips}"), body, end)
            code.place(body)
            distance = code.value(f"mul i64 {current}, {step}")
            self._assign(stmt.variable, code.value(f"add i64 {start}, {distance}"))
        self._loops.append((latch, end))
        self._statements(stmt.body)
        self._loops.pop()
        code.place(latch)
        no_wrap = "nsw" if step == "1" else "nuw"
        code.do(f"store i64 {code.value(f'add {no_wrap} i64 {current}, 1')}, ptr {counter}")
        code.branch(head)
        code.place(end)

    def _loop(self, stmt: Loop) -> None:
        code = self._code
        head, end = code.label("loop"), code.label("loop.end")
        code.place(head)
        self._loops.append((head, end))
        self._statements(stmt.body)
        self._loops.pop()
        if not code.is_closed:
            code.branch(head)
        code.place(end)

    def _call(self, call: Call) -> None:
        code, callee = self._code, self._scope.functions[call.function]
        operands: list[tuple[str, str]] = []
        for param, argument in zip(callee.function.params, call.arguments, strict=True):
            if isinstance(argument, ArrayRef):
                operands += callee.array_operands(param.name, self._array(argument.root))
            else:
                operands.append((register_type(scalar(argument.type)), self._value(argument)))
        operands += [("i64", self._scope.indices[index]) for index in callee.indices]
        listed = ", ".join(f"{llvm} {operand}" for llvm, operand in operands)
        invocation = f"call {callee.result_type} @{callee.symbol}({listed})"
        if not callee.results:
            code.do(invocation)
            return
        result = code.value(invocation)
        for number, name in enumerate(call.results):
            if len(callee.results) > 1:
                self._assign(name, code.value(f"extractvalue {callee.result_type} {result}, {number}"))
            else:
                self._assign(name, result)

    def _allocate(self, stmt: Alloc) -> None:
        element = scalar(stmt.element)
        num_elements, strides = 1, {}
        for axis in reversed(range(len(stmt.shape))):
            strides[axis] = str(num_elements)
            num_elements *= stmt.shape[axis]
        self._private[stmt.name] = ArrayOperands(
            element=element,
            pointer=self._code.allocate(f"[{num_elements} x {memory_type(element)}]", 64),
            shape={axis: str(length) for axis, length in enumerate(stmt.shape)},
            strides=strides,
        )

    # --- expressions --------------------------------------------------------------------------------------------------

    def _value(self, expr: Expr) -> str:
        return fold_expression(expr, self._combined)

    def _combined(self, expr: Expr, values: tuple[str, ...]) -> str:
        match expr:
            case Const():
                return literal(expr.value, expr.type)
            case Local():
                return self._code.value(f"load {register_type(scalar(expr.type))}, ptr {self._slots[expr.name]}")
            case Param():
                return self._scope.scalars[expr.name]
            case ThreadIndex():
                return self._scope.indices[expr.kind, expr.axis]
            case Shape():
                return self._scope.arrays[expr.param].shape[expr.axis]
            case Load():
                array = self._array(expr.place.root)
                address = element_address(self._code, array, values)
                return self._arithmetic.load(array.element, address, array.metadata)
            case Unary():
                return self._arithmetic.unary(expr.op, scalar(expr.type), values[0])
            case Binary():
                return self._arithmetic.binary(expr.op, scalar(expr.type), *values)
            case Compare():
                return self._arithmetic.compare(expr.op, scalar(expr.left.type), *values)
            case Fma():
                return self._arithmetic.fma(scalar(expr.type), *values)
            case Select():
                llvm = register_type(scalar(expr.type))
                return self._code.value(f"select i1 {values[0]}, {llvm} {values[1]}, {llvm} {values[2]}")
            case Cast():
                return self._arithmetic.cast(scalar(expr.operand.type), expr.type, values[0])
            case Bitcast():
                return self._arithmetic.bitcast(scalar(expr.operand.type), expr.type, values[0])
            case Math():
                return self._math(expr, values)
            case VecMake() | VecGet() | StructMake() | Field():
                raise AssertionError(f"{type(expr).__name__} was not refused")
            case _:
                assert_never(expr)

    def _math(self, expr: Math, values: tuple[str, ...]) -> str:
        operand = scalar(expr.operands[0].type)
        result = emit_math(self._unit, self._code, self._arithmetic, expr.function, operand, values)
        if expr.type is operand or expr.type.is_bool:
            return result
        return self._arithmetic.cast(operand, expr.type, result)

    def _array(self, root: Root) -> ArrayOperands:
        return self._scope.arrays[root.name] if root.kind is RootKind.PARAM else self._private[root.name]

    def _address(self, array: ArrayOperands, place: Place) -> str:
        return element_address(self._code, array, tuple(self._value(index) for index in place.indices))


def emit_function(
    unit: Unit, device_function: DeviceFunction, functions: dict[str, DeviceFunction], metadata: str, *, fast_math: bool
) -> None:
    """Adds the definition of a device function. `metadata`: what accesses to its array parameters carry."""
    code, function = Code(), device_function.function
    scalars: dict[str, str] = {}
    arrays: dict[str, ArrayOperands] = {}
    for position, param in enumerate(function.params):
        if isinstance(param.type, ArrayType):
            arrays[param.name] = device_function.own_array(position, scalar(param.type.element), metadata)
        else:
            scalars[param.name] = f"%a{position}"
    scope = Scope(
        scalars=scalars,
        arrays=arrays,
        functions=functions,
        indices={(kind, axis): index_operand(kind, axis) for kind, axis in device_function.indices},
        leave=lambda values: code.end(_returned(code, device_function, values)),
    )
    BodyEmitter(unit, code, scope, function.locals, fast_math=fast_math).emit(function.body)
    if not code.is_closed:
        code.end("ret void" if not device_function.results else "unreachable")
    unit.add_function(code.function(device_function.signature()))


def _returned(code: Code, device_function: DeviceFunction, values: tuple[str, ...]) -> str:
    types: list[DType] = list(device_function.results)
    if not values:
        return "ret void"
    if len(values) == 1:
        return f"ret {register_type(types[0])} {values[0]}"
    whole, aggregate = device_function.result_type, "poison"
    for number, (dtype, value) in enumerate(zip(types, values, strict=True)):
        aggregate = code.value(f"insertvalue {whole} {aggregate}, {register_type(dtype)} {value}, {number}")
    return f"ret {whole} {aggregate}"
