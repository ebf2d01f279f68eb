"""Laws of kernels whose threads meet: segments and checks keep what the threads do."""

from __future__ import annotations

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.property.block_executor import Machine, OutOfFuelError, arrays_of
from tests.property.block_strategies import LENGTH, block_kernels

from quernel.errors import KernelSyntaxError
from quernel.ir.nodes import Alloc, Barrier, Module
from quernel.ir.parser import parse_module
from quernel.ir.passes import inline, optimize
from quernel.ir.segments import segment
from quernel.ir.uniformity import check_uniformity
from quernel.ir.verifier import verify
from quernel.ir.walk import walk_statements

MODERATE = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def machine(module: Module, n: int, **settings_: bool) -> Machine:
    arrays = arrays_of(module, {"x": (LENGTH,), "y": (LENGTH,), "z": (LENGTH,)})
    return Machine(module, arrays, {"n": n}, **settings_)  # type: ignore[arg-type]


def agreeing(text: str) -> Module:
    """The module, if its barriers stand where all threads pass."""
    module = verify(parse_module(text))
    try:
        check_uniformity(module)
    except KernelSyntaxError:
        assume(False)
    return module


@MODERATE
@given(block_kernels(), st.integers(0, 5))
def test_segments_do_what_threads_at_barriers_do(text: str, n: int) -> None:
    module = agreeing(text)
    direct, segmented = machine(module, n), machine(module, n)
    direct.run()
    segmented.run_segmented(segment(module))
    assert segmented.arrays == direct.arrays


@MODERATE
@given(block_kernels(), st.integers(0, 5))
def test_inlining_keeps_what_threads_do(text: str, n: int) -> None:
    module = agreeing(text)
    inlined = verify(inline(module, frozenset(function.name for function in module.functions)))
    assert not inlined.functions
    check_uniformity(inlined)
    direct, other = machine(module, n), machine(inlined, n)
    direct.run()
    other.run()
    assert other.arrays == direct.arrays


@MODERATE
@given(block_kernels(wild=True), st.integers(0, 12))
def test_checked_kernel_suppresses_just_the_violating_accesses(text: str, n: int) -> None:
    module = agreeing(text)
    ideal = machine(module, n, ends_threads=True)
    try:
        ideal.run()
    except OutOfFuelError:
        assume(False)
    checked = verify(optimize(module))
    check_uniformity(checked)
    # Where a loop might wait for what an inactive thread has not written, the whole block returns instead.
    assume(all(not isinstance(stmt, Alloc) or stmt.name != "any_inactive" for stmt in checked.kernel.body))
    run = machine(checked, n)
    run.run()
    assert run.arrays == ideal.arrays
    assert bool(run.violations) == bool(ideal.violations)
    if ideal.violations:
        assert {values for _, _, values in ideal.violations} <= {values for _, _, values in run.violations}


@MODERATE
@given(block_kernels(wild=True), st.integers(0, 12))
def test_checked_kernel_in_segments_does_the_same(text: str, n: int) -> None:
    checked = optimize(agreeing(text))
    direct, segmented = machine(checked, n), machine(checked, n)
    direct.run()
    segmented.run_segmented(segment(checked))
    assert segmented.arrays == direct.arrays


@settings(MODERATE, max_examples=60)
@given(block_kernels(wild=True))
def test_optimizing_a_checked_kernel_twice_changes_nothing_more(text: str) -> None:
    once = optimize(agreeing(text))
    assert optimize(once) == once


@settings(MODERATE, max_examples=60)
@given(block_kernels())
def test_generated_kernels_have_barriers_inside_control(text: str) -> None:
    module = agreeing(text)
    nested = [stmt for stmt in walk_statements(module.kernel.body) if isinstance(stmt, Barrier)]
    assume(len(nested) > 2)
    assert segment(module).regions
