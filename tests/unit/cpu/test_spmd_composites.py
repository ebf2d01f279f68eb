"""Vectors, structs and large private arrays of threads that run as lanes: what they become, and leave alone."""

from __future__ import annotations

import ctypes
import mmap
import re
from functools import cache
from typing import Any

import attrs
import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, STRIDED, Built, compiler_for, lowered
from tests.unit.cpu.programs import module
from tests.unit.cpu.test_composites import vectors
from tests.unit.cpu.test_spmd import A1, F1, WAYS
from tests.unit.cpu.test_spmd import module_of as module_of_body

import quernel as qn
from quernel.dtypes import ArrayType
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Module
from quernel.structs import struct_of
from quernel_cpu.compiler import CpuCompiler

LANES = [name for name in WAYS if name != "scalar"]
SIZES = (1, 15, 16, 101)
V2, V4 = ArrayType(qn.vec(qn.f32, 2), 1), ArrayType(qn.vec(qn.f32, 4), 1)


@attrs.frozen
class Inner:
    flag: qn.u8
    value: qn.f64


@attrs.frozen
class Outer:
    """Padding behind `first`, inside and behind `inner`, and at the end."""

    first: qn.i16
    inner: Inner
    at: qn.vec(qn.f32, 2)
    last: qn.u8


@attrs.frozen
class Body:
    x: qn.f32
    y: qn.f32
    z: qn.f32
    mass: qn.f32
    id: qn.i32


MANY = 70
KINDS = (qn.f32, qn.i64, qn.u8, qn.f64, qn.i16, qn.bool, qn.f16)
Wide = attrs.make_class(
    "Wide", {f"f{n}": attrs.field(type=KINDS[n % len(KINDS)]) for n in range(MANY)}, frozen=True, slots=True
)

OUTER, BODY = ArrayType(struct_of(Outer), 1), ArrayType(struct_of(Body), 1)
WIDE = ArrayType(struct_of(Wide), 1)


def module_of(body: str, *launch: Any, **types: Any) -> Module:
    return module_of_body(body, *launch, classes=(Inner, Outer, Body, Wide), **types)


@cache
def compiler_of(way: str) -> CpuCompiler:
    return compiler_for(*WAYS[way])


_built: dict[Any, Built] = {}


def built(way: CpuCompiler, body: str, variant: Any = CONTIGUOUS, **types: Any) -> Built:
    """A kernel that several tests launch."""
    key = (way.target_info, variant, body, tuple(types.items()))
    if key not in _built:
        _built[key] = Built(module_of(body, **types), variant, way)
    return _built[key]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> CpuCompiler:
    return compiler_of(request.param)


@pytest.fixture(params=LANES)
def lanes(request: pytest.FixtureRequest) -> CpuCompiler:
    return compiler_of(request.param)


def numpy_of(of: ArrayType) -> np.dtype[Any]:
    from quernel.structs import numpy_of

    return numpy_of(of.element)


def poisoned(of: ArrayType, count: int) -> np.ndarray[Any, Any]:
    """Structs of bytes that are told when they change."""
    return np.frombuffer(bytearray(b"\xaa" * (count * of.element.itemsize)), numpy_of(of))


def before_a_guard(count: int, dtype: Any) -> np.ndarray[Any, Any]:
    """An array that ends where a page begins that may be neither read nor written."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
    dtype = np.dtype(dtype)
    return np.frombuffer(memory, dtype, count, page - dtype.itemsize * count)


def ir_of(made: Any, using: CpuCompiler, variant: Any = CONTIGUOUS) -> str:
    low = lowered(made, variant, using)
    assert low.is_vector_code
    return low.ir


# --- what they become -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 4])
@pytest.mark.parametrize("of", ["bool", "i8", "u16", "f16", "bf16", "i32", "u64", "f32", "f64"])
def test_neighbours_vectors_are_moved_by_vector_accesses_alone(lanes: CpuCompiler, of: str, length: int) -> None:
    parts = ", ".join(f"v.{length - 1 - number}" for number in range(length))
    text = f"""\
kernel k(x: array<vec<{of}, {length}>, 1>) over (64):
    local v: vec<{of}, {length}>
    v = x[global_id(0)]
    x[global_id(0)] = vec<{of}, {length}>({parts})
