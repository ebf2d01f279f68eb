"""`breakpoint()` in a kernel: Python's debugger in interpreted launches, a warning anywhere else."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.ir.parser import parse_module
from quernel.ir.printer import print_module


@qn.func
def twice(x):
    breakpoint()  # in a function
    return x * 2


@qn.kernel
def kernel(x):
    i = qn.global_id()
    if i == 2:
        breakpoint()  # in a kernel
    x[i] = twice(x[i])


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool]]:
    """File and line of each stop, and whether the thread's values are there to look at."""
    found: list[tuple[str, int, bool]] = []

    def stop() -> None:
        frame = sys._getframe(1)
        found.append((frame.f_code.co_filename, frame.f_lineno, "x" in frame.f_locals))

    monkeypatch.setattr(sys, "breakpointhook", stop)
    return found


def line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(text))


@pytest.mark.parametrize("how", ["setting", "option", "device"])
def test_interpreted_launch_stops_at_the_users_line(how: str, stops: list[Any], monkeypatch) -> None:
    x = np.arange(4.0)
    launched = kernel
    if how == "setting":
        monkeypatch.setenv("QUERNEL_INTERPRET", "1")
    elif how == "option":
        launched = kernel.options(interpret=True)
    launched.over(4, device="reference" if how == "device" else "cpu")(x)
    assert x.tolist() == [0, 2, 4, 6]
    in_function, in_kernel = line_of("breakpoint()  # in a function"), line_of("breakpoint()  # in a kernel")
    assert [line for _, line, _ in stops] == [in_function, in_function, in_kernel, in_function, in_function]
    assert {file for file, _, _ in stops} == {__file__}
    assert all(has_values for _, _, has_values in stops)


def test_compiled_launch_does_not_stop_and_says_so_once_at_each_line(stops: list[Any]) -> None:
    x = np.arange(4.0)
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for other in (kernel, kernel.options(contract=False), qn.kernel(kernel.__wrapped__)):
            other.over(4, device="cpu")(x)
    assert x.tolist() == [0, 8, 16, 24]
    assert stops == []
    assert {(warning.filename, warning.lineno) for warning in said} == {
        (__file__, line_of("breakpoint()  # in a function")),
        (__file__, line_of("breakpoint()  # in a kernel")),
    }
    assert len(said) == 2
    assert "launch kernel.options(interpret=True), or set QUERNEL_INTERPRET=1" in str(said[0].message)


def test_interpreted_launch_warns_of_nothing(stops: list[Any], recwarn: pytest.WarningsRecorder) -> None:
    globals().pop("__warningregistry__", None)
    kernel.options(interpret=True).over(4)(np.arange(4.0))
    assert stops
    assert not recwarn.list


def test_function_of_ones_own_called_breakpoint_is_no_breakpoint(recwarn: pytest.WarningsRecorder) -> None:
    @qn.func
    def breakpoint(x):  # noqa: A001 — what is under test
        return x + 1

    @qn.kernel
    def counts(x):
        x[0] = breakpoint(x[0])

    x = np.zeros(1)
    counts.over(1, device="cpu")(x)
    assert x[0] == 1
    assert not recwarn.list


def test_breakpoint_survives_as_text() -> None:
    with qn.use("cpu"):
        module = kernel.specialize(qn.Array1[qn.f64]).module
    text = print_module(module)
    assert text.count("breakpoint") >= 2
    assert print_module(parse_module(text)) == text


@pytest.mark.filterwarnings("ignore:breakpoint")
def test_breakpoint_with_arguments_is_refused() -> None:
    @qn.kernel
    def wrong(x):
        breakpoint(header="here")

    with pytest.raises(SyntaxError, match="takes no arguments"):
        wrong.over(1, device="cpu")(np.zeros(1))
