"""Checks and prints of threads that are lanes: what is reported is what threads one after the other would report."""

from __future__ import annotations

import functools
import re
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.cpu.harness import CONTIGUOUS, Built, compiler_for, lowered
from tests.unit.cpu.test_spmd import A1, A2, WAYS, module_of

from quernel import diagnostics
from quernel.diagnostics import Diagnostics
from quernel.dtypes import ArrayType, ScalarType, VectorType, f32, i64
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Module
from quernel.ir.passes import optimize
from quernel.ir.sites import sites

LANES = [name for name in WAYS if name != "scalar"]
N = ScalarType(i64)


def checked(body: str, form: LaunchForm = LaunchForm.OVER, block: tuple[int, ...] = (256,), **types: Any) -> Module:
    module = module_of(body, form, block, **types)
    options = attrs.evolve(module.kernel.options, checked=True)
    return attrs.evolve(module, kernel=attrs.evolve(module.kernel, options=options))


@functools.cache
def built(module: Module, way: str) -> Built:
    return Built(module, CONTIGUOUS, compiler_for(*WAYS[way]))


def found(module: Module, way: str, shape: Any, *arguments: Any) -> Diagnostics:
    kernel = built(module, way)
    kernel.loaded.ns_per_item = 1e-6  # Short launches run on one thread, in order.
    buffer = np.frombuffer(diagnostics.empty_buffer(4000), np.uint8)
    launch = kernel.over if module.kernel.form is LaunchForm.OVER else kernel.grid
    launch(shape, *arguments, buffer)
    return diagnostics.decode(buffer.tobytes(), module.kernel.ndim)


def test_a_checked_kernel_runs_as_lanes() -> None:
    low = lowered(checked("i = qn.global_id()\ny[i] = x[i]", x=A1, y=A1), CONTIGUOUS, compiler_for("spmd"))
    assert low.is_vector_code


@pytest.mark.parametrize("way", LANES)
def test_an_index_that_grows_with_the_lane_is_checked_in_scalar_code(way: str) -> None:
    compiler = compiler_for(*WAYS[way])
    low = lowered(checked("i = qn.global_id()\ny[i] = x[i + 1]", x=A1, y=A1), CONTIGUOUS, compiler)
    before_doubt = low.ir.split("@quernel_entry")[1].split("\ndoubt")[0]
    assert "icmp ult i64" in before_doubt
    assert not re.search(r"icmp ult <\d+ x i64>", before_doubt)


@pytest.mark.parametrize("way", LANES)
def test_a_vector_outside_the_array_is_neither_read_nor_written_and_the_others_are(way: str) -> None:
    vectors = ArrayType(VectorType(f32, 4), 1)
    body = "i = qn.global_id()\nv = x[i + 3]\nif i % 2 == 0:\n    y[i * 2] = v + v\n    y[i * 2].y = 7.0"
    module = checked(body, x=vectors, y=vectors)
    x = np.arange(4 * 40, dtype=np.float32).reshape(40, 4)
    y = np.full((60, 4), -1, np.float32)  # 0 to 29 of 40 threads stay inside, of x 0 to 36.
    report = found(module, way, 40, *(a.view("V16").reshape(-1) for a in (x, y)))
    assert report.violation is not None
    assert report.violation.values[1] in (40, 60)
    wanted = np.full_like(y, -1)
    on = np.arange(0, 30, 2)
    wanted[on * 2] = 2 * x[on + 3]
    wanted[on * 2, 1] = 7
    done = ~(y == -1).all(axis=1)
    assert done.any()
    assert np.array_equal(y[done], wanted[done])


# Each thread violates at a place of its own, some later in the kernel though they are earlier threads.
BODY = """
i = qn.global_id()
total = 0
if when[i] == 1:
    total = x[i + 1000]
for k in range(4):
    if when[i] == 2 + k:
        x[i - 1000 - k] = 1
    if when[i] == 10 + k:
        break
    total += x[(i * 3 + k) % len(x)]
if when[i] == 6:
    return
assert when[i] != 7, "seven"
out[i] = total + x[i]
"""


@functools.cache
def violating() -> Module:
    return checked(BODY, when=A1, x=A1, out=A1)


