"""What IR means on every OpenCL device, in both ways to pass arrays."""

from __future__ import annotations

import functools
import math
import operator
import struct

import numpy as np
import pytest
from tests.unit.ir_by_hand import add, array, const, index, load, local, mul, place, scalar, store
from tests.unit.opencl.harness import CONTIGUOUS, Built, kernel

from quernel.dtypes import (
    ArrayType,
    DType,
    ScalarType,
    StructField,
    StructType,
    VectorType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from quernel.geometry import LaunchForm
from quernel.ir import semantics
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assign,
    Atomic,
    AtomicOp,
    Barrier,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    CompareOp,
    Field,
    For,
    Function,
    If,
    IndexKind,
    Loop,
    Param,
    Parameter,
    Return,
    Root,
    RootKind,
    Shape,
    Space,
    StructMake,
    VecGet,
    VecMake,
)
from quernel_opencl.device import OpenclDevice

VEC4 = VectorType(f32, 4)
HALVES = VectorType(f16, 2)
PAIR = StructType("pair", (StructField("count", i32, 0), StructField("weight", f64, 8)), 16, 8)
NESTED = StructType(
    "nested", (StructField("flag", bool_, 0), StructField("h", f16, 2), StructField("inside", PAIR, 8)), 24, 8
)


def test_edge_threads_do_nothing(device: OpenclDevice) -> None:
    built = Built(device, kernel((array("y", f32),), (store("y", const(1.0, f32)),)))
    y = np.zeros(200, np.float32)
    built.over(130, y)
    assert y[:130].all()
    assert not y[130:].any()


def test_axes_are_in_array_order(device: OpenclDevice) -> None:
    position = add(mul(index(axis=0), const(100)), index(axis=1))
    body = (store("y", position, index(axis=0), index(axis=1)),)
    built = Built(device, kernel((array("y", i64, 2),), body, block=(2, 8)))
    y = np.zeros((5, 20), np.int64)
    built.over((5, 20), y)
    assert (y == np.arange(5)[:, None] * 100 + np.arange(20)).all()


def test_a_range_starts_where_it_says(device: OpenclDevice) -> None:
    built = Built(device, kernel((array("y", i64),), (store("y", index()),)))
    y = np.full(20, -1)
    built.over(range(5, 11), y)
    assert y.tolist() == [-1] * 5 + [5, 6, 7, 8, 9, 10] + [-1] * 9


def test_dimensions_of_a_grid_are_passed(device: OpenclDevice) -> None:
    kinds = (IndexKind.GLOBAL_DIM, IndexKind.BLOCK_DIM, IndexKind.GRID_DIM)
    body = tuple(store("y", index(kind, axis), const(2 * n + axis)) for n, kind in enumerate(kinds) for axis in (0, 1))
    built = Built(device, kernel((array("y", i64),), body, block=(2, 4), form=LaunchForm.GRID))
    y = np.zeros(6, np.int64)
    built.grid((3, 5), y)
    assert y.tolist() == [6, 20, 2, 4, 3, 5]


def test_contiguous_arrays_have_no_last_stride(device: OpenclDevice) -> None:
    made = kernel((array("x", f32), array("y", f32)), (store("y", load("x", f32)),))
    built = Built(device, made, CONTIGUOUS)
    assert [slot.kind.value for slot in built.header.slots] == ["pointer", "pointer", "extent", "start"]
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    built.over(100, x, y)
    assert (x == y).all()


def test_shared_memory_and_barriers_reverse_a_block(device: OpenclDevice) -> None:
    thread = index(IndexKind.LOCAL_ID)
    mirrored = Binary(op=BinaryOp.SUB, left=const(63), right=thread)
    body = (
        Alloc(name="tile", space=Space.SHARED, element=f32, shape=(64,)),
        store("tile", load("x", f32), thread, kind=RootKind.SHARED),
        Barrier(),
        store("y", load("tile", f32, mirrored, kind=RootKind.SHARED)),
    )
    built = Built(device, kernel((array("x", f32), array("y", f32)), body, form=LaunchForm.GRID))
    assert built.header.shared_bytes == 256
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    built.grid(4, x, y)
    assert (y.reshape(4, 64) == x.reshape(4, 64)[:, ::-1]).all()


