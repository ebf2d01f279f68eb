from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import attrs
import numpy as np
import pytest

import quernel as qn
from quernel.dtypes import ArrayType
from quernel.errors import KernelTypeError


@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def power(x, n: qn.Const[int] = 2):
    i = qn.global_id()
    x[i] = x[i] ** n


@qn.kernel
def copy2(source: qn.Array2[qn.f32], target: qn.Array2[qn.f32]):
    row, column = qn.global_id()
    target[row, column] = source[row, column]


@qn.kernel
def by_block(x: qn.Array1[qn.i64]):
    x[qn.global_id()] = qn.block_id()


def test_specialization_shows_ir_source_and_assembly() -> None:
    made = saxpy.options(device="cpu").specialize()
    assert "y[i] = fma(f32(a), x[i], y[i])" in made.ir
    assert made.module.kernel.name == "saxpy"
    assert "define" in (made.source or "")
    assert "quernel_entry" in (made.asm or "")
    assert made.statistics["code_bytes"] > 0
    assert made.registers is None
    assert made.spills is None
    assert [parameter.is_written for parameter in made.header.params] == [False, False, True]
    assert repr(made) == "<saxpy(a: f64 weak, x: array<f32, 1>, y: array<f32, 1>) for cpu:0>"


def test_nothing_is_lowered_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    device = qn.device("cpu")
    compiler = type(device.operations.target.compiler)
    monkeypatch.setattr(compiler, "lower", lambda *args: pytest.fail("lowered"))
    made = saxpy.options(device="cpu").specialize()
    assert "fma" in made.ir


def test_types_constants_and_arguments_all_specialize() -> None:
    by_type = power.specialize(qn.Array1[qn.f32], n=3)
    by_argument = power.specialize(np.zeros(4, np.float32), 3)
    assert by_type.definition.id == by_argument.definition.id
    assert by_type.definition.specialization.constants == (("n", 3),)
    assert power.specialize(x=qn.Array[qn.f64]).definition.specialization.parameters == (("x", ArrayType(qn.f64, 1)),)


@attrs.frozen
class Pair:
    a: qn.f32
    b: qn.Array1[qn.f32]


@attrs.frozen
class Single:
    a: qn.f32


@qn.kernel
def of_pair(pair: Pair, v: qn.vec(qn.f32, 2)):
    pair.b[0] = pair.a + v.x


@qn.kernel
def of_any_rank(x: qn.Array[qn.f32]):
    x[qn.global_id()] = 0


@qn.kernel
def of_any_type(x: qn.Array2):
    x[qn.global_id()] = 0


@qn.kernel
def counted(n: int, flag: bool, byte: qn.u8, x):
    x[0] = byte + n if flag else 0


@pytest.mark.parametrize(
    ("make", "parameters"),
    [
        (lambda: saxpy.specialize(qn.f32), ["f64 weak", "array<f32, 1>", "array<f32, 1>"]),
        (lambda: saxpy.specialize(np.float32(2)), ["f64 weak", "array<f32, 1>", "array<f32, 1>"]),
        (lambda: saxpy.specialize(int), ["f64 weak", "array<f32, 1>", "array<f32, 1>"]),
        (lambda: saxpy.specialize(x=qn.Array[qn.f32]), ["f64 weak", "array<f32, 1>", "array<f32, 1>"]),
        (lambda: saxpy.specialize(x=qn.Array), ["f64 weak", "array<f32, 1>", "array<f32, 1>"]),
        (lambda: copy2.specialize(qn.Array[qn.f32]), ["array<f32, 2>", "array<f32, 2>"]),
        (lambda: of_any_rank.specialize(qn.Array1), ["array<f32, 1>"]),
        (lambda: of_any_type.specialize(qn.Array[qn.f64]), ["array<f64, 2>"]),
        (lambda: counted.specialize(x=qn.Array1[qn.i32]), ["i64 weak", "bool", "u8", "array<i32, 1>"]),
        (lambda: counted.specialize(qn.i8, bool, int, qn.Array[qn.i32]), ["i64 weak", "bool", "u8", "array<i32, 1>"]),
    ],
)
def test_types_are_those_of_a_launch_with_such_arguments(make: Any, parameters: list[str]) -> None:
    assert [str(type_) for _, type_ in make().definition.specialization.parameters] == parameters


PLACED = np.dtype([("b", "i4"), ("more", "f8"), ("a", "f8")])
NESTED = np.dtype([("inner", [("a", "f4"), ("b", "i4")]), ("v", "f4", 2)])


@attrs.frozen
class Inner:
    a: qn.f32
    b: qn.i32


@attrs.frozen
class Wider(Inner):
    c: qn.f32


@attrs.frozen
class Outer:
    inner: Inner
    v: qn.vec(qn.f32, 2)


@qn.kernel
def of_inner(p: Inner, out: qn.Array1[qn.f32]):
    out[0] = p.a + p.b


@qn.kernel
def of_dtype(p: np.dtype([("a", "f8"), ("b", "i4")]), out: qn.Array1[qn.f32]):
    out[0] = p.a + p.b


