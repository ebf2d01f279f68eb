from __future__ import annotations

import textwrap

import attrs
import pytest
from tests.unit.ir.everything import EVERYTHING

from quernel.dtypes import ArrayType, VectorType, bool_, f32, f64, i8, i32, i64
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assign,
    Atomic,
    AtomicOp,
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Fma,
    For,
    If,
    IndexKind,
    Load,
    Local,
    LocalVariable,
    Math,
    MathFunction,
    Module,
    Param,
    Parameter,
    Place,
    Return,
    Root,
    RootKind,
    Select,
    Shape,
    Space,
    Stmt,
    Store,
    ThreadIndex,
    Unary,
    UnaryOp,
    VecGet,
    VecMake,
)
from quernel.ir.parser import parse_module
from quernel.ir.verifier import VerificationError, verify
from quernel.locations import Location

HEAD = """\
kernel k(x: array<f32, 2>, n: i64, s: f32) grid (2, 4):
    local i: i64
    local t: f32
    local b: bool
    local v: vec<f32, 2>
    private own: f32[4]
"""
FUNCTIONS = "\nfunc f(a: array<f32, 2>, c: i64) -> (f32):\n    return a[c, 0]\n"
VALID = verify(parse_module(HEAD + "    i = 1\n" + FUNCTIONS))
HERE = Location("kernel.py", 12, 4)
ONE, HALF, YES = Const(value=1, type=i64), Const(value=0.5, type=f32), Const(value=True, type=bool_)
I, T = Local(name="i", type=i64), Local(name="t", type=f32)
PAIR = VectorType(f32, 2)
X = Root(RootKind.PARAM, "x")


def place(*indices: Expr, root: Root = X) -> Place:
    return Place(root=root, indices=indices, type=f32, loc=HERE)


def with_body(*body: Stmt) -> Module:
    return attrs.evolve(VALID, kernel=attrs.evolve(VALID.kernel, body=(VALID.kernel.body[0], *body)))


def test_valid_module_is_given_back() -> None:
    module = parse_module(EVERYTHING)
    assert verify(module) is module


