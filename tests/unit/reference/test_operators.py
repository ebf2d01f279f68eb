"""Each operator of the IR in the interpreter is what `quernel.ir.semantics` says, in-line forms included."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from tests.unit.reference.builders import GID, Interpreter, array, kernel, load, store

from quernel.dtypes import DType, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from quernel.ir.nodes import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Fma,
    Math,
    MathFunction,
    Select,
    Unary,
    UnaryOp,
)
from quernel.ir.rounding import round_float
from quernel.ir.semantics import Value, binary, bitcast, cast, compare, fma, math_function, same_value, unary

INTEGERS = (i8, i16, i32, i64, u8, u16, u32, u64)
FLOATS = (f16, f32, f64)
SCALARS = (bool_, *INTEGERS, *FLOATS)

INTEGER_BINARY = tuple(op for op in BinaryOp if op is not BinaryOp.DIV)
FLOAT_BINARY = (
    BinaryOp.ADD,
    BinaryOp.SUB,
    BinaryOp.MUL,
    BinaryOp.DIV,
    BinaryOp.FLOORDIV,
    BinaryOp.MOD,
    BinaryOp.MIN,
    BinaryOp.MAX,
)
BOOL_BINARY = (BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR)


def edge_values(dtype: DType) -> list[Value]:
    if dtype is bool_:
        return [False, True]
    if dtype.is_integer:
        spread = (0, 1, 2, 3, 7, dtype.bits - 1, dtype.max, dtype.max - 1, dtype.max // 2 + 1)
        return list(dict.fromkeys([*spread, dtype.min, *([-1, -2, -7, dtype.min + 1] if dtype.is_signed else [])]))
    tiny = {"f16": 6e-8, "f32": 1e-45, "f64": 5e-324}[dtype.name]
    huge = {"f16": 65504.0, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}[dtype.name]
    plain = [0.0, 1.0, 2.5, 3.0, 0.1, tiny, huge, math.inf]
    return [round_float(x, dtype) for value in plain for x in (value, -value)] + [math.nan]


def evaluate(
    interpreter: Interpreter, expression: Any, result: DType, columns: list[tuple[DType, list[Value]]]
) -> list[Value]:
    """The values of an expression of loads, for each row of the columns."""
    names = "abc"
    loads = [load(name, GID, type=dtype) for name, (dtype, _) in zip(names, columns, strict=False)]
    module = kernel(
        {name: array(dtype) for name, (dtype, _) in zip(names, columns, strict=False)} | {"out": array(result)},
        [store("out", GID, value=expression(*loads))],
    )
    num_rows = len(columns[0][1])
    out = np.zeros(num_rows, result.numpy)
    interpreter.run(module, num_rows, *[np.array(values, dtype.numpy) for dtype, values in columns], out)
    values: list[Value] = out.tolist()
    return values


def assert_same(actual: list[Value], expected: list[Value], rows: list[Any]) -> None:
    wrong = [(row, a, e) for row, a, e in zip(rows, actual, expected, strict=True) if not same_value(a, e)]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_binary_operators_are_exact_at_the_edges_of_each_type(interpreter: Interpreter, dtype: DType) -> None:
    operators = BOOL_BINARY if dtype.is_bool else INTEGER_BINARY if dtype.is_integer else FLOAT_BINARY
    pairs = list(itertools.product(edge_values(dtype), repeat=2))
    for op in operators:
        rows = [(a, b) for a, b in pairs if not (op is BinaryOp.POW and b < 0)]
        columns = [(dtype, [a for a, _ in rows]), (dtype, [b for _, b in rows])]
        actual = evaluate(interpreter, lambda a, b, op=op: Binary(op=op, left=a, right=b), dtype, columns)
        assert_same(actual, [binary(op, a, b, dtype) for a, b in rows], [(op, *row) for row in rows])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", [BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.SHL, BinaryOp.SHR], ids=lambda op: op.value)
def test_operators_with_a_constant_on_the_right_are_exact(interpreter: Interpreter, op: BinaryOp, dtype: DType) -> None:
    lefts = edge_values(dtype)
    for right in edge_values(dtype):
        actual = evaluate(
            interpreter,
            lambda a, right=right: Binary(op=op, left=a, right=Const(value=right, type=dtype)),
            dtype,
            [(dtype, lefts)],
        )
        assert_same(actual, [binary(op, left, right, dtype) for left in lefts], [(left, right) for left in lefts])


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_comparisons_are_exact(interpreter: Interpreter, dtype: DType) -> None:
    rows = list(itertools.product(edge_values(dtype), repeat=2))
    for op in CompareOp:
        columns = [(dtype, [a for a, _ in rows]), (dtype, [b for _, b in rows])]
        actual = evaluate(interpreter, lambda a, b, op=op: Compare(op=op, left=a, right=b), bool_, columns)
        assert_same(actual, [compare(op, a, b) for a, b in rows], [(op, *row) for row in rows])


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_unary_operators_are_exact(interpreter: Interpreter, dtype: DType) -> None:
    operators = {
        "bool": (UnaryOp.NOT,),
        "int": (UnaryOp.NEG, UnaryOp.INVERT, UnaryOp.ABS),
        "uint": (UnaryOp.NEG, UnaryOp.INVERT, UnaryOp.ABS),
        "float": (UnaryOp.NEG, UnaryOp.ABS),
    }[dtype.kind.value]
    values = edge_values(dtype)
    for op in operators:
        actual = evaluate(interpreter, lambda a, op=op: Unary(op=op, operand=a), dtype, [(dtype, values)])
        assert_same(actual, [unary(op, value, dtype) for value in values], [(op, value) for value in values])


@pytest.mark.parametrize("source", SCALARS, ids=str)
def test_casts_to_every_type_are_exact(interpreter: Interpreter, source: DType) -> None:
    values = edge_values(source)
    for target in SCALARS:
        actual = evaluate(
            interpreter, lambda a, target=target: Cast(operand=a, type=target), target, [(source, values)]
        )
        assert_same(actual, [cast(value, source, target) for value in values], [(target, value) for value in values])


@pytest.mark.parametrize(("source", "target"), [(f32, i32), (i32, f32), (f64, u64), (u64, f64), (i16, f16), (u8, i8)])
def test_bitcasts_keep_the_bits(interpreter: Interpreter, source: DType, target: DType) -> None:
    values = [value for value in edge_values(source) if value == value]
    actual = evaluate(interpreter, lambda a: Bitcast(operand=a, type=target), target, [(source, values)])
    assert_same(actual, [bitcast(value, source, target) for value in values], values)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fma_rounds_once(interpreter: Interpreter, dtype: DType) -> None:
    rows = list(itertools.product(edge_values(dtype)[::2], repeat=3))
    columns: list[tuple[DType, list[Value]]] = [(dtype, [row[i] for row in rows]) for i in range(3)]
    actual = evaluate(interpreter, lambda a, b, c: Fma(a=a, b=b, c=c), dtype, columns)
    assert_same(actual, [fma(float(a), float(b), float(c), dtype) for a, b, c in rows], rows)


@pytest.mark.parametrize("function", list(MathFunction), ids=lambda function: function.value)
def test_mathematical_functions_are_those_of_the_semantics(interpreter: Interpreter, function: MathFunction) -> None:
    counts_bits = function in (MathFunction.POPCOUNT, MathFunction.CLZ, MathFunction.CTZ)
    is_test = function in (MathFunction.ISNAN, MathFunction.ISINF, MathFunction.ISFINITE)
    two = (MathFunction.ATAN2, MathFunction.POW, MathFunction.FMOD, MathFunction.HYPOT, MathFunction.COPYSIGN)
    for dtype in (u32, i64) if counts_bits else (f32, f64):
        result = bool_ if is_test else dtype
        rows = list(itertools.product(edge_values(dtype), repeat=2 if function in two else 1))
        columns: list[tuple[DType, list[Value]]] = [(dtype, [row[i] for row in rows]) for i in range(len(rows[0]))]

        def called(*operands: Expr, result: DType = result) -> Expr:
            return Math(function=function, operands=operands, type=result)

        actual = evaluate(interpreter, called, result, columns)
        assert_same(actual, [math_function(function, row, dtype) for row in rows], rows)


def test_select_takes_the_side_that_the_condition_names(interpreter: Interpreter) -> None:
    columns: list[tuple[DType, list[Value]]] = [(bool_, [True, False]), (i32, [1, 1]), (i32, [2, 2])]
    actual = evaluate(interpreter, lambda c, a, b: Select(condition=c, then=a, otherwise=b), i32, columns)
    assert actual == [1, 2]
