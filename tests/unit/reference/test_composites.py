"""Vectors and structs in the interpreter: as values, in every kind of memory, whole and part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.reference.builders import Interpreter

from quernel.errors import OutOfBoundsError
from quernel.ir.parser import parse_module

PAIR = np.dtype({"names": ["a", "v"], "formats": ["<f4", ("<f4", (2,))], "offsets": [0, 8], "itemsize": 16})
DECLARED = "struct Pair(a: f32 at 0, v: vec<f32, 2> at 8) size 16 align 8\n\n"
NESTED = "struct Outer(flag: bool at 1, p: struct<Pair> at 8, h: bf16 at 24) size 32 align 8\n\n"


def run(interpreter: Interpreter, text: str, extent: Any, *arguments: Any) -> None:
    interpreter.run(parse_module(text), extent, *arguments)


def pairs(n: int = 4) -> np.ndarray[Any, Any]:
    data = np.frombuffer(bytearray(b"\xee" * 16 * n), PAIR)
    data["a"] = np.arange(n)
    data["v"] = np.arange(2 * n).reshape(n, 2) + 100
    return data


def test_elements_are_loaded_and_stored_whole(interpreter: Interpreter) -> None:
    text = DECLARED + (
        "kernel k(p: array<struct<Pair>, 1>) over (4):\n    local w: struct<Pair>\n"
        "    w = p[3 - global_id(0)]\n    p[global_id(0)] = w\n"
    )
    data = pairs()
    run(interpreter, text, 2, data)
    assert data["a"].tolist() == [3, 2, 2, 3]
    assert data["v"].tolist() == [[106, 107], [104, 105], [104, 105], [106, 107]]


def test_storing_an_element_leaves_its_gaps_alone(interpreter: Interpreter) -> None:
    text = DECLARED + (
        "kernel k(p: array<struct<Pair>, 1>) over (4):\n    p[0] = struct<Pair>(1.0f32, vec<f32, 2>(2.0f32, 3.0f32))\n"
    )
    data = pairs(1)
    run(interpreter, text, 1, data)
    assert data.tobytes()[4:8] == b"\xee" * 4
    assert (data["a"].tolist(), data["v"].tolist()) == ([1], [[2, 3]])


def test_parts_are_written_and_nothing_beside_them(interpreter: Interpreter) -> None:
    text = DECLARED + (
        "kernel k(p: array<struct<Pair>, 1>) over (4):\n"
        "    p[global_id(0)].v.1 = p[global_id(0)].v.0 + p[global_id(0)].a\n"
    )
    data = pairs()
    run(interpreter, text, 4, data[::-1])
    assert data["a"].tolist() == [0, 1, 2, 3]
    assert data["v"].tolist() == [[100, 100], [102, 103], [104, 106], [106, 109]]


def test_structs_within_structs_are_read_to_the_last_byte(interpreter: Interpreter) -> None:
    text = (
        DECLARED
        + NESTED
        + (
            "kernel k(o: array<struct<Outer>, 1>, out: array<f64, 1>) over (4):\n    local w: struct<Outer>\n"
            "    w = o[0]\n    out[0] = f64((w.p.v).1)\n    out[1] = f64(w.h)\n    out[2] = select(w.flag, 1.0, 0.0)\n"
            "    o[0].p.v.0 = 5.0f32\n    o[0].flag = false\n"
        )
    )
    outer = np.dtype(
        {"names": ["flag", "p", "h"], "formats": ["?", PAIR, "<u2"], "offsets": [1, 8, 24], "itemsize": 32}
    )
    data, out = np.zeros(1, outer), np.zeros(3)
    data["flag"], data["h"] = True, 0x4040
    data["p"]["v"] = [[7, 9]]
    run(interpreter, text, 1, data, out)
    assert out.tolist() == [9, 3, 1]
    assert (data["p"]["v"].tolist(), data["flag"].tolist(), data["h"].tolist()) == ([[5, 9]], [False], [0x4040])


def test_vectors_live_in_shared_and_private_memory(interpreter: Interpreter) -> None:
    text = (
        "kernel k(x: array<vec<i32, 4>, 1>) grid (4):\n    local v: vec<i32, 4>\n"
        "    shared tile: vec<i32, 4>[4]\n    private own: vec<i32, 4>[2]\n"
        "    own[1] = x[local_id(0)]\n    v = own[1]\n"
        "    tile[local_id(0)] = vec<i32, 4>(v.3, v.2, v.1, v.0)\n    barrier\n"
        "    tile[3 - local_id(0)].2 = 77i32\n    barrier\n    x[local_id(0)] = tile[3 - local_id(0)]\n"
    )
    data = np.arange(16, dtype=np.int32).reshape(4, 4)
    expected = data[::-1, ::-1].copy()
    expected[:, 2] = 77
    out = data.view("V16").reshape(4)
    run(interpreter, text, 1, out)
    assert data.tolist() == expected.tolist()


def test_atomics_change_one_field(interpreter: Interpreter) -> None:
    text = "struct C(n: i64 at 0, m: f32 at 8) size 16 align 8\n\n" + (
        "kernel k(c: array<struct<C>, 1>, out: array<f32, 1>) over (4):\n    local old: f32\n"
        "    atomic.add(c[0].n, 2)\n    old = atomic.max(c[0].m, f32(global_id(0)))\n    out[global_id(0)] = old\n"
    )
    data = np.zeros(1, np.dtype({"names": ["n", "m"], "formats": ["<i8", "<f4"], "itemsize": 16}))
    out = np.zeros(5, np.float32)
    run(interpreter, text, 5, data, out)
    assert data.tolist() == [(10, 4.0)]
    assert out.tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("index", [-1, 4])
@pytest.mark.parametrize("access", ["p[INDEX].v.1 = 1.0f32", "p[INDEX] = p[0]", "atomic.add(p[INDEX].a, 1.0f32)"])
def test_parts_outside_raise(interpreter: Interpreter, access: str, index: int) -> None:
    access = access.replace("INDEX", f"global_id(0) + {index}")
    text = DECLARED + f"kernel k(p: array<struct<Pair>, 1>) over (4):\n    {access}\n"
    with pytest.raises(OutOfBoundsError, match=rf"index {index} is outside p, whose shape is \(4,\) \(in thread 0\)"):
        run(interpreter, text, 1, pairs())


def test_structs_and_vectors_pass_through_functions_and_branches(interpreter: Interpreter) -> None:
    text = DECLARED + (
        "kernel k(p: array<struct<Pair>, 1>) over (4):\n    local w: struct<Pair>\n    local v: vec<f32, 2>\n"
        "    w, v = call f(p[0], vec<f32, 2>(1.0f32, 2.0f32))\n    p[0] = w\n    p[1].v = v\n\n"
        "func f(q: struct<Pair>, u: vec<f32, 2>) -> (struct<Pair>, vec<f32, 2>):\n"
        "    return struct<Pair>(u.1, select(q.a < 1.0f32, u, q.v)), q.v\n"
    )
    data = pairs(2)
    run(interpreter, text, 1, data)
    assert data["a"].tolist() == [2, 1]
    assert data["v"].tolist() == [[1, 2], [100, 101]]
