"""Names that are no locals: their values at expansion, and those that a kernel cannot hold."""

from __future__ import annotations

import enum
import math
import types

import numpy as np
import pytest
from tests.unit.lang.kernels import kernel_of, refusal, run

from quernel.errors import KernelTypeError
from quernel.intrinsics import global_id


class Mode(enum.Enum):
    FAST = 2
    EXACT = "exact"


class Level(enum.IntEnum):
    LOW = 3


class Settings:
    width = 5


CONFIG = types.ModuleType("config")
CONFIG.SIZE = 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("INT", 4.0),
        ("FLOAT", 0.5),
        ("FLAG + 0", 1.0),
        ("NUMPY", 2.5),
        ("Level.LOW", 3.0),
        ("Level.LOW + 1", 4.0),
        ("Level.LOW.value", 3.0),
        ("Mode.FAST.value", 2.0),
        ("MODULE.SIZE", 7.0),
        ("Settings.width", 5.0),
        ("math.pi", math.pi),
        ("math.tau - math.e", math.tau - math.e),
        ("1 if Mode.FAST == MODE else 2", 1.0),
        ("1 if MODE is Mode.EXACT else 2", 2.0),
        ("1 if MODE.value != Mode.EXACT.value else 2", 1.0),
        ("1 if NOTHING is None else missing", 1.0),
        ("1 if INT is not None else missing", 1.0),
        ("1 if 'a' == 'b' else 2", 2.0),
        ("1 if TYPE == qn.f32 else 2", 1.0),
        ("1 if out.dtype == qn.f64 else missing", 1.0),
        ("TYPE(1) + np.float32(INT)", 5.0),
        ("1 if 'text' else 2", 1.0),
    ],
)
def test_captured_name_has_its_value(expression: str, expected: float) -> None:
    kernel = kernel_of(
        f"def kernel(out):\n    out[0] = {expression}\n",
        INT=4,
        FLOAT=0.5,
        FLAG=True,
        NUMPY=np.float32(2.5),
        Level=Level,
        Mode=Mode,
        MODE=Mode.FAST,
        MODULE=CONFIG,
        Settings=Settings,
        NOTHING=None,
        TYPE=__import__("quernel.dtypes").dtypes.f32,
    )
    out = np.zeros(1)

    run(kernel, 1, out)

    assert out[0] == expected


def test_value_is_that_of_the_time_of_expansion() -> None:
    kernel = kernel_of("def kernel(out):\n    out[0] = INT\n", INT=1)
    out = np.zeros(1)
    found = []

    for value in (1, 2):
        kernel.__globals__["INT"] = value
        run(kernel, 1, out)
        found.append(out[0])

    assert found == [1.0, 2.0]


def test_closure_comes_before_globals_and_globals_before_builtins() -> None:
    text = (
        "len = 3\nvalue = 1\ndef make(value):\n    def kernel(out):\n        out[0] = value * 10 + len\n"
        "    return kernel\nkernels = [make(2), make(4)]\n"
    )
    scope = kernel_of(text).__globals__
    out = np.zeros(1)
    found = []

    for kernel in scope["kernels"]:
        run(kernel, 1, out)
        found.append(out[0])

    assert found == [23.0, 43.0]


def test_intrinsic_is_recognised_under_any_name() -> None:
    kernel = kernel_of("def kernel(out):\n    out[where()] = root(9)\n", where=global_id, root=math.sqrt)
    out = np.zeros(2)

    run(kernel, 2, out)

    assert out.tolist() == [3.0, 3.0]


def test_local_name_may_hold_a_type_or_function() -> None:
    kernel = kernel_of("def kernel(out):\n    T = out.dtype\n    f = math.sqrt\n    b = out\n    b[0] = T(f(16))\n")
    out = np.zeros(1)

    run(kernel, 1, out)

    assert out[0] == 4.0


