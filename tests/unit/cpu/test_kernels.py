from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cpu.harness import CONTIGUOUS, STRIDED, Built, lowered
from tests.unit.ir_by_hand import add, array, const, equal, global_id, kernel, less, load, local, mul, scalar, store

from quernel.dtypes import ArrayType, bool_, f16, f32, f64, i8, i32, i64, u64
from quernel.geometry import LaunchForm
from quernel.ir import semantics
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assign,
    Binary,
    BinaryOp,
    Break,
    Call,
    Cast,
    Compare,
    CompareOp,
    Continue,
    Expr,
    For,
    Function,
    If,
    IndexKind,
    LocalVariable,
    Loop,
    Param,
    Return,
    Root,
    RootKind,
    Shape,
    Space,
    Stmt,
    ThreadIndex,
)


def assign(name: str, value: Expr) -> Assign:
    return Assign(name=name, value=value)


def linear_index(ndim: int) -> Expr:
    """The thread's place in array order, of the arrays' shape."""
    result: Expr = global_id(0)
    for axis in range(1, ndim):
        result = add(mul(result, ThreadIndex(kind=IndexKind.GLOBAL_DIM, axis=axis)), global_id(axis))
    return result


# --- geometry ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [CONTIGUOUS, STRIDED], ids=["contiguous", "strided"])
@pytest.mark.parametrize(
    "extent",
    [
        (1,),
        (7,),
        (300,),
        (1, 1),
        (3, 5),
        (5, 3),
        (1, 70),
        (70, 1),
        (33, 65),
        (2, 3, 5),
        (1, 1, 9),
        (7, 1, 1),
        (3, 17, 31),
    ],
    ids=str,
)
def test_over_runs_each_point_once(extent: tuple[int, ...], variant: Any) -> None:
    ndim = len(extent)
    ids = tuple(global_id(axis) for axis in range(ndim))
    block = {1: (256,), 2: (8, 32), 3: (2, 4, 32)}[ndim]
    body = (store("out", add(load("out", i64, *ids), add(linear_index(ndim), const(1))), *ids),)
    built = Built(kernel((array("out", i64, ndim),), body, block=block), variant)
    out = np.zeros(extent, np.int64)
    built.over(extent, out)
    assert np.array_equal(out, np.arange(out.size).reshape(extent) + 1)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_part_of_an_over_launch_runs_its_points_only(data: st.DataObject) -> None:
    extent = tuple(data.draw(st.lists(st.integers(1, 9), min_size=3, max_size=3)))
    size = extent[0] * extent[1] * extent[2]
    first = data.draw(st.integers(0, size))
    end = data.draw(st.integers(first, size))
    from quernel.geometry import extent_geometry
    from quernel_cpu.device import pack_geometry

    built = _counting_3d()
    out = np.zeros(extent, np.int64)
    geometry = extent_geometry(extent, (2, 4, 32))
    built.loaded.entry(built.pack(geometry, out), pack_geometry(geometry), first, end)
    wanted = np.zeros(size, np.int64)
    wanted[first:end] = np.arange(first, end) + 1
    assert np.array_equal(out.reshape(-1), wanted)


_made: dict[str, Built] = {}


def _counting_3d() -> Built:
    if "3d" not in _made:
        ids = tuple(global_id(axis) for axis in range(3))
        body = (store("out", add(linear_index(3), const(1)), *ids),)
        _made["3d"] = Built(kernel((array("out", i64, 3),), body, block=(2, 4, 32)), CONTIGUOUS)
    return _made["3d"]


def test_over_a_range_starts_the_ids_at_its_start() -> None:
    body = (store("out", add(mul(global_id(0), const(100)), global_id(1)), global_id(0), global_id(1)),)
    built = Built(kernel((array("out", i64, 2),), body, block=(8, 32)), CONTIGUOUS)
    out = np.full((6, 9), -1, np.int64)
    built.over((range(2, 5), range(4, 9)), out)
    wanted = np.full((6, 9), -1)
    for row, column in itertools.product(range(2, 5), range(4, 9)):
        wanted[row, column] = row * 100 + column
    assert np.array_equal(out, wanted)


def test_global_dim_of_a_range_is_its_length() -> None:
    body = (store("out", ThreadIndex(kind=IndexKind.GLOBAL_DIM, axis=0)),)
    out = np.zeros(9, np.int64)
    Built(kernel((array("out", i64),), body)).over(range(4, 9), out)
    assert out.tolist() == [0, 0, 0, 0, 5, 5, 5, 5, 5]


