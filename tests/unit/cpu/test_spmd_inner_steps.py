"""Indices kept within bounds: side by side away from the edges, and right at both ends, whatever the sizes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, STRIDED, Built, compiler_for, lowered
from tests.unit.cpu.test_spmd import WAYS, module_of

import quernel as qn
from quernel.dtypes import ArrayType, ScalarType
from quernel.geometry import LaunchForm
from quernel.ir.nodes import If, IndexKind, Module
from quernel.ir.walk import walk_statements
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.emission.forms import spmd_form
from quernel_cpu.emission.inner_steps import InnerStep, inner_step
from quernel_cpu.emission.shapes import Axes

A1, A2, COUNT = ArrayType(qn.i32, 1), ArrayType(qn.i32, 2), ScalarType(qn.i64)
SIZES = (1, 2, 7, 16, 17, 31, 32, 33, 63, 64, 65, 200)

NEIGHBOURS = {
    "max": ("x[max(i - 1, 0)]", lambda i, n: np.maximum(i - 1, 0)),
    "max turned": ("x[max(0, i - 2)]", lambda i, n: np.maximum(i - 2, 0)),
    "min": ("x[min(i + 1, n - 1)]", lambda i, n: np.minimum(i + 1, n - 1)),
    "both": ("x[min(max(i - 3, 0), n - 1)]", lambda i, n: np.clip(i - 3, 0, n - 1)),
    "clamp": ("x[qn.clamp(i + 5, 0, n - 1)]", lambda i, n: np.clip(i + 5, 0, n - 1)),
    "select": ("x[i if i < n - 1 else n - 1]", lambda i, n: i),
    "select else": ("x[0 if i < 1 else i - 1]", lambda i, n: np.maximum(i - 1, 0)),
    "select equal": ("x[0 if i == 0 else i - 1]", lambda i, n: np.maximum(i - 1, 0)),
    "select unequal": ("x[i + 1 if i != n - 1 else 0]", lambda i, n: (i + 1) % n),
    "select the other": ("x[0 if i != 5 else i + 1]", lambda i, n: np.where(i != 5, 0, i + 1)),
    "select turned": ("x[i + 1 if n > i + 1 else 0]", lambda i, n: (i + 1) % n),
    "wrap up": ("x[(i + 1) % n]", lambda i, n: (i + 1) % n),
    "wrap down": ("x[(i - 1) % n]", lambda i, n: (i - 1) % n),
    "reversed": ("x[max(n - 2 - i, 0)]", lambda i, n: np.maximum(n - 2 - i, 0)),
    "double": ("z[min(2 * i + 1, 2 * n - 2)]", lambda i, n: np.minimum(2 * i + 1, 2 * n - 2)),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> CpuCompiler:
    return compiler_for(*WAYS[request.param])


def inner_of(module: Module) -> InnerStep | None:
    taken = spmd_form(module)
    assert taken is not None
    kernel = taken.kernel
    lanes = frozenset((kind, kernel.ndim - 1) for kind in (IndexKind.GLOBAL_ID, IndexKind.LOCAL_ID))
    return inner_step(kernel.body, Axes(lanes), {}, 1)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_bounded_index_reads_what_it_says(name: str, way: CpuCompiler) -> None:
    text, places = NEIGHBOURS[name]
    program = Built(module_of(f"i = qn.global_id()\ny[i] = {text} * 3", n=COUNT, x=A1, y=A1, z=A1), CONTIGUOUS, way)
    for size in SIZES:
        x, z = np.arange(1, size + 1, dtype=np.int32), np.arange(1, 2 * size + 1, dtype=np.int32)
        y = np.zeros(size, np.int32)
        program.over(size, size, x, y, z)
        source = z if name == "double" else x
        np.testing.assert_array_equal(y, 3 * source[places(np.arange(size), size)], err_msg=str(size))


@pytest.mark.parametrize("name", sorted(NEIGHBOURS.keys() - {"double", "select the other"}))
def test_a_step_gathers_nothing_but_remainders_at_the_edge(name: str) -> None:
    text, _ = NEIGHBOURS[name]
    module = module_of(f"i = qn.global_id()\ny[i] = {text} * 3", n=COUNT, x=A1, y=A1, z=A1)
    inner = inner_of(module)
    assert inner is not None
    assert inner.tests
    made = compiler_for("spmd", "on", "x86-64-v4")
    source = lowered(module, CONTIGUOUS, made).ir
    inside = re.findall(r"^inner\d+:\n(.*?)^edge\d+:", source, re.DOTALL | re.MULTILINE)
    assert inside
    assert not any("gather" in part for part in inside)
    assert ("gather" in source) == name.startswith("wrap"), "at edges lanes read what lies side by side, or one element"


BLUR = """
r, c = qn.global_id()
h, w = x.shape
left = max(c - 1, 0)
right = c + 1 if c + 1 < w else w - 1
total = qn.i32(0)
for d in range(-1, 2):
    row = min(max(r + d, 0), h - 1)
    total += x[row, left] + 2 * x[row, c] + 4 * x[row, right]
