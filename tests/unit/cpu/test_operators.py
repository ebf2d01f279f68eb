from __future__ import annotations

import ctypes
import itertools
import math
import struct
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cpu.harness import CONTIGUOUS, Built, decoded, encoded, numpy_type
from tests.unit.ir_by_hand import array, const, kernel, load, store

from quernel.dtypes import NUMERIC, SCALARS, DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from quernel.ir import semantics
from quernel.ir.nodes import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Compare,
    CompareOp,
    Expr,
    Fma,
    Select,
    Unary,
    UnaryOp,
)
from quernel_cpu import _toolchain
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.narrow import bits_to_float, float_to_bits
from quernel_cpu.emission.text import Code, Unit

INTEGERS = tuple(dtype for dtype in NUMERIC if dtype.is_integer)
FLOATS = (f16, bf16, f32, f64)
BITS = (BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR)
ORDERED = (BinaryOp.MIN, BinaryOp.MAX)
BINARY = (
    *((op, dtype) for dtype in INTEGERS for op in BinaryOp if op is not BinaryOp.DIV),
    *(
        (op, dtype)
        for dtype in FLOATS
        for op in BinaryOp
        if op not in (*BITS, BinaryOp.SHL, BinaryOp.SHR, BinaryOp.POW)
    ),
    *((op, bool_) for op in (*BITS, *ORDERED)),
)
_FLOAT_EDGES = (
    *(0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 7.0, 127.5, 128.0, 255.5, 256.0, 2048.0, 32767.5, 65504.0, 65519.9, 65520.0, 1e5),
    *(2.0**-14, 2.0**-24, 2.0**-25, 2.0**-126, 2.0**-149, 2.0**-133, 5e-324, 0.1, 1 / 3, math.pi, 1e-40, 1.00048828125),
    *(2.0**31, 2.0**31 - 1, 2.0**32, 2.0**53, 2.0**63, 2.0**64, 1e19, 1e30, 3.4028235677973366e38, 1e308, math.inf),
)