"""
    ir = ir_of(module(text), lanes)
    assert not re.search("gather|scatter|insertelement|extractelement", ir.split("tail")[0].split("entry:")[1])
    assert re.search(r"= load <\d+ x i\d+>", ir)
    assert re.search(r"store <\d+ x i\d+>", ir)


def test_a_copy_is_no_shuffle() -> None:
    compiler = compiler_for("spmd", "on", "x86-64-v4")
    text = """\
kernel k(x: array<vec<f32, 4>, 1>, y: array<vec<f32, 4>, 1>) over (64):
    y[global_id(0)] = x[global_id(0)]
"""
    assembly = compiler.assembly(lowered(module(text), CONTIGUOUS, compiler))
    blocks = re.split(r"^\.LBB\w+:", assembly, flags=re.MULTILINE)
    assert any(len(re.findall(r"vmov\w+\s+%zmm\d+, .*\(", block)) >= 8 and "perm" not in block for block in blocks)


@pytest.mark.parametrize(("read", "written"), [("", ""), (".x", ".x"), (".mass", ".id")])
def test_a_struct_of_equal_parts_is_moved_as_a_whole_and_a_part_of_it_alone(
    lanes: CpuCompiler, read: str, written: str
) -> None:
    value = f"qn.i32(a[i]{read})" if written == ".id" else f"a[i]{read}"
    made = module_of(f"i = qn.global_id()\nb[i]{written} = {value}", a=BODY, b=BODY)
    ir = ir_of(made, lanes)
    assert "gather" not in ir
    assert ("scatter" in ir) == bool(written)


def test_elements_anywhere_are_moved_whole_and_a_part_of_them_alone(lanes: CpuCompiler) -> None:
    whole = ir_of(module_of("i = qn.global_id()\nv = a[at[i]]\nb[at[i]] = v + v", a=V4, b=V4, at=A1), lanes)
    assert "scatter" not in whole
    assert re.search(r"= load <4 x i32>", whole)
    assert re.search(r"store <4 x i32>", whole)
    part = ir_of(module_of("i = qn.global_id()\nb[at[i]].y = a[at[i]].z", a=V4, b=V4, at=A1), lanes)
    assert "scatter" in part


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("of", [V2, V4, BODY, OUTER], ids=["vec2", "vec4", "body", "padded"])
def test_elements_anywhere_are_those_that_are_meant(way: CpuCompiler, of: ArrayType, size: int) -> None:
    body = (
        "i = qn.global_id()\nif at[i] % 3 != 1:\n    v = a[at[i]]\n    b[at[at[i]]] = v\nelse:\n    b[at[at[i]]] = a[i]"
    )
    at = np.random.default_rng(size).permutation(size)
    itemsize = of.element.itemsize
    a, b = np.zeros(size * itemsize, np.uint8), np.full(size * itemsize, 77, np.uint8)
    a[:] = np.random.default_rng(1).integers(0, 60, len(a))
    far = at.copy()
    built(way, body, a=of, b=of, at=A1).over(size, *(x.view(f"V{itemsize}") for x in (a, b)), far)
    mine, given = (x.view(numpy_of(of) if of in (OUTER, BODY) else f"V{itemsize}") for x in (b, a))
    sources = np.where(at % 3 != 1, at, np.arange(size))
    for name in mine.dtype.names or [...]:
        assert np.array_equal(mine[name][at[at]], given[name][sources])


def swapped_fields(value: str) -> str:
    """A `Wide` of another's fields, each where the next one of its type was."""
    step = len(KINDS)
    return f"Wide({', '.join(f'{value}.f{(number + step) % MANY}' for number in range(MANY))})"


WIDE_BODY = f"""\
i = qn.global_id()
mine = s[at[i]]
if turn[i] > 0:
    mine = s[i]
    if turn[i] > 1:
        mine = {swapped_fields("mine")}
        part[at[i]].f69 = mine.f6
        part[at[i]].f3 = mine.f3
if turn[i] < 3:
    out[at[i]] = mine
"""


