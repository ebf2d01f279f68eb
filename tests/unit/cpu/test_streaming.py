"""Streaming stores: which kernels have them, that they change no result, and which launches use them."""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

import attrs
import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built, compiler, compiler_for, device, lowered
from tests.unit.cpu.test_spmd import F1, module_of
from tests.unit.ir_by_hand import definition

import quernel as qn
from quernel.dtypes import ArrayType
from quernel.errors import SettingError
from quernel.geometry import Geometry, LaunchForm, extent_geometry, grid_geometry
from quernel.ir.nodes import Module
from quernel.structs import struct_of
from quernel_cpu import _toolchain, caches
from quernel_cpu.caches import last_level_cache_bytes, streams
from quernel_cpu.device import pack_geometry
from quernel_cpu.host import host

pytestmark = pytest.mark.skipif(not host().triple.startswith("x86_64"), reason="needs x86-64, whose stores these are")

F2, F3, D1, B1 = ArrayType(qn.f32, 2), ArrayType(qn.f32, 3), ArrayType(qn.f64, 1), ArrayType(qn.i8, 1)
LEVELS = ("", "x86-64-v3", "x86-64-v2")
TRIAD = "i = qn.global_id()\nz[i] = 2 * x[i] + y[i]"
LINE = 64


def triad(element: Any = F1) -> Module:
    return module_of(TRIAD, x=element, y=element, z=element)


@attrs.frozen
class Point:
    x: qn.f32
    y: qn.f32
    z: qn.f32


COMPOSITES = {
    "vec2": ArrayType(qn.vec(qn.f32, 2), 1),
    "vec4": ArrayType(qn.vec(qn.f32, 4), 1),
    "struct": ArrayType(struct_of(Point), 1),
}


def composite(kind: str) -> Module:
    """Twice the parts of each element, in reverse order."""
    names = {"vec2": "yx", "vec4": "wzyx", "struct": "zyx"}[kind]
    made = "Point" if kind == "struct" else f"qn.vec(qn.f32, {len(names)})"
    parts = ", ".join(f"2.0 * v.{name}" for name in names)
    body = f"i = qn.global_id()\nv = x[i]\nz[i] = {made}({parts})"
    return module_of(body, classes=(Point,), x=COMPOSITES[kind], z=COMPOSITES[kind])


def ir_of(module: Module) -> str:
    return lowered(definition(module), CONTIGUOUS).ir


@cache
def built_for(level: str, kind: str) -> Built:
    modules = {
        "f32": triad,
        "f64": lambda: triad(D1),
        "i8": lambda: triad(B1),
        "some": lambda: module_of("i = qn.global_id()\nif x[i] > 3:\n    z[i] = x[i]", x=F1, z=F1),
        "2d": lambda: module_of("i, j = qn.global_id()\nz[i, j] = x[i, j] + 1", block=(8, 32), x=F2, z=F2),
        "3d": lambda: module_of("p = qn.global_id()\nz[p] = x[p] + 1", block=(1, 8, 32), x=F3, z=F3),
        "vec2": lambda: composite("vec2"),
        "vec4": lambda: composite("vec4"),
        "struct": lambda: composite("struct"),
        "moved": lambda: module_of("i = qn.global_id()\nz[i + 3] = x[i]", x=F1, z=F1),
    }
    return Built(modules[kind](), CONTIGUOUS, compiler_for("spmd", level=level))


