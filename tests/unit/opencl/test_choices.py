"""Choices between two integers, of which one is the other's complement and the same in all threads."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.ir_by_hand import array, index, local, scalar, store
from tests.unit.opencl.harness import Built, kernel

from quernel.dtypes import DType, ScalarType, i32, i64, u8, u16, u32, u64
from quernel.ir.nodes import (
    Binary,
    BinaryOp,
    Call,
    Compare,
    CompareOp,
    Expr,
    Function,
    Module,
    Param,
    Parameter,
    Return,
    Select,
    Unary,
    UnaryOp,
)
from quernel_opencl.device import OpenclDevice

TYPES = (i32, u32, i64, u64, u8, u16)


def operands(dtype: DType) -> tuple[Expr, Expr]:
    value = Param(name="s", type=dtype)
    return Unary(op=UnaryOp.INVERT, operand=value), value


def check(device: OpenclDevice, module: Module, dtype: DType, chosen: np.ufunc) -> None:
    built = Built(device, module)
    for value in (0, 1, 5, dtype.max, dtype.min, dtype.max // 3):
        s, y = dtype.numpy.type(value), np.zeros(100, dtype.numpy)
        built.over(100, value, y)
        assert np.array_equal(y, np.full(100, chosen(~s, s))), value


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("op", "chosen"), [(BinaryOp.MIN, np.minimum), (BinaryOp.MAX, np.maximum)])
def test_the_least_and_the_greatest(device: OpenclDevice, op: BinaryOp, chosen: np.ufunc, dtype: DType) -> None:
    left, right = operands(dtype)
    body = (store("y", Binary(op=op, left=left, right=right)),)
    check(device, kernel((scalar("s", dtype), array("y", dtype)), body), dtype, chosen)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_lesser_in_a_device_function(device: OpenclDevice, dtype: DType) -> None:
    a, b = (Param(name=name, type=dtype) for name in "ab")
    lesser = Select(condition=Compare(op=CompareOp.LT, left=b, right=a), then=b, otherwise=a)
    function = Function(
        name="lesser",
        params=tuple(Parameter(name=name, type=ScalarType(dtype)) for name in "ab"),
        locals=(),
        results=(dtype,),
        body=(Return(values=(lesser,)),),
    )
    body = (
        Call(function="lesser", arguments=operands(dtype), results=("r",)),
        store("y", local("r", dtype), index()),
    )
    params = (scalar("s", dtype), array("y", dtype))
    module = kernel(params, body, variables={"r": dtype}, functions=(function,))
    check(device, module, dtype, np.minimum)