y[r, c] = total
"""
WINDOW = """
r, c = qn.global_id()
w = x.shape[1]
total = qn.i32(0)
for d in range(reach, -reach - 1, -1):
    for e in range(-1, 2):
        total += (d + 7 * e) * x[r, min(max(c + d - e, 0), w - 1)]
y[r, c] = total
"""


@pytest.mark.parametrize("ndim", [1, 2])
def test_what_is_left_of_a_row_runs_in_the_code_for_the_edges(ndim: int) -> None:
    text = "i = qn.global_id()\ny[i] = math.sqrt(x[min(i + 1, n - 1)])"
    if ndim == 2:
        text = "j, i = qn.global_id()\ny[j, i] = math.sqrt(x[j, min(i + 1, n - 1)])"
    array = ArrayType(qn.f32, ndim)
    module = module_of(text, block=(256,) if ndim == 1 else (8, 32), n=COUNT, x=array, y=array)
    source = lowered(module, CONTIGUOUS, compiler_for("spmd", "off", "x86-64-v3")).ir
    assert len(re.findall(r"= call <\d+ x float> @llvm\.sqrt", source)) == 2, "inside, and at the edges"


def test_a_branch_at_the_edges_that_only_stores_has_its_copy_for_when_every_lane_is_on() -> None:
    text = "i = qn.global_id()\nif x[min(i + 1, n - 1)] > 3:\n    y[i] = z[i] // (z[i] + 1) + z[i] % 7"
    made = compiler_for("spmd", "off", "x86-64-v3")
    source = lowered(module_of(text, n=COUNT, x=A1, y=A1, z=A1), CONTIGUOUS, made).ir
    assert len(re.findall(r"^whole\d+:$", source, re.MULTILINE)) == 2, "inside, and at the edges"


@pytest.mark.parametrize("arrays", ["x", "xzx"])
def test_what_a_statement_reads_at_one_index_is_read_in_one_branch(arrays: str) -> None:
    read = " + ".join(f"{array}[min(max(i - 2, 0), n - 1)]" for array in arrays)
    inner = inner_of(module_of(f"i = qn.global_id()\ny[i] = {read}", n=COUNT, x=A1, y=A1, z=A1))
    assert inner is not None
    branches = [stmt for stmt in walk_statements(inner.edge) if isinstance(stmt, If)]
    assert len(branches) == 2, "one for each bound"
    assert [len(branch.otherwise) for branch in branches] == [len(arrays)] * 2


def test_an_index_that_is_read_at_an_edge_is_read_before(way: CpuCompiler) -> None:
    text = (
        "i = qn.global_id()\n"
        "y[i] = x[min(i + 1, n - 1)] + z[x[min(i + 1, n - 1)]] + w[x[z[max(i - 1, 0)]], min(i + 1, n - 1)]"
    )
    program = Built(module_of(text, n=COUNT, x=A1, y=A1, z=A1, w=A2), CONTIGUOUS, way)
    for size in SIZES:
        rng = np.random.default_rng(size)
        x, z = rng.integers(0, size, (2, size)).astype(np.int32)
        w, y = rng.integers(0, 99, (size, size)).astype(np.int32), np.zeros(size, np.int32)
        program.over(size, size, x, y, z, w)
        i = np.arange(size)
        above, below = np.minimum(i + 1, size - 1), np.maximum(i - 1, 0)
        np.testing.assert_array_equal(y, x[above] + z[x[above]] + w[x[z[below]], above], err_msg=str(size))


def blurred(x: np.ndarray) -> np.ndarray:
    (h, w), total = x.shape, np.zeros_like(x)
    for d in (-1, 0, 1):
        rows = x[np.clip(np.arange(h) + d, 0, h - 1)]
        columns = np.arange(w)
        total += rows[:, np.clip(columns - 1, 0, w - 1)] + 2 * rows + 4 * rows[:, np.clip(columns + 1, 0, w - 1)]
    return total


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (9, 33), (20, 200)], ids=str)
def test_a_filter_repeats_the_edges_of_an_image(shape: tuple[int, int], way: CpuCompiler) -> None:
    x = np.random.default_rng(1).integers(0, 1000, shape).astype(np.int32)
    y = np.zeros_like(x)
    Built(module_of(BLUR, block=(8, 32), x=A2, y=A2), CONTIGUOUS, way).over(shape, x, y)
    np.testing.assert_array_equal(y, blurred(x))


def test_a_filter_reads_rows_from_their_ends_too(way: CpuCompiler) -> None:
    x = np.random.default_rng(2).integers(0, 1000, (7, 90)).astype(np.int32)
    y = np.zeros_like(x)
    Built(module_of(BLUR, block=(8, 32), x=A2, y=A2), STRIDED, way).over(x.shape, x[:, ::-1], y)
    np.testing.assert_array_equal(y, blurred(x[:, ::-1]))


@pytest.mark.parametrize("reach", [0, 2, 40])
def test_a_window_s_reach_decides_what_is_inside(reach: int, way: CpuCompiler) -> None:
    x = np.random.default_rng(3).integers(0, 1000, (5, 150)).astype(np.int32)
    y, expected = np.zeros_like(x), np.zeros_like(x)
    module = module_of(WINDOW, block=(8, 32), x=A2, y=A2, reach=COUNT)
    assert inner_of(module) is not None
    Built(module, CONTIGUOUS, way).over(x.shape, x, y, reach)
    for d in range(-reach, reach + 1):
        for e in (-1, 0, 1):
            expected += (d + 7 * e) * x[:, np.clip(np.arange(150) + d - e, 0, 149)]
    np.testing.assert_array_equal(y, expected)


def test_lanes_that_are_off_keep_out_of_bounded_stores(way: CpuCompiler) -> None:
    text = "i = qn.global_id()\nif x[i] > 0:\n    y[min(i + 1, n - 1)] = x[max(i - 1, 0)]\n"
    n = 133
    x = np.random.default_rng(4).integers(-5, 6, n).astype(np.int32)
    x[-2:] = 0, 5
    y, expected = np.zeros(n, np.int32), np.zeros(n, np.int32)
    Built(module_of(text, n=COUNT, x=A1, y=A1), CONTIGUOUS, way).over(n, n, x, y)
    for i in range(n):
        if x[i] > 0:
            expected[min(i + 1, n - 1)] = x[max(i - 1, 0)]
    np.testing.assert_array_equal(y, expected)


def test_shared_neighbours_of_a_block_stay_within_it(way: CpuCompiler) -> None:
    text = """