def at_offset(shape: Any, dtype: Any, offset: int) -> np.ndarray[Any, Any]:
    """An array whose first element lies that many elements behind a line's start."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + 2 * LINE, np.uint8)
    start = -memory.ctypes.data % LINE + offset * dtype.itemsize
    return memory[start : start + size].view(dtype).reshape(shape)


def run(built: Built, geometry: Geometry, parts: list[int], *arguments: Any) -> None:
    packed, cells = pack_geometry(geometry, streams=True), built.pack(geometry, *arguments)
    for first, end in itertools.pairwise(parts):
        built.loaded.entry(cells, packed, first, end)


# --- which kernels ----------------------------------------------------------------------------------------------------


def test_what_is_written_once_and_never_read_may_be_streamed() -> None:
    text = ir_of(triad())
    assert "!nontemporal" in text
    assert "llvm.x86.sse.sfence" in text
    assembly = compiler().assembly(lowered(definition(triad()), CONTIGUOUS))
    assert re.search(r"\bv?movnt", assembly)
    assert "sfence" in assembly


@pytest.mark.parametrize(
    "body",
    [
        "i = qn.global_id()\nz[i] = x[i] + z[i]",
        "i = qn.global_id()\nfor k in range(3):\n    z[i + k] = x[i]",
        "i = qn.global_id()\nz[i] = x[i]\ny[i] = x[i]",
        "i = qn.global_id()\nz[i] = x[i]\nqn.atomic.add(y, 0, 1.0)",
    ],
    ids=["read", "loop", "two arrays", "atomic"],
)
def test_what_is_read_or_written_otherwise_is_not_streamed(body: str) -> None:
    built = lowered(definition(module_of(body, x=F1, y=F1, z=F1)), CONTIGUOUS)
    assert "!nontemporal" not in built.ir
    assert not any(feature.startswith("streaming") for feature in built.header.features)


def test_what_reads_neighbours_is_not_streamed() -> None:
    def text(body: str) -> str:
        return ir_of(module_of(body, x=F1, y=F1, z=F1))

    assert "!nontemporal" not in text("i = qn.global_id()\nz[i] = x[i] + x[i + 1] + y[i]")
    assert "!nontemporal" in text("i = qn.global_id()\nz[i] = x[i] + x[i] * y[i]")


def test_other_processors_have_none() -> None:
    from quernel.ir.analysis import parameter_uses
    from quernel_cpu.emission.streaming import streamed_array

    module = triad()
    uses = parameter_uses(module)
    assert streamed_array(module, uses, "x86_64-unknown-linux-gnu") == "z"
    assert streamed_array(module, uses, "aarch64-unknown-linux-gnu") is None


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64), ("i8", np.int8)])
def test_results_are_the_same_wherever_an_array_starts(level: str, kind: str, dtype: Any) -> None:
    built = built_for(level, kind)
    for offset in range(LINE // np.dtype(dtype).itemsize):
        for size, parts in ((1, [0, 1]), (7, [0, 7]), (500, [0, 3, 260, 500]), (801, [0, 64, 801])):
            x, y = (np.arange(size) % 40).astype(dtype), (np.arange(size) % 7).astype(dtype)
            around = at_offset(size + 32, dtype, offset)
            around[:] = 99
            run(built, extent_geometry(size, (256,)), parts, x, y, around[16 : 16 + size])
            assert np.array_equal(around[16 : 16 + size], 2 * x + y)
            assert np.all(around[:16] == 99)
            assert np.all(around[16 + size :] == 99)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("kind", "width"), [("vec2", 2), ("vec4", 4), ("struct", 3)])
def test_vectors_and_structs_are_the_same_wherever_an_array_starts(level: str, kind: str, width: int) -> None:
    built = built_for(level, kind)
    for offset in range(0, LINE // 4, width if kind != "struct" else 1):
        for size, parts in ((1, [0, 1]), (7, [0, 7]), (500, [0, 3, 260, 500]), (801, [0, 64, 801])):
            x = (np.arange(size * width, dtype=np.float32) % 40).reshape(size, width)
            around = at_offset((size + 32, width), np.float32, offset)
            around[:] = 99
            operands = (a.view(f"V{4 * width}").reshape(-1) for a in (x, around[16 : 16 + size]))
            run(built, extent_geometry(size, (256,)), parts, *operands)
            assert np.array_equal(around[16 : 16 + size], 2 * x[:, ::-1])
            assert np.all(around[:16] == 99)
            assert np.all(around[16 + size :] == 99)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["vec2", "vec4", "struct"])
def test_whole_elements_may_be_streamed_and_parts_of_them_not(level: str, kind: str) -> None:
    using = compiler_for("spmd", level=level)
    assert "!nontemporal" in lowered(definition(composite(kind)), CONTIGUOUS, using).ir
    part = module_of("i = qn.global_id()\nz[i].y = x[i].x", x=COMPOSITES[kind], z=COMPOSITES[kind])
    assert "!nontemporal" not in lowered(definition(part), CONTIGUOUS, using).ir


@pytest.mark.parametrize("level", LEVELS)
def test_threads_that_do_not_store_leave_elements_as_they_are(level: str) -> None:
    x = np.random.default_rng(1).integers(0, 8, 1000).astype(np.float32)
    x[200:500] = 5
    z = at_offset(1000, np.float32, 3)
    z[:] = -1
    run(built_for(level, "some"), extent_geometry(1000, (256,)), [0, 1000], x, z)
    assert np.array_equal(z, np.where(x > 3, x, -1))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("offset", [0, 1, 5])
def test_rows_of_any_length_are_right(level: str, offset: int) -> None:
    for kind, shape in (("2d", (37, 131)), ("2d", (16, 128)), ("3d", (5, 9, 67)), ("3d", (3, 16, 64))):
        size = int(np.prod(shape))
        x = np.arange(size, dtype=np.float32).reshape(shape)
        z = at_offset(shape, np.float32, offset)
        block = (8, 32) if len(shape) == 2 else (1, 8, 32)
        run(built_for(level, kind), extent_geometry(shape, block), [0, size // 3, size], x, z)
        assert np.array_equal(z, x + 1)


@pytest.mark.parametrize("level", LEVELS)
def test_an_index_beside_the_point_is_right(level: str) -> None:
    x, z = np.arange(900, dtype=np.float32), at_offset(903, np.float32, 2)
    run(built_for(level, "moved"), extent_geometry(900, (256,)), [0, 900], x, z)
    assert np.array_equal(z[3:], x)


def test_blocks_that_meet_stream_what_they_write() -> None:
    module = module_of(
        "i, j = qn.global_id()\nr, c = qn.local_id()\npart = qn.shared((16, 16), qn.f32)\npart[r, c] = x[i, j]\n"
        "qn.barrier()\nb, d = qn.block_id()\nz[d * 16 + r, b * 16 + c] = part[c, r]",
        LaunchForm.GRID,
        (16, 16),
        x=F2,
        z=F2,
    )
    assert "!nontemporal" in ir_of(module)
    built = Built(module, CONTIGUOUS)
    x = np.random.default_rng(2).random((64, 64), np.float32)
    z = at_offset((64, 64), np.float32, 0)
    scratch = np.zeros(1 << 14, np.uint8)
    geometry = grid_geometry((4, 4), (16, 16))
    address = int(scratch.ctypes.data + -scratch.ctypes.data % LINE).to_bytes(8, "little")
    built.loaded.entry(built.pack(geometry, x, z), pack_geometry(geometry, streams=True) + address, 0, 16)
    assert np.array_equal(z, x.T)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("offset", [0, 1, 4, 15])
def test_all_but_the_edges_of_a_piece_is_streamed_wherever_an_array_starts(level: str, offset: int) -> None:
    """The streaming stores of the kernel's IR are made to write zeros, which tells what they wrote."""
    using = compiler_for("spmd", level=level)
    made = lowered(definition(triad()), CONTIGUOUS, using)
    text = re.sub(r"store (<\d+ x \w+>) %\w+, (.*!nontemporal)", r"store \1 zeroinitializer, \2", made.ir)
    assert text != made.ir
    built = Built(triad(), CONTIGUOUS, using)
    triple, cpu, features = (using.target_info.detail(name) for name in ("triple", "cpu", "features"))
    object_code = _toolchain.compile_ir(text, triple, cpu, features, is_vector_code=True)
    code = _toolchain.load_object(object_code, built.header.entry, None)
    entry = type(built.loaded.entry)(code.address)
    x, z = np.ones(4096, np.float32), at_offset(4096, np.float32, offset)
    geometry = extent_geometry(4096, (256,))
    cells = built.pack(geometry, x, x, z)
    entry(cells, pack_geometry(geometry, streams=True), 0, 4096)
    assert np.count_nonzero(z) < 2 * 64
    entry(cells, pack_geometry(geometry), 0, 4096)
    assert np.all(z == 3)


