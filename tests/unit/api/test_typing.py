"""What a type checker says of a user's program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import quernel as qn

@qn.func
def halved(x: float, by: int = 2) -> float:
    return x / by

@qn.kernel
def k(x: qn.Array1[qn.f32], y: qn.Array2[qn.f32]) -> None:
    i: int = qn.global_id()
    x[i] = halved(x[i], by=3)
    y[i, 0] = halved("text")
    total: str = halved(x[i])

def takes(x: qn.Array1[qn.f32]) -> None: ...
def gives(x: qn.Array2[qn.f32]) -> None:
    takes(x)
"""


def test_device_functions_keep_their_types_and_arrays_their_number_of_axes(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="checking types needs mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "program.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert [line.split(": ", 1)[0] for line in said.splitlines() if ": error:" in line] == [
        "program.py:12",
        "program.py:13",
        "program.py:17",
    ], said
