"""Device functions for many types: type variables, functions as arguments, types as values."""

from __future__ import annotations

import sys
from typing import TypeVar

import numpy as np
import pytest
from tests.unit.lang.kernels import INT, array, kernel_of, lowered, over, refusal

import quernel as qn
from quernel.dtypes import ArrayType, ScalarType, f64

T = TypeVar("T")
Real = TypeVar("Real", qn.f32, qn.f64)  # type: ignore[misc,valid-type]
Float = TypeVar("Float", bound=float)
GENERIC = """
@qn.func
def last(a: qn.Array[T], v: T):
    return a[len(a) - 1] + v + T(1)
"""


def test_type_variable_stands_for_the_type_of_the_arguments() -> None:
    kernel = kernel_of(f"{GENERIC}\ndef kernel(x, y):\n    u = last(x, 2)\n    v = last(y, y[0])\n", T=T)

    expanded = lowered(kernel, x=array("float32"), y=array("int64"))

    assert (expanded.type_of("u"), expanded.type_of("v")) == ("f32", "i64")
    assert len(expanded.module.functions) == 2


def test_weak_arguments_alone_stay_weak() -> None:
    text = "@qn.func\ndef both(a: T, b: T):\n    return a + b\n\ndef kernel(x, n):\n    v = both(n, 1)\n    x[0] += v\n"

    assert lowered(kernel_of(text, T=T), n=INT).type_of("v") == "i64"


def test_type_variable_of_a_kernel_stands_for_its_parameters_type() -> None:
    kernel = kernel_of("def kernel(x: qn.Array[T], v: T):\n    u = T(v) / 3\n", T=T)

    assert lowered(kernel, x=array("float64"), v=ScalarType(f64)).type_of("u") == "f64"


@pytest.mark.parametrize(
    ("variable", "argument", "fix"),
    [(Real, "i[0]", "pass f32 or f64"), (Float, "i[0]", "pass float"), (Real, "1", "pass f32 or f64")],
)
def test_type_that_a_variable_does_not_allow_is_refused(variable: TypeVar, argument: str, fix: str) -> None:
    error = refusal_with(
        f"@qn.func\ndef f(a: V):\n    return a\n\ndef kernel(i):\n    i[0] = f({argument})\n", V=variable
    )

    assert "of `f` cannot be i" in error.what
    assert error.fix == fix


def test_bound_allows_every_type_of_its_kind() -> None:
    kernel = kernel_of("@qn.func\ndef f(a: V):\n    return a\n\ndef kernel(x):\n    v = f(x[0])\n", V=Float)

    assert lowered(kernel, x=array("float16")).type_of("v") == "f16"


def test_arguments_that_disagree_about_a_variable_are_refused() -> None:
    error = refusal_with(
        "@qn.func\ndef f(a: T, b: T):\n    return a\n\ndef kernel(x, i):\n    x[0] = f(x[0], i[0])\n", T=T
    )

    assert error.what == "`T` of `f` is f32 by `a` and i32 by `b`"


def refusal_with(text: str, **names: object):  # type: ignore[no-untyped-def]
    import inspect

    from quernel.errors import QuernelError
    from quernel.geometry import LaunchForm
    from quernel.lang import expand

    kernel = kernel_of(text, **names)
    types = {name: array("int32" if name == "i" else "float32") for name in inspect.signature(kernel).parameters}
    with pytest.raises(QuernelError, match=r":\d+:\d+: ") as caught:
        expand(kernel, name="k", parameter_types=types, constants={}, form=LaunchForm.OVER, block=(256,))
    return caught.value


def test_device_function_is_a_constant_argument() -> None:
    kernel = kernel_of(
        """
@qn.func
def square(v):
    return v * v

@qn.func
def apply(f, v):
    return f(v) + 1

def kernel(x, f: qn.Const):
    x[0] = apply(f, x[0])
"""
    )
    x = np.array([3], np.float32)

    over(kernel, 1, x, kernel.__globals__["square"])

    assert x[0] == 10


@pytest.mark.parametrize("element", ["float32", "int64", "float16", "uint8"])
def test_type_of_an_array_makes_values(element: str) -> None:
    kernel = kernel_of("def kernel(x):\n    v = x.dtype(3)\n    w = x[0].dtype(1)\n")

    expanded = lowered(kernel, x=array(element))

    assert expanded.type_of("v") == expanded.type_of("w") == str(array(element).element)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs the type parameters of Python 3.12")
def test_type_parameters_are_type_variables() -> None:
    text = """
@qn.func
def last[T: float](a: qn.Array[T], v: T) -> T:
    return a[len(a) - 1] + v + T(1)

def kernel[S](x: qn.Array[S], y):
    u = last(x, 2)
    v = last(y, y[0]) * S(2)
"""
    expanded = lowered(kernel_of(text), x=array("float32"), y=array("float64"))

    assert (expanded.type_of("u"), expanded.type_of("v")) == ("f32", "f64")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs the type parameters of Python 3.12")
def test_type_parameter_that_is_no_type_is_refused() -> None:
    error = refusal("@qn.func\ndef f[*Ts](x):\n    return x\ndef kernel(x):\n    x[0] = f(x[0])\n")

    assert error.what == "the type parameter `Ts` has no meaning in a kernel"


def test_annotation_with_a_type_variable_names_any_element() -> None:
    assert qn.Array1[T] == ArrayType(T, 1)  # type: ignore[arg-type]