# --- which launches ---------------------------------------------------------------------------------------------------


def test_a_launch_streams_if_it_touches_more_than_the_last_level_of_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUERNEL_CPU_STREAMING", raising=False)
    monkeypatch.setattr(caches, "last_level_cache_bytes", lambda: 8 << 20)
    assert streams((8 << 20) + 1)
    assert not streams(8 << 20)
    monkeypatch.setenv("QUERNEL_CPU_STREAMING", "0")
    assert not streams(1 << 40)
    monkeypatch.setenv("QUERNEL_CPU_STREAMING", "perhaps")
    with pytest.raises(SettingError, match="QUERNEL_CPU_STREAMING"):
        streams(1 << 40)
    monkeypatch.delenv("QUERNEL_CPU_STREAMING")
    monkeypatch.setattr(caches, "last_level_cache_bytes", lambda: 0)
    assert not streams(1 << 40)


def test_a_launch_counts_what_its_threads_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("quernel_cpu.device.streams", lambda footprint: bool(asked.append(footprint)))
    x = np.ones(5000, np.float32)
    Built(triad(), CONTIGUOUS).over(5000, x, x, np.empty_like(x))
    assert asked == [3 * 4 * 5000]
    table = module_of("i, j = qn.global_id()\nz[i, j] = x[j]", block=(8, 32), x=F1, z=F2)
    Built(table, CONTIGUOUS).over((50, 60), x, np.empty((50, 60), np.float32))
    assert asked[1:] == [4 * 50 * 60]
    Built(module_of("i = qn.global_id()\nx[i] = x[i] + 1", x=F1), CONTIGUOUS).over(5000, x)
    assert len(asked) == 2


