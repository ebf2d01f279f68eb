"""Wrong arguments of the public functions: errors of Quernel, which say how to mend them."""

from __future__ import annotations

import array
import dataclasses
import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import quernel as qn
from quernel.errors import DeviceError, KernelTypeError, LaunchError, QuernelError, SettingError, StoreError


@qn.kernel
def double(x):
    i = qn.global_id()
    x[i] = x[i] * 2


@qn.kernel
def by_parts(given, out):
    out[0] = given.mass


@qn.func
def halved(x):
    return x / 2


@dataclasses.dataclass
class Body:
    mass: float


class Pair(NamedTuple):
    mass: float


class Tensor:
    """As those of other libraries that live on a device."""

    def __dlpack__(self) -> None: ...


def annotated(annotation: Any) -> Any:
    def kernel(x):
        x[0] = 1

    kernel.__annotations__["x"] = annotation
    return qn.kernel(kernel)


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
    "setting of a launch": (
        KernelTypeError,
        r"'checked' is a setting of the kernel(?:.|\n)*fix: write double.options\(checked=True\).over\(...\)",
        lambda: double.over(8, checked=True),  # type: ignore[arg-type]
    ),
    "no setting of a launch": (
        KernelTypeError,
        r"kernel.over has no setting 'blok'(?:.|\n)*did you mean 'block'\?",
        lambda: double.over(8, blok=2),  # type: ignore[arg-type]
    ),
    "two extents": (
        KernelTypeError,
        r"over takes one extent, and got 2: 4, 4(?:.|\n)*one tuple: double.over\(\(4, 4\)\)",
        lambda: double.over(4, 4),  # type: ignore[arg-type]
    ),
    "no option": (
        KernelTypeError,
        r"kernel.options has no setting 'interpet'(?:.|\n)*did you mean 'interpret'\?",
        lambda: double.options(interpet=True),  # type: ignore[arg-type]
    ),
    "no setting": (
        KernelTypeError,
        r"@qn.kernel has no setting 'check'(?:.|\n)*did you mean 'checked'\? its settings are block, checked",
        lambda: qn.kernel(check=True),  # type: ignore[call-overload]
    ),
    **{
        f"{name} of {value!r}": (
            KernelTypeError,
            f"the setting '{name}' is on or off, and got {value!r}(?:.|\n)*write {name}=True or {name}=False",
            functools.partial(double.options, **{name: value}),
        )
        for name in ("checked", "fast_math", "debug", "contract", "interpret")
        for value in ("yes", 1, None)
    },
    "checked of a text, decorating": (
        KernelTypeError,
        "the setting 'checked' is on or off, and got 'no'",
        lambda: qn.kernel(checked="no"),  # type: ignore[call-overload]
    ),
    "option device": (KernelTypeError, "got 3, which names no device", lambda: double.options(device=3)),  # type: ignore[arg-type]
    "device function on a grid": (
        KernelTypeError,
        "halved is a device function, which kernels call; it is not launched",
        lambda: halved[8],  # type: ignore[index]
    ),
    "dataclass": (KernelTypeError, "fix: make Body a struct: @attrs.frozen", lambda: by_parts.over(1)(Body(1.0), X)),
    "named tuple": (KernelTypeError, "fix: make its class a struct", lambda: by_parts.over(1)(Pair(1.0), X)),
    "dict": (KernelTypeError, "fix: make it a struct: .* one by one", lambda: by_parts.over(1)({"mass": 1}, X)),
    "complex": (KernelTypeError, "fix: pass its parts, x.real and x.imag", lambda: double.over(1)(1j)),
    "range": (KernelTypeError, r"fix: make it an array first: x = np.asarray\(x\)", lambda: double.over(1)(range(3))),
    "buffer": (KernelTypeError, "fix: make it an array first", lambda: double.over(1)(array.array("f", [1]))),
    "tensor": (KernelTypeError, "fix: make it an array of the device first", lambda: double.over(1)(Tensor())),
    "text": (KernelTypeError, "fix: pass a number or an array; or annotate x: qn.Const", lambda: double.over(1)("a")),
    "annotated ndarray": (KernelTypeError, "ndarray, which(?:.|\n)*qn.Array1", lambda: annotated(np.ndarray)),
    "annotated NDArray": (KernelTypeError, "fix: annotate it with qn.Array", lambda: annotated(NDArray[np.float32])),
    "annotated list": (KernelTypeError, "fix: annotate it with qn.Array", lambda: annotated(list[int])),
    "annotated dataclass": (KernelTypeError, "annotated Body(?:.|\n)*make Body a struct", lambda: annotated(Body)),
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


@pytest.mark.parametrize("name", ["over", "options", "specialize", "writes"])
def test_device_function_says_that_only_kernels_are_launched(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}': halved is a device function(?:.|\n)*@qn.kernel"):
        getattr(halved, name)
    assert not hasattr(halved, "other")
    assert halved(3) == 1.5


def test_numpy_truth_is_a_setting() -> None:
    assert repr(double.options(checked=np.True_)) == repr(double.options(checked=True))
