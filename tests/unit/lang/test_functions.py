"""Device functions: one copy per kind of call, arguments of every kind, results, refusals with the chain of calls."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.lang.kernels import FLOAT, INT, array, kernel_of, lowered, refusal, run

from quernel.errors import KernelSyntaxError, KernelTypeError
from quernel.ir import nodes


def functions_of(text: str, **types: object) -> dict[str, nodes.Function]:
    expanded = lowered(kernel_of(text), **types)  # type: ignore[arg-type]
    return {function.name: function for function in expanded.module.functions}


AXPY = """
@qn.func
def axpy(a, x, y=1.0):
    return a * x + y

def kernel(x, i, n, s):
"""


@pytest.mark.parametrize(
    ("call", "params", "results"),
    [
        ("axpy(x[0], x[1], x[2])", ["f32", "f32", "f32"], ["f32"]),
        ("axpy(i[0], x[1], i[1])", ["i32", "f32", "i32"], ["f32"]),
        ("axpy(n, i[0], n)", ["i64 weak", "i32", "i64 weak"], ["i32"]),
        ("axpy(2, x[0])", ["f32"], ["f32"]),
        ("axpy(2, s, 3)", ["f64 weak"], ["f64"]),
        ("axpy(y=x[0], x=x[1], a=0.5)", ["f32", "f32"], ["f32"]),
    ],
)
def test_function_is_specialized_to_its_arguments(call: str, params: list[str], results: list[str]) -> None:
    (function,) = functions_of(f"{AXPY}    x[0] = {call}\n", i=array("int32"), n=INT, s=FLOAT).values()

    assert [str(param.type) for param in function.params] == params
    assert [str(result) for result in function.results] == results


def test_calls_of_one_kind_share_a_copy_and_others_get_names_of_their_own() -> None:
    body = "    x[0] = axpy(x[1], x[2]) + axpy(x[3], x[4])\n    i[0] = axpy(i[1], i[2], 0) + axpy(x[0], x[1], 2) > 0\n"
    functions = functions_of(AXPY + body, i=array("int32"), n=INT, s=FLOAT)

    assert list(functions) == ["axpy", "axpy_2", "axpy_3"]


def test_functions_stand_in_the_order_of_their_first_call() -> None:
    text = """
@qn.func
def last(x):
    return x + 1

@qn.func
def first(x):
    return last(x) * 2

@qn.func
def unused(x):
    return x

def kernel(x):
    x[0] = first(x[0]) + last(x[1])
"""
    assert list(functions_of(text)) == ["first", "last"]


def test_function_is_never_named_like_the_kernel() -> None:
    text = "@qn.func\ndef scale(x):\n    return x\nhelper = scale\ndef kernel(x):\n    x[0] = helper(x[0])\n"
    kernel = kernel_of(text)
    kernel.__name__ = "scale"

    assert [function.name for function in lowered(kernel).module.functions] == ["scale_2"]


def test_results_join_over_all_returns() -> None:
    text = """
@qn.func
def pick(c, v):
    if c:
        return 0, 1
    return v, v > 0 and 2

def kernel(x, n):
    a, b = pick(n, x[0])
    x[0] = a + b
"""
    error = refusal(text, n=INT)
    assert isinstance(error, KernelTypeError)
    assert "this is int on one side and bool on the other" in error.what

    (function,) = functions_of(text.replace("v > 0 and 2", "2"), n=INT).values()
    assert [str(result) for result in function.results] == ["f32", "i64"]


def test_function_computes_with_arrays_constants_and_several_results() -> None:
    text = """
@qn.func
def stats(a, count):
    total = 0
    most = a[0]
    for k in range(count):
        total += a[k]
        most = max(most, a[k])
    return total, most

@qn.func
def bump(a, by):
    a[0] += by

@qn.func
def power(x, n):
    return x ** n

def kernel(a, out):
    bump(a, 10)
    total, most = stats(a, len(a))
    out[0], out[1] = total, most
    out[2] = power(total, 2) + stats(a, 2)[0]
"""
    out = np.zeros(3, np.int64)

    run(kernel_of(text), 1, np.array([1, 2, 3], np.int32), out)

    assert out.tolist() == [16, 11, 256 + 13]


def test_loads_left_of_a_call_happen_before_it() -> None:
    text = """