i, j = qn.global_id(), qn.local_id()
part = qn.shared(96, qn.i32)
part[j] = x[i]
qn.barrier()
y[i] = part[max(j - 1, 0)] + 10 * part[min(j + 1, 95)]
"""
    x = np.arange(192, dtype=np.int32)
    y, blocks = np.zeros_like(x), x.reshape(2, 96)
    Built(module_of(text, LaunchForm.GRID, (96,), x=A1, y=A1), CONTIGUOUS, way).grid(2, x, y)
    near = np.arange(96)
    expected = blocks[:, np.maximum(near - 1, 0)] + 10 * blocks[:, np.minimum(near + 1, 95)]
    np.testing.assert_array_equal(y, expected.ravel())


def test_a_bounded_number_that_wraps_between_two_lanes_is_bounded_in_each(way: CpuCompiler) -> None:
    wide, largest = ArrayType(qn.i64, 1), 2**63 - 1
    text = "i = qn.global_id()\ny[i] = min(i + p, q) + x[max(i - 1, 0)]"
    n = 70
    y = np.zeros(n, np.int64)
    module = module_of(text, p=COUNT, q=COUNT, x=wide, y=wide)
    assert inner_of(module) is not None
    for wraps_at in (3, 20, 69):
        p, q = largest - wraps_at + 1, largest - 1
        Built(module, CONTIGUOUS, way).over(n, p, q, np.zeros(n, np.int64), y)
        sums = [(i + p + 2**63) % 2**64 - 2**63 for i in range(n)]
        assert y.tolist() == [min(total, q) for total in sums]


def test_a_bound_that_no_lane_is_at_is_read_nowhere(way: CpuCompiler) -> None:
    module = module_of("i = qn.global_id()\ny[i] = x[min(max(i - 1, low), high)]", low=COUNT, high=COUNT, x=A1, y=A1)
    n = 100
    x, y = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    program = Built(module, CONTIGUOUS, way)
    program.over(n, 0, 1 << 40, x, y)
    np.testing.assert_array_equal(y, np.maximum(np.arange(n) - 1, 0))
    program.over(range(40, n), -(1 << 40), 50, x, y)
    np.testing.assert_array_equal(y[40:], np.minimum(np.arange(40, n) - 1, 50))


def test_what_no_access_gains_by_has_no_copy() -> None:
    assert inner_of(module_of("i = qn.global_id()\ny[i] = qn.i32(min(i, n))", n=COUNT, y=A1)) is None
    assert inner_of(module_of("i = qn.global_id()\ny[i] = x[max(y[i], 0)]", x=A1, y=A1)) is None
    assert (
        inner_of(module_of("r, c = qn.global_id()\ny[r, c] = x[max(r - 1, 0), c]", block=(8, 32), x=A2, y=A2)) is None
    )
    assert inner_of(module_of("i = qn.global_id()\ny[i] = x[min(i, n - i)]", n=COUNT, x=A1, y=A1)) is None