@pytest.mark.parametrize("way", LANES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(when=st.lists(st.sampled_from((0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 10, 12)), min_size=1, max_size=16))
def test_the_first_thread_that_violates_is_reported_with_its_own_values(way: str, when: list[int]) -> None:
    module = violating()
    size = len(when)
    results = []
    for one in ("scalar", way):
        x, out = np.arange(size) * 5, np.full(size, -1)
        results.append((found(module, one, size, np.array(when), x, out), out.tolist(), x.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("way", LANES)
def test_a_thread_of_an_earlier_row_and_lane_comes_before_one_that_violated_sooner(way: str) -> None:
    body = (
        "r, c = qn.global_id()\nif c == 9:\n    out[r, c + 100] = 1\nif c == 3:\n    out[r + 100, c] = 2\nout[r, c] = 3"
    )
    module = checked(body, block=(8, 32), out=A2)
    report = found(module, way, (1, 12), np.zeros((1, 12), np.int64))
    assert report.violation is not None
    assert report.violation.global_id == ((0, 3) if "sse" not in way else report.violation.global_id)
    assert report.violation.values[2:] == (1, 12)


@pytest.mark.parametrize("way", LANES)
def test_nothing_beyond_an_array_is_touched_and_other_threads_go_on(way: str) -> None:
    body = "i = qn.global_id()\nj = at[i]\nv = x[j]\nfor k in range(i % 4):\n    v += x[(j + k) % len(x)]\nout[i] = v"
    module = checked(body, at=A1, x=A1, out=A1)
    x, out = np.arange(50), np.full(64, -7)
    at = np.arange(64) % 50
    at[[5, 20, 63]] = (-1, 50, 1 << 62)
    report = found(module, way, 64, at, x, out)
    assert report.violation is not None
    assert (report.violation.global_id, report.violation.values) == ((5,), ((1 << 64) - 1, 50))
    wanted = [sum(x[(at[i] + k) % 50] for k in range(i % 4)) + (x[at[i]] if 0 <= at[i] < 50 else 0) for i in range(64)]
    for i in range(64):
        assert out[i] == (-7 if i in (5, 20, 63) else wanted[i])


@pytest.mark.parametrize("start", [(1 << 63) - 24, (1 << 63) - 9, -(1 << 63)])
@pytest.mark.parametrize("way", LANES)
def test_an_index_that_wraps_from_lane_to_lane_is_out_of_bounds(way: str, start: int) -> None:
    module = checked("i = qn.global_id()\nout[i + start] = 1", out=A1, start=N)
    report = found(module, way, 16, np.zeros(4, np.int64), start)
    assert report.violation is not None
    assert report.violation.values == (start % (1 << 64), 4)


@pytest.mark.parametrize("way", LANES)
def test_threads_that_meet_go_on_to_the_barrier_after_a_violation(way: str) -> None:
    body = """
t = qn.local_id()
tile = qn.shared(64, qn.i64)
tile[t] = x[t * 2]
qn.barrier()
for k in range(3):
    if t % 7 == k:
        tile[t] += tile[(t + 64 - k) % (64 + k // 2)]
qn.barrier()
out[qn.global_id()] = tile[63 - t]
"""
    module = checked(body, LaunchForm.GRID, (64,), x=A1, out=A1)
    results = []
    for one in ("scalar", way):
        out = np.full(128, -1)
        report = found(module, one, 1, np.arange(101), out)
        assert report.violation is not None
        results.append((report.violation.global_id, report.violation.values, out.tolist()))
    assert results[0] == results[1]
    assert results[0][0] == (51,)


@pytest.mark.parametrize("way", LANES)
def test_every_lane_that_is_on_prints_its_own_values(way: str) -> None:
    body = 'i = qn.global_id()\nif i % 3 == 1:\n    for k in range(i % 4):\n        print("at", i, k, x[i] * 2)'
    module = optimize(module_of(body, x=A1))
    report = found(module, way, 70, np.arange(70) * 11)
    site = sites(module)[0]
    shown = sorted((record.global_id[0], *site.values(record.values)) for record in report.prints)
    assert shown == [(i, i, k, i * 22) for i in range(70) if i % 3 == 1 for k in range(i % 4)]
    assert report.lost == 0


ATOMICS = ("add", "sub", "min", "max", "and_", "or_", "xor")


@pytest.mark.parametrize("way", LANES)
@pytest.mark.parametrize("where", ["i % 5", "2", "t"])
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_of_a_block_are_what_threads_in_turn_would_make(way: str, name: str, where: str) -> None:
    body = f"""
t = qn.local_id()
i = qn.global_id()
own = qn.shared(48, qn.i32)
own[t] = 77
qn.barrier()
if x[i] % 3 != 0:
    qn.atomic.{name}(own, {where}, qn.i32(x[i]))
    qn.atomic.{name}(all, {where}, qn.i32(x[i]))
qn.barrier()
out[i] = own[t]
"""
    from quernel.dtypes import ArrayType, i32

    module = module_of(body, LaunchForm.GRID, (48,), x=A1, out=A1, all=ArrayType(i32, 1))
    x = np.random.default_rng(3).integers(-1000, 1000, 96)
    results = []
    for one in ("scalar", way):
        out, everywhere = np.zeros(96, np.int64), np.full(48, 7, np.int32)
        Built(module, CONTIGUOUS, compiler_for(*WAYS[one])).grid(2, x, out, everywhere)
        results.append((out.tolist(), everywhere.tolist()))
    assert results[0] == results[1]
