"""What a type checker says of a user's program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quernel import intrinsics
from quernel.api import static

FUNCTIONS = """
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

TOGETHER = """
import quernel as qn

@qn.kernel
def k(x: qn.Array1[qn.f32], n: qn.Array2[qn.i32]) -> None:
    i: int = qn.global_id()
    old: float = qn.atomic.add(x, i, 1.0)
    bits: int = qn.atomic.or_(n, (0, i), 3)
    seen: int = qn.atomic.cas(n, (0, i), 0, 1)
    total: float = qn.block.sum(old)
    all_of_it: bool = qn.block.all(total > 0)
    beside: float = qn.subgroup.shuffle_xor(old, 1)
    lanes: int = qn.subgroup.ballot(i > 2) + qn.subgroup.size() + bits + seen
    a, b, c, d = qn.random.philox(7, lanes)
    x[i] = a / b + c - d + beside + all_of_it
    qn.atomic.ad(x, i, 1.0)
    qn.atomic.or_(x, i, 1)
    qn.atomic.add(x, i, "text")
    qn.atomic.cas(n, 0, 1)
    qn.block.sum()
    qn.subgroup.lane(3)
    wrong: str = qn.subgroup.sum(old)
    a, b = qn.random.philox(7, 0)
"""

HALVES = """
from typing import Any, TypeVar
from quernel.compiler import ArtifactOf, ArtifactStore, Signature, VariantOf, store_compiled
from quernel.identity import KernelCacheKey
from quernel.store import StoredArtifact
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.target import CpuTarget
from quernel_cpu.types import CpuArtifact, CpuVariant

V = TypeVar("V")
A = TypeVar("A")

def variant(half: VariantOf[V]) -> V: raise KeyError
def keep(half: ArtifactOf[A], artifact: A) -> A: return artifact

def uses(compiler: CpuCompiler, target: CpuTarget, artifact: CpuArtifact, store: ArtifactStore) -> None:
    one: CpuVariant = variant(compiler)
    two: CpuVariant = variant(target)
    wrong: str = variant(compiler)
    also: CpuArtifact = keep(target, artifact)
    wrong_too: str = keep(target, artifact)
    took: bool = store_compiled(store, KernelCacheKey("0"), StoredArtifact(b"", b""), entry="k", pinned=True)
    none: bool = store_compiled(None, KernelCacheKey("0"), StoredArtifact(b"", b""))
    store_compiled(store, KernelCacheKey("0"), StoredArtifact(b"", b""), entry=3)
    store_compiled(store)
"""

PROGRAMS = {"functions": FUNCTIONS, "together": TOGETHER, "halves": HALVES}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """The lines of each program that mypy finds wrong; one run reads once what they have in common."""
    pytest.importorskip("mypy", reason="checking types needs mypy")
    folder = tmp_path_factory.mktemp("programs")
    for name, program in PROGRAMS.items():
        (folder / f"{name}.py").write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *(f"{name}.py" for name in PROGRAMS)]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    found: dict[str, list[int]] = {name: [] for name in PROGRAMS}
    for line in said.splitlines():
        if ": error:" in line:
            file, number, _ = line.split(":", 2)
            found[Path(file).stem].append(int(number))
    return found


def test_operations_of_threads_together_have_types(errors: dict[str, list[int]]) -> None:
    assert errors["together"] == list(range(16, 24))


def test_types_name_every_operation_that_there_is() -> None:
    for name in ("atomic", "block", "subgroup", "random"):
        stated, there = getattr(static, name), getattr(intrinsics, name)
        assert {each for each in dir(stated) if not each.startswith("__")} == set(vars(there)) - {"name", "__doc__"}, (
            name
        )


def test_device_functions_keep_their_types_and_arrays_their_number_of_axes(errors: dict[str, list[int]]) -> None:
    assert errors["functions"] == [12, 13, 17]


def test_types_of_halves_are_bound_and_storing_takes_what_a_store_takes(errors: dict[str, list[int]]) -> None:
    assert errors["halves"] == [19, 21, 24, 25]
