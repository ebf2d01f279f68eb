"""Floats that a narrower type does not hold, as arguments on every launch path."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import quernel as qn
from quernel.api import Kernel
from quernel.errors import KernelTypeError


@qn.kernel
def weak(a, x):
    i = qn.global_id()
    x[i] = x[i] * a


@qn.kernel
def annotated(a: float, x):
    i = qn.global_id()
    x[i] = x[i] * a


@qn.kernel
def stored(a: float, x):
    i = qn.global_id()
    x[i] = a


@qn.kernel
def half(a: qn.f16, x):
    i = qn.global_id()
    x[i] = a


@qn.kernel
def brain(a: qn.bf16, x):
    i = qn.global_id()
    x[i] = x.dtype(a)


@qn.kernel
def single(a: qn.f32, x):
    i = qn.global_id()
    x[i] = x[i] * a


def fresh(launcher: Callable[..., None], x: np.ndarray, kind: type) -> Callable[..., None]:
    return launcher


def warmed(launcher: Callable[..., None], x: np.ndarray, kind: type) -> Callable[..., None]:
    for _ in range(12):
        launcher(kind(1), x)
    return launcher


def bound(launcher, x: np.ndarray, kind: type) -> Callable[..., None]:  # type: ignore[no-untyped-def]
    made = launcher.bind(kind(1), x)
    return lambda a, x: made.update(a=a)()


def in_python(launcher: Callable[..., None], x: np.ndarray, kind: type) -> Callable[..., None]:
    return warmed(launcher, x, kind)


PATHS = [fresh, warmed, bound, in_python]


@pytest.fixture(params=PATHS, ids=lambda path: path.__name__)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[..., None]]:
    if request.param is in_python:
        monkeypatch.setenv("QUERNEL_NATIVE_LAUNCHES", "0")
    return request.param


@pytest.mark.parametrize("device", ["cpu", "reference", "opencl"])
@pytest.mark.parametrize("given", [1e39, -1e39, 3.5e38, 10**39, math.inf, np.float64(1e39)])
@pytest.mark.parametrize("kernel", [weak, annotated, stored])
def test_a_weak_float_beyond_the_type_it_meets_is_an_infinity_as_a_cast_makes_it(
    kernel: Kernel, given: float, device: str, path: Callable[..., Callable[..., None]]
) -> None:
    if kernel is weak and isinstance(given, int | np.float64):
        pytest.skip("without an annotation an integer is an integer, and a NumPy scalar of its own type")
    x = np.ones(4, np.float32)
    on = x if device != "opencl" else qn.device("opencl").array(x)
    path(kernel.over(4, device=device), on, type(given))(given, on)
    result = x if device != "opencl" else on.numpy()
    assert result.tolist() == [math.copysign(math.inf, given)] * 4


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("kernel", "dtype", "fits", "too_large"),
    [
        (single, np.float32, 3.4028235677973362e38, 3.4028235677973366e38),
        (single, np.float32, -3.4028235677973362e38, -(10**39)),
        (half, np.float16, 65519.99, 65520.0),
        (half, np.float16, 65519, -65520),
        (brain, np.float32, 3.3895313892515355e38, 3.4e38),
    ],
)
def test_a_declared_float_type_refuses_what_would_be_an_infinity_and_takes_infinities(
    kernel: Kernel,
    dtype: type,
    fits: float,
    too_large: float,
    device: str,
    path: Callable[..., Callable[..., None]],
) -> None:
    x = np.ones(4, dtype)
    launch = path(kernel.over(4, device=device), x, type(fits))
    with pytest.raises(KernelTypeError, match="does not fit"):
        launch(too_large, x)
    assert np.isfinite(x).all()
    launch(fits, x)
    assert np.isfinite(x).all()
    assert abs(float(x[0])) > 6e4
    launch(-math.inf, x)
    assert np.abs(x).tolist() == [math.inf] * 4
    launch(math.nan, x)
    assert np.isnan(x).all()
