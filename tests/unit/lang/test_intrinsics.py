"""The names of the language on the host: the same meaning as in a kernel, or a clear error."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.lang.kernels import kernel_of, run

from quernel import intrinsics
from quernel.dtypes import ArrayType, f32, u8, u32
from quernel.errors import KernelTypeError, LaunchError
from quernel.intrinsics import DeviceFunction, Intrinsic, Namespace, func


def every_intrinsic() -> list[Intrinsic]:
    found = []
    for name in intrinsics.__all__:
        value = getattr(intrinsics, name)
        if isinstance(value, Intrinsic):
            found.append(value)
        elif isinstance(value, Namespace):
            found.extend(member for member in vars(value).values() if isinstance(member, Intrinsic))
    return found


@func
def scaled(x: f32, factor=2) -> f32:  # type: ignore[no-untyped-def]
    """Docs."""
    return intrinsics.clamp(x * factor, 0, 10)


@pytest.mark.parametrize("intrinsic", every_intrinsic(), ids=lambda intrinsic: intrinsic.name)
def test_intrinsic_is_one_object_that_pickles_and_has_an_identity(intrinsic: Intrinsic) -> None:
    assert pickle.loads(pickle.dumps(intrinsic)) is intrinsic
    assert copy.deepcopy(intrinsic) is intrinsic
    assert intrinsic.__quernel_identity__() == ("intrinsic", intrinsic.name)
    assert intrinsic.__doc__


@pytest.mark.parametrize(
    "name",
    ["global_id", "local_id", "block_id", "global_dim", "block_dim", "grid_dim", "barrier", "shared", "private"],
)
def test_what_needs_a_thread_is_refused_on_the_host(name: str) -> None:
    with pytest.raises(LaunchError, match=f"{name} has a meaning only inside a kernel"):
        getattr(intrinsics, name)()


def test_group_has_only_its_own_members() -> None:
    assert repr(intrinsics.atomic.add) == "quernel.atomic.add"
    assert pickle.loads(pickle.dumps(intrinsics.subgroup)) is intrinsics.subgroup
    with pytest.raises(AttributeError, match=r"quernel\.atomic has no 'divide'"):
        intrinsics.atomic.divide  # noqa: B018 — the access itself raises


VALUES = [
    ("cdiv(9, 4)", 3),
    ("clamp(7.5, 0, 1)", 1),
    ("popcount(np.uint8(255))", np.uint8(8)),
    ("clz(np.int32(1))", np.int32(31)),
    ("ctz(np.int32(0))", np.int32(32)),
    ("popcount(-1)", 64),
    ("rint(2.5)", 2.0),
    ("floor(np.float32(-0.5))", np.float32(-1)),
    ("ceil(-0.5)", -0.0),
    ("trunc(-1.5)", -1.0),
    ("rsqrt(4.0)", 0.5),
    ("rsqrt(np.float32(4))", np.float32(0.5)),
    ("bitcast(np.float32(1), u32)", np.uint32(0x3F800000)),
    ("bitcast(1.0, np.int64)", np.int64(0x3FF0000000000000)),
    ("fma(2.0, 3.0, 4.0)", 10.0),
    ("uniform(3)", 3),
    ("list(unroll(range(3)))", [0, 1, 2]),
]


@pytest.mark.parametrize(("call", "expected"), VALUES)
def test_function_of_values_works_on_the_host(call: str, expected: Any) -> None:
    found = eval(call, {**vars(intrinsics), "np": np, "u32": u32})

    assert found == expected
    assert type(found) is type(expected)


@settings(max_examples=100, deadline=None)
@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3)
def test_fma_rounds_once_on_the_host_as_in_a_kernel(a: float, b: float, c: float) -> None:
    out = np.zeros(1, np.float32)
    run(FMA, 1, out, np.float32(a), np.float32(b), np.float32(c))

    found = intrinsics.fma(np.float32(a), np.float32(b), np.float32(c))

    assert found.dtype == np.float32
    assert found == out[0]


FMA = kernel_of("def kernel(out, a, b, c):\n    out[0] = qn.fma(a, b, c)\n")


@settings(max_examples=100, deadline=None)
@given(*[st.floats(-1e150, 1e150)] * 3)
def test_fma_of_python_floats_is_the_exact_value_rounded(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)

    assert intrinsics.fma(a, b, c) == float(exact)


def test_fma_is_total_on_the_host() -> None:
    assert intrinsics.fma(1e200, 1e200, 1.0) == np.inf
    assert intrinsics.fma(np.inf, 1.0, 1.0) == np.inf
    assert np.isnan(intrinsics.fma(np.inf, 0.0, 1.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("popcount(1.5)", "popcount takes an integer, not a float"),
        ("clz(True)", "clz takes an integer, not a bool"),
        ("bitcast(np.float32(1), np.int64)", "a bitcast of 32 bits to i64, which has 64"),
    ],
)
def test_wrong_argument_is_refused_on_the_host(call: str, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message):
        eval(call, {**vars(intrinsics), "np": np})


def test_device_function_is_the_python_function_on_the_host() -> None:
    assert scaled(3.0) == 6.0
    assert scaled(3.0, factor=9) == 10
    assert scaled.__name__ == "scaled"
    assert scaled.__doc__ == "Docs."
    assert scaled.__quernel_function__ is scaled.__wrapped__
    assert "scaled" in repr(scaled)


def test_device_function_declares_the_types_of_its_parameters() -> None:
    def typed(a: f32, b: int, c: "u8", d: "nonsense ]", e: np.int16, f, g: ArrayType(f32, 2)) -> f32:  # type: ignore # noqa: F722, UP037
        return a

    found = DeviceFunction(typed).declared

    assert {name: str(type_) for name, type_ in found.items()} == {
        "a": "f32",
        "c": "u8",
        "e": "i16",
        "g": "array<f32, 2>",
    }
    assert DeviceFunction(typed).__quernel_identity__() == (
        "func",
        (("a", "f32"), ("c", "u8"), ("e", "i16"), ("g", "array<f32, 2>")),
    )
    assert u8.bits == 8


@pytest.mark.parametrize("value", [lambda x: x, 3, np.sqrt, int])
def test_func_takes_functions_written_with_def_only(value: Any) -> None:
    with pytest.raises(KernelTypeError, match="not a function written with def"):
        func(value)