@qn.func
def bump(a):
    a[0] += 1
    return a[0]

def kernel(a, out):
    out[0] = a[0] * 100 + bump(a) * 10 + a[0]
    out[1] = max(a[0], bump(a), a[0])
    a[1] += bump(a)
    out[2] = a[1]
    if a[0] == 4 and bump(a) == 5 and a[0] == 5:
        out[3] = 1
"""
    out = np.zeros(4, np.int64)

    run(kernel_of(text), 1, np.array([1, 50]), out)

    assert out.tolist() == [122, 3, 54, 1]


def test_call_on_the_right_of_a_boolean_operator_is_made_only_where_python_makes_it() -> None:
    text = """
@qn.func
def count(a):
    a[0] += 1
    return a[0] > 0

def kernel(a, n):
    if n > 0 and count(a):
        pass
    if n > 0 or count(a):
        pass
    v = 1 if n < 0 else int(count(a))
    w = 1 < n < count(a)
    a[1] = v + w
"""
    a = np.zeros(2, np.int64)

    run(kernel_of(text), 1, a, 0)

    assert a[0] == 2


def test_function_that_returns_early_on_every_way_returns() -> None:
    text = """
@qn.func
def sign(x):
    while True:
        if x > 0:
            return 1
        elif x < 0:
            return -1
        return 0

def kernel(a):
    for k in range(3):
        a[k] = sign(a[k])
"""
    a = np.array([-5, 0, 7])

    run(kernel_of(text), 1, a)

    assert a.tolist() == [-1, 0, 1]


def test_function_may_be_a_constant_and_take_functions_and_types() -> None:
    text = """
@qn.func
def double(x):
    return x * 2

@qn.func
def apply(f, x, T):
    return T(f(x))

def kernel(a, f):
    a[0] = apply(f, a[0], qn.u8) + apply(double, a[1], a.dtype)
