"""What a user sees of an error: the place of the call, and no frame of the framework below it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import CompilationError, QuernelError


@qn.kernel
def wrong(x):
    x[0] = missing  # noqa: F821 — what the test is about


@qn.kernel
def right(x):
    x[0] = 1


@qn.kernel
def lacking(x: qn.Array1[qn.f32], n: qn.Const[int]):
    x[0] = n


X = np.zeros(4)


def own_block() -> None:
    @qn.kernel(block="a")
    def kernel(x):
        x[0] = 1


CALLS: dict[str, Callable[[], Any]] = {
    "called": lambda: right(X),
    "no such backend": lambda: right.over(4, device="nope"),
    "no device": lambda: right.over(4, device=3),
    "no extent": lambda: right.over("a"),
    "no grid": lambda: right["a"],
    "no block": lambda: right.options(block="a"),
    "no argument": lambda: right.over(4)("a"),
    "bound": lambda: right.over(4).bind("a"),
    "updated": lambda: right.over(4, device="cpu").bind(X).update("a"),
    "specialized": lambda: right.specialize(y=qn.f32),
    "decorated": own_block,
    "compiled without a constant": lambda: qn.device("cpu").compile([lacking]),
    "compiled with too many types": lambda: qn.device("cpu").compile([(lacking, (qn.Array1[qn.f32], 3, 4))]),
    "compiled though no kernel": lambda: qn.device("cpu").compile([3]),
}


def test_kernel_that_lacks_a_constant_is_named_by_what_compiles_it() -> None:
    with pytest.raises(QuernelError, match="Const parameter 'n' of kernel lacking has no value") as caught:
        qn.device("cpu").compile([lacking])
    assert caught.value.source_line is not None
    assert "compile([lacking])" in caught.value.source_line
    with pytest.raises(CompilationError, match="2 of 2 kernels failed") as several:
        qn.device("cpu").compile([lacking, wrong])
    assert __file__ in several.value.chain[0]


@pytest.mark.parametrize("how", CALLS)
def test_error_of_a_call_names_the_users_line(how: str) -> None:
    with pytest.raises(QuernelError, match=re.escape(__file__)) as caught:
        CALLS[how]()
    where = caught.value.where
    assert where is not None
    assert where.file == __file__
    assert caught.value.source_line is not None
    assert "^" in str(caught.value)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_refusal_shows_the_users_frame_that_of_the_launcher_and_no_other(device: str) -> None:
    launcher = wrong.over(4, device=device)
    for _ in range(2):
        with pytest.raises(QuernelError, match="the name `missing` is not defined") as caught:
            launcher(X)
        frames = [frame.filename.rpartition("/")[2] for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert frames == ["test_launch_sites.py", "launchers.py"]
        shown = "".join(traceback.format_exception(caught.value))
        assert "During handling" not in shown
        assert shown.count("File ") == 2 + 1 * (caught.type.__mro__[2] is SyntaxError)


def test_what_a_toolchain_said_stays_the_cause() -> None:
    kernel = qn.source_kernel("llvm-ir", "nonsense", entry="f", params={"x": qn.Array1[qn.f32]})
    with pytest.raises(QuernelError, match="expected top-level entity") as caught:
        kernel.over(4, device="cpu")(np.zeros(4, np.float32))
    assert "expected top-level entity" in str(caught.value)