def edges(dtype: DType) -> list[Any]:
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        both = [sign * value for value in _FLOAT_EDGES for sign in (1.0, -1.0)]
        return [*dict.fromkeys(semantics.cast(value, f64, dtype) for value in both if value), 0.0, -0.0, math.nan]
    around = (0, 1, 2, 3, 5, 7, 8, 31, 63, 64, 100, dtype.max, dtype.max - 1, dtype.min, dtype.min + 1, dtype.max // 2)
    return sorted(
        {value for magnitude in around for value in (magnitude, -magnitude) if dtype.min <= value <= dtype.max}
    )


def values(dtype: DType) -> st.SearchStrategy[Any]:
    if dtype.is_bool:
        return st.booleans()
    if dtype.is_integer:
        return st.integers(dtype.min, dtype.max) | st.integers(max(dtype.min, -9), 9) | st.sampled_from(edges(dtype))
    bits = st.integers(0, (1 << dtype.bits) - 1)
    integer = {16: u16, 32: u32, 64: u64}[dtype.bits]
    return bits.map(lambda value: semantics.bitcast(value, integer, dtype)) | st.sampled_from(edges(dtype))


@cache
def built(make: Any, *types: DType) -> Built:
    """The kernel that applies `make` to elements of arrays of all types but the last, which is the result's."""
    *operands, result = types
    names = "abc"[: len(operands)]
    params = (*(array(name, dtype) for name, dtype in zip(names, operands, strict=True)), array("out", result))
    expr: Expr = make(*(load(name, dtype) for name, dtype in zip(names, operands, strict=True)))
    return Built(kernel(params, (store("out", expr),)), CONTIGUOUS)


def applied(make: Any, types: tuple[DType, ...], columns: list[list[Any]]) -> list[Any]:
    *operands, result = types
    out = np.zeros(len(columns[0]), numpy_type(result))
    arrays = [encoded(column, dtype) for column, dtype in zip(columns, operands, strict=True)]
    built(make, *types).over(len(out), *arrays, out)
    return decoded(out, result)


def assert_same(found: list[Any], wanted: list[Any], operands: list[tuple[Any, ...]]) -> None:
    wrong = [
        (operand, got, right)
        for operand, got, right in zip(operands, found, wanted, strict=True)
        if not semantics.same_value(got, right)
    ]
    assert not wrong, f"{len(wrong)} wrong: (operands, found, wanted) {wrong[:5]}"


@cache
def binary_of(op: BinaryOp) -> Any:
    return lambda a, b: Binary(op=op, left=a, right=b)


@cache
def compare_of(op: CompareOp) -> Any:
    return lambda a, b: Compare(op=op, left=a, right=b)


@cache
def unary_of(op: UnaryOp) -> Any:
    return lambda a: Unary(op=op, operand=a)


@cache
def cast_to(dtype: DType) -> Any:
    return lambda a: Cast(operand=a, type=dtype)


@cache
def bitcast_to(dtype: DType) -> Any:
    return lambda a: Bitcast(operand=a, type=dtype)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    return Fma(a=a, b=b, c=c)


def select(a: Expr, b: Expr, c: Expr) -> Expr:
    return Select(condition=a, then=b, otherwise=c)


def check_binary(op: BinaryOp, dtype: DType, pairs: list[tuple[Any, Any]]) -> None:
    found = applied(binary_of(op), (dtype, dtype, dtype), [list(column) for column in zip(*pairs, strict=True)])
    assert_same(found, [semantics.binary(op, left, right, dtype) for left, right in pairs], pairs)


@pytest.mark.parametrize(("op", "dtype"), BINARY, ids=lambda value: getattr(value, "name", str(value)))
def test_binary_operator_equals_the_semantics_at_the_edges(op: BinaryOp, dtype: DType) -> None:
    check_binary(op, dtype, list(itertools.product(edges(dtype), repeat=2)))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_binary_operator_equals_the_semantics_anywhere(data: st.DataObject) -> None:
    op, dtype = data.draw(st.sampled_from(BINARY))
    check_binary(op, dtype, data.draw(st.lists(st.tuples(values(dtype), values(dtype)), min_size=1, max_size=40)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "op", [BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.SHL, BinaryOp.SHR, BinaryOp.POW], ids=lambda op: op.name
)
def test_integer_operator_with_a_literal_equals_the_semantics(op: BinaryOp, dtype: DType) -> None:
    lefts = edges(dtype)
    literals = [
        value for value in (0, 1, 2, 3, 7, 8, 10, 31, 32, 64, -1, -2, -8, -40) if dtype.min <= value <= dtype.max
    ]
    for right in literals:
        if op is BinaryOp.POW and right < 0:
            continue
        found = applied(_with_literal(op, right, dtype), (dtype, dtype), [lefts])
        wanted = [semantics.binary(op, left, right, dtype) for left in lefts]
        assert_same(found, wanted, [(left, right) for left in lefts])


@cache
def _with_literal(op: BinaryOp, right: int, dtype: DType) -> Any:
    return lambda a: Binary(op=op, left=a, right=const(right, dtype))


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
@pytest.mark.parametrize("op", CompareOp, ids=lambda op: op.name)
def test_comparison_equals_the_semantics_at_the_edges(op: CompareOp, dtype: DType) -> None:
    pairs = list(itertools.product(edges(dtype), repeat=2))
    found = applied(compare_of(op), (dtype, dtype, bool_), [list(column) for column in zip(*pairs, strict=True)])
    assert_same(found, [semantics.compare(op, left, right) for left, right in pairs], pairs)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (UnaryOp.NOT, bool_),
        *((op, dtype) for dtype in INTEGERS for op in (UnaryOp.NEG, UnaryOp.INVERT, UnaryOp.ABS)),
        *((op, dtype) for dtype in FLOATS for op in (UnaryOp.NEG, UnaryOp.ABS)),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_unary_operator_equals_the_semantics_at_the_edges(op: UnaryOp, dtype: DType) -> None:
    operands = edges(dtype)
    wanted = [semantics.unary(op, operand, dtype) for operand in operands]
    assert_same(applied(unary_of(op), (dtype, dtype), [operands]), wanted, [(operand,) for operand in operands])


def check_cast(source: DType, target: DType, operands: list[Any]) -> None:
    found = applied(cast_to(target), (source, target), [operands])
    wanted = [semantics.cast(operand, source, target) for operand in operands]
    assert_same(found, wanted, [(operand,) for operand in operands])


@pytest.mark.parametrize("source", SCALARS, ids=str)
@pytest.mark.parametrize("target", SCALARS, ids=str)
def test_cast_equals_the_semantics_at_the_edges(source: DType, target: DType) -> None:
    operands = edges(source)
    if source.is_integer:
        operands += [value for bit in range(source.bits) for value in (1 << bit, (1 << bit) + 1) if value <= source.max]
    check_cast(source, target, operands)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_cast_equals_the_semantics_anywhere(data: st.DataObject) -> None:
    source, target = data.draw(st.sampled_from(list(itertools.product(SCALARS, repeat=2))))
    check_cast(source, target, data.draw(st.lists(values(source), min_size=1, max_size=60)))


@pytest.mark.parametrize("target", [f16, bf16], ids=str)
def test_every_narrow_float_keeps_its_value_through_f32(target: DType) -> None:
    operands = [semantics.bitcast(bits, u16, target) for bits in range(1 << 16)]
    check_cast(target, f32, operands)
    check_cast(f32, target, operands)


def test_narrow_floats_without_hardware_round_as_with_it() -> None:
    unit, code = Unit(frozenset(), lambda name: (), lambda: False), Code()
    code.end(f"ret i16 {float_to_bits(Arithmetic(unit, code, fast_math=False), f16, '%x')}")
    unit.add_function(code.function("i16 @narrowed(float %x)"))
    code = Code()
    code.end(f"ret float {bits_to_float(Arithmetic(unit, code, fast_math=False), f16, '%x')}")
    unit.add_function(code.function("float @widened(i16 %x)"))
    triple, cpu, features = _toolchain.host()
    plain = ("x86-64", "") if triple.startswith("x86_64") else (cpu, features)
    object_code = _toolchain.compile_ir(str(unit), triple, *plain)
    narrowed_library = _toolchain.load_object(object_code, "narrowed", None)
    widened_library = _toolchain.load_object(object_code, "widened", None)
    narrowed = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_float)(narrowed_library.address)
    widened = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_uint16)(widened_library.address)
    for bits in range(1 << 16):
        assert semantics.same_value(widened(bits), semantics.bitcast(bits, u16, f16))
    for value in (*edges(f32), *(struct.unpack("<f", struct.pack("<I", bits * 65521))[0] for bits in range(1 << 16))):
        found = semantics.bitcast(narrowed(value), u16, f16)
        assert semantics.same_value(found, semantics.cast(value, f32, f16))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (f32, i32),
        (f32, u32),
        (i32, f32),
        (f64, i64),
        (u64, f64),
        (f16, u16),
        (i16, f16),
        (bf16, u16),
        (i8, u8),
        (u16, bf16),
    ],
    ids=str,
)
def test_bitcast_equals_the_semantics_at_the_edges(source: DType, target: DType) -> None:
    operands = edges(source)
    wanted = [semantics.bitcast(operand, source, target) for operand in operands]
    assert_same(applied(bitcast_to(target), (source, target), [operands]), wanted, [(value,) for value in operands])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fma_rounds_once(dtype: DType) -> None:
    operands = edges(dtype)[::3]
    triples = list(itertools.product(operands, repeat=3))
    found = applied(fma, (dtype,) * 4, [list(column) for column in zip(*triples, strict=True)])
    assert_same(found, [semantics.fma(*operands, dtype) for operands in triples], triples)


@pytest.mark.parametrize("dtype", SCALARS, ids=str)
def test_select_takes_the_side_of_its_condition(dtype: DType) -> None:
    cases = list(itertools.product([False, True], edges(dtype), edges(dtype)[:3]))
    found = applied(select, (bool_, dtype, dtype, dtype), [list(column) for column in zip(*cases, strict=True)])
    assert_same(found, [then if condition else otherwise for condition, then, otherwise in cases], cases)


def test_a_bool_in_memory_is_true_unless_it_is_zero() -> None:
    out = np.zeros(4, np.int32)
    made = built(cast_to(i32), bool_, i32)
    made.over(4, np.array([0, 1, 2, 255], np.uint8), out)
    assert out.tolist() == [0, 1, 1, 1]