@pytest.mark.parametrize(
    ("stmt", "message"),
    [
        (Assign(name="nope", value=ONE, loc=HERE), "nope is assigned but is no local"),
        (Assign(name="n", value=ONE, loc=HERE), "n is assigned but is no local"),
        (Assign(name="i", value=HALF, loc=HERE), "local i is i64, the value is f32"),
        (Store(place=place(ONE), value=HALF), "x has 2 axes, 1 indices are given"),
        (Store(place=place(ONE, Const(value=1, type=i32, loc=HERE)), value=HALF), "an index of x is i32, not i64"),
        (Store(place=place(ONE, ONE), value=Const(value=1, type=i64, loc=HERE)), "a stored value is i64, not f32"),
        (Store(place=attrs.evolve(place(ONE, ONE), view=(0,)), value=HALF), "is None, not f32"),
        (Store(place=attrs.evolve(place(ONE, ONE), type=f64), value=HALF), "is f32, not f64"),
        (Store(place=place(ONE, root=Root(RootKind.SHARED, "own")), value=HALF), "own is no shared allocation"),
        (Store(place=place(ONE, root=Root(RootKind.PARAM, "n")), value=HALF), "n is no array parameter"),
        (If(condition=attrs.evolve(ONE, loc=HERE), then=()), "the condition of an If is i64, not bool"),
        (For(variable="t", start=ONE, stop=ONE, step=ONE, body=(), loc=HERE), "local t is f32, the value is i64"),
        (For(variable="i", start=ONE, stop=attrs.evolve(HALF, loc=HERE), step=ONE, body=()), "a bound of a For is f32"),
        (Return(values=(ONE,), loc=HERE), "the returned values do not match"),
        (Call(results=("t",), function="g", arguments=(), loc=HERE), "a call of g, which is no function"),
        (Call(results=("t",), function="f", arguments=(ONE,), loc=HERE), "the call of f takes 2 operands, 1 are given"),
        (
            Call(results=("t",), function="f", arguments=(ONE, ONE), loc=HERE),
            "argument a of f is i64, not array<f32, 2>",
        ),
        (
            Call(results=(), function="f", arguments=(ArrayRef(root=X, type=ArrayType(f32, 2)), ONE), loc=HERE),
            "f gives 1 results, not 0",
        ),
        (
            Call(results=("i",), function="f", arguments=(ArrayRef(root=X, type=ArrayType(f32, 2)), ONE), loc=HERE),
            "local i is i64, the value is f32",
        ),
        (
            If(condition=YES, then=(Alloc(name="q", space=Space.SHARED, element=f32, shape=(1,), loc=HERE),)),
            "allocation q below the top level",
        ),
        (Alloc(name="own", space=Space.SHARED, element=f32, shape=(1,), loc=HERE), "the name own is declared twice"),
        (Alloc(name="q", space=Space.SHARED, element=f32, shape=(0,), loc=HERE), "allocation q has the shape"),
        (
            Atomic(op=AtomicOp.AND, place=place(ONE, ONE), operands=(HALF,), loc=HERE),
            "atomic and on f32",
        ),
        (
            Atomic(op=AtomicOp.COMPARE_EXCHANGE, place=place(ONE, ONE), operands=(HALF,), loc=HERE),
            "atomic compare_exchange takes 2 operands",
        ),
        (
            Atomic(op=AtomicOp.ADD, place=place(ONE, ONE), operands=(HALF,), result="i", loc=HERE),
            "local i is i64, the value is f32",
        ),
    ],
)
def test_statement_is_refused(stmt: Stmt, message: str) -> None:
    with pytest.raises(VerificationError, match=message) as caught:
        verify(with_body(stmt))
    assert caught.value.where == HERE


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (Local(name="i", type=f32, loc=HERE), "local i is i64, not f32"),
        (Local(name="q", type=f32, loc=HERE), "local q is None, not f32"),
        (Param(name="s", type=f64, loc=HERE), "parameter s is f32, not f64"),
        (Param(name="x", type=f32, loc=HERE), "parameter x is array<f32, 2>, not f32"),
        (Const(value=0.1, type=f32, loc=HERE), "the literal 0.1 is no value of f32"),
        (Const(value=200, type=i8, loc=HERE), "the literal 200 is no value of i8"),
        (Const(value=1, type=f32, loc=HERE), "the literal 1 is no value of f32"),
        (Const(value=True, type=i64, loc=HERE), "the literal True is no value of i64"),
        (Const(value=1, type=bool_, loc=HERE), "the literal 1 is no value of bool"),
        (Binary(op=BinaryOp.ADD, left=I, right=T, loc=HERE), "the operands of a Binary are i64 and f32"),
        (Binary(op=BinaryOp.DIV, left=I, right=I, loc=HERE), "div of i64"),
        (Binary(op=BinaryOp.XOR, left=T, right=T, loc=HERE), "xor of f32"),
        (Binary(op=BinaryOp.ADD, left=YES, right=YES, loc=HERE), "add of bool"),
        (Unary(op=UnaryOp.NOT, operand=I, loc=HERE), "not of i64"),
        (Unary(op=UnaryOp.INVERT, operand=T, loc=HERE), "invert of f32"),
        (Unary(op=UnaryOp.NEG, operand=YES, loc=HERE), "neg of bool"),
        (Compare(op=CompareOp.LT, left=I, right=T, loc=HERE), "the operands of a Compare are i64 and f32"),
        (Select(condition=YES, then=I, otherwise=T, loc=HERE), "the sides of a Select are i64 and f32"),
        (
            Select(condition=attrs.evolve(I, loc=HERE), then=I, otherwise=I),
            "the condition of a Select is i64, not bool",
        ),
        (Bitcast(operand=T, type=i64, loc=HERE), "a Bitcast from f32 to i64"),
        (Bitcast(operand=YES, type=i8, loc=HERE), "a Bitcast from bool to i8"),
        (Cast(operand=Local(name="v", type=VectorType(f32, 2), loc=HERE), type=i8), "is vec<f32, 2>, not a scalar"),
        (Fma(a=I, b=I, c=I, loc=HERE), "an Fma of i64"),
        (Fma(a=T, b=T, c=I, loc=HERE), "the operands of a Fma are f32 and i64"),
        (Math(function=MathFunction.EXP, operands=(I,), type=i64, loc=HERE), "exp of i64"),
        (Math(function=MathFunction.CLZ, operands=(T,), type=f32, loc=HERE), "clz of f32"),
        (Math(function=MathFunction.EXP, operands=(T,), type=f64, loc=HERE), "exp of f32 is f32, not f64"),
        (Math(function=MathFunction.ISNAN, operands=(T,), type=f32, loc=HERE), "isnan of f32 is bool, not f32"),
        (Math(function=MathFunction.POW, operands=(T,), type=f32, loc=HERE), "pow takes 2 operands, 1 are given"),
        (ThreadIndex(kind=IndexKind.LOCAL_ID, axis=2, loc=HERE), "local_id has no axis 2"),
        (ThreadIndex(kind=IndexKind.SUBGROUP_LANE, axis=1, loc=HERE), "subgroup_lane has no axis 1"),
        (Shape(param="x", axis=2, loc=HERE), "x has no axis 2"),
        (Shape(param="own", axis=0, loc=HERE), "own has no axis 0"),
        (
            VecGet(operand=VecMake(components=(T,), type=PAIR, loc=HERE), index=0, type=f32),
            "vec<f32, 2> takes 2 operands",
        ),
        (
            VecGet(operand=Local(name="v", type=VectorType(f32, 2)), index=2, type=f32, loc=HERE),
            "component 2 of vec<f32, 2>",
        ),
        (Load(place=place(ONE)), "x has 2 axes, 1 indices are given"),
    ],
)
def test_expression_is_refused_wherever_it_stands(expr: Expr, message: str) -> None:
    index = Select(condition=YES, then=ONE, otherwise=Cast(operand=expr, type=i64))
    nested = Store(place=place(ONE, index), value=HALF)
    with pytest.raises(VerificationError, match=message) as caught:
        verify(with_body(If(condition=YES, then=(), otherwise=(nested,))))
    assert caught.value.where == HERE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("    break\n", "Break outside a loop"),
        ("    if b:\n        continue\n", "Continue outside a loop"),
        ("    i = 1\n\nfunc g(q: i64) -> (i64):\n    if q < 1:\n        return q\n", "g may end without returning"),
        (
            "    i = 1\n\nfunc g() -> ():\n    call h()\n\nfunc h() -> ():\n    call g()\n",
            "each other in a circle: g, h",
        ),
        ("    i = 1\n\nfunc g() -> ():\n    call g()\n", "in a circle: g"),
        ("    i = 1\n\nfunc g() -> ():\n    break\n", "Break outside a loop"),
        ("    i = 1\n\nfunc g() -> ():\n    pass\n\nfunc g() -> ():\n    pass\n", "two functions are called g"),
    ],
)
def test_module_is_refused(text: str, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(parse_module(HEAD + text))


def test_loop_that_is_never_left_returns_its_results() -> None:
    text = "    pass\n\nfunc g(q: i64) -> (i64):\n    loop:\n        if q < 1:\n            return q\n"
    verify(parse_module(HEAD.replace("    private own: f32[4]\n", "") + text))


def test_names_are_declared_once() -> None:
    kernel = VALID.kernel
    twice = attrs.evolve(kernel, locals=(*kernel.locals, LocalVariable(name="n", type=i64)))
    with pytest.raises(VerificationError, match="the name n is declared twice"):
        verify(attrs.evolve(VALID, kernel=twice))


def test_array_parameters_have_an_element_type_and_a_rank() -> None:
    params = (*VALID.kernel.params, Parameter(name="z", type=ArrayType(None, 1)))
    with pytest.raises(VerificationError, match="array parameter z has no element type or rank"):
        verify(attrs.evolve(VALID, kernel=attrs.evolve(VALID.kernel, params=params)))


@pytest.mark.parametrize("block", [(), (0,), (1, 1, 1, 1), (4, -1)])
def test_block_has_one_to_three_positive_axes(block: tuple[int, ...]) -> None:
    with pytest.raises(VerificationError, match="is no shape of 1 to 3 positive axes"):
        verify(attrs.evolve(VALID, kernel=attrs.evolve(VALID.kernel, block=block)))


def test_allocation_comes_before_its_use() -> None:
    text = textwrap.indent("own[0] = 1.0f32\n", "    ")
    module = parse_module(HEAD + text)
    alloc, store = module.kernel.body
    with pytest.raises(VerificationError, match="own is no private allocation made before"):
        verify(attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=(store, alloc))))