@qn.kernel
def of_outer(p: Outer, out: qn.Array1[qn.f32]):
    out[0] = p.inner.a + p.v.x


@qn.kernel
def of_vectors(x: qn.Array1[qn.vec(qn.f32, 2)]):
    x[0] = x[0] * 2


@qn.kernel
def of_vectors_of_any_rank(x: qn.Array[qn.vec(qn.f32, 2)]):
    x[0] = x[0] * 2


T = TypeVar("T")


@qn.kernel
def of_variable(a: T, x: qn.Array1[T]):
    x[0] = a


@pytest.mark.parametrize(
    ("kernel", "type_", "argument"),
    [
        (of_inner, Inner, Inner(1, 2)),
        (of_inner, Wider, Wider(1, 2, 3)),
        (of_inner, np.dtype([("b", "i2"), ("a", "f8")]), np.zeros(1, np.dtype([("b", "i2"), ("a", "f8")]))[0]),
        (of_dtype, Inner, Inner(1, 2)),
        (of_dtype, Wider, Wider(1, 2, 3)),
        (of_dtype, PLACED, np.zeros(1, PLACED)[0]),
        (of_outer, NESTED, np.zeros(1, NESTED)[0]),
        (of_vectors, qn.Array1[qn.vec(qn.f32, 2)], np.zeros((3, 2), np.float32)),
        (of_vectors, qn.Array2[qn.f32], np.zeros((3, 2), np.float32)),
        (of_vectors, qn.Array[qn.f32], np.zeros((3, 2), np.float32)),
        (of_vectors_of_any_rank, qn.Array2[qn.f32], np.zeros((3, 2), np.float32)),
    ],
)
def test_types_are_taken_as_arguments_of_them_are(kernel: Any, type_: Any, argument: Any) -> None:
    assert kernel.specialize(type_).definition.id == kernel.specialize(argument).definition.id


@pytest.mark.parametrize(
    ("kernel", "type_", "argument"),
    [
        (of_inner, Single, Single(1)),
        (of_inner, Outer, Outer(Inner(1, 2), (1, 2))),
        (of_inner, np.dtype([("a", "f4")]), np.zeros(1, np.dtype([("a", "f4")]))[0]),
        (of_inner, np.dtype([("a", "f4"), ("b", "f4")]), np.zeros(1, np.dtype([("a", "f4"), ("b", "f4")]))[0]),
        (of_inner, qn.f32, np.float32(1)),
        (of_inner, qn.Array1[qn.f32], np.zeros(3, np.float32)),
        (of_dtype, Single, Single(1)),
        (of_dtype, NESTED, np.zeros(1, NESTED)[0]),
        (of_outer, PLACED, np.zeros(1, PLACED)[0]),
        (of_outer, np.dtype([("inner", "f4"), ("v", "f4", 2)]), np.zeros(1, [("inner", "f4"), ("v", "f4", 2)])[0]),
        (of_vectors, qn.Array1[qn.f32], np.zeros(3, np.float32)),
        (of_vectors, qn.Array3[qn.f32], np.zeros((3, 3, 2), np.float32)),
        (of_vectors, qn.Array2[qn.f64], np.zeros((3, 2))),
        (of_variable, qn.Array1[qn.f32], np.zeros(3, np.float32)),
    ],
)
def test_types_are_refused_as_arguments_of_them_are(kernel: Any, type_: Any, argument: Any) -> None:
    rest = {"x": qn.Array1[qn.f32]} if kernel is of_variable else {}
    for given in (type_, argument):
        with pytest.raises(KernelTypeError, match="parameter '"):
            kernel.specialize(given, **rest)


@pytest.mark.parametrize(
    ("make", "fix"),
    [
        (lambda: of_any_type.specialize(qn.Array1[qn.f32]), "for example qn.Array2[qn.f32]"),
        (lambda: of_any_type.specialize(qn.f32), "for example qn.Array2[qn.f32]"),
        (lambda: of_any_type.specialize(qn.Array), "write qn.Array2[qn.f32]"),
        (lambda: power.specialize(qn.Array, n=2), "write qn.Array1[qn.f32]"),
        (lambda: of_variable.specialize(qn.Array1[qn.f32]), "the type of a number, for example qn.f32"),
        (lambda: saxpy.specialize(bool, qn.Array1[qn.f32]), "leave it out, since the annotation says the type, and"),
        (lambda: of_dtype.specialize(Single), "a type with the fields a, b"),
    ],
)
def test_type_that_does_not_fit_is_met_with_one_that_does(make: Any, fix: str) -> None:
    with pytest.raises(KernelTypeError, match=f"fix: .*{re.escape(fix)}"):
        make()
    of_any_type.specialize(qn.Array2[qn.f32])
    power.specialize(qn.Array1[qn.f32], n=2)
    of_variable.specialize(qn.f32, qn.Array1[qn.f32])
    saxpy.specialize(x=qn.Array1[qn.f32])


