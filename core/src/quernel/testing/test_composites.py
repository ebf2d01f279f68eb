"""Vectors, structs, tuples and generic device functions, in locals, in memory and as arguments."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs
import numpy as np
import pytest

import quernel as qn
from quernel.errors import KernelTypeError
from quernel.testing.fuzz.programs import kernel_of
from quernel.testing.launching import on

pytestmark = pytest.mark.quernel_needs("f64")
T = TypeVar("T", qn.f32, qn.f64, qn.i32)


@attrs.frozen
class Point:
    x: qn.f32
    y: qn.f32


@attrs.frozen
class Particle:
    charge: qn.i8
    mass: qn.f64
    at: Point
    spin: qn.vec(qn.i16, 2)


@attrs.frozen
class World:
    heights: qn.Array1[qn.f32]
    particles: qn.Array1[Particle]
    gravity: qn.f32
    steps: int


# --- vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 4])
@pytest.mark.parametrize("dtype", [qn.u8, qn.i16, qn.i32, qn.i64, qn.f16, qn.f32, qn.f64], ids=str)
@pytest.mark.parametrize("view", ["whole", "shifted", "reversed"])
def test_vectors_are_loaded_and_stored_whole(quernel_device: Any, dtype: Any, length: int, view: str) -> None:
    of = qn.vec(dtype, length)
    kernel = kernel_of(
        "@qn.kernel\n"
        "def k(a: qn.Array1[V], b: qn.Array1[V]):\n"
        "    i = qn.global_id()\n"
        "    v = a[i]\n"
        "    b[i] = V(" + ", ".join(f"v[{length - 1 - n}] + {n}" for n in range(length)) + ")\n",
        V=of,
    )
    base = np.arange(20 * length).reshape(20, length).astype(dtype.numpy)
    out = np.zeros((20, length), dtype.numpy)
    select = {"whole": slice(0, 8), "shifted": slice(3, 11), "reversed": slice(15, 7, -1)}[view]
    on(quernel_device, kernel).over(8)(base[select], out[select])
    expected = np.zeros_like(out)
    expected[select] = base[select][:, ::-1] + np.arange(length, dtype=dtype.numpy)
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("length", [2, 4])
@pytest.mark.parametrize("dtype", [qn.i8, qn.i64, qn.f16, qn.f64], ids=str)
def test_a_vector_that_is_made_of_what_it_replaces_is_made_before(quernel_device: Any, dtype: Any, length: int) -> None:
    turned = ", ".join(f"a[i][{(n - 1) % length}]" for n in range(length))
    kernel = kernel_of(
        f"@qn.kernel\ndef k(a: qn.Array1[V]):\n    i = qn.global_id()\n    a[i] = V({turned})\n",
        V=qn.vec(dtype, length),
    )
    values = np.arange(1, 9 * length + 1).reshape(9, length).astype(dtype.numpy)
    given = values.copy()
    on(quernel_device, kernel).over(9)(given)
    assert np.array_equal(given, np.roll(values, 1, axis=1))


@pytest.mark.parametrize("is_packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("dtype", [qn.i8, qn.i64, qn.f16, qn.f64], ids=str)
def test_a_struct_that_is_made_of_what_it_replaces_is_made_before(
    quernel_device: Any, dtype: Any, is_packed: bool
) -> None:
    fields = [("tag", np.int8), ("of", dtype.numpy, (4,)), ("other", dtype.numpy)]
    layout = np.dtype(fields, align=not is_packed)
    kernel = kernel_of(
        "@qn.kernel\n"
        "def k(a: qn.Array1[S]):\n"
        "    i = qn.global_id()\n"
        "    a[i].of = V(a[i].other, a[i].of[0], a[i].of[1], a[i].of[2])\n",
        S=layout,
        V=qn.vec(dtype, 4),
    )
    given = np.zeros(5, layout)
    given["tag"], given["other"] = np.arange(5), np.arange(20, 25)
    given["of"] = np.arange(20).reshape(5, 4)
    expected = given.copy()
    expected["of"][:, 0], expected["of"][:, 1:] = given["other"], given["of"][:, :3]
    on(quernel_device, kernel).over(5)(given)
    assert np.array_equal(given, expected)


def test_vectors_compute_component_by_component(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel\n"
        "def k(a: qn.Array1[qn.vec(qn.i32, 4)], out):\n"
        "    v = a[0]\n"
        "    w = v * 2 - qn.vec(qn.i32, 4)(1)\n"
        "    out[0], out[1], out[2], out[3] = w.x, w.y, w.z, w.w\n"
        "    u = -w\n"
        "    out[4] = u[3]\n"
        "    out[5] = len(u)\n"
    )
    out = np.zeros(6, np.int64)
    on(quernel_device, kernel).over(1)(np.array([[1, 2, 3, 4]], np.int32), out)
    assert out.tolist() == [1, 3, 5, 7, -7, 4]


def test_a_component_of_an_element_is_stored_alone(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel\ndef k(a: qn.Array1[qn.vec(qn.f32, 2)]):\n    i = qn.global_id()\n    a[i].y = a[i].x * 10\n"
    )
    a = np.array([[1, 2], [3, 4]], np.float32)
    on(quernel_device, kernel).over(2)(a)
    assert a.tolist() == [[1, 10], [3, 30]]


def test_vectors_choose_loop_and_pass_through_functions(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.func\n"
        "def turned(v, times):\n"
        "    for _ in range(times):\n"
        "        v = qn.vec(qn.f32, 2)(-v.y, v.x)\n"
        "    return v\n\n"
        "@qn.kernel\n"
        "def k(a: qn.Array1[qn.vec(qn.f32, 2)], n):\n"
        "    i = qn.global_id()\n"
        "    a[i] = turned(a[i], n[i]) if n[i] >= 0 else qn.vec(qn.f32, 2)(0)\n"
    )
    a, n = np.array([[1, 2]] * 5, np.float32), np.array([0, 1, 2, 3, -1])
    on(quernel_device, kernel).over(5)(a, n)
    assert a.tolist() == [[1, 2], [-2, 1], [-1, -2], [2, -1], [0, 0]]


def test_a_device_makes_arrays_of_vectors(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel\ndef k(a: qn.Array1[V], b: qn.Array1[V]):\n    i = qn.global_id()\n    b[i] = a[i] + V(i, 1)\n",
        V=qn.vec(qn.f32, 2),
    )
    a, b = quernel_device.full(3, 5, qn.vec(qn.f32, 2)), quernel_device.zeros(3, qn.vec(qn.f32, 2))
    assert b.numpy().tolist() == [[0, 0]] * 3
    kernel.over(3)(a, b)
    assert b.numpy().tolist() == [[5, 6], [6, 6], [7, 6]]


@pytest.mark.quernel_needs("barriers")
def test_vectors_in_shared_memory(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel\n"
        "def k(a: qn.Array1[qn.vec(qn.f32, 4)]):\n"
        "    t = qn.local_id()\n"
        "    tile = qn.shared(4, qn.vec(qn.f32, 4))\n"
        "    tile[t] = a[t]\n"
        "    qn.barrier()\n"
        "    a[t] = tile[3 - t]\n"
    )
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    expected = a[::-1].copy()
    on(quernel_device, kernel)[1, 4](a)
    assert np.array_equal(a, expected)


# --- structs ----------------------------------------------------------------------------------------------------------


def particles_of(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    particles = np.zeros(3, dtype)
    particles["charge"] = [-1, 0, 127]
    particles["mass"] = [0.5, 1e300, 3]
    particles["at"]["x"], particles["at"]["y"] = [1, 2, 3], [4, 5, 6]
    particles["spin"] = [[7, -8], [9, -10], [32767, -32768]]
    return particles


POINT = [("x", np.float32), ("y", np.float32)]
FIELDS = [("charge", np.int8), ("mass", np.float64), ("at", POINT), ("spin", np.int16, (2,))]
LAYOUTS = {
    "packed": np.dtype(FIELDS),
    "aligned": np.dtype(FIELDS, align=True),
    "reordered": np.dtype([FIELDS[2], FIELDS[0], FIELDS[3], FIELDS[1]]),
    "padded": np.dtype(
        {
            "names": [field[0] for field in FIELDS],
            "formats": [np.int8, np.float64, POINT, (np.int16, 2)],
            "offsets": [3, 8, 21, 34],
            "itemsize": 41,
        }
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_structs_in_memory_are_found_by_field_whatever_their_layout(quernel_device: Any, layout: str) -> None:
    kernel = kernel_of(
        "@qn.kernel\n"
        "def k(ps, out):\n"
        "    i = qn.global_id()\n"
        "    p = ps[i]\n"
        "    out[i] = p.mass + p.at.y + p.spin[1]\n"
        "    ps[i].charge = p.charge + 1\n"
        "    ps[i].at.x = p.at.x * 2\n"
        "    ps[i].spin.x = 5\n"
    )
    particles, out = particles_of(LAYOUTS[layout]), np.zeros(3)
    before = particles.copy()
    on(quernel_device, kernel).over(3)(particles, out)
    assert out.tolist() == [0.5 + 4 - 8, 1e300, 3.0 + 6 - 32768]
    assert particles["charge"].tolist() == [0, 1, -128]
    assert particles["at"]["x"].tolist() == [2, 4, 6]
    assert particles["spin"].tolist() == [[5, -8], [5, -10], [5, -32768]]
    assert np.array_equal(particles["mass"], before["mass"])
    assert np.array_equal(particles["at"]["y"], before["at"]["y"])


@pytest.mark.quernel_needs("f64")
@pytest.mark.parametrize("as_whole", [False, True], ids=["fields", "whole"])
def test_a_struct_stands_in_another_where_its_vectors_are_less_aligned_than_elsewhere(
    quernel_device: Any, as_whole: bool
) -> None:
    pair = np.dtype([("at", np.float32, (2,))], align=True)
    layout = np.dtype([("a", pair), ("x", np.float32), ("b", pair), ("mass", np.float64)], align=True)
    assert [layout.fields[name][1] % 8 for name in ("a", "b")] == [0, 4]
    moves = "ps[i] = ps[i + 3]\n" if as_whole else "ps[i].a.at = ps[i + 3].a.at\n    ps[i].b = ps[i + 3].b\n"
    kernel = kernel_of(f"@qn.kernel\ndef k(ps):\n    i = qn.global_id()\n    {moves}    ps[i].x = ps[i].b.at.y\n")
    ps = np.zeros(6, layout)
    ps["a"]["at"], ps["b"]["at"] = np.arange(12).reshape(6, 2), 100 + np.arange(12).reshape(6, 2)
    on(quernel_device, kernel).over(3)(ps)
    assert ps["a"]["at"][:3].tolist() == [[6, 7], [8, 9], [10, 11]]
    assert ps["b"]["at"][:3].tolist() == [[106, 107], [108, 109], [110, 111]]
    assert ps["x"].tolist() == [107, 109, 111, 0, 0, 0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_structs_are_copied_whole(quernel_device: Any, layout: str) -> None:
    kernel = kernel_of("@qn.kernel\ndef k(a, b):\n    i = qn.global_id()\n    b[2 - i] = a[i]\n")
    a, b = particles_of(LAYOUTS[layout]), np.zeros(3, LAYOUTS[layout])
    on(quernel_device, kernel).over(3)(a, b)
    for name in LAYOUTS[layout].names:
        assert np.array_equal(b[name], a[name][::-1])


def test_a_struct_parameter_holds_arrays_of_structs_and_numbers(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel\n"
        "def k(world: World, out):\n"
        "    i = qn.global_id()\n"
        "    p = world.particles[i]\n"
        "    out[i] = world.heights[i] * world.gravity + p.charge + world.steps + len(world.heights)\n"
        "    world.heights[i] = p.at.y\n"
        "    world.particles[i] = Particle(p.charge, p.mass * 2, Point(0, p.at.y), p.spin)\n",
        World=World,
        Particle=Particle,
        Point=Point,
    )
    particles, heights, out = particles_of(LAYOUTS["aligned"]), np.array([1, 2, 3], np.float32), np.zeros(3)
    on(quernel_device, kernel).over(3)(World(heights, particles, 10.0, 100), out)
    assert out.tolist() == [10 - 1 + 100 + 3, 20 + 100 + 3, 30 + 127 + 100 + 3]
    assert heights.tolist() == [4, 5, 6]
    assert particles["at"]["x"].tolist() == [0, 0, 0]
    assert particles["mass"].tolist() == [1.0, 2e300, 6.0]


def test_structs_join_where_branches_meet(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.func\n"
        "def nearer(a, b):\n"
        "    if a.x < b.x:\n"
        "        return a\n"
        "    return b\n\n"
        "@qn.kernel\n"
        "def k(ps: qn.Array1[Point], out):\n"
        "    i = qn.global_id()\n"
        "    best = ps[0]\n"
        "    for j in range(1, len(ps)):\n"
        "        best = nearer(best, ps[j])\n"
        "    if i == 1:\n"
        "        best = Point(best.y, best.x)\n"
        "    out[i] = best.x * 10 + best.y\n",
        Point=Point,
    )
    out = np.zeros(2)
    on(quernel_device, kernel).over(2)(np.array([(3, 1), (2, 5), (4, 9)], POINT), out)
    assert out.tolist() == [25, 52]


# --- tuples and generics ----------------------------------------------------------------------------------------------


def test_tuples_are_locals_results_and_captures(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.func\n"
        "def both(a, b):\n"
        "    return (a + b, (a - b, a * b))\n\n"
        "@qn.kernel\n"
        "def k(x, out):\n"
        "    i = qn.global_id()\n"
        "    total, (difference, product) = both(x[i], WEIGHTS[1])\n"
        "    pair = (total, difference)\n"
        "    for j, w in enumerate(WEIGHTS):\n"
        "        pair = (pair[0] + w * j, pair[1])\n"
        "    for a, b in zip(pair, (1, 2)):\n"
        "        product += a * b\n"
        "    out[i] = product\n",
        WEIGHTS=(5, 7, 9),
    )
    x, out = np.array([1, 10]), np.zeros(2, np.int64)
    on(quernel_device, kernel).over(2)(x, out)
    expected = [v * 7 + (v + 7 + 7 + 18) + 2 * (v - 7) for v in (1, 10)]
    assert out.tolist() == expected


def test_a_type_variable_binds_the_types_of_a_call(quernel_device: Any) -> None:
    text = (
        "@qn.func\n"
        "def scaled(a: T, b: T):\n"
        "    return a * b + T(0.5)\n\n"
        "@qn.kernel\n"
        "def k(x: qn.Array1[T], out):\n"
        "    i = qn.global_id()\n"
        "    out[i] = scaled(x[i], x[i])\n"
    )
    for dtype, half in ((np.float32, 0.5), (np.float64, 0.5), (np.int32, 0)):
        out = np.zeros(2)
        on(quernel_device, kernel_of(text, T=T)).over(2)(np.array([2, 3], dtype), out)
        assert out.tolist() == [4 + half, 9 + half]
    with pytest.raises(KernelTypeError, match="T"):
        on(quernel_device, kernel_of(text, T=T)).over(2)(np.array([2, 3], np.int64), np.zeros(2))


def test_a_device_function_is_a_constant_argument(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.func\ndef twice(a):\n    return a * 2\n\n"
        "@qn.func\ndef square(a):\n    return a * a\n\n"
        "@qn.kernel\n"
        "def k(x, f: qn.Const[object]):\n"
        "    i = qn.global_id()\n"
        "    x[i] = f(x[i])\n"
    )
    functions = kernel.__wrapped__.__globals__
    x = np.array([3.0, 5.0])
    on(quernel_device, kernel).over(2)(x, functions["twice"])
    assert x.tolist() == [6, 10]
    on(quernel_device, kernel).over(2)(x, f=functions["square"])
    assert x.tolist() == [36, 100]


def test_random_numbers_are_numpys_philox(quernel_device: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel\n"
        "def k(out, seeds):\n"
        "    i = qn.global_id()\n"
        "    a, b, c, d = qn.random.philox(seeds[i], i + 1)\n"
        "    out[i, 0], out[i, 1], out[i, 2], out[i, 3] = a, b, c, d\n"
    )
    seeds = np.array([0, 1, 2**64 - 1, 0xDEADBEEFCAFEBABE], np.uint64)
    out = np.zeros((4, 4), np.uint64)
    on(quernel_device, kernel).over(4)(out, seeds)
    for i, seed in enumerate(seeds.tolist()):
        assert out[i].tolist() == np.random.Philox(key=seed, counter=i).random_raw(4).tolist()
