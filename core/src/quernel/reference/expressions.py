"""Expressions of the IR as Python expressions of exactly the same value.

Simple operations stand in line where Python's own arithmetic provably gives the IR's value; the others call
`quernel.ir.semantics` through a primitive.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Final, NamedTuple, assert_never

from quernel.dtypes import DType, ValueType, f32, f64
from quernel.ir.nodes import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Field,
    Fma,
    Load,
    Local,
    Math,
    Param,
    Place,
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
from quernel.locations import Location
from quernel.reference.positions import Builder, Positions
from quernel.reference.primitives import operation_name, parameter_name, site_name
from quernel.reference.threads import index_position
from quernel.reference.values import position_of

__all__ = ["MAX_DEPTH", "THREAD", "Access", "ExpressionLowering"]

THREAD: Final = ".thread"
"""The parameter that holds what a thread knows of itself."""

MAX_DEPTH: Final = 16
"""Deeper expressions go through temporaries, as Python's compiler recurses over them."""

_COMPARE: Final[dict[CompareOp, type[ast.cmpop]]] = {
    CompareOp.EQ: ast.Eq,
    CompareOp.NE: ast.NotEq,
    CompareOp.LT: ast.Lt,
    CompareOp.LE: ast.LtE,
    CompareOp.GT: ast.Gt,
    CompareOp.GE: ast.GtE,
}
_RING: Final[dict[BinaryOp, type[ast.operator]]] = {
    BinaryOp.ADD: ast.Add,
    BinaryOp.SUB: ast.Sub,
    BinaryOp.MUL: ast.Mult,
}
_BITS: Final[dict[BinaryOp, type[ast.operator]]] = {
    BinaryOp.AND: ast.BitAnd,
    BinaryOp.OR: ast.BitOr,
    BinaryOp.XOR: ast.BitXor,
}
_BY_CONSTANT: Final[dict[BinaryOp, type[ast.operator]]] = {
    BinaryOp.FLOORDIV: ast.FloorDiv,
    BinaryOp.MOD: ast.Mod,
    BinaryOp.SHL: ast.LShift,
    BinaryOp.SHR: ast.RShift,
}


class Access(NamedTuple):
    """An access of an element, or of a part of one.

    Attributes:
        array: the variable that holds the array.
        suffix: what the names of the array's methods end in.
        element: the indices, and the path of the part if it is one.
        where: the location for errors.
    """

    array: str
    suffix: str
    element: list[ast.expr]
    where: ast.expr


def _scalar(type_: ValueType) -> DType:
    assert isinstance(type_, DType), "operators take scalars"
    return type_


class ExpressionLowering:
    """Lowers the expressions of one function.

    Args:
        positions: where the function stands.
        ndim: rank of the launch.
        hidden: parameters whose names locals have taken.
        new_site: numbers a location that an error may name.
        emit: appends a statement before the one that is being lowered.
    """

    def __init__(
        self,
        positions: Positions,
        ndim: int,
        hidden: frozenset[str],
        new_site: Callable[[Location], int],
        emit: Callable[[ast.stmt], None],
    ) -> None:
        self._positions = positions
        self._ndim = ndim
        self._hidden = hidden
        self._new_site = new_site
        self._emit = emit
        self._num_temporaries = 0

    def lower(self, root: Expr) -> ast.expr:
        """`root` as a Python expression. Walks without recursion, so that long chains of operators are fine."""
        return fold_expression(root, self._combine)[0]

    def _combine(self, node: Expr, operands: tuple[tuple[ast.expr, int], ...]) -> tuple[ast.expr, int]:
        """A node's Python expression and its depth."""
        at = self._positions.at(node.loc)
        built = self._build(at, node, [operand for operand, _ in operands])
        depth = 1 + max((below for _, below in operands), default=0)
        return (built, depth) if depth < MAX_DEPTH else (self.temporary(at, built), 1)

    def temporary(self, at: Builder, value: ast.expr) -> ast.expr:
        """A fresh variable that holds `value`, assigned before the statement that is being lowered."""
        name = f".temporary {self._num_temporaries}"
        self._num_temporaries += 1
        self._emit(at.assign(name, value))
        return at.name(name)

    def parameter(self, name: str) -> str:
        """The Python variable that holds a parameter."""
        return parameter_name(name) if name in self._hidden else name

    def access(self, at: Builder, place: Place) -> Access:
        """The access of a place that a statement names."""
        return self._access(at, place, at.tuple(*[self.lower(index) for index in place.indices]))

    def _access(self, at: Builder, place: Place, indices: ast.expr) -> Access:
        path = [at.tuple(*map(at.constant, place.view))] if place.view else []
        where = at.name(site_name(self._new_site(place.loc)))
        return Access(self.parameter(place.root.name), "_part" if place.view else "", [indices, *path], where)

    def _build(self, at: Builder, node: Expr, operands: list[ast.expr]) -> ast.expr:
        match node:
            case Const(value=value):
                return at.constant(value)
            case Local(name=name):
                return at.name(name)
            case Param(name=name):
                return at.name(self.parameter(name))
            case Unary(op=op):
                return _unary(at, op, operands[0], _scalar(node.type))
            case Binary(op=op, right=right):
                return _binary(at, op, operands[0], operands[1], right, _scalar(node.type))
            case Compare(op=op):
                return at.put(ast.Compare(operands[0], [_COMPARE[op]()], [operands[1]]))
            case Select():
                return at.put(ast.IfExp(operands[0], operands[1], operands[2]))
            case Cast(operand=operand, type=target):
                return _cast(at, operands[0], _scalar(operand.type), target)
            case Bitcast(operand=operand, type=target):
                source = _scalar(operand.type)
                return at.call(operation_name("bitcast", source.name, target.name), operands[0])
            case Fma():
                return at.call(operation_name("fma", _scalar(node.type).name), *operands)
            case Math(function=function, operands=of):
                dtype = _scalar(of[0].type)
                return at.call(operation_name("math", function.value, dtype.name), *operands)
            case ThreadIndex(kind=kind, axis=axis):
                return at.item(at.name(THREAD), index_position(kind, axis, self._ndim))
            case Shape(param=param, axis=axis):
                return at.item(at.attribute(self.parameter(param), "shape"), axis)
            case Load(place=place):
                access = self._access(at, place, at.tuple(*operands))
                return at.method(access.array, f"load{access.suffix}", *access.element, access.where)
            case VecMake() | StructMake():
                return at.tuple(*operands)
            case VecGet(index=index):
                return at.item(operands[0], index)
            case Field(operand=of_struct, name=name):
                return at.item(operands[0], position_of(of_struct.type, name))
            case _:
                assert_never(node)


