from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built, compiler_for, lowered
from tests.unit.ir_by_hand import add, array, const, global_id, kernel, load, mul, store

from quernel.dtypes import ArrayType, f32, i64
from quernel.ir.nodes import (
    ArrayRef,
    Assign,
    Call,
    Compare,
    CompareOp,
    Expr,
    For,
    Function,
    If,
    Local,
    Parameter,
    Place,
    Return,
    Root,
    RootKind,
    Stmt,
    Store,
)
from quernel_cpu.emission.functions import device_functions
from quernel_cpu.emission.independence import array_stored_last

X: Parameter = array("x", i64)
Y: Parameter = array("y", i64)
READ = Assign(name="t", value=load("x", i64))
T = Local(name="t", type=i64)
WRITE = store("y", T)
WRITE_X = store("x", const(1))
CONDITION = Compare(op=CompareOp.LT, left=global_id(), right=const(3))


def part(name: str, index: int = 0, value: Expr = T) -> Store:
    """A store to a field of an element of y."""
    return Store(
        place=Place(root=Root(RootKind.PARAM, "y"), indices=(const(index),), type=i64, view=(name,)), value=value
    )


def loop(*body: Stmt) -> For:
    return For(variable="k", start=const(0), stop=const(4), step=const(1), body=body)


def named(name: str, **fields: Any) -> Any:
    return pytest.param(*fields.values(), id=name)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        named("read, then store", body=(READ, WRITE), wanted="y"),
        named("reads in a loop", body=(loop(READ), WRITE), wanted="y"),
        named(
            "a store on either side",
            body=(READ, If(condition=CONDITION, then=(WRITE,), otherwise=(WRITE,))),
            wanted="y",
        ),
        named("a store, then the end", body=(READ, If(condition=CONDITION, then=(WRITE, Return()))), wanted="y"),
        named("store, then read", body=(WRITE, READ), wanted=None),
        named("perhaps a store, then a read", body=(If(condition=CONDITION, then=(WRITE,)), READ), wanted=None),
        named("a store in a loop", body=(loop(READ, WRITE),), wanted=None),
        named("two stores", body=(WRITE, WRITE), wanted=None),
        named("two arrays", body=(WRITE, WRITE_X), wanted=None),
        named(
            "a store in each of two branches in turn", body=(If(condition=CONDITION, then=(WRITE,)), WRITE), wanted=None
        ),
        named("no store", body=(READ,), wanted=None),
        named("the parts of one element", body=(READ, part("a"), part("b")), wanted="y"),
        named("parts of two elements", body=(READ, part("a"), part("b", 1)), wanted=None),
        named("a part in a branch", body=(If(condition=CONDITION, then=(part("a"),)), part("b")), wanted=None),
        named("a part that is read", body=(part("a"), part("b", value=load("x", i64))), wanted=None),
    ],
)
def test_an_array_is_stored_last(body: tuple[Stmt, ...], wanted: str | None) -> None:
    assert array_stored_last(body, {}) == wanted


@pytest.mark.parametrize(("writes", "wanted"), [(False, "y"), (True, None)])
def test_a_call_that_writes_an_array_counts(writes: bool, wanted: str | None) -> None:
    body: tuple[Stmt, ...] = (store("a", const(1)),) if writes else (Assign(name="t", value=load("a", i64)),)
    function = Function(name="f", params=(array("a", i64),), results=(), locals=(), body=body)
    call = Call(results=(), function="f", arguments=(ArrayRef(root=Root(RootKind.PARAM, "x"), type=ArrayType(i64, 1)),))
    module = kernel((X, Y), (call, WRITE), variables={"t": i64}, functions=(function,))
    assert array_stored_last(module.kernel.body, device_functions(module)) == wanted


def test_a_call_that_reads_after_the_store_counts() -> None:
    body = (Assign(name="t", value=load("a", i64)),)
    function = Function(name="f", params=(array("a", i64),), results=(), locals=(), body=body)
    call = Call(results=(), function="f", arguments=(ArrayRef(root=Root(RootKind.PARAM, "x"), type=ArrayType(i64, 1)),))
    module = kernel((X, Y), (WRITE, call), variables={"t": i64}, functions=(function,))
    assert array_stored_last(module.kernel.body, device_functions(module)) is None


def test_the_marks_stand_in_the_code_only_where_they_hold() -> None:
    last = lowered(kernel((X, Y), (READ, WRITE), variables={"t": i64}), CONTIGUOUS, compiler_for("scalar")).ir
    assert "!alias.scope" in last
    assert "!noalias" in last
    again = lowered(kernel((X, Y), (READ, WRITE, WRITE_X), variables={"t": i64}), CONTIGUOUS, compiler_for("scalar")).ir
    assert "!noalias" not in again


@pytest.mark.parametrize("size", [1, 15, 16, 64, 1000])
def test_the_same_array_as_input_and_output_is_updated_in_place(size: int) -> None:
    value = add(mul(load("x", f32), const(2.0, f32)), load("y", f32))
    built = Built(kernel((array("x", f32), array("y", f32)), (store("y", value),)), CONTIGUOUS)
    both = np.arange(size, dtype=np.float32)
    built.over(size, both, both)
    assert np.array_equal(both, np.arange(size, dtype=np.float32) * 3)


def test_threads_that_write_beside_what_others_read_do_not_disturb_them() -> None:
    """Even places get the value right of them; x and y are one array."""
    index = mul(global_id(), const(2))
    body = (store("y", load("x", i64, add(index, const(1))), index),)
    both = np.arange(2000, dtype=np.int64)
    Built(kernel((X, Y), body), CONTIGUOUS).over(1000, both, both)
    assert np.array_equal(both, np.arange(2000) | 1)
