"""Ranges: between which values an integer expression lies, in every thread and on every way through a function.

Flow does not count: a local lies between the least and the greatest value that any assignment gives it. What wraps, or
is not known, may be any value of its type. `index32` adds what a launch of that variant promises: extents, lengths and
ids below 2**31, and first ids of at least -2**31.
"""

from __future__ import annotations

from typing import Final, assert_never

import attrs

from quernel.dtypes import DType, ScalarType, ValueType, bool_, i32, i64
from quernel.geometry import LaunchForm
from quernel.ir.analysis import assigned_names
from quernel.ir.math_functions import INTEGER_FUNCTIONS
from quernel.ir.nodes import (
    Assign,
    Atomic,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    Function,
    IndexKind,
    Kernel,
    Local,
    Math,
    Module,
    Param,
    Select,
    Shape,
    Subgroup,
    ThreadIndex,
    Unary,
    UnaryOp,
)
from quernel.ir.walk import fold_expression, walk_statements

__all__ = ["Interval", "Ranges"]

_ROUNDS: Final = 4
"""A local whose range still grows after so many rounds may be any value of its type."""


@attrs.frozen
class Interval:
    """The integers from `least` to `greatest`, both included."""

    least: int
    greatest: int

    @staticmethod
    def of(dtype: DType) -> Interval:
        """Every value of an integer type or bool."""
        return Interval(dtype.min, dtype.max)

    def fits(self, dtype: DType) -> bool:
        """Whether every value is one of the type."""
        return dtype.min <= self.least and self.greatest <= dtype.max

    def joined(self, other: Interval | None) -> Interval:
        """The least interval round both."""
        if other is None:
            return self
        return Interval(min(self.least, other.least), max(self.greatest, other.greatest))


_BOOL: Final = Interval(0, 1)
_INDEX32: Final = Interval(0, i32.max)
_INDEX64: Final = Interval(0, i64.max)


class Ranges:
    """The ranges of one kernel or device function."""

    def __init__(self, module: Module, owner: Kernel | Function, *, index32: bool = False) -> None:
        self._kernel = module.kernel
        self._index = _INDEX32 if index32 else _INDEX64
        self._params = {
            parameter.name: _of_type(parameter.type.dtype) if parameter.bounds is None else Interval(*parameter.bounds)
            for parameter in owner.params
            if isinstance(parameter.type, ScalarType)
        }
        self._types = {local.name: local.type for local in owner.locals}
        self._locals: dict[str, Interval] = {}
        self._is_solved = False
        self._solve(owner)
        self._is_solved = True

    def local(self, name: str) -> Interval | None:
        """The range of an integer local; `None` where nothing assigns it, or it is no integer."""
        return self._locals.get(name)

    def of(self, expr: Expr) -> Interval | None:
        """The range of an integer expression or bool; `None` for others."""
        return fold_expression(expr, self.combined)

    # --- locals ---

    def _solve(self, owner: Kernel | Function) -> None:
        statements = list(walk_statements(owner.body))
        for stmt in statements:
            if isinstance(stmt, Atomic | Call | Subgroup):
                for name in assigned_names((stmt,)):
                    self._join(name, _of_type(self._types[name]))
        rounds = 0
        before: dict[str, Interval] = {}
        while before != self._locals or rounds == 0:
            before = dict(self._locals)
            rounds += 1
            for stmt in statements:
                if isinstance(stmt, Assign):
                    self._join(stmt.name, self._assigned(stmt.value))
                elif isinstance(stmt, For):
                    self._join(stmt.variable, self._variable(stmt))
            if rounds >= _ROUNDS:
                for name, interval in self._locals.items():
                    if before.get(name) != interval:
                        self._join(name, _of_type(self._types[name]))

    def _join(self, name: str, interval: Interval | None) -> None:
        if interval is not None:
            self._locals[name] = interval.joined(self._locals.get(name))

    def _assigned(self, value: Expr) -> Interval | None:
        try:
            return self.of(value)
        except _UnknownError:
            return None  # A local in it has no value so far.

    def _variable(self, loop: For) -> Interval | None:
        try:
            start, stop, step = (self.of(bound) for bound in (loop.start, loop.stop, loop.step))
        except _UnknownError:
            return None
        assert start is not None
        assert stop is not None
        assert step is not None
        least, greatest = start.least, start.greatest
        if step.greatest > 0:
            greatest = max(greatest, stop.greatest - 1)
        if step.least < 0:
            least = min(least, stop.least + 1)
        return Interval(least, greatest)

    # --- expressions ---

    def combined(self, expr: Expr, below: tuple[Interval | None, ...]) -> Interval | None:
        """The range of one node, from those of its children."""
        dtype = expr.type
        if not isinstance(dtype, DType) or dtype.is_float:
            return None
        match expr:
            case Const():
                return Interval(int(expr.value), int(expr.value))
            case Local():
                if expr.name not in self._locals and not self._is_solved:
                    raise _UnknownError
                return self._locals.get(expr.name, Interval.of(dtype))
            case Param():
                return self._params[expr.name]
            case ThreadIndex():
                return self._thread_index(expr)
            case Shape():
                return self._index
            case Compare():
                return _BOOL
            case Select():
                _, then, otherwise = below
                return then.joined(otherwise) if then is not None else None
            case Cast():
                return _converted(below[0], dtype)
            case Unary():
                return _unary(expr.op, below[0], dtype)
            case Binary():
                left, right = below
                if left is None or right is None or dtype is bool_:
                    return Interval.of(dtype)
                return _within(_binary(expr.op, left, right, dtype), dtype)
            case Math() if expr.function in INTEGER_FUNCTIONS:
                return Interval(0, dtype.bits)
            case _:
                return Interval.of(dtype)

    def _thread_index(self, index: ThreadIndex) -> Interval:
        match index.kind:
            case IndexKind.LOCAL_ID:
                return Interval(0, self._kernel.block[index.axis] - 1)
            case IndexKind.BLOCK_DIM:
                size = self._kernel.block[index.axis]
                return Interval(size, size)
            case IndexKind.GLOBAL_ID if self._kernel.form is LaunchForm.OVER:
                return Interval.of(i64 if self._index is _INDEX64 else i32)  # An extent may start below 0.
            case IndexKind.GLOBAL_ID | IndexKind.GLOBAL_DIM | IndexKind.BLOCK_ID | IndexKind.GRID_DIM:
                return self._index
            case IndexKind.SUBGROUP_LANE | IndexKind.SUBGROUP_ID | IndexKind.SUBGROUP_SIZE:
                return _INDEX32
            case _:
                assert_never(index.kind)