@pytest.mark.parametrize("size", SIZES)
def test_structs_of_many_fields_are_those_that_are_meant(way: CpuCompiler, size: int) -> None:
    random, dtype = np.random.default_rng(size), numpy_of(WIDE)
    at, turn = random.permutation(size), random.integers(0, 4, size)
    s, out, part = np.zeros(size, dtype), poisoned(WIDE, size), poisoned(WIDE, size)
    swapped = np.zeros(size, dtype)
    for number in range(MANY):
        s[f"f{number}"] = random.integers(0, 2 if KINDS[number % len(KINDS)] is qn.bool else 100, size)
    for number in range(MANY):
        swapped[f"f{number}"] = s[f"f{(number + len(KINDS)) % MANY}"]
    expected, expected_part = poisoned(WIDE, size), poisoned(WIDE, size)
    for i in range(size):
        value = (s[at[i]], s[i], swapped[i], swapped[i])[turn[i]]
        if turn[i] > 1:
            expected_part["f69"][at[i]], expected_part["f3"][at[i]] = value["f6"], value["f3"]
        if turn[i] < 3:
            for name in dtype.names or ():  # What lies between them stays.
                expected[name][at[i]] = value[name]
    types = {"s": WIDE, "at": A1, "turn": A1, "out": WIDE, "part": WIDE}
    built(way, WIDE_BODY, **types).over(size, s, at, turn, out, part)
    assert out.tobytes() == expected.tobytes()
    assert part.tobytes() == expected_part.tobytes()


def test_fields_are_read_where_they_stand_and_as_they_are_then(way: CpuCompiler) -> None:
    """An index changes, and fields are written, among reads of several fields of one element."""
    lines = []
    for number in range(0, MANY, 7):
        lines += [f"total += s[j].f{number} + s[j].f{number + 3}", "j = at[j]"]
        lines += [f"total += s[j].f{number} + s[j].f{number + 3}"]
        lines += [f"before = own[i].f{number + 3} + own[i].f{number}", f"own[i].f{number + 3} = number[i] + {number}"]
        lines += [f"total += before + 2.0 * own[i].f{number + 3}"]
    body = "i = qn.global_id()\nj = at[i]\ntotal = 0.0\nif i % 3 != 1:\n"
    body += "".join(f"    {line}\n" for line in lines) + "out[i] = total"
    size = 50
    random = np.random.default_rng(1)
    at, numbers, out = random.permutation(size), random.integers(0, 9, size), np.zeros(size)
    s, own = np.zeros((2, size), numpy_of(WIDE))
    for number in range(0, MANY, 7):
        for array in (s, own):
            array[f"f{number}"], array[f"f{number + 3}"] = random.integers(0, 100, (2, size))
    expected = np.zeros(size)
    for i in (i for i in range(size) if i % 3 != 1):
        j = at[i]
        for number in range(0, MANY, 7):
            near, far = f"f{number}", f"f{number + 3}"
            for element in (s[j], s[at[j]], own[i]):
                expected[i] += float(element[near]) + float(element[far])
            expected[i] += 2.0 * float(numbers[i] + number)
            j = at[j]
    kept = own.copy()
    types = {"s": WIDE, "own": WIDE, "at": A1, "number": A1, "out": ArrayType(qn.f64, 1)}
    built(way, body, **types).over(size, s, own, at, numbers, out)
    assert out.tolist() == expected.tolist()
    on = np.arange(size) % 3 != 1
    for number in range(0, MANY, 7):
        kept[f"f{number + 3}"][on] = (numbers + number)[on]
    assert own.tolist() == kept.tolist()


def test_code_of_many_fields_is_short(lanes: CpuCompiler) -> None:
    """As a gather and a scatter for each field it took LLVM ten seconds or more, as there are blocks for each lane."""
    low = lowered(module_of(WIDE_BODY, s=WIDE, at=A1, turn=A1, out=WIDE, part=WIDE), CONTIGUOUS, lanes)
    assert low.is_vector_code
    assert len(low.object_code) < 120_000


@pytest.mark.parametrize("size", [5, 40])
def test_lanes_that_are_off_touch_no_element_anywhere(way: CpuCompiler, size: int) -> None:
    body = "i = qn.global_id()\nif at[i] >= 0:\n    v = a[at[i]]\n    b[at[i]] = v + v\n    b[at[i]].y = 1.0"
    at = np.random.default_rng(size).permutation(size)
    at[::3] = -(1 << 50)
    a, b = np.arange(4.0 * size, dtype=np.float32).reshape(size, 4), np.zeros((size, 4), np.float32)
    built(way, body, a=V4, b=V4, at=A1).over(size, vectors(a), vectors(b), at)
    wanted = np.zeros_like(b)
    wanted[at[at >= 0]] = 2 * a[at[at >= 0]]
    wanted[at[at >= 0], 1] = 1
    assert np.array_equal(b, wanted)