@pytest.mark.parametrize(
    ("name", "value", "what", "fix"),
    [
        ("DATA", [1, 2], "`DATA` is a captured list, which a kernel cannot hold", "pass it as an argument: `DATA`"),
        ("DATA", {1: 2}, "`DATA` is a captured dict", "pass it as an argument"),
        ("DATA", {1, 2}, "`DATA` is a captured set", "pass it as an argument"),
        ("DATA", np.zeros(3), "`DATA` is a captured ndarray", "pass it as an argument"),
    ],
)
def test_captured_data_is_refused_at_its_name(name: str, value: object, what: str, fix: str) -> None:
    text = f"def kernel(x):\n    x[0] = {name}[0]\n"
    kernel = kernel_of(text, **{name: value})

    with pytest.raises((KernelTypeError, SyntaxError), match=what) as caught:
        run(kernel, 1, np.zeros(1))

    assert caught.value.where is not None
    assert (caught.value.where.line, caught.value.where.column, caught.value.where.end_column) == (2, 11, 15)
    assert fix in caught.value.fix


def test_attribute_of_an_object_that_may_change_is_refused() -> None:
    kernel = kernel_of("def kernel(x):\n    x[0] = thing.value\n", thing=types.SimpleNamespace(value=1))

    with pytest.raises(KernelTypeError, match=r"`\.value` of an object of type SimpleNamespace cannot be read"):
        run(kernel, 1, np.zeros(1))


def test_empty_closure_cell_is_refused() -> None:
    text = (
        "def make():\n    def kernel(x):\n        x[0] = later\n    yield kernel\n    later = 1\n"
        "kernel = next(make())\n"
    )
    kernel = kernel_of(text).__globals__["kernel"]

    with pytest.raises(KernelTypeError, match="the name `later` is not defined"):
        run(kernel, 1, np.zeros(1))


def test_objects_have_no_order() -> None:
    error = refusal("def kernel(x):\n    x[0] = 1 if 'a' < 'b' else 2\n")

    assert "have no order in a kernel" in error.what


def test_object_and_value_cannot_be_compared() -> None:
    error = refusal("def kernel(x):\n    x[0] = 1 if x[0] == 'b' else 2\n")

    assert "f32 and str 'b' cannot be compared in a kernel" in error.what


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 if 2**4000 > 2**3999 else 0", 1.0),
        ("2**4095 // 2**4093", 4.0),
        ("2**4000 % 7", float(2**4000 % 7)),
        ("(1 << 4000) >> 3999", 2.0),
        ("0 << 5000", 0.0),
        ("1**100000 + (-1)**100001", 0.0),
        ("2**4000 / 2**2000", math.inf),
        ("-(2**4000) / 2**2000", -math.inf),
        ("2**4000 / 2**3990", 1024.0),
        ("2**1023", 2.0**1023),
        ("2**1024", math.inf),
    ],
)
def test_large_constant_integers_are_exact(expression: str, expected: float) -> None:
    out = np.zeros(1)
    run(kernel_of(f"def k(out):\n    out[0] = {expression}\n"), 1, out)
    assert out.tolist() == [expected]


@pytest.mark.parametrize(
    "expression",
    [
        "1 if 2**5000 > 2**4999 else 0",
        "(1 << 5000) > 1",
        "2**5000 // 2**4998",
        "2**5000 % 7",
        "9**9**9",
        "2**4000 * 2**4000",
        "2**4095 + 2**4095",
    ],
)
def test_constant_integers_that_are_too_large_are_refused_at_their_line(expression: str) -> None:
    error = refusal(f"def k(out):\n    y = 1\n    out[0] = {expression}\n")
    assert isinstance(error, KernelTypeError)
    assert error.what == "a constant integer of more than 4096 bits"
    assert error.where is not None
    assert error.where.line == 3


def test_typed_constants_wrap_however_large_their_power() -> None:
    out = np.zeros(1, np.int64)
    run(kernel_of("def k(out):\n    out[0] = qn.i64(3) ** 5000\n"), 1, out)
    assert out.tolist() == [(3**5000 + 2**63) % 2**64 - 2**63]