@pytest.mark.parametrize(
    ("grid", "block"), [((5,), (7,)), ((2, 3), (4, 5)), ((3, 2), (4, 1)), ((2, 1, 3), (2, 3, 4)), ((4,), (1,))], ids=str
)
@pytest.mark.parametrize(
    "kind", [kind for kind in IndexKind if "subgroup" not in kind.value], ids=lambda kind: kind.value
)
def test_grid_gives_every_thread_its_indices(grid: tuple[int, ...], block: tuple[int, ...], kind: IndexKind) -> None:
    ndim = len(grid)
    ids = tuple(global_id(axis) for axis in range(ndim))
    extent = tuple(count * size for count, size in zip(grid, block, strict=True))
    for axis in range(ndim):
        body = (store("out", ThreadIndex(kind=kind, axis=axis), *ids),)
        built = Built(kernel((array("out", i64, ndim),), body, block=block, form=LaunchForm.GRID))
        out = np.full(extent, -1, np.int64)
        built.grid(grid, out)
        along = np.arange(extent[axis])
        wanted = {
            IndexKind.GLOBAL_ID: along,
            IndexKind.LOCAL_ID: along % block[axis],
            IndexKind.BLOCK_ID: along // block[axis],
            IndexKind.GLOBAL_DIM: np.full_like(along, extent[axis]),
            IndexKind.BLOCK_DIM: np.full_like(along, block[axis]),
            IndexKind.GRID_DIM: np.full_like(along, grid[axis]),
        }[kind]
        shape = [1] * ndim
        shape[axis] = -1
        assert np.array_equal(out, np.broadcast_to(wanted.reshape(shape), extent))


# --- arrays and scalars -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda base: base[:, 0],
        lambda base: base[::2, 3],
        lambda base: base[::-1, 1],
        lambda base: base[1::3, -1][::-1],
        lambda base: base.reshape(-1)[5:17],
    ],
)
def test_writing_through_a_view_reaches_the_base(view: Any) -> None:
    base, wanted = np.arange(80, dtype=np.int64).reshape(10, 8), np.arange(80).reshape(10, 8)
    built = Built(kernel((array("x", i64),), (store("x", mul(load("x", i64), const(10))),)), STRIDED)
    built.over(len(view(base)), view(base))
    view(wanted)[:] *= 10
    assert np.array_equal(base, wanted)


def test_a_broadcast_operand_has_a_zero_stride() -> None:
    ids = (global_id(0), global_id(1))
    body = (store("out", add(load("x", f64, *ids), load("y", f64, *ids)), *ids),)
    built = Built(kernel((array("x", f64, 2), array("y", f64, 2), array("out", f64, 2)), body, block=(8, 32)), STRIDED)
    x, y = np.arange(5.0), np.arange(4.0)[:, None]
    out = np.zeros((4, 5))
    built.over((4, 5), np.broadcast_to(x, (4, 5)), np.broadcast_to(y, (4, 5)), out)
    assert np.array_equal(out, x + y)


def test_a_transposed_view_and_shapes() -> None:
    ids = (global_id(0), global_id(1))
    value = add(load("x", i64, global_id(1), global_id(0)), mul(Shape(param="x", axis=0), Shape(param="out", axis=0)))
    built = Built(
        kernel((array("x", i64, 2), array("out", i64, 2)), (store("out", value, *ids),), block=(8, 32)), STRIDED
    )
    x = np.arange(12, dtype=np.int64).reshape(3, 4)
    out = np.zeros((3, 4), np.int64)
    built.over((3, 4), x.T, out)
    assert np.array_equal(out, x + 4 * 3)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(bool_, True), (i8, -7), (i32, -70000), (u64, 2**64 - 1), (f16, 0.333251953125), (f32, 0.1), (f64, 0.1)],
)
def test_a_scalar_argument_arrives_as_it_was_passed(dtype: Any, value: Any) -> None:
    body = (store("out", Cast(operand=Param(name="s", type=dtype), type=dtype)),)
    built = Built(kernel((scalar("s", dtype), array("out", dtype)), body))
    out = np.zeros(3, dtype.numpy)
    built.over(3, value, out)
    assert out.tolist() == [dtype.numpy.type(value)] * 3


