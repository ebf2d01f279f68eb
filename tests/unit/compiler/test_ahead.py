"""Kernels compiled for a target without a device: every kernel its own result, in order."""

from __future__ import annotations

import hashlib

import attrs
import pytest
from tests.unit.compiler.scripted import artifact, definition
from tests.unit.compiler.test_workers import Broken, Elsewhere, Pickling

from quernel.compiler.ahead import compile_ahead
from quernel.compiler.results import JobStage
from quernel.errors import CompilationError, KernelSyntaxError, ValidationError


def refused() -> None:
    raise KernelSyntaxError("no such statement")


def test_results_come_in_order_and_a_failure_costs_no_other_kernel() -> None:
    executor = Pickling()
    kernels = [definition("a", 5), definition("invalid"), definition("b", 6), definition("odd", expand=refused)]
    first, second, third, fourth = compile_ahead(Elsewhere(), kernels, executor=executor)
    assert (first.artifact, first.failure) == (artifact("lowered 5"), None)
    assert (third.artifact, third.failure) == (artifact("lowered 6"), None)
    assert isinstance(second.failure, ValidationError)
    assert isinstance(fourth.failure, KernelSyntaxError)
    assert executor.stages == [JobStage.COMPILE] * 3


def test_kernels_compile_here_by_default() -> None:
    (result,) = compile_ahead(Elsewhere(), [definition("a", 5)])
    assert result.artifact == artifact("lowered 5")
    assert len(compile_ahead(Elsewhere(), [definition(f"k{number}", number + 3) for number in range(5)])) == 5
    assert compile_ahead(Elsewhere(), []) == []


@pytest.mark.parametrize("field", ["build_id", "fingerprint"])
def test_result_of_another_worker_is_refused(field: str) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    executor = Pickling(lambda result: attrs.evolve(result, **{field: other}))
    (result,) = compile_ahead(Elsewhere(), [definition("a", 5)], executor=executor)
    assert isinstance(result.failure, CompilationError)
    assert other in str(result.failure)
    assert result.artifact is None


def test_broken_executor_fails_its_kernels() -> None:
    (result,) = compile_ahead(Elsewhere(), [definition("a", 5)], executor=Broken())
    assert isinstance(result.failure, CompilationError)
