"""One process compiles, the next one only loads, and what it computes is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quernel.testing.processes import run_program, said_by

PROGRAM = """
import contextlib, json, os, sys
import numpy as np
import quernel as qn
from kernels import adds, folds
from quernel.store import current_environment, read_records

device = qn.device(sys.argv[1])
x = device.array(np.arange(70, dtype=np.int32).reshape(7, 10))
ready = qn.no_compiling() if "ready" in sys.argv else contextlib.nullcontext()
with ready:
    for by in (1, 20):
        adds.over((7, 10), device=device)(x, by)
    adds.over((7, 5), device=device)(x[:, ::2], 300)
    folds.over(7, device=device)(x, y := device.zeros(7, qn.i32))
folder = current_environment().path + "/records"
records = [record for record in read_records(folder) if hasattr(record, "outcome")] if os.path.isdir(folder) else []
print(json.dumps({
    "x": x.numpy().ravel().tolist(),
    "y": y.numpy().tolist(),
    "outcomes": [[record.kernel, record.outcome.value] for record in records],
    "frontend": [name for name in sys.modules if name in ("quernel.ir", "quernel.lang")],
}))
"""
KERNELS = """
import quernel as qn

@qn.kernel
def adds(x: qn.Array2[qn.i32], by: qn.Const[int]):
    i, j = qn.global_id()
    x[i, j] += by * (j + 1)

@qn.kernel
def folds(x: qn.Array2[qn.i32], y: qn.Array[qn.i32]):
    i = qn.global_id()
    total = y[i]
    for j in range(x.shape[1]):
        total = total * 3 + x[i, j]
    y[i] = total
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(KERNELS)
    return tmp_path


def new(said: dict[str, Any], before: dict[str, Any] | None = None) -> list[list[str]]:
    """The outcomes of one process, of all that the environment has recorded."""
    outcomes: list[list[str]] = said["outcomes"]
    return outcomes[len(before["outcomes"]) if before else 0 :]


@pytest.mark.quernel_needs("persistence")
def test_the_second_process_loads_all_and_compiles_nothing(quernel_device: Any, folder: Path) -> None:
    store = folder / "store"
    first = said_by(folder, "program.py", PROGRAM, quernel_device.name, store=store)
    second = said_by(folder, "program.py", PROGRAM, quernel_device.name, "ready", store=store, seed="7")
    assert (second["x"], second["y"]) == (first["x"], first["y"])
    assert {outcome for _, outcome in new(first)} <= {"compiled", "rekeyed"}
    assert sorted(name for name, _ in new(second, first)) == sorted(name for name, _ in new(first))
    assert {outcome for _, outcome in new(second, first)} == {"loaded"}
    assert second["frontend"] == [], "a warm start needs no IR: import what imports quernel.ir inside lower()"


@pytest.mark.quernel_needs("persistence")
def test_an_edit_compiles_what_it_touches_and_nothing_else(quernel_device: Any, folder: Path) -> None:
    store = folder / "store"
    first = said_by(folder, "program.py", PROGRAM, quernel_device.name, store=store)
    (folder / "kernels.py").write_text(KERNELS.replace("total * 3", "total * 5"))
    second = said_by(folder, "program.py", PROGRAM, quernel_device.name, store=store)
    assert second["x"] == first["x"]
    assert second["y"] != first["y"]
    touched = {name for name, outcome in new(second, first) if outcome != "loaded"}
    assert touched == {"folds"}


@pytest.mark.quernel_needs("ir_reuse")
def test_an_edit_that_changes_nothing_compiles_nothing(quernel_device: Any, folder: Path) -> None:
    store = folder / "store"
    first = said_by(folder, "program.py", PROGRAM, quernel_device.name, store=store)
    (folder / "kernels.py").write_text(KERNELS.replace("x[i, j] += by * (j + 1)", "x[i, j] = x[i, j] + by * (j + 1)"))
    second = said_by(folder, "program.py", PROGRAM, quernel_device.name, store=store)
    assert (second["x"], second["y"]) == (first["x"], first["y"])
    assert dict(new(second, first)) == {"adds": "rekeyed", "folds": "loaded"}


def test_what_must_not_compile_and_is_not_kept_is_refused(quernel_device: Any, folder: Path) -> None:
    done = run_program(folder, "program.py", PROGRAM, quernel_device.name, "ready", store=folder / "empty")
    assert done.returncode == 1
    assert "LaunchError" in done.stderr
    assert "adds" in done.stderr


def test_the_result_is_the_same_where_nothing_is_kept(quernel_device: Any, folder: Path) -> None:
    kept = said_by(folder, "program.py", PROGRAM, quernel_device.name, store=folder / "store")
    text = "import os\nos.environ['QUERNEL_NO_CACHE'] = '1'\n" + PROGRAM
    free = said_by(folder, "free.py", text, quernel_device.name, store=folder / "other")
    assert (free["x"], free["y"]) == (kept["x"], kept["y"])
    assert not list((folder / "other").rglob("*.db"))