@pytest.mark.parametrize("element", [bool_, f16, bf16, i8, u16, i64], ids=str)
def test_shared_and_private_memory_hold_every_type(device: OpenclDevice, element: DType) -> None:
    thread = index(IndexKind.LOCAL_ID)
    body = (
        Alloc(name="tile", space=Space.SHARED, element=element, shape=(4, 8)),
        Alloc(name="own", space=Space.PRIVATE, element=element, shape=(2,)),
        store("own", Cast(operand=thread, type=element), const(1), kind=RootKind.PRIVATE),
        store("tile", load("own", element, const(1), kind=RootKind.PRIVATE), const(2), thread, kind=RootKind.SHARED),
        Barrier(),
        store("y", Cast(operand=load("tile", element, const(2), thread, kind=RootKind.SHARED), type=i64)),
    )
    built = Built(device, kernel((array("y", i64),), body, form=LaunchForm.GRID, block=(8,)))
    y = np.zeros(8, np.int64)
    built.grid(1, y)
    assert y.tolist() == ([0] + [1] * 7 if element is bool_ else list(range(8)))


ATOMICS = [
    (AtomicOp.ADD, lambda values: sum(values)),
    (AtomicOp.SUB, lambda values: -sum(values)),
    (AtomicOp.MIN, lambda values: min(0, *values)),
    (AtomicOp.MAX, lambda values: max(0, *values)),
]


@pytest.mark.parametrize("dtype", [i32, u32, i64, u64, f32, f64], ids=str)
@pytest.mark.parametrize(("op", "expected"), ATOMICS, ids=lambda case: getattr(case, "value", ""))
def test_atomics_of_many_threads_lose_nothing(device: OpenclDevice, dtype: DType, op: AtomicOp, expected) -> None:
    value = Cast(operand=Binary(op=BinaryOp.SUB, left=index(), right=const(500)), type=dtype)
    body = (Atomic(op=op, place=place("y", dtype, const(0)), operands=(value,)),)
    built = Built(device, kernel((array("y", dtype),), body))
    y = np.zeros(1, dtype.numpy)
    built.over(1000, y)
    values = [semantics.cast(number - 500, i64, dtype) for number in range(1000)]
    total = expected(values)
    assert y[0] == (semantics.cast(total, i64, dtype) if dtype.is_integer else total)


@pytest.mark.parametrize("dtype", [i32, u64, f32, f64], ids=str)
def test_atomics_give_the_old_value(device: OpenclDevice, dtype: DType) -> None:
    body = (
        Atomic(
            op=AtomicOp.ADD,
            place=place("count", dtype, const(0)),
            operands=(const(dtype(1).item(), dtype),),
            result="old",
        ),
        store("y", const(1, i32), Cast(operand=local("old", dtype), type=i64)),
    )
    built = Built(device, kernel((array("count", dtype), array("y", i32)), body, variables={"old": dtype}))
    count, y = np.zeros(1, dtype.numpy), np.zeros(500, np.int32)
    built.over(500, count, y)
    assert y.all()


@pytest.mark.parametrize("dtype", [u32, i64, f32, f64], ids=str)
def test_compare_exchange_compares_by_value(device: OpenclDevice, dtype: DType) -> None:
    zero, one = dtype(0).item(), dtype(1).item()
    exchange = Atomic(
        op=AtomicOp.COMPARE_EXCHANGE,
        place=place("y", dtype),
        operands=(const(zero, dtype), const(one, dtype)),
        result="was",
    )
    body = (exchange, store("old", local("was", dtype)))
    built = Built(device, kernel((array("y", dtype), array("old", dtype)), body, variables={"was": dtype}))
    first = [-0.0, math.nan] if dtype.is_float else [0, 7]
    y = np.array([0, 3, *first], dtype.numpy)
    old = np.zeros_like(y)
    before = y.copy()
    built.over(4, y, old)
    assert np.array_equal(old, before, equal_nan=dtype.is_float)
    assert np.array_equal(y, np.array([1, 3, 1, first[1]], dtype.numpy), equal_nan=dtype.is_float)