def test_a_prepared_launch_hands_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "1")
    built = Built(triad(), CONTIGUOUS)
    seen: list[bytes] = []
    entry = built.loaded.entry
    built.loaded.entry = lambda cells, geometry, first, end: (seen.append(geometry), entry(cells, geometry, first, end))
    monkeypatch.setattr("quernel_cpu.device.streams", lambda footprint: footprint > 10_000)
    x, z = np.ones(1000, np.float32), np.empty(1000, np.float32)
    prepared = device().prepare(built.loaded, built.header)
    for size in (1000, 500):
        geometry = extent_geometry(size, (256,))
        prepared(geometry, built.pack(geometry, x, x, z), None)
    flags = [np.frombuffer(geometry, np.int64)[9] for geometry in seen]
    assert (flags[0], flags[-1]) == (1, 0)


def test_caches_are_those_of_the_cores_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "level": {"index0": "1", "index3": "3"},
        "size": {"index0": "32K", "index3": "16M"},
    }

    def text(*parts: str) -> str:
        name = parts[-1]
        if name == "shared_cpu_list":
            return "0-3,8-11" if "cpu0/" in parts[0] or "cpu8/" in parts[0] else "4-7"
        return files[name][parts[-2]]

    monkeypatch.setattr(caches, "_text", text)
    monkeypatch.setattr("os.listdir", lambda folder: ["index0", "index3", "power"])
    for cores, expected in (({0, 8}, 16 << 20), ({0, 4, 5}, 32 << 20)):
        monkeypatch.setattr("os.sched_getaffinity", lambda process, cores=cores: cores)
        last_level_cache_bytes.cache_clear()
        assert last_level_cache_bytes() == expected
    monkeypatch.setattr(caches, "_text", lambda *parts: "unknown")
    last_level_cache_bytes.cache_clear()
    assert last_level_cache_bytes() == 0
    last_level_cache_bytes.cache_clear()
