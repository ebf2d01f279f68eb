"""Wrong arguments of the public functions: errors of Quernel, which say how to mend them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import DeviceError, KernelTypeError, LaunchError, QuernelError, SettingError, StoreError


@qn.kernel
def double(x):
    i = qn.global_id()
    x[i] = x[i] * 2


X = np.zeros(4)
SOURCE: dict[str, Any] = {"entry": "f", "params": {"x": qn.Array1[qn.f32]}}

WRONG: dict[str, tuple[type[QuernelError], str, Callable[[], Any]]] = {
    "stream": (LaunchError, "stream is a int, not a stream", lambda: double.over(4, stream=3)(X)),  # type: ignore[arg-type]
    "backend": (DeviceError, "5 names no backend", lambda: qn.devices(5)),  # type: ignore[arg-type]
    "params": (KernelTypeError, "params .* is a tuple", lambda: qn.source_kernel("llvm-ir", "", entry="f", params=())),  # type: ignore[arg-type]
    "language": (KernelTypeError, "language .* is a int", lambda: qn.source_kernel(3, "", **SOURCE)),  # type: ignore[arg-type]
    "other language": (
        QuernelError,
        "(?s)written in 'llvm'.*use 'llvm-ir'",
        lambda: qn.source_kernel("llvm", "", **SOURCE).over(4, device="cpu")(np.zeros(4, np.float32)),
    ),
    "no folder": (StoreError, "None names no folder", lambda: qn.environment(None).__enter__()),  # type: ignore[arg-type]
    "odd folder": (StoreError, "names no folder", lambda: qn.environment("x\0y").__enter__()),
    "memory": (DeviceError, "no host memory for", lambda: qn.device("cpu").zeros(2**62, qn.f32)),
    "more memory": (DeviceError, "no host memory for", lambda: qn.device("reference").zeros(2**70, qn.f32)),
    "shape": (LaunchError, "shape 'a' is a str", lambda: qn.device("cpu").zeros("a")),  # type: ignore[arg-type]
    "float shape": (LaunchError, "has a part that is a float", lambda: qn.device("cpu").zeros((2, 1.5))),  # type: ignore[arg-type]
    "list": (KernelTypeError, r"fix: make it an array first: x = np.asarray\(x\)", lambda: double.over(4)([1, 2])),
    "tuple": (KernelTypeError, r"or annotate x: qn.Const\[tuple\]", lambda: double.over(2)((1, 2))),
}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_argument_is_an_error_with_a_fix(how: str) -> None:
    kind, message, call = WRONG[how]
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.value.fix


def test_tuple_is_taken_as_the_fix_says() -> None:
    @qn.kernel
    def first(out, x: qn.Const[tuple]):
        out[0] = x[1]

    out = np.zeros(1)
    first.over(1, device="cpu")(out, (1, 2))
    assert out.tolist() == [2]


@pytest.mark.parametrize("name", ["QUERNEL_CHECKED", "QUERNEL_INTERPRET", "QUERNEL_NO_CACHE"])
def test_setting_that_is_not_understood_is_an_error_of_quernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "maybe")
    with pytest.raises(SettingError, match=f"{name}='maybe' is not understood") as caught:
        double.over(4, device="cpu")(np.zeros(4, np.float16))
    assert caught.value.fix


def test_math_function_that_kernels_lack_names_those_that_they_have() -> None:
    import math

    @qn.kernel
    def kernel(x):
        x[0] = math.comb(3, 2)

    with pytest.raises(KernelTypeError, match=r"`math.comb` cannot be called in a kernel(?s:.*)of `math` .*sqrt"):
        kernel.over(4, device="cpu")(X)


def test_first_launch_while_the_process_ends_says_nothing() -> None:
    program = """
import atexit, numpy as np
def late():
    double.over(4, device="cpu")(x)
    print(x)
atexit.register(late)
import quernel as qn
@qn.kernel
def double(x):
    i = qn.global_id()
    x[i] = x[i] + 2
x = np.zeros(4)
qn.device("cpu")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[2. 2. 2. 2.]\n"
    assert run.stderr == ""