def test_an_unused_parameter_takes_no_slot() -> None:
    body = (store("out", const(1)),)
    header = lowered(kernel((scalar("s", i64), array("x", f32, 2), array("out", i64)), body), CONTIGUOUS).header
    assert [(slot.kind.value, slot.param) for slot in header.slots] == [("pointer", 2)]
    assert [(param.is_read, param.is_written) for param in header.params] == [
        (False, False),
        (False, False),
        (False, True),
    ]


# --- control flow -----------------------------------------------------------------------------------------------------

_BOUNDS = (-(2**63), -(2**62), -9, -2, -1, 0, 1, 2, 7, 2**62, 2**63 - 1)


def test_a_range_gives_what_the_semantics_say_for_any_bounds() -> None:
    """Counts trips, stopping at 20, and keeps the last value of the variable."""
    body = (
        assign("n", const(0)),
        assign("i", const(-99)),
        For(
            variable="i",
            start=load("start", i64),
            stop=load("stop", i64),
            step=load("step", i64),
            body=(
                If(condition=equal(local("n"), const(20)), then=(Break(),)),
                assign("n", add(local("n"), const(1))),
            ),
        ),
        store("trips", local("n")),
        store("last", local("i")),
    )
    params = tuple(array(name, i64) for name in ("start", "stop", "step", "trips", "last"))
    built = Built(kernel(params, body, variables={"n": i64, "i": i64}), CONTIGUOUS)
    cases = list(itertools.product(_BOUNDS, repeat=3))
    start, stop, step = (np.array(column, np.int64) for column in zip(*cases, strict=True))
    trips, last = np.zeros_like(start), np.zeros_like(start)
    built.over(len(cases), start, stop, step, trips, last)
    for number, case in enumerate(cases):
        count = semantics.trip_count(*case)
        assert trips[number] == min(count, 20), case
        wanted = -99 if count == 0 else case[0] + case[2] * (20 if count > 20 else count - 1)
        assert last[number] == wanted, case


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, 0])
def test_a_range_with_a_literal_step(step: int) -> None:
    loop = For(
        variable="i",
        start=const(-3),
        stop=load("stop", i64),
        step=const(step),
        body=(assign("sum", add(mul(local("sum"), const(3)), local("i"))),),
    )
    body = (assign("sum", const(1)), loop, store("out", local("sum")))
    built = Built(kernel((array("stop", i64), array("out", i64)), body, variables={"sum": i64, "i": i64}), CONTIGUOUS)
    stops = np.arange(-12, 12, dtype=np.int64)
    out = np.zeros_like(stops)
    built.over(len(stops), stops, out)
    for stop, found in zip(stops.tolist(), out.tolist(), strict=True):
        total = 1
        for i in range(-3, stop, step) if step else ():
            total = total * 3 + i
        assert found == total


def test_assigning_the_variable_does_not_change_the_flow() -> None:
    loop = For(
        variable="i",
        start=const(0),
        stop=const(5),
        step=const(1),
        body=(
            assign("n", add(local("n"), local("i"))),
            assign("i", const(100)),
        ),
    )
    body = (assign("n", const(0)), loop, store("out", local("n")))
    out = np.zeros(2, np.int64)
    Built(kernel((array("out", i64),), body, variables={"n": i64, "i": i64})).over(2, out)
    assert out.tolist() == [10, 10]


def test_break_continue_and_return_leave_the_right_loop() -> None:
    """Nested loops, against the same flow in Python."""
    i, j = local("i"), local("j")
    inner = For(
        variable="j",
        start=const(0),
        stop=const(10),
        step=const(1),
        body=(
            If(condition=equal(j, i), then=(Continue(),)),
            If(condition=less(const(6), j), then=(Break(),)),
            If(
                condition=equal(add(mul(i, const(10)), j), load("limit", i64)),
                then=(store("out", local("n")), Return()),
            ),
            assign("n", add(mul(local("n"), const(2)), j)),
        ),
    )
    outer = Loop(
        body=(
            If(condition=less(const(5), i), then=(Break(),)),
            inner,
            assign("i", add(i, const(1))),
            If(condition=equal(i, const(3)), then=(Continue(),), otherwise=(assign("n", add(local("n"), const(1))),)),
        )
    )
    body = (assign("n", const(0)), assign("i", const(0)), outer, store("out", mul(local("n"), const(-1))))
    built = Built(kernel((array("limit", i64), array("out", i64)), body, variables={"n": i64, "i": i64, "j": i64}))
    limits = np.arange(70, dtype=np.int64)
    out = np.zeros_like(limits)
    built.over(len(limits), limits, out)
    assert out.tolist() == [_same_flow(limit) for limit in range(70)]