def test_atomics_on_shared_memory_count_a_block(device: OpenclDevice) -> None:
    first = Compare(op=CompareOp.EQ, left=index(IndexKind.LOCAL_ID), right=const(0))
    cell = {"kind": RootKind.SHARED}
    body = (
        Alloc(name="sum", space=Space.SHARED, element=f32, shape=(1,)),
        If(condition=first, then=(store("sum", const(0.0, f32), const(0), **cell),)),
        Barrier(),
        Atomic(op=AtomicOp.ADD, place=place("sum", f32, const(0), **cell), operands=(load("x", f32),)),
        Barrier(),
        If(
            condition=first,
            then=(store("y", load("sum", f32, const(0), **cell), index(IndexKind.BLOCK_ID)),),
        ),
    )
    built = Built(device, kernel((array("x", f32), array("y", f32)), body, form=LaunchForm.GRID))
    x, y = np.arange(256, dtype=np.float32), np.zeros(4, np.float32)
    built.grid(4, x, y)
    assert (y == x.reshape(4, 64).sum(axis=1)).all()


def test_vectors_are_loaded_taken_apart_and_stored(device: OpenclDevice) -> None:
    parts = tuple(VecGet(operand=load("x", VEC4), index=3 - n, type=f32) for n in range(4))
    body = (store("y", VecMake(components=parts, type=VEC4)), store("x", const(7.0, f32), view=(2,)))
    built = Built(device, kernel((array("x", VEC4), array("y", VEC4)), body))
    x = np.arange(40, dtype=np.float32)
    items = np.dtype((np.void, 16))
    given, y = x.copy().view(items), np.zeros(10, items)
    built.over(10, given, y)
    assert (y.view(np.float32).reshape(10, 4) == x.reshape(10, 4)[:, ::-1]).all()
    assert (given.view(np.float32).reshape(10, 4)[:, 2] == 7.0).all()


def test_vectors_of_halves_are_values_of_f32(device: OpenclDevice) -> None:
    parts = tuple(add(VecGet(operand=load("x", HALVES), index=n, type=f16), const(1.0, f16)) for n in (1, 0))
    built = Built(device, kernel((array("x", HALVES),), (store("x", VecMake(components=parts, type=HALVES)),)))
    x = np.array([1.0, 2.0, 2048.0, 0.5], np.float16)
    items = x.copy().view(np.dtype((np.void, 4)))
    built.over(2, items)
    assert items.view(np.float16).tolist() == [3.0, 2.0, 1.5, 2048.0]


def test_structs_are_bytes_at_their_offsets(device: OpenclDevice) -> None:
    inside = Field(operand=load("x", NESTED), name="inside", type=PAIR)
    made = StructMake(
        values=(
            const(True, bool_),
            load("x", f16, view=("h",)),
            StructMake(
                values=(
                    add(Field(operand=inside, name="count", type=i32), const(1, i32)),
                    load("x", f64, view=("inside", "weight")),
                ),
                type=PAIR,
            ),
        ),
        type=NESTED,
    )
    body = (store("y", made), store("y", const(9.5, f64), view=("inside", "weight")))
    built = Built(device, kernel((array("x", NESTED), array("y", NESTED)), body))
    layout = struct.Struct("<?xe4xi4xd")
    assert layout.size == NESTED.itemsize
    items = np.dtype((np.void, NESTED.itemsize))
    x = np.frombuffer(b"".join(layout.pack(False, n / 2, n, n * 1.25) for n in range(20)), items).copy()
    y = np.zeros(20, items)
    built.over(20, x, y)
    found = [layout.unpack(item.tobytes()) for item in y]
    assert found == [(True, n / 2, n + 1, 9.5) for n in range(20)]


PACKED = StructType(
    "packed",
    (
        StructField("flag", bool_, 0),
        StructField("weight", f64, 1),
        StructField("small", i16, 9),
        StructField("h", f16, 11),
        StructField("v", VectorType(f32, 2), 13),
        StructField("inside", PAIR, 21),
    ),
    37,
    1,
)