def _wrapped(at: Builder, value: ast.expr, dtype: DType) -> ast.expr:
    """An exact integer modulo the width of its type."""
    mask = at.constant((1 << dtype.bits) - 1)
    if not dtype.is_signed:
        return at.operation(value, ast.BitAnd(), mask)
    half = 1 << (dtype.bits - 1)
    lifted = at.operation(value, ast.Add(), at.constant(half))
    return at.operation(at.operation(lifted, ast.BitAnd(), mask), ast.Sub(), at.constant(half))


def _unary(at: Builder, op: UnaryOp, operand: ast.expr, dtype: DType) -> ast.expr:
    match op:
        case UnaryOp.NOT:
            return at.put(ast.UnaryOp(ast.Not(), operand))
        case UnaryOp.NEG if dtype.is_float:
            return at.put(ast.UnaryOp(ast.USub(), operand))
        case UnaryOp.NEG if dtype.is_integer:
            return _wrapped(at, at.put(ast.UnaryOp(ast.USub(), operand)), dtype)
        case UnaryOp.INVERT if dtype.is_integer:
            return _wrapped(at, at.put(ast.UnaryOp(ast.Invert(), operand)), dtype)
        case UnaryOp.ABS if dtype.is_float:
            return at.call(".fabs", operand)
        case UnaryOp.ABS if dtype.is_integer:
            return _wrapped(at, at.call(".abs", operand), dtype)
        case _:
            return at.call(operation_name("unary", op.value, dtype.name), operand)


def _binary(at: Builder, op: BinaryOp, left: ast.expr, right: ast.expr, divisor: Expr, dtype: DType) -> ast.expr:
    if op is BinaryOp.MIN or op is BinaryOp.MAX:
        return at.call(f".{op.value}", left, right)
    if op in _BITS:
        return at.operation(left, _BITS[op](), right)
    if op in _RING and dtype.is_integer:
        return _wrapped(at, at.operation(left, _RING[op](), right), dtype)
    if op in _RING and dtype is f64:
        return at.operation(left, _RING[op](), right)
    if op in _RING and dtype is f32:
        # A double holds sums and products of f32 well enough that rounding twice equals rounding once.
        return at.call(operation_name("round", "f32"), at.operation(left, _RING[op](), right))
    if op in _BY_CONSTANT and dtype.is_integer and isinstance(divisor, Const) and 0 < divisor.value < dtype.bits:
        plain = at.operation(left, _BY_CONSTANT[op](), right)
        return _wrapped(at, plain, dtype) if op is BinaryOp.SHL else plain
    return at.call(operation_name("binary", op.value, dtype.name), left, right)


def _cast(at: Builder, operand: ast.expr, source: DType, target: DType) -> ast.expr:
    if source is target or (source is f32 and target is f64):
        return operand
    if target.is_bool:
        return at.put(ast.Compare(operand, [ast.NotEq()], [at.constant(0)]))
    if source.is_bool:
        return at.call(".float" if target.is_float else ".int", operand)
    if source.is_integer and target.is_integer:
        fits = target.min <= source.min and source.max <= target.max
        return operand if fits else _wrapped(at, operand, target)
    if target is f64 and source.is_integer:
        return at.call(".float", operand)
    if source is f64 and target is f32:
        return at.call(operation_name("round", "f32"), operand)
    return at.call(operation_name("cast", source.name, target.name), operand)