def _same_flow(limit: int) -> int:
    n = i = 0
    while i <= 5:
        for j in range(10):
            if j == i:
                continue
            if j > 6:
                break
            if i * 10 + j == limit:
                return n
            n = (n * 2 + j + 2**63) % 2**64 - 2**63
        i += 1
        if i == 3:
            continue
        n += 1
    return (-n + 2**63) % 2**64 - 2**63


def test_code_after_a_jump_is_not_reached() -> None:
    dead = store("out", const(-1))
    body: tuple[Stmt, ...] = (
        store("out", const(1)),
        If(
            condition=less(global_id(), const(2)),
            then=(Return(), dead),
            otherwise=(store("out", const(2)), Return(), dead),
        ),
        dead,
    )
    out = np.zeros(4, np.int64)
    Built(kernel((array("out", i64),), body)).over(4, out)
    assert out.tolist() == [1, 1, 2, 2]


def test_a_long_chain_of_conditions_and_of_operators_compiles() -> None:
    chain: tuple[Stmt, ...] = (store("out", const(-1)),)
    for number in reversed(range(1500)):
        chain = (
            If(condition=equal(global_id(), const(number)), then=(store("out", const(number * 2)),), otherwise=chain),
        )
    total: Expr = global_id()
    for _ in range(2000):
        total = Binary(op=BinaryOp.XOR, left=add(total, global_id()), right=const(3))
    out, sums = np.zeros(1502, np.int64), np.zeros(1502, np.int64)
    built = Built(kernel((array("out", i64), array("sums", i64)), (*chain, store("sums", total))))
    built.over(1502, out, sums)
    assert out.tolist() == [*range(0, 3000, 2), -1, -1]
    wanted = ids = np.arange(1502)
    for _ in range(2000):
        wanted = (wanted + ids) ^ 3
    assert np.array_equal(sums, wanted)


def test_a_local_starts_afresh_in_every_thread() -> None:
    body = (
        If(condition=equal(global_id(), const(0)), then=(assign("n", const(7)),)),
        store("out", local("n")),
    )
    out = np.ones(5, np.int64)
    Built(kernel((array("out", i64),), body, variables={"n": i64})).over(5, out)
    assert out.tolist() == [7, 0, 0, 0, 0]


# --- private memory and device functions ------------------------------------------------------------------------------


def private_sum(n: Expr) -> tuple[Stmt, ...]:
    """Fills a private array with ids and adds it up, last first."""
    item = load("own", i64, local("i"), kind=RootKind.PRIVATE)
    return (
        Alloc(name="own", space=Space.PRIVATE, element=i64, shape=(8,)),
        For(
            variable="i",
            start=const(0),
            stop=n,
            step=const(1),
            body=(store("own", mul(local("i"), global_id()), local("i"), kind=RootKind.PRIVATE),),
        ),
        assign("sum", const(0)),
        For(
            variable="i",
            start=add(n, const(-1)),
            stop=const(-1),
            step=const(-1),
            body=(assign("sum", add(mul(local("sum"), const(3)), item)),),
        ),
    )


def test_private_memory_belongs_to_its_thread() -> None:
    body = (*private_sum(load("n", i64)), store("out", local("sum")))
    built = Built(kernel((array("n", i64), array("out", i64)), body, variables={"i": i64, "sum": i64}), CONTIGUOUS)
    n = np.arange(600, dtype=np.int64) % 9
    out = np.zeros_like(n)
    built.over(len(n), n, out)
    wanted = []
    for thread, count in enumerate(n.tolist()):
        total = 0
        for i in reversed(range(count)):
            total = total * 3 + i * thread
        wanted.append(total)
    assert out.tolist() == wanted


