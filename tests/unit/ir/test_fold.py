from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from quernel.dtypes import SCALARS, DType, bool_, f32, f64, i8, i32, i64
from quernel.geometry import LaunchForm
from quernel.ir import semantics
from quernel.ir.nodes import (
    Assign,
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Expr,
    Fma,
    IndexKind,
    Kernel,
    Local,
    Math,
    MathFunction,
    Module,
    Select,
    ThreadIndex,
    Unary,
    UnaryOp,
)
from quernel.ir.passes import fold
from quernel.ir.semantics import same_value

FLOAT_OPS = ("add", "sub", "mul", "div", "floordiv", "mod", "min", "max")
BOOL_OPS = ("and", "or", "xor", "min", "max")


def folded(expr: Expr, block: tuple[int, ...] = (4,)) -> Expr:
    body = (Assign(name="r", value=expr),)
    kernel = Kernel(name="k", form=LaunchForm.GRID, block=block, params=(), locals=(), body=body)
    stmt = fold(Module(kernel=kernel)).kernel.body[0]
    assert isinstance(stmt, Assign)
    return stmt.value


def evaluated(expr: Expr, x: Any) -> Any:
    match expr:
        case Local():
            return x
        case Const():
            return expr.value
        case Unary():
            return semantics.unary(expr.op, evaluated(expr.operand, x), expr.operand.type)
        case Binary():
            return semantics.binary(expr.op, evaluated(expr.left, x), evaluated(expr.right, x), expr.left.type)
        case Cast():
            return semantics.cast(evaluated(expr.operand, x), expr.operand.type, expr.type)
        case Select():
            return evaluated(expr.then if evaluated(expr.condition, x) else expr.otherwise, x)
    raise AssertionError(expr)