def test_launch_finds_what_was_compiled_for_the_types_of_its_arguments(tmp_path: Path) -> None:
    arguments = np.float32(2), np.zeros(3, np.float32), np.zeros(3, np.float32)
    kernel = qn.kernel(saxpy.__wrapped__)
    with qn.environment(tmp_path):
        qn.device("cpu").compile([(kernel, (qn.f32, qn.Array1[qn.f32], qn.Array1[qn.f32]))])
        with qn.no_compiling():
            kernel.over(3, device="cpu")(*arguments)


def test_rank_and_form_are_those_that_the_kernel_can_be_launched_in() -> None:
    assert copy2.specialize().definition.specialization.block == (8, 32)
    made = by_block.specialize().definition.specialization
    assert made.form.value == "grid"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: power.specialize(), "parameter 'x' of kernel power has no exact type"),
        (lambda: power.specialize(qn.Array), "is no exact type for parameter 'x'"),
        (lambda: power.specialize(qn.Array1[qn.f32], n="a"), "Const parameter 'n' is int and got 'a'"),
        (lambda: power.specialize(qn.Array1[qn.f32], 2, 3), "takes 2 positional arguments but 3"),
        (lambda: power.specialize(qn.Array1[qn.f32], m=3), "has no parameter 'm'"),
        (lambda: power.specialize(qn.Array1[qn.f32], x=qn.f32), "two values for 'x'"),
        (lambda: saxpy.specialize(x=np.zeros(3)), "parameter 'x' is an array of f32 and got one of f64"),
        (lambda: saxpy.specialize(x=qn.Array1[qn.f64]), "array of f32, and the type given is an array of f64"),
        (lambda: copy2.specialize(qn.Array1[qn.f32]), "of 2 axes, and the type given is an array of f32 of 1 axis"),
        (lambda: saxpy.specialize(x=qn.f32), "parameter 'x' is an array of f32, and the type given is f32"),
        (lambda: saxpy.specialize(qn.Array1[qn.f32]), "parameter 'a' is float, and the type given is an array of f32"),
        (lambda: saxpy.specialize(bool), "parameter 'a' is float, and the type given is bool"),
        (lambda: counted.specialize(float), "parameter 'n' is int, and the type given is float"),
        (lambda: counted.specialize(flag=int), "parameter 'flag' is bool, and the type given is int"),
        (lambda: counted.specialize(byte=qn.f32), "parameter 'byte' is u8, and the type given is f32"),
        (lambda: copy2.warm(qn.Array2[qn.f64]), "array of f32 of 2 axes, and the type given is an array of f64"),
        (lambda: qn.device("reference").compile([(copy2, (qn.f32,))]), "of 2 axes, and the type given is f32"),
        (lambda: of_pair.specialize(Single), "parameter 'pair' is Pair, and the type given is Single"),
        (lambda: of_pair.specialize(v=qn.vec(qn.f32, 4)), "'v' is vec<f32, 2>, and the type given is vec<f32, 4>"),
        (lambda: of_pair.specialize(v=qn.f32), "'v' is vec<f32, 2>, and the type given is f32"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message):
        make()


def test_writes_are_known_before_and_after_a_launch() -> None:
    assert saxpy.writes == ("y",)
    assert copy2.writes == ("target",)
    with pytest.raises(KernelTypeError, match="parameter 'x' of kernel power has no exact type"):
        qn.kernel(power.__wrapped__).writes  # noqa: B018
    launched = qn.kernel(power.__wrapped__)
    launched.over(2, device="reference")(np.ones(2))
    assert launched.writes == ("x",)


def test_specializing_for_the_interpreter_has_no_assembly() -> None:
    made = saxpy.options(device="reference").specialize()
    assert made.asm is None
    assert [parameter.name for parameter in made.header.params] == ["a", "x", "y"]


def test_failing_kernel_says_why_at_its_line() -> None:
    @qn.kernel
    def wrong(x: qn.Array1[qn.f32]):
        x[0] = nothing  # noqa: F821

    with pytest.raises(qn.errors.QuernelError, match="nothing") as caught:
        wrong.specialize()
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_kernel_is_expanded_once_for_the_form_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from quernel import lang

    expanded: list[tuple[str, tuple[int, ...]]] = []
    expand = lang.expand
    monkeypatch.setattr(lang, "expand", lambda *args, **fixed: expanded.append(fixed["form"]) or expand(*args, **fixed))
    assert copy2.specialize().definition.specialization.block == (8, 32)
    assert len(expanded) == 1
    by_block.specialize()
    assert [form.value for form in expanded] == ["over", "over", "grid"]


def test_refusal_of_a_kernel_of_two_axes_is_its_own() -> None:
    @qn.kernel
    def wrong(x: qn.Array2[qn.f32]):
        i, j = qn.global_id()
        x[i, j] = x[i, j] % "text"

    with pytest.raises(KernelTypeError, match="'text'"):
        wrong.specialize()


def test_blocks_in_a_branch_that_is_never_taken_are_no_blocks() -> None:
    @qn.kernel
    def either(x: qn.Array1[qn.i64], by_block: qn.Const[bool] = False):
        i = qn.global_id()
        x[i] = qn.block_id() if by_block else i

    assert either.specialize().definition.specialization.form.value == "over"
    assert either.specialize(by_block=True).definition.specialization.form.value == "grid"
