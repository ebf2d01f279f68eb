"""A kernel of a user's file under the interpreter: debuggers and tracebacks see that file."""

from __future__ import annotations

import bdb
import importlib.util
import itertools
import linecache
import sys
import traceback
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import pytest

import quernel as qn

LIBRARY = """\
import quernel as qn


@qn.func
def weight(values, at, by):
    shifted = at + by
    return values[shifted] * 2
"""

KERNELS = """\
import quernel as qn
from weights import weight


@qn.kernel
def blur_NUMBER(x, out):
    i = qn.global_id()
    total = 0.0
    for k in range(3):
        if k == 1:
            continue
        total += weight(x, i, k)
    out[i] = total
"""


NUMBERS = itertools.count()
"""Kernels of one name and content are one, whichever file they stand in; the tests' files shall not share theirs."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "weights.py").write_text(LIBRARY)
    (tmp_path / "kernels.py").write_text(KERNELS.replace("NUMBER", str(next(NUMBERS))))
    linecache.checkcache()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "weights", raising=False)
    spec = importlib.util.spec_from_file_location("kernels", tmp_path / "kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.blur = next(value for name, value in vars(module).items() if name.startswith("blur"))
    return module


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


class Recorder(bdb.Bdb):
    """Stops at breakpoints and notes where, and what the named locals hold."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.stops: list[tuple[str, int, dict[str, Any]]] = []

    def user_line(self, frame: FrameType) -> None:
        if self.break_here(frame):
            held = {name: frame.f_locals[name] for name in self.names if name in frame.f_locals}
            self.stops.append((frame.f_code.co_name, frame.f_lineno, held))
        self.set_continue()


def test_breakpoints_stop_in_kernels_and_device_functions(project: ModuleType, tmp_path: Path) -> None:
    debugger = Recorder("i", "k", "total", "at", "by", "shifted")
    accumulates = line_of(KERNELS, "total += weight")
    returns = line_of(LIBRARY, "return values")
    assert debugger.set_break(str(tmp_path / "kernels.py"), accumulates) is None
    assert debugger.set_break(str(tmp_path / "weights.py"), returns) is None
    x, out = np.arange(4.0), np.zeros(2)
    debugger.runcall(project.blur.options(interpret=True).over(2), x, out)
    in_kernel = [held for _, line, held in debugger.stops if line == accumulates]
    assert [(held["i"], held["k"], held["total"]) for held in in_kernel] == [
        (0, 0, 0.0),
        (0, 2, 0.0),
        (1, 0, 0.0),
        (1, 2, 2.0),
    ]
    in_function = [held for _, line, held in debugger.stops if line == returns]
    assert [held["shifted"] for held in in_function] == [0, 2, 1, 3]
    assert out.tolist() == [4.0, 8.0]


def test_a_traceback_goes_through_the_kernel_into_the_device_function(project: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(qn.errors.OutOfBoundsError, match=r"index 3 is outside x, whose shape is \(3,\)") as caught:
        project.blur.options(interpret=True).over(2)(np.zeros(3), np.zeros(2))
    frames = [
        (Path(frame.filename).name, frame.lineno, frame.line)
        for frame in traceback.extract_tb(caught.value.__traceback__)
        if Path(frame.filename).parent == tmp_path
    ]
    assert frames == [
        ("kernels.py", line_of(KERNELS, "total += weight"), "total += weight(x, i, k)"),
        ("weights.py", line_of(LIBRARY, "return values"), "return values[shifted] * 2"),
    ]
    assert caught.value.where is not None
    assert caught.value.where.file == str(tmp_path / "weights.py")
    assert "values[shifted]" in str(caught.value)


def test_the_listing_is_readable_python(project: ModuleType) -> None:
    special = project.blur.options(device="reference").specialize(np.zeros(3), np.zeros(2))
    assert "(.thread, x, out):" in str(special.source)
    assert "for k in .range(0, 3, 1):" in str(special.source)