def test_fields_of_packed_structs_stand_anywhere(device: OpenclDevice) -> None:
    made = add(load("x", i16, view=("small",)), const(1, i16))
    body = (
        store("y", load("x", PACKED)),
        store("y", made, view=("small",)),
        store("y", const(7, i32), view=("inside", "count")),
        store("y", add(load("x", f32, view=("v", 1)), const(1.0, f32)), view=("v", 1)),
    )
    built = Built(device, kernel((array("x", PACKED), array("y", PACKED)), body))
    layout = struct.Struct("<?dhe2fi4xd")
    assert layout.size == PACKED.itemsize
    items = np.dtype((np.void, PACKED.itemsize))
    rows = [(bool(n % 2), n / 3, -n, n / 2, n * 1.5, n * 2.5, n, n * 1.25) for n in range(20)]
    x = np.frombuffer(b"".join(layout.pack(*row) for row in rows), items).copy()
    y = np.zeros(20, items)
    built.over(20, x, y)
    found = [layout.unpack(item.tobytes()) for item in y]
    assert found == [(*row[:2], row[2] + 1, *row[3:5], row[5] + 1, 7, row[7]) for row in rows]


def test_device_functions_take_arrays_of_any_memory(device: OpenclDevice) -> None:
    inner = Function(
        name="first",
        params=(Parameter(name="a", type=ArrayType(f32, 1)),),
        results=(f32,),
        locals=(),
        body=(Return(values=(load("a", f32, const(1)),)),),
    )
    thread = index(IndexKind.LOCAL_ID)

    def call(result: str, root: Root) -> Call:
        return Call(results=(result,), function="first", arguments=(ArrayRef(root=root, type=ArrayType(f32, 1)),))

    body = (
        Alloc(name="tile", space=Space.SHARED, element=f32, shape=(64,)),
        Alloc(name="own", space=Space.PRIVATE, element=f32, shape=(2,)),
        store("tile", load("x", f32), thread, kind=RootKind.SHARED),
        store("own", const(100.0, f32), const(1), kind=RootKind.PRIVATE),
        Barrier(),
        call("p", Root(RootKind.PARAM, "x")),
        call("s", Root(RootKind.SHARED, "tile")),
        call("o", Root(RootKind.PRIVATE, "own")),
        store("y", add(add(local("p", f32), local("s", f32)), local("o", f32))),
    )
    names = dict.fromkeys("pso", f32)
    made = kernel((array("x", f32), array("y", f32)), body, variables=names, form=LaunchForm.GRID, functions=(inner,))
    built = Built(device, made)
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    built.grid(1, x, y)
    assert (y == 102.0).all()


def test_several_results_come_back_in_order(device: OpenclDevice) -> None:
    both = Function(
        name="both",
        params=(Parameter(name="n", type=ScalarType(i64)),),
        results=(i64, f32),
        locals=(),
        body=(Return(values=(add(Param(name="n", type=i64), const(1)), const(0.5, f32))),),
    )
    body = (
        Call(results=("a", "b"), function="both", arguments=(index(),)),
        store("y", add(Cast(operand=local("a"), type=f32), local("b", f32))),
    )
    made = kernel((array("y", f32),), body, variables={"a": i64, "b": f32}, functions=(both,))
    y = np.zeros(4, np.float32)
    Built(device, made).over(4, y)
    assert y.tolist() == [1.5, 2.5, 3.5, 4.5]


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [(0, 5, 1), (5, 0, -1), (0, 10, 3), (10, -5, -4), (0, 5, 0), (5, 0, 1), (i64.max - 2, i64.max, 1)],
)
@pytest.mark.parametrize("is_constant", [True, False])
def test_loops_run_as_ranges_do(device: OpenclDevice, start: int, stop: int, step: int, is_constant: bool) -> None:
    if is_constant:
        bounds = [const(start), const(stop), const(step)]
    else:
        bounds = [load("x", i64, const(n)) for n in range(3)]
    loop = For(
        variable="k",
        start=bounds[0],
        stop=bounds[1],
        step=bounds[2],
        body=(Assign(name="n", value=add(local("n"), const(1))), Assign(name="s", value=add(local("s"), local("k")))),
    )
    body = (
        Assign(name="n", value=const(0)),
        Assign(name="s", value=const(0)),
        Assign(name="k", value=const(-7)),
        loop,
        store("y", local("n"), const(0)),
        store("y", local("s"), const(1)),
        store("y", local("k"), const(2)),
    )
    made = kernel((array("x", i64), array("y", i64)), body, variables={"k": i64, "n": i64, "s": i64})
    x, y = np.array([start, stop, step]), np.zeros(3, np.int64)
    Built(device, made).over(1, x, y)
    trips = list(range(start, stop, step)) if step else []
    wanted = [len(trips), sum(trips), trips[-1] if trips else -7]
    assert y.tolist() == [semantics.cast(value, i64, i64) for value in wanted]


