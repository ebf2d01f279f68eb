"""A direct evaluator of plain modules, for one thread: what passes must not change."""

from __future__ import annotations

import attrs
from tests.property.ir_operations import operation, scalar

from quernel.dtypes import ArrayType, DType, f32, i64
from quernel.ir import semantics
from quernel.ir.nodes import (
    ArrayRef,
    Assign,
    Atomic,
    AtomicOp,
    BinaryOp,
    Break,
    Call,
    Continue,
    Expr,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Load,
    Local,
    Loop,
    Module,
    Param,
    Place,
    Return,
    Shape,
    Stmt,
    Store,
    ThreadIndex,
)
from quernel.ir.semantics import Value

Memory = dict[tuple[str, tuple[int, ...]], Value]
_ATOMICS = {
    AtomicOp.ADD: BinaryOp.ADD,
    AtomicOp.SUB: BinaryOp.SUB,
    AtomicOp.MIN: BinaryOp.MIN,
    AtomicOp.MAX: BinaryOp.MAX,
    AtomicOp.AND: BinaryOp.AND,
    AtomicOp.OR: BinaryOp.OR,
    AtomicOp.XOR: BinaryOp.XOR,
}


class OutOfFuelError(Exception):
    """The module runs too long to be compared."""


class _LeaveError(Exception):
    """Control leaves a loop's trip, a loop or a function."""

    def __init__(self, how: type[Stmt], values: tuple[Value, ...] = ()) -> None:
        self.how = how
        self.values = values


def run(module: Module, fuel: int) -> Memory:
    """Every element that the thread wrote."""
    return _Evaluator(module, fuel).run()


@attrs.define
class _Frame:
    owner: Kernel | Function
    arrays: dict[str, str]
    scalars: dict[str, Value]
    locals: dict[str, Value]


class _Evaluator:
    def __init__(self, module: Module, fuel: int) -> None:
        self.module = module
        self.fuel = fuel
        self.memory: Memory = {}
        self.functions = {function.name: function for function in module.functions}

    def run(self) -> Memory:
        kernel = self.module.kernel
        arrays = {param.name: param.name for param in kernel.params if isinstance(param.type, ArrayType)}
        scalars = {
            param.name: semantics.cast(position + 2, i64, param.type.dtype)
            for position, param in enumerate(kernel.params)
            if not isinstance(param.type, ArrayType) and isinstance(param.type.dtype, DType)
        }
        self.call(_Frame(kernel, arrays, scalars, _zeros(kernel)))
        return self.memory

    def call(self, frame: _Frame) -> tuple[Value, ...]:
        try:
            self.body(frame.owner.body, frame)
        except _LeaveError as left:
            return left.values
        return ()

    def body(self, body: tuple[Stmt, ...], frame: _Frame) -> None:
        for stmt in body:
            self.fuel -= 1
            if self.fuel < 0:
                raise OutOfFuelError
            self.statement(stmt, frame)

    def statement(self, stmt: Stmt, frame: _Frame) -> None:
        match stmt:
            case Assign():
                frame.locals[stmt.name] = self.value(stmt.value, frame)
            case Store():
                where = self.where(stmt.place, frame)
                self.memory[where] = self.value(stmt.value, frame)
            case Atomic():
                self.atomic(stmt, frame)
            case If():
                self.body(stmt.then if self.value(stmt.condition, frame) else stmt.otherwise, frame)
            case For():
                start, stop, step = (int(self.value(bound, frame)) for bound in (stmt.start, stmt.stop, stmt.step))
                for trip in range(semantics.trip_count(start, stop, step)):
                    frame.locals[stmt.variable] = start + trip * step
                    if self.trip(stmt.body, frame):
                        break
            case Loop():
                while not self.trip(stmt.body, frame):
                    self.fuel -= 1
                    if self.fuel < 0:
                        raise OutOfFuelError
            case Break() | Continue():
                raise _LeaveError(type(stmt))
            case Return():
                raise _LeaveError(Return, tuple(self.value(value, frame) for value in stmt.values))
            case Call():
                self.call_statement(stmt, frame)
            case _:
                raise AssertionError(stmt)

    def trip(self, body: tuple[Stmt, ...], frame: _Frame) -> bool:
        """Runs a loop's body once; whether the loop is left."""
        try:
            self.body(body, frame)
        except _LeaveError as left:
            if left.how is Return:
                raise
            return left.how is Break
        return False

    def call_statement(self, stmt: Call, frame: _Frame) -> None:
        callee = self.functions[stmt.function]
        inner = _Frame(callee, {}, {}, _zeros(callee))
        for param, argument in zip(callee.params, stmt.arguments, strict=True):
            if isinstance(argument, ArrayRef):
                inner.arrays[param.name] = frame.arrays[argument.root.name]
            else:
                inner.scalars[param.name] = self.value(argument, frame)
        for name, value in zip(stmt.results, self.call(inner), strict=True):
            frame.locals[name] = value

    def atomic(self, stmt: Atomic, frame: _Frame) -> None:
        where = self.where(stmt.place, frame)
        operands = [self.value(operand, frame) for operand in stmt.operands]
        dtype = stmt.place.type
        assert isinstance(dtype, DType)
        old = self.element(where, dtype)
        if stmt.op is AtomicOp.EXCHANGE:
            new = operands[0]
        elif stmt.op is AtomicOp.COMPARE_EXCHANGE:
            new = operands[1] if old == operands[0] else old
        else:
            new = semantics.binary(_ATOMICS[stmt.op], old, operands[0], dtype)
        self.memory[where] = new
        if stmt.result is not None:
            frame.locals[stmt.result] = old

    def where(self, place: Place, frame: _Frame) -> tuple[str, tuple[int, ...]]:
        return frame.arrays[place.root.name], tuple(int(self.value(index, frame)) for index in place.indices)

    def element(self, where: tuple[str, tuple[int, ...]], dtype: DType) -> Value:
        if where in self.memory:
            return self.memory[where]
        return semantics.cast(sum(where[1]) % 11 - 5, i64, dtype)

    def value(self, expr: Expr, frame: _Frame) -> Value:
        match expr:
            case Local():
                return frame.locals[expr.name]
            case Param():
                return frame.scalars[expr.name]
            case ThreadIndex():
                return self.index(expr)
            case Shape():
                return len(frame.arrays[expr.param]) + 3 * expr.axis
            case Load():
                return self.element(self.where(expr.place, frame), scalar(expr))
            case _:
                return operation(expr, self.value, frame)

    def index(self, index: ThreadIndex) -> int:
        size = self.module.kernel.block[index.axis]
        if index.kind is IndexKind.BLOCK_DIM:
            return size
        if index.kind is IndexKind.LOCAL_ID:
            return size // 2
        return 1 + index.axis + 3 * list(IndexKind).index(index.kind)


def _zeros(owner: Kernel | Function) -> dict[str, Value]:
    zeros: dict[str, Value] = {}
    for variable in owner.locals:
        assert isinstance(variable.type, DType)
        zeros[variable.name] = semantics.cast(0.0, f32, variable.type)
    return zeros
