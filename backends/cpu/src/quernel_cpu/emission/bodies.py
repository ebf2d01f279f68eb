"""Statements of one thread, in scalar code; LLVM's vectoriser makes lanes of neighbouring threads."""

from __future__ import annotations

from typing import assert_never

from quernel.dtypes import ArrayType
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Break,
    Breakpoint,
    Call,
    Continue,
    For,
    If,
    LocalVariable,
    Loop,
    Print,
    Return,
    RootKind,
    Stmt,
    Store,
    Subgroup,
)
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.atomics import emit_atomic, emit_plain_atomic
from quernel_cpu.emission.expressions import ExpressionEmitter, Operands, Scope
from quernel_cpu.emission.functions import DIAGNOSTICS, DeviceFunction, index_operand
from quernel_cpu.emission.leaves import element_type, leaves
from quernel_cpu.emission.loops import LoopLabels, emit_for
from quernel_cpu.emission.reports import cell, emit_print, emit_violation
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import register_type, scalar, zero

__all__ = ["BodyEmitter", "Scope", "emit_function", "own_array"]


class BodyEmitter(ExpressionEmitter):
    """Writes the body of a kernel's thread, or of a device function."""

    def __init__(
        self, unit: Unit, code: Code, scope: Scope, variables: tuple[LocalVariable, ...], *, fast_math: bool
    ) -> None:
        super().__init__(unit, code, scope, variables, fast_math=fast_math)
        self._loops: list[LoopLabels] = []  # The innermost last.

    def emit(self, body: tuple[Stmt, ...], starts: dict[str, Operands] | None = None) -> None:
        """The whole body. Other locals start at zero: no value of one thread reaches the next, which would tie them."""
        starts = starts or {}
        for name, value_type in self._types.items():
            self.assign(name, starts.get(name) or tuple(zero(leaf.dtype) for leaf in leaves(value_type)))
        self._statements(body)

    def _statements(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            if self._code.is_closed:
                return
            self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Assign():
                self.assign(stmt.name, self.operands(stmt.value))
            case Store():
                # Python evaluates the value before the target's indices; none has side effects, so neither order shows.
                address = self.address(stmt.place)
                self.store(stmt.place, self.operands(stmt.value), address)
            case Atomic():
                self._atomic(stmt)
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
                if self._loops:
                    self._code.branch(self._loops[-1][0])
                else:  # The loop is the block's, and the thread done with this segment of its trip.
                    self._scope.leave(())
            case Return():
                self._scope.leave(tuple(operand for value in stmt.values for operand in self.operands(value)))
            case Alloc():
                self.allocate(stmt)
            case Assert():
                self._assert(stmt)
            case Print():
                values = tuple(cell(self._code, scalar(value.type), self.value(value)) for value in stmt.values)
                scope = self._scope
                emit_print(self._unit, self._code, scope.diagnostics, stmt.site, scope.global_id, values)
            case Breakpoint():
                pass  # The interpreter alone stops.
            case Subgroup() | Barrier():
                raise AssertionError(f"{type(stmt).__name__} was not refused")
            case _:
                assert_never(stmt)

    def _if(self, stmt: If) -> None:
        code, end = self._code, self._code.label("end")
        is_end_reached = False
        while True:  # A chain of `elif` is one loop, however long it is.
            then, otherwise = code.label("then"), code.label("else")
            code.branch_if(self.value(stmt.condition), then, otherwise)
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
        def body(index: str, labels: LoopLabels) -> None:
            self.assign(stmt.variable, (index,))
            self._loops.append(labels)
            self._statements(stmt.body)
            self._loops.pop()

        emit_for(self._arithmetic, self.value(stmt.start), self.value(stmt.stop), self.value(stmt.step), body)

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
                operands += callee.array_operands(param.name, self._arrays[argument.root.name])
            else:
                types = (register_type(leaf.dtype) for leaf in leaves(argument.type))
                operands += zip(types, self.operands(argument), strict=True)
        operands += [("i64", self._scope.indices[index]) for index in callee.indices]
        if callee.reports:
            operands.append(("ptr", self._scope.diagnostics))
        listed = ", ".join(f"{llvm} {operand}" for llvm, operand in operands)
        invocation = f"call {callee.result_type} @{callee.symbol}({listed})"
        if not callee.results:
            code.do(invocation)
            return
        result = code.value(invocation)
        values = [result]
        if len(callee.results) > 1:
            numbers = range(len(callee.results))
            values = [code.value(f"extractvalue {callee.result_type} {result}, {number}") for number in numbers]
        for name in call.results:
            count = len(self._slots[name])
            self.assign(name, tuple(values[:count]))
            del values[:count]

    def _atomic(self, stmt: Atomic) -> None:
        dtype = scalar(stmt.place.type)
        address = self.leaf_address(stmt.place)
        operands = tuple(self.value(operand) for operand in stmt.operands)
        # What belongs to a block is seen by one worker thread only.
        emit = emit_atomic if stmt.place.root.kind is RootKind.PARAM else emit_plain_atomic
        old = emit(self._code, self._arithmetic, stmt.op, dtype, address, operands)
        if stmt.result is not None:
            self.assign(stmt.result, (old,))

    def _assert(self, stmt: Assert) -> None:
        code, scope = self._code, self._scope
        holds, fails = code.label("holds"), code.label("fails")
        code.branch_if(self.value(stmt.condition), holds, fails)
        code.place(fails)
        values = tuple(cell(code, scalar(value.type), self.value(value)) for value in stmt.values)
        emit_violation(self._unit, code, scope.diagnostics, stmt.site, scope.global_id, values)
        code.place(holds)

    def allocate(self, stmt: Alloc) -> None:
        """Makes a private array, in the frame."""
        num_elements, element = own_array(stmt, "")[0], element_type(stmt.element)
        pointer = self._code.allocate(f"[{num_elements} x {element}]", 64)
        self._arrays[stmt.name] = own_array(stmt, pointer)[1]


def own_array(stmt: Alloc, pointer: str, metadata: str = "", spread: int = 1) -> tuple[int, ArrayOperands]:
    """The number of elements of an allocation, and the array at `pointer` with its elements `spread` apart."""
    num_elements, strides = 1, {}
    for axis in reversed(range(len(stmt.shape))):
        strides[axis] = str(num_elements * spread)
        num_elements *= stmt.shape[axis]
    shape = {axis: str(length) for axis, length in enumerate(stmt.shape)}
    return num_elements, ArrayOperands(stmt.element, pointer, shape, strides, metadata)


def emit_function(
    unit: Unit, device_function: DeviceFunction, functions: dict[str, DeviceFunction], metadata: str, *, fast_math: bool
) -> None:
    """Adds the definition of a device function. `metadata`: what accesses to its array parameters carry."""
    code, function = Code(), device_function.function
    scalars: dict[str, Operands] = {}
    arrays: dict[str, ArrayOperands] = {}
    for position, param in enumerate(function.params):
        if isinstance(param.type, ArrayType):
            assert param.type.element is not None
            arrays[param.name] = device_function.own_array(position, param.type.element, metadata)
        else:
            scalars[param.name] = device_function.own_scalars(position, param.type.dtype)
    scope = Scope(
        scalars=scalars,
        arrays=arrays,
        functions=functions,
        indices={(kind, axis): index_operand(kind, axis) for kind, axis in device_function.indices},
        leave=lambda values: code.end(_returned(code, device_function, values)),
        diagnostics=DIAGNOSTICS,
    )
    BodyEmitter(unit, code, scope, function.locals, fast_math=fast_math).emit(function.body)
    if not code.is_closed:
        code.end("ret void" if not device_function.results else "unreachable")
    unit.add_function(code.function(device_function.signature()))


def _returned(code: Code, device_function: DeviceFunction, values: Operands) -> str:
    types = device_function.results
    if not values:
        return "ret void"
    if len(values) == 1:
        return f"ret {register_type(types[0])} {values[0]}"
    whole, aggregate = device_function.result_type, "poison"
    for number, (dtype, value) in enumerate(zip(types, values, strict=True)):
        aggregate = code.value(f"insertvalue {whole} {aggregate}, {register_type(dtype)} {value}, {number}")
    return f"ret {whole} {aggregate}"