def test_device_functions_take_arrays_and_indices_and_return_several_values() -> None:
    i32_sum = Function(
        name="größe",
        params=(array("a", i64, 2), scalar("row", i64), scalar("flag", bool_), scalar("half", f16)),
        results=(i64, f16, bool_),
        locals=(LocalVariable(name="k", type=i64), LocalVariable(name="s", type=i64)),
        body=(
            assign("s", const(0)),
            For(
                variable="k",
                start=const(0),
                stop=Shape(param="a", axis=1),
                step=const(1),
                body=(
                    If(
                        condition=Param(name="flag", type=bool_),
                        then=(Return(values=(const(-1), const(0.5, f16), const(False, bool_))),),
                    ),
                    assign("s", add(local("s"), load("a", i64, Param(name="row", type=i64), local("k")))),
                ),
            ),
            Return(
                values=(
                    add(local("s"), mul(global_id(), const(1000))),
                    add(Param(name="half", type=f16), const(0.25, f16)),
                    const(True, bool_),
                )
            ),
        ),
    )
    clear = Function(
        name='%clear"',
        params=(array("a", i64),),
        results=(),
        locals=(),
        body=(store("a", const(5), const(2)), If(condition=less(global_id(), const(0)), then=(Return(),))),
    )
    matrix = ArrayRef(root=Root(RootKind.PARAM, "m"), type=ArrayType(i64, 2))
    own = ArrayRef(root=Root(RootKind.PRIVATE, "own"), type=ArrayType(i64, 1))
    flag = equal(global_id(), const(1))
    body = (
        Alloc(name="own", space=Space.PRIVATE, element=i64, shape=(4,)),
        Call(results=("s", "h", "ok"), function="größe", arguments=(matrix, global_id(), flag, const(1.5, f16))),
        Call(results=(), function='%clear"', arguments=(own,)),
        If(
            condition=local("ok", bool_),
            then=(store("out", add(local("s"), load("own", i64, const(2), kind=RootKind.PRIVATE))),),
            otherwise=(store("out", local("s")),),
        ),
        store("halves", local("h", f16)),
    )
    params = (array("m", i64, 2), array("out", i64), array("halves", f16))
    made = kernel(params, body, variables={"s": i64, "h": f16, "ok": bool_}, functions=(i32_sum, clear))
    m = np.arange(24, dtype=np.int64).reshape(4, 6)[:, ::2]
    out, halves = np.zeros(4, np.int64), np.zeros(4, np.float16)
    Built(made, STRIDED).over(4, m, out, halves)
    sums = m.sum(axis=1) + np.arange(4) * 1000 + 5
    assert out.tolist() == [sums[0], -1, sums[2], sums[3]]
    assert halves.tolist() == [1.75, 0.5, 1.75, 1.75]


def test_a_private_array_in_a_device_function_is_not_shared_between_threads() -> None:
    fill = Function(
        name="fill",
        params=(array("a", i64), scalar("n", i64)),
        results=(i64,),
        locals=(LocalVariable(name="k", type=i64),),
        body=(
            store(
                "a", Param(name="n", type=i64), Binary(op=BinaryOp.MOD, left=Param(name="n", type=i64), right=const(4))
            ),
            Return(values=(load("a", i64, Binary(op=BinaryOp.MOD, left=Param(name="n", type=i64), right=const(4))),)),
        ),
    )
    own = ArrayRef(root=Root(RootKind.PRIVATE, "own"), type=ArrayType(i64, 1))
    body = (
        Alloc(name="own", space=Space.PRIVATE, element=i64, shape=(4,)),
        Call(results=("s",), function="fill", arguments=(own, load("x", i64))),
        store("out", local("s")),
    )
    x = np.arange(1000, dtype=np.int64) * 7
    out = np.zeros_like(x)
    params = (array("x", i64), array("out", i64))
    Built(kernel(params, body, variables={"s": i64}, functions=(fill,)), CONTIGUOUS).over(len(x), x, out)
    assert np.array_equal(out, x)


def test_a_chain_of_a_thousand_branches_compiles() -> None:
    chain: tuple[Stmt, ...] = ()
    for value in reversed(range(1000)):
        condition = Compare(op=CompareOp.EQ, left=load("x", i64), right=const(value))
        chain = (If(condition=condition, then=(store("x", const(value * 3)),), otherwise=chain),)
    x = np.arange(1500)[::-1].copy()
    Built(kernel((array("x", i64),), chain), CONTIGUOUS).over(1500, x)
    assert x.tolist() == [value * 3 if value < 1000 else value for value in reversed(range(1500))]
