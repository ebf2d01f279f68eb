"""Kernels that take structs, vectors, arrays of them, generic arguments and device functions, from launch to result."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs
import numpy as np
import pytest

import quernel as qn
from quernel.errors import KernelAssertionError, KernelTypeError, ValidationError

float2 = qn.vec(qn.f32, 2)
T = TypeVar("T")


@attrs.frozen
class Point:
    x: qn.f32
    y: float


@attrs.frozen
class Body:
    at: Point
    velocity: float2  # type: ignore[valid-type]
    mass: qn.Array[qn.f64]


@qn.func
def twice(x):
    return x + x


@qn.func
def square(x):
    return x * x


@qn.kernel
def energy(body: Body, out: qn.Array[qn.f64]):
    i = qn.global_id()
    out[i] = body.at.x + body.at.y + body.mass[i] + body.velocity.x * body.velocity.y


@qn.kernel
def doubled(v: float2, out: qn.Array[qn.f32]):  # type: ignore[valid-type]
    w = v + v
    out[0] = w.x
    out[1] = w[1]


@qn.kernel
def moved(points: qn.Array[Point], out: qn.Array[float2]):  # type: ignore[valid-type]
    i = qn.global_id()
    points[i].y = points[i].x * 2
    point = points[i]
    out[i] = out[i] + float2(point.x, point.x)


@qn.kernel
def scaled(x: qn.Array[T], a: T):
    i = qn.global_id()
    x[i] = x[i] * a


@qn.kernel
def applied(x: qn.Array[qn.f32], op: qn.Const):
    i = qn.global_id()
    x[i] = op(x[i])


@qn.kernel(checked=True)
def told(x: qn.Array[qn.f32]):
    i = qn.global_id()
    assert x[i] < 3, "too large"
    print("at", i, x[i])


@qn.kernel(block=8, checked=True)
def meeting(x: qn.Array[qn.i64]):
    tile = qn.shared(8, qn.i64)
    i = qn.local_id()
    tile[i] = x[qn.global_id()]
    qn.barrier()
    x[qn.global_id()] = tile[7 - i]


@pytest.fixture(params=["cpu", "reference"])
def host(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_struct_with_a_struct_a_vector_and_an_array(host: str) -> None:
    out = np.zeros(3)
    energy.over(3, device=host)(Body(Point(1.0, 2.0), (3.0, 4.0), np.arange(3.0)), out)
    assert out.tolist() == [15, 16, 17]
    energy.over(3, device=host)(Body(at=Point(0, 0), velocity=(0, 0), mass=np.arange(3.0)), out=out)
    assert out.tolist() == [0, 1, 2]
    with pytest.raises(KernelTypeError, match=r"parameter 'body.mass' is an array of f64 and got one of f32"):
        energy.over(3, device=host)(Body(Point(0, 0), (0, 0), np.zeros(3, np.float32)), out)


def test_struct_whose_array_is_on_a_device_chooses_it() -> None:
    device = qn.device("reference")
    out = device.zeros(3)
    energy.over(3)(Body(Point(1, 2), (3, 4), device.array(np.arange(3.0))), out)
    assert out.numpy().tolist() == [15, 16, 17]


def test_vector_as_an_argument(host: str) -> None:
    out = np.zeros(2, np.float32)
    doubled.over(1, device=host)((1.5, 2.5), out)
    doubled.over(1, device=host)([np.float32(1.5), 4], out)
    assert out.tolist() == [3, 8]


def test_arrays_of_structs_and_vectors(host: str) -> None:
    points = np.zeros(3, [("y", "f8"), ("x", "f4"), ("tag", "u1")])
    points["x"], points["tag"] = [1, 2, 3], 9
    out = np.ones((3, 2), np.float32)
    moved.over(3, device=host)(points, out)
    assert points.tolist() == [(2, 1, 9), (4, 2, 9), (6, 3, 9)]
    assert out.tolist() == [[2, 2], [3, 3], [4, 4]]


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.float16, np.uint64])
def test_type_variable_takes_each_type(host: str, dtype: Any) -> None:
    x = np.arange(3, dtype=dtype)
    scaled.over(3, device=host)(x, 2)
    assert x.tolist() == [0, 2, 4]
    assert x.dtype == dtype


def test_device_function_is_an_argument_fixed_at_compile_time(host: str) -> None:
    x = np.arange(3, dtype=np.float32)
    applied.over(3, device=host)(x, twice)
    applied.over(3, device=host)(x, square)
    applied.over(3, device=host)(x, twice)
    assert x.tolist() == [0, 8, 32]


def test_assertions_raise_and_prints_are_shown(host: str, capsys: Any) -> None:
    told.over(3, device=host)(np.arange(5, dtype=np.float32))
    assert capsys.readouterr().out == "at 0 0.0\nat 1 1.0\nat 2 2.0\n"
    with pytest.raises(
        KernelAssertionError, match=r"this assertion does not hold: too large; x\[i\] = 3.0 \(in thread 3\)"
    ):
        told.over(4, device=host)(np.arange(5, dtype=np.float32))


def test_violation_among_threads_that_meet_ends_the_launch(host: str) -> None:
    x = np.arange(16)
    meeting[2](x)
    assert x.tolist() == [*range(7, -1, -1), *range(15, 7, -1)]
    with pytest.raises(IndexError, match=r"index 1[2-5] is outside x, whose shape is \(12,\) \(in thread 1[2-5]\)"):
        meeting.options(device=host)[2](x[:12])


def test_variable_interprets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_INTERPRET", "1")
    x = np.arange(3, dtype=np.float16)
    scaled.over(3)(x, 2)
    assert x.tolist() == [0, 2, 4]
    out = np.zeros(3)
    energy.over(3)(Body(Point(1.0, 2.0), (3.0, 4.0), np.arange(3.0)), out)
    assert out.tolist() == [15, 16, 17]


def test_shared_memory_beyond_the_device_is_refused_before_the_driver(host: str) -> None:
    @qn.kernel(block=8)
    def greedy(x: qn.Array[qn.f64]):
        tile = qn.shared((300, 128), qn.f64)
        tile[0, 0] = x[0]

    with pytest.raises(ValidationError, match=r"307200 bytes of shared memory(?:.|\n)* 262144"):
        greedy.options(device=host)[1](np.zeros(8))


def test_grid_and_block_beyond_the_device_are_refused(host: str) -> None:
    with pytest.raises(ValidationError, match=r"block \(2048,\) has 2048 threads, .* allows 1024"):
        meeting.options(device=host, block=2048)[1](np.arange(2048))