def edges(dtype: DType) -> list[Any]:
    if dtype.is_bool:
        return [False, True]
    if dtype.is_integer:
        return sorted({0, 1, 2, dtype.bits, dtype.min, dtype.max, dtype.max // 2, max(dtype.min, -1)})
    tiny, large = {"f64": (5e-324, 1.5e308), "f32": (2.0**-149, 1.5 * 2.0**127), "f16": (2.0**-24, 60000.0)}.get(
        dtype.name, (2.0**-133, 1.5 * 2.0**127)
    )
    some = [0.0, tiny, 0.5, 1.0, 1.5, 2.0, 200.0, large, math.inf]
    return [*some, *(-value for value in some), math.nan]


def ops(dtype: DType) -> list[BinaryOp]:
    if dtype.is_float or dtype.is_bool:
        return [BinaryOp(name) for name in (FLOAT_OPS if dtype.is_float else BOOL_OPS)]
    return [op for op in BinaryOp if op is not BinaryOp.DIV]


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_operation_with_one_constant_keeps_its_value_for_every_edge(dtype: DType) -> None:
    x = Local(name="x", type=dtype)
    shortened = 0
    for op, constant, constant_is_right in itertools.product(ops(dtype), edges(dtype), (True, False)):
        if op is BinaryOp.POW and not (constant_is_right and 0 <= constant < 100):
            continue
        const = Const(value=constant, type=dtype)
        expr = Binary(op=op, left=x, right=const) if constant_is_right else Binary(op=op, left=const, right=x)
        result = folded(expr)
        assert result.type is dtype
        shortened += not isinstance(result, Binary)
        for value in edges(dtype):
            assert same_value(evaluated(result, value), evaluated(expr, value)), (op, constant, value)
    assert shortened >= 5


@pytest.mark.parametrize("first", SCALARS, ids=str)
def test_casts_one_after_the_other_keep_their_value(first: DType) -> None:
    x = Local(name="x", type=first)
    for second, third in itertools.product(SCALARS, SCALARS):
        expr = Cast(operand=Cast(operand=x, type=second), type=third)
        result = folded(expr)
        assert result.type is third
        for value in edges(first):
            assert same_value(evaluated(result, value), evaluated(expr, value)), (second, third, value)


@pytest.mark.parametrize(
    ("first", "second", "third", "num_casts"),
    [
        (i32, i64, i32, 0),
        (i32, i64, i8, 1),
        (i8, f64, f32, 1),
        (f32, f64, f32, 0),
        (f64, f32, f64, 2),
        (i64, f64, i64, 2),
    ],
    ids=str,
)
def test_cast_is_left_out_only_where_it_loses_nothing(
    first: DType, second: DType, third: DType, num_casts: int
) -> None:
    result = folded(Cast(operand=Cast(operand=Local(name="x", type=first), type=second), type=third))
    found = 0
    while isinstance(result, Cast):
        result, found = result.operand, found + 1
    assert found == num_casts


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_operations_on_constants_are_evaluated(dtype: DType) -> None:
    for op, left, right in itertools.product(ops(dtype), edges(dtype), edges(dtype)):
        if op is BinaryOp.POW and not 0 <= right < 100:
            continue
        expr = Binary(op=op, left=Const(value=left, type=dtype), right=Const(value=right, type=dtype))
        result = folded(expr)
        assert isinstance(result, Const)
        assert same_value(result.value, semantics.binary(op, left, right, dtype))


def test_power_with_a_negative_exponent_is_left_alone() -> None:
    expr = Binary(op=BinaryOp.POW, left=Const(value=2, type=i64), right=Const(value=-1, type=i64))
    assert folded(expr) == expr


@pytest.mark.parametrize("function", MathFunction, ids=lambda function: function.value)
def test_only_exact_functions_are_folded(function: MathFunction) -> None:
    from quernel.ir.math_functions import INTEGER_FUNCTIONS, PREDICATES, num_operands

    operand = Const(value=3, type=i32) if function in INTEGER_FUNCTIONS else Const(value=0.75, type=f32)
    type_ = bool_ if function in PREDICATES else operand.type
    result = folded(Math(function=function, operands=(operand,) * num_operands(function), type=type_))
    exact = {"sqrt", "floor", "ceil", "trunc", "rint", "fmod", "copysign", "isnan", "isinf", "isfinite"}
    assert isinstance(result, Const) == (function.value in exact | {"popcount", "clz", "ctz"})


def test_nan_has_no_bits_to_fold() -> None:
    bits = Bitcast(operand=Const(value=math.nan, type=f64), type=i64)
    assert isinstance(folded(bits), Bitcast)
    back = Bitcast(operand=Const(value=-1, type=i64), type=f64)
    assert folded(back) == back
    assert folded(Bitcast(operand=Const(value=1.0, type=f32), type=i32)) == Const(value=0x3F800000, type=i32)


def test_fma_of_constants_is_rounded_once() -> None:
    a, c = 1.0 + 2.0**-30, -1.0 - 2.0**-29
    result = folded(Fma(a=Const(value=a, type=f64), b=Const(value=a, type=f64), c=Const(value=c, type=f64)))
    assert result == Const(value=2.0**-60, type=f64)


@pytest.mark.parametrize("op", [UnaryOp.NEG, UnaryOp.INVERT, UnaryOp.NOT, UnaryOp.ABS], ids=lambda op: op.value)
def test_operator_that_undoes_itself_is_left_out(op: UnaryOp) -> None:
    x = Local(name="x", type=bool_ if op is UnaryOp.NOT else i32)
    result = folded(Unary(op=op, operand=Unary(op=op, operand=x)))
    assert (result == x) == (op is not UnaryOp.ABS)


def test_select_follows_its_constants() -> None:
    c, x, y = (Local(name=name, type=bool_) for name in "cxy")
    true, false = Const(value=True, type=bool_), Const(value=False, type=bool_)
    assert folded(Select(condition=true, then=x, otherwise=y)) == x
    assert folded(Select(condition=false, then=x, otherwise=y)) == y
    assert folded(Select(condition=c, then=true, otherwise=false)) == c
    assert folded(Select(condition=c, then=false, otherwise=true)) == Unary(op=UnaryOp.NOT, operand=c)
    assert folded(Select(condition=c, then=false, otherwise=false)) == false
    assert folded(Select(condition=c, then=x, otherwise=false)) == Binary(op=BinaryOp.AND, left=c, right=x)
    assert folded(Select(condition=c, then=true, otherwise=x)) == Binary(op=BinaryOp.OR, left=c, right=x)
    for kept in (Select(condition=c, then=x, otherwise=true), Select(condition=c, then=false, otherwise=x)):
        assert folded(kept) == kept
    zeros = Select(condition=c, then=Const(value=0.0, type=f64), otherwise=Const(value=-0.0, type=f64))
    assert isinstance(folded(zeros), Select)


def test_indices_that_the_block_decides_are_literals() -> None:
    def index(kind: IndexKind, axis: int) -> Expr:
        return folded(ThreadIndex(kind=kind, axis=axis), block=(1, 8))

    assert index(IndexKind.BLOCK_DIM, 1) == Const(value=8, type=i64)
    assert index(IndexKind.LOCAL_ID, 0) == Const(value=0, type=i64)
    for kind in IndexKind:
        if kind is not IndexKind.BLOCK_DIM:
            axis = 0 if kind.value.startswith("subgroup") else 1
            assert index(kind, axis) == ThreadIndex(kind=kind, axis=axis)