def test_what_all_lanes_read_is_loaded_once_for_all(lanes: CpuCompiler) -> None:
    body = (
        "i = qn.global_id()\ntotal = qn.vec(qn.f32, 4)(0.0)\nfor j in range(len(a)):\n    total += a[j]\nout[i] = total"
    )
    ir = ir_of(module_of(body, a=V4, out=V4), lanes)
    assert len(re.findall(r"= load float, ptr", ir)) >= 4
    assert not re.search(r"= load <\d+ x i32>", ir)


def test_private_and_shared_arrays_lie_part_by_part(lanes: CpuCompiler) -> None:
    body = """
i = qn.global_id()
t = qn.local_id()
own = qn.private(3, Body)
all = qn.shared(64, Body)
for j in range(3):
    own[j] = a[i]
all[t] = own[1]
qn.barrier()
a[i] = all[63 - t]
"""
    ir = ir_of(module_of(body, LaunchForm.GRID, (64,), a=BODY), lanes)
    assert "gather" not in ir
    assert "scatter" not in ir


# --- what they leave alone --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("of", [V2, V4, OUTER, BODY], ids=["vec2", "vec4", "padded", "body"])
def test_lanes_beyond_the_end_touch_nothing_behind_the_array(way: CpuCompiler, of: ArrayType, size: int) -> None:
    body = "i = qn.global_id()\nif i % 3 != 1:\n    b[i] = a[i]\nelse:\n    b[i] = a[len(a) - 1 - i]"
    itemsize = of.element.itemsize
    a, b = (before_a_guard(size * itemsize, np.uint8) for _ in range(2))
    a[:] = np.random.default_rng(size).integers(0, 60, len(a))
    built(way, body, a=of, b=of).over(size, *(x.view(f"V{itemsize}") for x in (a, b)))
    sources = [size - 1 - i if i % 3 == 1 else i for i in range(size)]
    mine, wanted = (x.view(numpy_of(of) if of in (OUTER, BODY) else f"V{itemsize}") for x in (b, a))
    for name in mine.dtype.names or [...]:
        assert np.array_equal(mine[name], wanted[name][sources])


@pytest.mark.parametrize("variant", [CONTIGUOUS, STRIDED], ids=["contiguous", "strided"])
@pytest.mark.parametrize("size", SIZES)
def test_gaps_of_structs_keep_their_bytes(way: CpuCompiler, size: int, variant: Any) -> None:
    body = """
i = qn.global_id()
if i % 5 != 2:
    s = a[i]
    b[i] = Outer(s.first + 1, Inner(s.inner.flag, -s.inner.value), s.at + s.at, s.last)
"""
    a, b = np.zeros(size, numpy_of(OUTER)), poisoned(OUTER, size)
    a["first"], a["last"] = np.arange(size), 255 - np.arange(size)
    a["inner"]["flag"], a["inner"]["value"] = np.arange(size) % 7, np.arange(size) * 0.5
    a["at"] = np.arange(2 * size).reshape(size, 2)
    wanted = poisoned(OUTER, size)
    on = np.arange(size) % 5 != 2
    wanted["first"][on], wanted["last"][on] = a["first"][on] + 1, a["last"][on]
    wanted["inner"]["flag"][on], wanted["inner"]["value"][on] = a["inner"]["flag"][on], -a["inner"]["value"][on]
    wanted["at"][on] = 2 * a["at"][on]
    built(way, body, variant, a=OUTER, b=OUTER).over(size, a, b)
    assert b.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("size", SIZES)
def test_fields_that_are_written_alone_leave_the_others(way: CpuCompiler, size: int) -> None:
    body = "i = qn.global_id()\na[i].y = 2.5\na[i].mass = a[i].x\na[i].x = -1.0\nv[i].y = 7.0\nv[i].z = v[i].w"
    a, v = np.zeros(size, numpy_of(BODY)), np.arange(4.0 * size, dtype=np.float32).reshape(size, 4)
    for number, name in enumerate(a.dtype.names or ()):
        a[name] = np.arange(size) + 100 * number
    wanted, wanted_v = a.copy(), v.copy()
    wanted["y"], wanted["mass"], wanted["x"] = 2.5, a["x"], -1
    wanted_v[:, 1], wanted_v[:, 2] = 7, v[:, 3]
    built(way, body, a=BODY, v=V4).over(size, a, vectors(v))
    assert np.array_equal(a, wanted)
    assert np.array_equal(v, wanted_v)


