from __future__ import annotations

import textwrap

from quernel.ir.analysis import ArrayUse, assigned_names, function_uses, parameter_uses, read_names
from quernel.ir.nodes import IndexKind, Module
from quernel.ir.parser import parse_module
from quernel.ir.verifier import verify

HEAD = """\
kernel k(x: array<f32, 2>, y: array<f32, 2>, n: i64, a: f32, z: array<f32, 2>) grid (2, 4):
    local i, j: i64
    local s: f32
"""
FUNCTIONS = """
func outer(p: array<f32, 2>, q: array<f32, 2>) -> (f32):
    local r: f32
    r = call inner(&q, 0)
    return p[0, block_id(1)] + r

func inner(t: array<f32, 2>, i: i64) -> (f32):
    t[i, 0] = f32(t.shape[1])
    barrier
    return 1.0f32
"""


def module(body: str) -> Module:
    return verify(parse_module(HEAD + textwrap.indent(body, "    ") + FUNCTIONS))


def test_array_use_tells_reads_writes_and_updates_apart() -> None:
    uses = parameter_uses(module("x[0, n] = y[n, 0]\natomic.add(z[n, n], a)\n"))
    assert uses.arrays == (
        ArrayUse("x", is_written=True, stride_axes=(1,)),
        ArrayUse("y", is_read=True, stride_axes=(0,)),
        ArrayUse("z", is_read=True, is_written=True, has_atomics=True, stride_axes=(0, 1)),
    )
    assert uses.written == ("x", "z")
    assert uses.read == ("y", "z")
    assert uses.scalars == ("n", "a")


def test_array_use_asks_for_the_axes_whose_length_is_read() -> None:
    uses = parameter_uses(module("i = x.shape[1] + x.shape[0] + z.shape[1]\n"))
    assert [(array.name, array.shape_axes, array.is_used, array.is_accessed) for array in uses.arrays] == [
        ("x", (0, 1), True, False),
        ("y", (), False, False),
        ("z", (1,), True, False),
    ]


def test_uses_go_through_device_functions() -> None:
    uses = parameter_uses(module("s = call outer(&z, &x)\n"))
    assert uses.array("x") == ArrayUse("x", is_written=True, shape_axes=(1,), stride_axes=(0,))
    assert uses.array("y") == ArrayUse("y")
    assert uses.array("z") == ArrayUse("z", is_read=True, stride_axes=(1,))
    assert uses.indices == ((IndexKind.BLOCK_ID, 1),)
    assert uses.has_barrier


def test_function_uses_name_the_functions_own_parameters() -> None:
    uses = function_uses(module("pass\n"))
    assert list(uses) == ["outer", "inner"]
    assert uses["outer"].written == ("q",)
    assert uses["inner"].array("t").shape_axes == (1,)
    assert uses["inner"].scalars == ("i",)


def test_indices_are_ordered_by_kind_and_axis() -> None:
    uses = parameter_uses(module("i = grid_dim(1) + local_id(1) + local_id(0) + global_id(0)\n"))
    assert uses.indices == (
        (IndexKind.GLOBAL_ID, 0),
        (IndexKind.LOCAL_ID, 0),
        (IndexKind.LOCAL_ID, 1),
        (IndexKind.GRID_DIM, 1),
    )
    assert uses.index_kinds == (IndexKind.GLOBAL_ID, IndexKind.LOCAL_ID, IndexKind.GRID_DIM)
    assert not uses.has_barrier
    assert not uses.has_subgroup


def test_unused_parameters_are_not_said_to_be_used() -> None:
    uses = parameter_uses(module("i = 1\n"))
    assert uses.scalars == ()
    assert not any(array.is_used for array in uses.arrays)


def test_an_index_reads_the_array_in_it() -> None:
    uses = parameter_uses(module("x[i64(y[0, 0]), 0] = 1.0f32\n"))
    assert uses.read == ("y",)
    assert uses.array("y").stride_axes == ()


def test_assigned_and_read_names_come_in_source_order() -> None:
    body = module(
        "for j in range(0, n, 1):\n    s = call outer(&x, &y)\ni = j\ns = atomic.add(x[i, 0], s)\n"
    ).kernel.body
    assert assigned_names(body) == ("j", "s", "i")
    assert read_names(body) == ("j", "i", "s")