class _UnknownError(Exception):
    """A local is read that nothing has assigned so far."""


def _of_type(type_: ValueType) -> Interval | None:
    return Interval.of(type_) if isinstance(type_, DType) and not type_.is_float else None


def _within(interval: Interval, dtype: DType) -> Interval:
    """The interval, unless a value of it would wrap."""
    return interval if interval.fits(dtype) else Interval.of(dtype)


def _converted(operand: Interval | None, dtype: DType) -> Interval:
    if dtype is bool_:
        return _BOOL
    return Interval.of(dtype) if operand is None else _within(operand, dtype)


def _unary(op: UnaryOp, operand: Interval | None, dtype: DType) -> Interval:
    if operand is None:
        return Interval.of(dtype)
    match op:
        case UnaryOp.NEG:
            return _within(Interval(-operand.greatest, -operand.least), dtype)
        case UnaryOp.INVERT:
            return _within(Interval(-operand.greatest - 1, -operand.least - 1), dtype)
        case UnaryOp.ABS:
            least = 0 if operand.least <= 0 <= operand.greatest else min(abs(operand.least), abs(operand.greatest))
            return _within(Interval(least, max(abs(operand.least), abs(operand.greatest))), dtype)
        case UnaryOp.NOT:
            return _BOOL
        case UnaryOp.UNIFORM:
            return operand
        case _:
            assert_never(op)


def _corners(values: list[int]) -> Interval:
    return Interval(min(values), max(values))


def _binary(op: BinaryOp, left: Interval, right: Interval, dtype: DType) -> Interval:
    """Where the mathematical result lies; beyond the type, it wraps."""
    a, b, c, d = left.least, left.greatest, right.least, right.greatest
    match op:
        case BinaryOp.ADD:
            return Interval(a + c, b + d)
        case BinaryOp.SUB:
            return Interval(a - d, b - c)
        case BinaryOp.MUL:
            return _corners([a * c, a * d, b * c, b * d])
        case BinaryOp.MIN:
            return Interval(min(a, c), min(b, d))
        case BinaryOp.MAX:
            return Interval(max(a, c), max(b, d))
        case BinaryOp.FLOORDIV:
            # The quotient is monotone in the divisor on either side of 0, and 0 where the divisor is.
            divisors = [x for x in (c, d, -1, 1) if c <= x <= d and x]
            zero = [0] if c <= 0 <= d else []
            return _corners([*zero, *(x // y for x in (a, b) for y in divisors)])
        case BinaryOp.MOD:
            greatest = max(d - 1, 0)
            if a >= 0 and c >= 0:
                greatest = min(greatest, b)
            return Interval(min(c + 1, 0), greatest)
        case BinaryOp.SHL:
            counts = [min(max(count, 0), dtype.bits) for count in (c, d)]
            return _corners([x << count for x in (a, b) for count in counts])
        case BinaryOp.SHR:
            counts = [min(max(count, 0), dtype.bits) for count in (c, d)]
            return _corners([x >> count for x in (a, b) for count in counts])
        case BinaryOp.AND if a >= 0 or c >= 0:
            return Interval(0, min(x for x, least in ((b, a), (d, c)) if least >= 0))
        case BinaryOp.OR | BinaryOp.XOR if a >= 0 and c >= 0:
            return Interval(0, (1 << max(b.bit_length(), d.bit_length())) - 1)
        case _:
            return Interval.of(dtype)