def test_a_body_may_assign_its_own_variable(device: OpenclDevice) -> None:
    loop = For(
        variable="k",
        start=const(0),
        stop=const(4),
        step=const(1),
        body=(
            Assign(name="k", value=mul(local("k"), const(10))),
            Assign(name="s", value=add(local("s"), local("k"))),
        ),
    )
    body = (Assign(name="s", value=const(0)), loop, store("y", local("s"), const(0)))
    y = np.zeros(1, np.int64)
    Built(device, kernel((array("y", i64),), body, variables={"k": i64, "s": i64})).over(1, y)
    assert y[0] == 60


def test_chains_of_a_thousand_operators_compile(device: OpenclDevice) -> None:
    total = load("x", i64)
    for number in range(1000):
        total = Binary(op=BinaryOp.XOR if number % 3 else BinaryOp.ADD, left=total, right=const(number))
    expected = 5
    for number in range(1000):
        expected = expected ^ number if number % 3 else expected + number
    y = np.zeros(1, np.int64)
    Built(device, kernel((array("x", i64), array("y", i64)), (store("y", total),))).over(1, np.array([5]), y)
    assert y[0] == expected


def test_long_chains_of_elif_whose_conditions_need_temporaries_compile(device: OpenclDevice) -> None:
    deep = load("x", i64)
    for number in range(60):
        deep = Binary(op=BinaryOp.XOR, left=deep, right=const(number))
    chain: tuple[If, ...] = ()
    for number in reversed(range(120)):
        condition = Compare(op=CompareOp.EQ, left=deep if number % 40 == 7 else load("x", i64), right=const(number))
        chain = (If(condition=condition, then=(store("y", const(number)),), otherwise=chain),)
    x, y = np.arange(100), np.full(100, -1)
    Built(device, kernel((array("x", i64), array("y", i64)), chain)).over(100, x, y)
    folds = functools.reduce(operator.xor, range(60))
    branches = [[n for n in range(120) if n == (value ^ folds if n % 40 == 7 else value)] for value in range(100)]
    assert y.tolist() == [found[0] if found else -1 for found in branches]


def test_a_loop_is_left_by_break_and_return(device: OpenclDevice) -> None:
    count = add(local("n"), const(1))
    body = (
        Assign(name="n", value=const(0)),
        Loop(
            body=(
                Assign(name="n", value=count),
                If(
                    condition=Compare(op=CompareOp.GT, left=local("n"), right=const(5)),
                    then=(store("y", const(-1)), Return()),
                ),
                If(
                    condition=Compare(op=CompareOp.GT, left=local("n"), right=index()),
                    then=(store("y", local("n")), Return()),
                ),
            )
        ),
    )
    y = np.zeros(8, np.int64)
    Built(device, kernel((array("y", i64),), body, variables={"n": i64})).over(8, y)
    assert y.tolist() == [1, 2, 3, 4, 5, -1, -1, -1]


@pytest.mark.parametrize("dtype", [bool_, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64], ids=str)
def test_scalars_of_every_type_are_passed(device: OpenclDevice, dtype: DType) -> None:
    made = kernel(
        (scalar("s", dtype), array("y", f64)), (store("y", Cast(operand=Param(name="s", type=dtype), type=f64)),)
    )
    y = np.zeros(1)
    value = True if dtype is bool_ else 1.5 if dtype.is_float else 100
    Built(device, made).over(1, value, y)
    assert y[0] == value


def test_lengths_are_passed(device: OpenclDevice) -> None:
    body = (store("y", Shape(param="x", axis=1), const(0)),)
    y = np.zeros(1, np.int64)
    Built(device, kernel((array("x", i8, 2), array("y", i64)), body)).over(1, np.zeros((3, 9), np.int8), y)
    assert y[0] == 9
