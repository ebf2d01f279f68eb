"""Extents, grids, blocks, views and arguments: every way to launch reaches every point once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.testing.fuzz.programs import kernel_of
from quernel.testing.launching import is_interpreted, on


@qn.kernel
def count_1d(hits):
    i = qn.global_id()
    hits[i] += 1


@qn.kernel
def count_2d(hits):
    i, j = qn.global_id()
    hits[i, j] += 1


@qn.kernel
def count_3d(hits):
    i, j, k = qn.global_id()
    hits[i, j, k] += 1


@pytest.mark.parametrize("extent", [1, 7, 255, 256, 257, 1000])
@pytest.mark.parametrize("block", [None, 1, 3, 64])
def test_every_point_of_a_line_runs_once(quernel_device: Any, extent: int, block: int | None) -> None:
    hits = np.zeros(extent + 3, np.int32)
    on(quernel_device, count_1d).over(extent, block=block)(hits)
    assert hits.tolist() == [1] * extent + [0] * 3


@pytest.mark.parametrize("extent", [(1, 1), (9, 33), (16, 64), (3, 100)])
@pytest.mark.parametrize("block", [None, (1, 5), (8, 8)])
def test_every_point_of_a_plane_runs_once(quernel_device: Any, extent: tuple[int, int], block: Any) -> None:
    hits = np.zeros((extent[0] + 1, extent[1] + 2), np.int32)
    on(quernel_device, count_2d).over(extent, block=block)(hits)
    expected = np.zeros_like(hits)
    expected[: extent[0], : extent[1]] = 1
    assert np.array_equal(hits, expected)


@pytest.mark.parametrize("block", [None, (1, 1, 5), (4, 2, 2)])
def test_every_point_of_a_volume_runs_once(quernel_device: Any, block: Any) -> None:
    hits = np.zeros((5, 6, 37), np.int32)
    on(quernel_device, count_3d).over((4, 5, 36), block=block)(hits)
    expected = np.zeros_like(hits)
    expected[:4, :5, :36] = 1
    assert np.array_equal(hits, expected)


def test_a_range_starts_where_it_says(quernel_device: Any) -> None:
    hits = np.zeros((9, 70), np.int32)
    on(quernel_device, count_2d).over((range(2, 7), range(5, 69)))(hits)
    expected = np.zeros_like(hits)
    expected[2:7, 5:69] = 1
    assert np.array_equal(hits, expected)


@qn.kernel
def offsets(out, shift: int):
    i = qn.global_id()
    out[i + shift] = i * 100 + qn.global_dim()


def test_a_range_below_zero_and_the_dimension_of_an_extent(quernel_device: Any) -> None:
    out = np.zeros(6, np.int64)
    on(quernel_device, offsets).over(range(-4, 2))(out, 4)
    assert out.tolist() == [-394, -294, -194, -94, 6, 106]


@pytest.mark.parametrize("extent", [0, (0, 5), (3, 0), (4, 4, 0)])
def test_an_empty_extent_runs_nothing(quernel_device: Any, extent: Any) -> None:
    rank = 1 if isinstance(extent, int) else len(extent)
    hits = np.zeros((6,) * rank, np.int32)
    on(quernel_device, (count_1d, count_2d, count_3d)[rank - 1]).over(extent)(hits)
    assert not hits.any()


@qn.kernel
def ids(out):
    i = qn.global_id()
    out[i, 0] = qn.local_id()
    out[i, 1] = qn.block_id()
    out[i, 2] = qn.global_dim()
    out[i, 3] = qn.block_dim()
    out[i, 4] = qn.grid_dim()


def test_ids_of_a_grid_are_consistent(quernel_device: Any) -> None:
    out = np.zeros((35, 5), np.int64)
    on(quernel_device, ids)[5, 7](out)
    assert out.tolist() == [[i % 7, i // 7, 35, 7, 5] for i in range(35)]


@qn.kernel
def ids_of_planes(out):
    y, x = qn.global_id()
    out[y, x, 0] = qn.global_id(0) * 1000 + qn.global_id(1)
    out[y, x, 1] = qn.local_id(0) * 1000 + qn.local_id(1)
    out[y, x, 2] = qn.block_id(0) * 1000 + qn.block_id(1)
    out[y, x, 3] = qn.grid_dim(0) * 1000 + qn.grid_dim(1)


def test_ids_follow_array_order(quernel_device: Any) -> None:
    out = np.full((6, 20, 4), -1, np.int64)
    on(quernel_device, ids_of_planes)[(2, 4), (3, 5)](out)
    for y in range(6):
        for x in range(20):
            assert out[y, x].tolist() == [y * 1000 + x, y % 3 * 1000 + x % 5, y // 3 * 1000 + x // 5, 2004]


@qn.kernel
def scale(x, a: float = 2.0, b: int = 1):
    i = qn.global_id()
    x[i] = x[i] * a + b


@pytest.mark.quernel_needs("f64")
def test_arguments_follow_python(quernel_device: Any) -> None:
    x = np.ones(3, np.float32)
    launcher = on(quernel_device, scale).over(3)
    launcher(x)
    launcher(x, 0.5)
    launcher(x, b=7)
    launcher(b=0, a=10.0, x=x)
    assert x.tolist() == [((1 * 2 + 1) * 0.5 + 1) * 20 + 70] * 3


@pytest.mark.quernel_needs("f64")
def test_a_bound_launch_repeats_and_updates(quernel_device: Any) -> None:
    x = quernel_device.full(3, 1, qn.f32)
    bound = scale.over(3, device=quernel_device).bind(x, 3.0, 0)
    bound()
    bound()
    bound.update(a=2.0)
    bound()
    assert x.numpy().tolist() == [18.0] * 3


@qn.kernel
def polynomial(x, out, degree: qn.Const):
    i = qn.global_id()
    total = 0.0
    for _ in range(degree):
        total = total * x[i] + 1
    out[i] = total


@pytest.mark.quernel_needs("f64")
def test_constants_are_part_of_what_is_compiled(quernel_device: Any) -> None:
    x, out = np.array([2.0, 3.0]), np.zeros(2)
    on(quernel_device, polynomial).over(2)(x, out, 3)
    assert out.tolist() == [7.0, 13.0]
    on(quernel_device, polynomial).over(2)(x, out, degree=1)
    assert out.tolist() == [1.0, 1.0]


@qn.kernel
def copies(source: qn.Array[qn.f32], target: qn.Array2[qn.f32]):
    i, j = qn.global_id()
    target[i, j] = source[i, j] + 1


VIEWS = {
    "plain": lambda a: a,
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1],
    "stepped": lambda a: a[::2, ::3],
    "fortran": lambda a: np.asfortranarray(a),
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "shifted": lambda a: a[1:, 1:],
}


@pytest.mark.parametrize("view", VIEWS)
def test_any_strides_are_read(quernel_device: Any, view: str) -> None:
    source = VIEWS[view](np.arange(48, dtype=np.float32).reshape(6, 8))
    target = np.zeros(source.shape, np.float32)
    on(quernel_device, copies).over(source.shape)(source, target)
    assert np.array_equal(target, source + 1)


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "broadcast"])
def test_any_strides_are_written(quernel_device: Any, view: str) -> None:
    whole = np.zeros((6, 8), np.float32)
    target = VIEWS[view](whole)
    source = np.arange(target.size, dtype=np.float32).reshape(target.shape)
    on(quernel_device, copies).over(target.shape)(source, target)
    assert np.array_equal(target, source + 1)
    if view not in ("fortran",):
        assert whole.sum() == (source + 1).sum()


def test_arrays_of_the_device_are_arguments(quernel_device: Any) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    source, target = quernel_device.array(a), quernel_device.zeros((3, 4), qn.f32)
    copies.over((3, 4))(source, target)
    assert np.array_equal(target.numpy(), a + 1)
    assert np.array_equal(source.numpy(), a)


def test_one_array_may_be_two_arguments(quernel_device: Any) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    on(quernel_device, copies).over((3, 4))(a, a)
    assert np.array_equal(a, np.arange(12).reshape(3, 4) + 1)


@qn.kernel
def scalars(out, flag: bool, tiny: qn.i8, wide: qn.u64, single: qn.f32, double: qn.f64, weak):
    i = qn.global_id()
    out[i, 0] = 1 if flag else 0
    out[i, 1] = tiny
    out[i, 2] = float(wide)
    out[i, 3] = single
    out[i, 4] = double
    out[i, 5] = weak


@pytest.mark.quernel_needs("f64")
def test_scalars_of_every_kind_arrive_whole(quernel_device: Any) -> None:
    out = np.zeros((2, 6))
    on(quernel_device, scalars).over(2)(out, True, -128, 2**64 - 2048, 0.1, 0.1, 7)
    assert out.tolist() == [[1.0, -128.0, float(2**64 - 2048), float(np.float32(0.1)), 0.1, 7.0]] * 2


def test_many_points_run_on_all_that_the_device_has(quernel_device: Any) -> None:
    count = 300_000 if not is_interpreted(quernel_device) else 3_000
    hits = np.zeros(count, np.int32)
    on(quernel_device, count_1d).over(count)(hits)
    assert (hits == 1).all()


# --- arrays that share memory -----------------------------------------------------------------------------------------

POINT = np.dtype([("at", np.float32), ("tag", np.int32)])
TWO_VIEWS = {
    "f32 and u32": (np.float32, np.uint32, "y[i] = 1", "x[i] = -x[i]", "y[i]"),
    "f64 and i64": (np.float64, np.int64, "y[i] = 1", "x[i] = -x[i]", "y[i]"),
    "f32 and i16": (np.float32, np.int16, "y[2 * i + 1] = 1", "x[i] = 0", "y[2 * i + 1]"),
    "f16 and u64": (np.float16, np.uint64, "y[i] = 0", "x[4 * i + 2] = 1", "y[i]"),
    "i32 and a field": (np.int32, POINT, "y[i].tag = 5", "x[2 * i + 1] = 7", "y[i].tag"),
    "f32 and a field": (np.float32, POINT, "y[i].tag = 5", "x[2 * i + 1] = 0", "y[i].tag"),
}


@pytest.mark.quernel_needs("host_access", "f64", "f16")
@pytest.mark.parametrize("views", TWO_VIEWS)
def test_arrays_of_two_types_may_be_one_memory(quernel_device: Any, views: str) -> None:
    first, second, *statements, result = TWO_VIEWS[views]
    body = "".join(f"    {line}\n" for line in (*statements, f"out[i] = {result}"))
    kernel = kernel_of(f"@qn.kernel\ndef k(x, y, out):\n    i = qn.global_id()\n{body}")
    found = {}
    for device in ("reference", quernel_device):
        x, out = np.full(16, 2, first), np.zeros(16)
        on(device, kernel).over(4, block=2)(x, x.view(second), out)
        found[device] = (x.tobytes(), out.tolist())
    assert found[quernel_device] == found["reference"]