"""
    kernel = kernel_of(text)
    a = np.array([200, 3])

    run(kernel, 1, a, f=kernel.__globals__["double"])

    assert a[0] == 400 % 256 + 6


def test_declared_parameter_converts_its_argument() -> None:
    text = "@qn.func\ndef f(x: qn.f64, n: qn.u8):\n    return x\ndef kernel(a, n):\n    v = f(a[0], n)\n    a[0] = v\n"

    (function,) = functions_of(text, n=INT).values()

    assert [str(param.type) for param in function.params] == ["f64", "u8"]
    assert lowered(kernel_of(text), n=INT).parameter("n").bounds == (0, 255)


def test_declared_parameter_is_read_when_annotations_are_text() -> None:
    text = (
        "from __future__ import annotations\n@qn.func\ndef f(x: qn.f64):\n    return x\n"
        "def kernel(a):\n    a[0] = f(a[0])\n"
    )

    (function,) = functions_of(text).values()

    assert str(function.params[0].type) == "f64"


def test_bounds_reach_the_kernel_through_a_call() -> None:
    text = "@qn.func\ndef f(b, n):\n    return b[0] & n\ndef kernel(b, n):\n    b[0] = f(b, n)\n"

    assert lowered(kernel_of(text), b=array("uint8"), n=INT).parameter("n").bounds == (0, 255)


REFUSED = {
    "plain function": (
        "def plain(x):\n    return x\ndef kernel(x):\n    x[0] = plain(x[0])\n",
        "`plain` is an ordinary Python function",
        "decorate it with @qn.func",
    ),
    "missing argument": (
        "@qn.func\ndef f(x, y):\n    return x\ndef kernel(x):\n    x[0] = f(x[0])\n",
        "`f(x, y)` cannot take these arguments: missing a required argument: 'y'",
        "check the arguments",
    ),
    "no result": (
        "@qn.func\ndef f(x):\n    x[0] = 1\ndef kernel(x):\n    x[1] = f(x)\n",
        "`f` returns nothing, so the call has no value",
        "call it alone",
    ),
    "a way without a result": (
        "@qn.func\ndef f(x):\n    if x > 0:\n        return x\ndef kernel(x):\n    x[1] = f(x[0])\n",
        "`f` returns a value in line 4, and nothing on this way",
        "on every way",
    ),
    "empty return beside a result": (
        "@qn.func\ndef f(x):\n    if x > 0:\n        return\n    return x\ndef kernel(x):\n    x[1] = f(x[0])\n",
        "`f` returns a value in line 5, and nothing on this way",
        "on every way",
    ),
    "kinds of results": (
        "@qn.func\ndef f(x):\n    if x > 0:\n        return x > 1\n    return x\ndef kernel(x):\n    x[1] = f(x[0])\n",
        "f32 is returned here and bool in line 4",
        "cast one of them",
    ),
    "numbers of results": (
        "@qn.func\ndef f(x):\n    if x > 0:\n        return x\n    return x, x\ndef kernel(x):\n    x[1] = f(x[0])\n",
        "2 values are returned here and 1 in line 4",
        "as many values everywhere",
    ),
    "array returned": (
        "@qn.func\ndef f(x):\n    return x\ndef kernel(x):\n    x[1] = f(x)\n",
        "what is returned is a whole array",
        "index it",
    ),
    "declared type": (
        "@qn.func\ndef f(x: qn.i32):\n    return x\ndef kernel(x):\n    x[1] = f(x[0])\n",
        "`x` of `f` is declared i32, and the argument is f32",
        "cast the argument",
    ),
    "declared array": (
        "@qn.func\ndef f(x: qn.Array[qn.i32]):\n    return x[0]\ndef kernel(x):\n    x[1] = f(x)\n",
        "`x` of `f` is declared array<i32, ?>, and the argument is array<f32, 1>",
        "cast the argument",
    ),
    "unpacked wrongly": (
        "@qn.func\ndef f(x):\n    return x, x, x\ndef kernel(x):\n    a, b = f(x[0])\n",
        "3 values are unpacked into 2 names",
        "as many values",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_use_of_a_function_is_refused(name: str) -> None:
    text, what, fix = REFUSED[name]

    error = refusal(text)

    assert isinstance(error, KernelTypeError)
    assert what in error.what
    assert error.fix is not None
    assert fix in error.fix


def test_recursion_is_refused_with_the_names_of_the_cycle() -> None:
    direct = refusal("@qn.func\ndef f(x):\n    return f(x)\ndef kernel(x):\n    x[0] = f(x[0])\n")
    mutual = refusal(
        "@qn.func\ndef f(x):\n    return g(x)\n@qn.func\ndef g(x):\n    return f(x + 1)\n"
        "def kernel(x):\n    x[0] = f(x[0])\n"
    )

    assert isinstance(direct, KernelSyntaxError)
    assert direct.what == "recursion has no meaning in a kernel: f → f"
    assert mutual.what == "recursion has no meaning in a kernel: f → g → f"
    assert mutual.where is not None
    assert mutual.where.line == 6


def test_error_inside_a_function_shows_the_chain_of_calls_with_their_types() -> None:
    text = """
@qn.func
def inner(v, scale=2):
    return v[0] & scale

@qn.func
def outer(v, n):
    return inner(v) + n

def kernel(x, n):
    x[0] = outer(x, n)
"""
    error = refusal(text, n=INT)

    assert error.where is not None
    assert (error.where.line, error.where.column) == (4, 11)
    file = error.where.file
    assert error.chain == (
        f"in inner(v: array<f32, 1>, scale: 2), called at {file}:8:12",
        f"in outer(v: array<f32, 1>, n: int), called at {file}:11:12",
    )
    assert "called at" in str(error)


def test_block_function_in_a_device_function_is_refused_in_an_over_launch_with_the_chain() -> None:
    error = refusal("@qn.func\ndef lane():\n    return qn.local_id()\ndef kernel(x):\n    x[0] = lane()\n")

    assert isinstance(error, KernelSyntaxError)
    assert error.where is not None
    assert error.where.line == 3
    assert error.fix == "launch with a grid: `kernel[qn.cdiv(extent, block), block]`"
    assert error.chain == (f"in lane(), called at {error.where.file}:5:12",)
    assert "in lane(), called at" in error.msg


def test_calls_that_nest_too_deep_for_python_are_refused() -> None:
    functions = "".join(f"@qn.func\ndef f{number}(x):\n    return f{number + 1}(x)\n" for number in range(300))
    text = f"{functions}@qn.func\ndef f300(x):\n    return x\ndef kernel(x):\n    x[0] = f0(x[0])\n"

    error = refusal(text)

    assert isinstance(error, KernelSyntaxError)
    assert error.what == "the calls in `kernel` nest too deep"
