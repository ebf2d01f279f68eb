from __future__ import annotations

from typing import Any, TypeVar

import attrs
import numpy as np
import pytest

import quernel as qn
from quernel.dtypes import ArrayType, ConstAnnotation, ScalarType, VectorType
from quernel.errors import KernelSyntaxError, KernelTypeError, QuernelError
from quernel.runtime.parameters import Parameters, declared_type

AnyType = TypeVar("AnyType")


@attrs.frozen
class Plain:
    x: float


@pytest.mark.parametrize(
    ("annotation", "declared"),
    [
        (float, ScalarType(qn.f64, weak=True)),
        (int, ScalarType(qn.i64, weak=True)),
        (bool, ScalarType(qn.bool)),
        (qn.u8, ScalarType(qn.u8)),
        (np.float32, ScalarType(qn.f32)),
        (qn.Array, ArrayType(None)),
        (qn.Array3, ArrayType(None, 3)),
        (qn.Array2[qn.f32], ArrayType(qn.f32, 2)),
        (qn.Array[np.int16], ArrayType(qn.i16)),
        (qn.Array[VectorType(qn.f32, 4)], ArrayType(VectorType(qn.f32, 4))),
        (VectorType(qn.f32, 4), ScalarType(VectorType(qn.f32, 4))),
        (Plain, Plain),
        (AnyType, AnyType),
        (qn.Const, ConstAnnotation()),
        (qn.Const[int], ConstAnnotation(int)),
    ],
)
def test_annotation_declares_a_type(annotation: Any, declared: Any) -> None:
    assert declared_type("x", annotation) == declared


@pytest.mark.parametrize("annotation", [str, np.ndarray, "f32", [1], None, object()])
def test_annotation_that_is_no_type_is_refused(annotation: Any) -> None:
    with pytest.raises(KernelTypeError, match=r"parameter 'x' is annotated .*, which is no parameter type"):
        declared_type("x", annotation)


def test_class_that_may_change_is_refused() -> None:
    @attrs.define
    class Loose:
        x: float

    with pytest.raises(KernelTypeError, match="parameter 'x' is annotated Loose, whose instances may change"):
        declared_type("x", Loose)


def _parameters(source: str, scope: dict[str, Any] | None = None, **names: Any) -> Parameters:
    space: dict[str, Any] = {"qn": qn, **names}
    exec(compile(source, "<test>", "exec", dont_inherit=True), space)
    return Parameters(space["f"], scope or {})


def test_binding_follows_python() -> None:
    parameters = _parameters("def f(a, b, /, c, d=4, *, e, g=6): pass")
    assert parameters.bind((1, 2, 3), {"e": 5}) == (1, 2, 3, 4, 5, 6)
    assert parameters.bind((1, 2), {"e": 5, "d": 40, "c": 30, "g": 60}) == (1, 2, 30, 40, 5, 60)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, 2, 3, 4, 5), {"e": 5}, "takes 4 positional arguments but 5 were given"),
        ((1, 2), {}, "misses the arguments 'c', 'e'"),
        ((1, 2, 3), {"e": 5, "x": 1}, "unexpected keyword argument 'x'"),
        ((1,), {"b": 2, "c": 3, "e": 5}, "takes 'b' by position only"),
        ((1, 2, 3), {"c": 3, "e": 5}, "two values for 'c'"),
    ],
)
def test_wrong_arguments_are_refused_as_a_call_would_and_show_the_parameters(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    parameters = _parameters("def f(a, b, /, c, d=4, *, e, g=6): pass")
    with pytest.raises(KernelTypeError, match=message) as caught:
        parameters.bind(args, kwargs)
    assert caught.value.fix == "its parameters are (a, b, c, d=4, e, g=6)"


@pytest.mark.parametrize("first", ["self", "cls"])
def test_a_kernel_in_a_class_that_wants_itself_says_that_it_gets_nothing(first: str) -> None:
    with pytest.raises(KernelTypeError, match="misses the argument 'x'") as caught:
        _parameters(f"def f({first}, x): pass").bind((1,), {})
    assert caught.value.fix is not None
    assert f"gets no {first} by itself" in caught.value.fix


def test_star_arguments_are_refused_at_the_definition() -> None:
    for source in ("def f(*xs): pass", "def f(**xs): pass"):
        with pytest.raises(KernelSyntaxError, match="name every parameter"):
            _parameters(source)


def test_string_annotations_see_locals_closure_globals_and_builtins_in_that_order() -> None:
    source = "def f(a: 'T', b: 'float', c: 'qn.Array[U]'): pass"
    parameters = _parameters(source, {"T": qn.u8}, T=qn.i8, U=qn.f32)
    assert [spec.declared for spec in parameters.specs] == [
        ScalarType(qn.u8),
        ScalarType(qn.f64, weak=True),
        ArrayType(qn.f32),
    ]


def test_string_within_a_string_annotation_is_evaluated_too() -> None:
    space: dict[str, Any] = {"qn": qn}
    exec(compile("from __future__ import annotations\ndef f(a: 'qn.f32'): pass", "<test>", "exec"), space)
    assert Parameters(space["f"], {}).specs[0].declared == ScalarType(qn.f32)


def test_string_annotation_sees_a_closure_variable() -> None:
    inner = qn.i16

    def f(a: "inner"):  # type: ignore[no-untyped-def]  # noqa: UP037
        return inner

    assert Parameters(f, {}).specs[0].declared == ScalarType(qn.i16)


def test_name_that_is_not_there_yet_is_looked_for_again() -> None:
    space: dict[str, Any] = {"qn": qn}
    exec(compile("def f(a: 'qn.Array[Later]', b: 'Mine'): pass", "<test>", "exec", dont_inherit=True), space)
    parameters = Parameters(space["f"], {"Mine": qn.u8, "unrelated": object()})
    with pytest.raises(KernelTypeError, match="name 'Later' is not defined"):
        parameters.specs  # noqa: B018
    assert set(parameters._scope) == {"Mine"}
    space["Later"] = qn.f32
    assert [spec.declared for spec in parameters.specs] == [ArrayType(qn.f32), ScalarType(qn.u8)]


def test_wrong_annotation_is_refused_where_the_kernel_is_defined() -> None:
    with pytest.raises(KernelTypeError, match="'a' is annotated str") as caught:
        _parameters("\n\ndef f(a: str): pass")
    assert caught.value.where is not None
    assert caught.value.where.line == 3


@pytest.mark.parametrize(
    ("annotation", "said"),
    [("qn.Arrray[qn.f32]", "AttributeError"), ("qn.Array[", "SyntaxError"), ("1 / 0", "ZeroDivisionError")],
)
def test_text_that_is_no_annotation_is_refused_at_its_parameter(annotation: str, said: str) -> None:
    def define() -> None:
        def f(first, second): ...

        f.__annotations__["second"] = annotation
        Parameters(f, locals())

    with pytest.raises(KernelTypeError, match="of parameter 'second' cannot be evaluated: " + said) as caught:
        define()
    assert caught.value.fix is not None
    assert "def f(first, second)" in str(caught.value)
    assert "             ^^^^^^" in str(caught.value)


def test_wrong_annotation_and_star_arguments_are_shown_at_the_parameter() -> None:
    def f(first, second: str): ...
    def g(first, *rest): ...

    for function, caret in ((f, "second: str"), (g, "rest")):
        with pytest.raises(QuernelError, match=r"\n +\^+") as caught:
            Parameters(function, {})
        line, below = str(caught.value).splitlines()[1:3]
        assert line[below.index("^") : below.rindex("^") + 1] == caret