# --- divergence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_lanes_that_part_each_keep_their_own_struct(way: CpuCompiler, size: int) -> None:
    body = """
i = qn.global_id()
s = Body(0.0, 0.0, 0.0, 1.0, -1)
for j in range(i % 7):
    if j == 3 and i % 2 == 0:
        break
    if (i + j) % 3 == 0:
        s = Body(s.y, s.x + 1.0, s.z, s.mass * 2.0, j)
    elif j % 2 == 1:
        s = a[(i + j) % len(a)]
        continue
    s = Body(s.z, s.y, s.x, s.mass, s.id + 1)
out[i] = s
"""
    a = np.zeros(size, numpy_of(BODY))
    for number, name in enumerate(a.dtype.names or ()):
        a[name] = np.arange(size) * (number + 1)
    out = np.zeros_like(a)
    built(way, body, a=BODY, out=BODY).over(size, a, out)
    for i in range(size):
        x, y, z, mass, own = 0.0, 0.0, 0.0, 1.0, -1
        for j in range(i % 7):
            if j == 3 and i % 2 == 0:
                break
            if (i + j) % 3 == 0:
                x, y, mass, own = y, x + 1, mass * 2, j
            elif j % 2 == 1:
                x, y, z, mass, own = a[(i + j) % size].item()
                continue
            x, z, own = z, x, own + 1
        assert out[i].item() == (x, y, z, mass, own)


def test_a_struct_outlives_barriers(way: CpuCompiler) -> None:
    body = """
t = qn.local_id()
i = qn.global_id()
all = qn.shared(48, Outer)
mine = a[i]
all[t] = mine
qn.barrier()
if i % 2 == 0:
    mine = all[47 - t]
qn.barrier()
all[t].last = 9
qn.barrier()
a[i] = Outer(mine.first, all[(t + 1) % 48].inner, mine.at, all[t].last)
"""
    a = np.zeros(96, numpy_of(OUTER))
    a["first"], a["inner"]["value"], a["at"] = np.arange(96), np.arange(96) * 2, np.arange(192).reshape(96, 2)
    given = a.copy().reshape(2, 48)
    Built(module_of(body, LaunchForm.GRID, (48,), a=OUTER), CONTIGUOUS, way).grid(2, a)
    found = a.reshape(2, 48)
    even = np.arange(48) % 2 == 0
    assert np.array_equal(found["first"], np.where(even, given["first"][:, ::-1], given["first"]))
    assert np.array_equal(found["at"], np.where(even[:, None], given["at"][:, ::-1], given["at"]))
    assert np.array_equal(found["inner"]["value"], np.roll(given["inner"]["value"], -1, axis=1))
    assert (found["last"] == 9).all()


@pytest.mark.parametrize("extent", [(1, 1), (7, 5), (9, 33), (20, 70)])
def test_rows_of_threads_have_their_own_vectors(way: CpuCompiler, extent: tuple[int, int]) -> None:
    body = """
row, column = qn.global_id()
total = a[row, column]
for k in range(3):
    total = total + a[(row + k) % a.shape[0], column] * b[row].x
    if (row + column) % 3 == k:
        total = qn.vec(qn.f32, 2)(total.y, b[column % len(b)].x)
out[row, column] = total
"""
    types = {"a": ArrayType(qn.vec(qn.f32, 2), 2), "b": V2}
    a = np.random.default_rng(1).integers(0, 9, (*extent, 2)).astype(np.float32)
    b = np.random.default_rng(2).integers(0, 3, (extent[0], 2)).astype(np.float32)
    out, expected = np.zeros_like(a), np.zeros_like(a)
    for using, results in ((compiler_of("scalar"), expected), (way, out)):
        kernel = built(using, body, block=(8, 32), **types, out=types["a"])
        kernel.over(extent, vectors(a), vectors(b), vectors(results))
    assert np.array_equal(out, expected)
    assert out.any()


# --- checks and atomics -----------------------------------------------------------------------------------------------


def test_fields_are_updated_atomically_by_lanes_that_are_on(way: CpuCompiler) -> None:
    text = """\
struct S(tag: i16 at 0, count: i64 at 8, weight: f32 at 16) size 24 align 8

kernel k(s: array<struct<S>, 1>, seen: array<i64, 1>) over (64):
    local old: i64
    if global_id(0) % 3 != 0:
        old = atomic.add(s[global_id(0) % 4].count, 1)
        seen[global_id(0)] = old
        atomic.max(s[global_id(0) % 4].weight, f32(global_id(0)))
"""
    s = np.zeros(4, np.dtype([("tag", np.int16), ("count", np.int64), ("weight", np.float32)], align=True))
    s["tag"] = [1, 2, 3, 4]
    seen = np.full(100, -1, np.int64)
    Built(module(text), CONTIGUOUS, way).over(100, s, seen)
    on = [i for i in range(100) if i % 3]
    assert s["count"].tolist() == [sum(1 for i in on if i % 4 == k) for k in range(4)]
    assert s["weight"].tolist() == [max(i for i in on if i % 4 == k) for k in range(4)]
    assert s["tag"].tolist() == [1, 2, 3, 4]
    for k in range(4):
        assert sorted(seen[[i for i in on if i % 4 == k]].tolist()) == list(range(s["count"][k]))


