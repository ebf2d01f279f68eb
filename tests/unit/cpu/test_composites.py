"""Vectors and structs: as values, in memory, in private and shared arrays, across functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, STRIDED, Built, compiler_for
from tests.unit.cpu.programs import module
from tests.unit.cpu.test_spmd import WAYS

from quernel_cpu.compiler import CpuCompiler

KINDS = {
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "f16": np.float16,
    "i32": np.int32,
    "u32": np.uint32,
    "f32": np.float32,
    "i64": np.int64,
    "u64": np.uint64,
    "f64": np.float64,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> CpuCompiler:
    return compiler_for(*WAYS[request.param])


def over(way: CpuCompiler, text: str, extent: Any, *arguments: Any, variant: Any = CONTIGUOUS) -> None:
    Built(module(text), variant, way).over(extent, *arguments)


def vectors(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The rows of a matrix as elements of an array of vectors."""
    return array.view(np.dtype((np.void, array.shape[-1] * array.itemsize))).reshape(array.shape[:-1])


@pytest.mark.parametrize("length", [2, 4])
@pytest.mark.parametrize("dtype", KINDS)
def test_vectors_are_loaded_changed_and_stored(way: CpuCompiler, dtype: str, length: int) -> None:
    parts = ", ".join(f"v.{length - 1 - number}" for number in range(length))
    text = f"""\
kernel k(x: array<vec<{dtype}, {length}>, 1>, y: array<vec<{dtype}, {length}>, 1>) over (64):
    local v: vec<{dtype}, {length}>
    v = x[global_id(0)]
    y[global_id(0)] = vec<{dtype}, {length}>({parts})
    y[global_id(0)].1 = {dtype}(7)
"""
    x = np.arange(100 * length).reshape(100, length).astype(KINDS[dtype])
    y = np.zeros_like(x)
    over(way, text, 100, vectors(x), vectors(y))
    wanted = x[:, ::-1].copy()
    wanted[:, 1] = 7
    assert np.array_equal(y, wanted)


def test_vectors_of_bools_and_of_bf16_keep_their_bytes(way: CpuCompiler) -> None:
    text = """\
kernel k(b: array<vec<bool, 4>, 1>, h: array<vec<bf16, 2>, 1>) over (8):
    local v: vec<bool, 4>
    local w: vec<bf16, 2>
    v = b[global_id(0)]
    b[global_id(0)] = vec<bool, 4>(v.3, not v.0, v.1 & v.2, true)
    w = h[global_id(0)]
    h[global_id(0)] = vec<bf16, 2>(w.1 + 1.0bf16, w.0)
"""
    b = np.array([[0, 3, 1, 0], [1, 0, 255, 1]], np.uint8)
    h = np.array([[0x3F80, 0x4000], [0x4080, 0xBF80]], np.uint16)
    over(way, text, 2, vectors(b), vectors(h))
    assert b.tolist() == [[0, 1, 1, 1], [1, 0, 0, 1]]
    assert h.tolist() == [[0x4040, 0x3F80], [0x0000, 0x4080]]


def test_a_select_between_vectors_takes_one_whole(way: CpuCompiler) -> None:
    text = """\
kernel k(x: array<vec<f32, 2>, 1>) over (8):
    local v: vec<f32, 2>
    v = x[global_id(0)]
    x[global_id(0)] = select(v.0 < v.1, v, vec<f32, 2>(v.1, v.0))
"""
    x = np.random.default_rng(0).random((37, 2), np.float32)
    wanted = np.sort(x, axis=1)
    over(way, text, 37, vectors(x))
    assert np.array_equal(x, wanted)


def test_strided_arrays_of_vectors_count_strides_in_elements(way: CpuCompiler) -> None:
    text = """\
kernel k(x: array<vec<f32, 4>, 2>, out: array<f32, 2>) over (1, 8):
    out[global_id(0), global_id(1)] = x[global_id(0), global_id(1)].2
"""
    x = np.arange(6 * 10 * 4, dtype=np.float32).reshape(6, 10, 4)
    out = np.zeros((3, 5), np.float32)
    over(way, text, (3, 5), vectors(x)[::2, ::-2], out, variant=STRIDED)
    assert np.array_equal(out, x[::2, ::-2, 2])


PARTICLE = np.dtype(
    {
        "names": ["id", "at", "mass"],
        "formats": [np.int16, (np.float32, 2), np.float64],
        "offsets": [0, 8, 24],
        "itemsize": 40,
    }
)
PACKED = np.dtype([("flag", np.bool_), ("pair", [("a", np.int32), ("b", np.float64)]), ("c", np.uint8)])
PARTICLES = "struct Particle(id: i16 at 0, at: vec<f32, 2> at 8, mass: f64 at 24) size 40 align 8\n\n"
PACKS = """\
struct Pair(a: i32 at 0, b: f64 at 4) size 12 align 1
struct Packed(flag: bool at 0, pair: struct<Pair> at 1, c: u8 at 13) size 14 align 1

"""


def particles(count: int) -> np.ndarray[Any, Any]:
    made = np.zeros(count, PARTICLE)
    made["id"] = np.arange(count)
    made["at"] = np.random.default_rng(3).random((count, 2))
    made["mass"] = np.arange(count) * 0.5
    return made


def test_fields_are_read_and_written_in_place(way: CpuCompiler) -> None:
    text = (
        PARTICLES
        + """\
kernel k(p: array<struct<Particle>, 1>) over (8):
    local i: i64
    i = global_id(0)
    p[i].at.1 = p[i].at.0 * 2.0f32
    p[i].mass = p[i].mass + f64(p[i].id)
"""
    )
    p = particles(77)
    wanted = p.copy()
    wanted["at"][:, 1] = wanted["at"][:, 0] * np.float32(2)
    wanted["mass"] += wanted["id"]
    over(way, text, 77, p)
    assert np.array_equal(p, wanted)


def test_whole_structs_are_moved_without_their_gaps(way: CpuCompiler) -> None:
    text = (
        PARTICLES
        + """\
kernel k(p: array<struct<Particle>, 1>, q: array<struct<Particle>, 1>) over (8):
    local v: struct<Particle>
    v = p[p.shape[0] - 1 - global_id(0)]
    q[global_id(0)] = struct<Particle>(v.id, vec<f32, 2>(v.at.1, v.at.0), -v.mass)
"""
    )
    p = particles(50)
    q = np.frombuffer(bytearray(b"\xaa" * 50 * 40), PARTICLE)
    over(way, text, 50, p, q)
    assert np.array_equal(q["id"], p["id"][::-1])
    assert np.array_equal(q["at"], p["at"][::-1, ::-1])
    assert np.array_equal(q["mass"], -p["mass"][::-1])
    assert bytes(q.view(np.uint8).reshape(50, 40)[7, 32:]) == b"\xaa" * 8


def test_packed_structs_are_read_and_written_where_nothing_is_aligned(way: CpuCompiler) -> None:
    text = (
        PACKS
        + """\
kernel k(p: array<struct<Packed>, 1>) over (8):
    local i: i64
    local v: struct<Packed>
    i = global_id(0)
    v = p[i]
    p[i] = struct<Packed>(not v.flag, struct<Pair>(v.pair.a + 1i32, v.pair.b * 2.0), v.c)
    p[i].pair.a = p[i].pair.a * 10i32
"""
    )
    p = np.zeros(33, PACKED)
    p["flag"] = np.arange(33) % 2
    p["pair"]["a"] = np.arange(33)
    p["pair"]["b"] = np.arange(33) * 0.25
    p["c"] = 200
    wanted = p.copy()
    wanted["flag"] = ~wanted["flag"]
    wanted["pair"]["a"] = (wanted["pair"]["a"] + 1) * 10
    wanted["pair"]["b"] *= 2
    over(way, text, 33, p)
    assert np.array_equal(p, wanted)


def test_structs_lie_in_private_and_shared_arrays(way: CpuCompiler) -> None:
    text = (
        PARTICLES
        + """\
kernel k(p: array<struct<Particle>, 1>, out: array<f64, 1>) grid (16):
    local l, i: i64
    shared all: struct<Particle>[16]
    private own: struct<Particle>[2]
    l = local_id(0)
    all[l] = p[global_id(0)]
    own[0] = p[global_id(0)]
    own[1].mass = 100.0
    barrier
    own[1].at = all[15 - l].at
    barrier
    out[global_id(0)] = own[0].mass + own[1].mass + f64(own[1].at.0)
"""
    )
    p, out = particles(32), np.zeros(32)
    Built(module(text), CONTIGUOUS, way).grid(2, p, out)
    at = p["at"][:, 0].reshape(2, 16)[:, ::-1].reshape(-1)
    assert np.array_equal(out, p["mass"] + 100 + at.astype(float))


def test_functions_take_and_return_vectors_and_structs(way: CpuCompiler) -> None:
    text = (
        PARTICLES
        + """\
kernel k(p: array<struct<Particle>, 1>, out: array<vec<f32, 2>, 1>) over (8):
    local v: vec<f32, 2>
    local q: struct<Particle>
    local n: i64
    v, n, q = call moved(p[global_id(0)], vec<f32, 2>(1.0f32, -1.0f32), &p)
    out[global_id(0)] = vec<f32, 2>(v.0 + f32(q.mass), v.1 + f32(n))

func moved(q: struct<Particle>, by: vec<f32, 2>, a: array<struct<Particle>, 1>) -> (vec<f32, 2>, i64, struct<Particle>):
    return vec<f32, 2>(q.at.0 + by.0, q.at.1 + by.1), i64(q.id), a[a.shape[0] - 1]
"""
    )
    p = particles(20)
    out = np.zeros((20, 2), np.float32)
    over(way, text, 20, p, vectors(out))
    assert np.array_equal(out[:, 0], p["at"][:, 0] + np.float32(1) + np.float32(9.5))
    assert np.array_equal(out[:, 1], p["at"][:, 1] - np.float32(1) + p["id"].astype(np.float32))


def test_a_field_of_a_struct_is_updated_atomically(way: CpuCompiler) -> None:
    text = (
        PARTICLES
        + """\
kernel k(p: array<struct<Particle>, 1>) over (8):
    atomic.add(p[global_id(0) % 4].mass, 1.0)
"""
    )
    p = particles(4)
    over(way, text, 10_000, p)
    assert p["mass"].tolist() == [2500, 2500.5, 2501, 2501.5]