# --- large private arrays ---------------------------------------------------------------------------------------------

BIG = """
i = qn.global_id()
own = qn.private(10000, qn.i32)
for k in range(10000):
    own[k] = k * 3 + qn.i32(i)
own[(i * 977) % 10000] = -5
total = qn.i64(0)
for k in range(0, 10000, 7):
    total += own[k]
out[i] = total + own[(i * 31 + 9999) % 10000]
"""


def big_result(i: int) -> int:
    own = np.arange(10000) * 3 + i
    own[(i * 977) % 10000] = -5
    return int(own[::7].sum() + own[(i * 31 + 9999) % 10000])


def test_large_private_arrays_belong_to_their_lane(way: CpuCompiler) -> None:
    out = np.zeros(53, np.int64)
    Built(module_of(BIG, out=A1), CONTIGUOUS, way).over(53, out)
    assert out.tolist() == [big_result(i) for i in range(53)]


def test_large_private_arrays_lie_off_the_stack(lanes: CpuCompiler) -> None:
    low = lowered(module_of(BIG, out=A1), CONTIGUOUS, lanes)
    assert low.is_vector_code
    assert max((int(count) for count in re.findall(r"alloca \[(\d+) x", low.ir)), default=0) < 4096
    width = max(map(int, re.findall(r"<(\d+) x i32>", low.ir)))
    needed = next(int(flag.removeprefix("scratch=")) for flag in low.header.features if flag.startswith("scratch="))
    assert needed >= 10000 * 4 * 4
    assert needed <= 10000 * 4 * width
    filled = low.ir[: low.ir.index("trip.end")]  # Elements of one number lie side by side.
    assert "call void @llvm.masked.scatter" not in filled
    assert re.search(r"call void @llvm.masked.store|store <\d+ x i32>", filled)


def test_small_private_arrays_lie_on_the_stack(lanes: CpuCompiler) -> None:
    body = BIG.replace("10000", "8")
    low = lowered(module_of(body, out=A1), CONTIGUOUS, lanes)
    assert not [flag for flag in low.header.features if flag.startswith("scratch=")]


def test_large_private_arrays_of_structs_outlive_barriers(way: CpuCompiler) -> None:
    body = """
t = qn.local_id()
own = qn.private(700, Body)
other = qn.private(900, qn.vec(qn.f64, 2))
tile = qn.shared(32, qn.f32)
for k in range(700):
    own[k] = Body(qn.f32(k), qn.f32(t), 0.0, 1.0, k)
for k in range(900):
    other[k] = qn.vec(qn.f64, 2)(k, t)
tile[t] = own[t * 3 % 700].x + qn.f32(other[(t * 29) % 900].x)
qn.barrier()
own[5].y = tile[31 - t]
qn.barrier()
out[qn.global_id()] = own[5].y + own[(t * 11) % 700].x
"""
    out = np.zeros(64, np.float32)
    Built(module_of(body, LaunchForm.GRID, (32,), out=F1), CONTIGUOUS, way).grid(2, out)
    t = np.arange(32)
    tile = t * 3 + t * 29 % 900
    assert np.array_equal(out.reshape(2, 32), np.broadcast_to(tile[::-1] + t * 11 % 700, (2, 32)).astype(np.float32))


# --- size -------------------------------------------------------------------------------------------------------------


def test_code_grows_as_the_kernel_does(lanes: CpuCompiler) -> None:
    def size(count: int) -> int:
        lines = "\n".join(f"v = qn.vec(qn.f32, 4)(v.y, v.z, v.w, v.x) * a[i] + {n}.0\na[i] = v" for n in range(count))
        return len(ir_of(module_of(f"i = qn.global_id()\nv = a[i]\n{lines}", a=V4), lanes))

    assert size(16) - size(8) < 1.2 * (size(8) - size(0))
