"""Tuples, vectors and structs, from Python through the interpreter."""

from __future__ import annotations

import re

import attrs
import numpy as np
import pytest
from tests.unit.lang.kernels import array, kernel_of, launch, lowered, over, refusal

import quernel as qn
from quernel.dtypes import ArrayType, ScalarType, StructType, VectorType, f32, f64, i32
from quernel.errors import KernelTypeError
from quernel.geometry import LaunchForm
from quernel.identity import capture
from quernel.ir import nodes
from quernel.ir.walk import walk_statements
from quernel.lang import expand
from quernel.structs import numpy_of, struct_of, value_type_of, vec


@attrs.frozen
class Point:
    x: qn.f32
    y: qn.f32


@attrs.frozen
class Particle:
    position: Point
    mass: qn.f64
    tag: qn.i32


@attrs.frozen
class Params:
    data: qn.Array[qn.f32]
    scale: float
    n: int


PARTICLE = np.dtype([("position", np.dtype([("x", "f4"), ("y", "f4")])), ("mass", "f8"), ("tag", "i4")], align=True)


# --- tuples -----------------------------------------------------------------------------------------------------------

TUPLES = {
    "unpacking": ("a, b = t", "a * 10 + b", 12),
    "nested": ("u = (t, 5)\n    (a, b), c = u", "a * 100 + b * 10 + c", 125),
    "index": ("", "t[0] * 10 + t[-1]", 12),
    "length": ("", "len(t) + len((t, t, t))", 5),
    "swap": ("t = (t[1], t[0])", "t[0] * 10 + t[1]", 21),
    "swap in a loop": ("for k in range(3):\n        t = t[1], t[0]", "t[0] * 10 + t[1]", 21),
    "equal": ("", "t == (1, 2)", 1),
    "unequal item": ("", "t != (1, 3)", 1),
    "unequal length": ("", "t == (1, 2, 3)", 0),
    "nested equality": ("", "(t, 4) == ((1, 2), 4)", 1),
    "sum": ("", "len(t + (3,)) + (t + (3,))[2]", 6),
    "chosen": ("", "(t if x[0] > 5 else (7, 8))[1]", 8),
    "assigned under a condition": ("if x[0] < 5:\n        t = (3, 4)", "t[0] * 10 + t[1]", 34),
    "of a function": ("t = swapped(t)", "t[0] * 10 + t[1]", 21),
    "of one item": ("u = (t,)", "u[0][1]", 2),
    "two targets": ("u = v = t", "u[0] + v[1]", 3),
    "of an array": ("u = (x, 3)", "u[0][1] + u[1]", 14),
}


@pytest.mark.parametrize(("before", "result", "expected"), TUPLES.values(), ids=TUPLES)
def test_tuple_does_what_pythons_does(before: str, result: str, expected: float) -> None:
    kernel = kernel_of(
        f"""
@qn.func
def swapped(t):
    return t[1], t[0]

def kernel(x, out):
    t = (1, 2)
    {before}
    out[0] = {result}
"""
    )
    x, out = np.array([1, 11], np.float32), np.zeros(1, np.int64)
    if "x" in result + before:
        out = np.zeros(1, np.float32)

    over(kernel, 1, x, out)

    assert out[0] == expected


def test_items_of_a_tuple_keep_their_own_types() -> None:
    expanded = lowered(kernel_of("def kernel(x):\n    t = (0, 0.0)\n    t = (t[0], x[0])\n    x[0] = t[1]\n"))

    assert (expanded.type_of("t.0"), expanded.type_of("t.1")) == ("i64", "f32")


def test_captured_tuple_of_constants_has_its_items() -> None:
    kernel = kernel_of(
        "def kernel(x):\n    tile = qn.private(SHAPE, x.dtype)\n    tile[1, 2] = SHAPE[1]\n    x[0] = tile[1, 2]\n",
        SHAPE=(2, 3),
    )
    x = np.zeros(1, np.float32)

    over(kernel, 1, x)

    assert x[0] == 3


# --- vectors ----------------------------------------------------------------------------------------------------------

VECTORS = {
    "components": ("", "v.x + v.y * 10 + v.z * 100 + v.w * 1000", 4321),
    "constant index": ("", "v[0] + v[-1]", 5),
    "length": ("", "len(v)", 4),
    "of one value": ("v = float4(2)", "v.x + v.w", 4),
    "made in place": ("v = qn.vec(qn.f32, 4)(5, 6, 7, 8)", "v.z", 7),
    "vector with vector": ("v = v * v - v", "v.w", 12),
    "vector with number": ("v = 2 * v + 0.5", "v.y", 4.5),
    "negated": ("v = -v", "v.x", -1),
    "augmented": ("v += v\n    v *= 3", "v.x", 6),
    "divided integers": ("u = qn.vec(qn.i32, 2)(7, 8) / 2", "u.x", 3.5),
    "cast": ("u = qn.vec(qn.i32, 2)(qn.vec(qn.f64, 2)(2.9, -2.9))", "u.x * 10 + u.y", 18),
    "unpacked": ("a, b, c, d = v", "c", 3),
    "private memory": (
        "m = qn.private(3, float4)\n    m[1] = v\n    m[1].y = 9\n    m[1].z += 1\n    v = m[1]",
        "v.y * 10 + v.z",
        94,
    ),
    "component of memory": ("m = qn.private(3, float4)\n    m[1] = v", "m[1].w + m[1][0]", 5),
    "chosen": ("v = v if x[0] > 5 else float4(0)", "v.x", 0),
    "of a function": ("v = doubled(v)", "v.w", 8),
    "in a tuple": ("t = (v, 3)", "t[0].y + t[1]", 5),
    "type of a vector": ("u = v.dtype(3)", "u.z", 3),
}


@pytest.mark.parametrize(("before", "result", "expected"), VECTORS.values(), ids=VECTORS)
def test_vector_computes_by_components(before: str, result: str, expected: float) -> None:
    kernel = kernel_of(
        f"""
float4 = qn.vec(qn.f32, 4)

@qn.func
def doubled(v: float4):
    return v * 2

def kernel(x, out):
    v = float4(1, 2, 3, 4)
    {before}
    out[0] = {result}
"""
    )
    out = np.zeros(1, np.float64)

    over(kernel, 1, np.zeros(1, np.float32), out)

    assert out[0] == expected


def test_vector_in_memory_is_read_and_written_at_once() -> None:
    float4 = VectorType(f32, 4)
    module = lowered(kernel_of("def kernel(a):\n    a[0] = a[1] * 2\n"), a=ArrayType(float4, 1)).module

    stores = [stmt for stmt in walk_statements(module.kernel.body) if isinstance(stmt, nodes.Store)]
    loads = [stmt for stmt in walk_statements(module.kernel.body) if isinstance(stmt, nodes.Assign)]
    assert [store.place.type for store in stores] == [float4]
    assert [load.value.type for load in loads] == [float4]


def test_component_in_memory_is_read_and_written_alone() -> None:
    module = lowered(kernel_of("def kernel(a):\n    a[0].y = a[1].w\n"), a=ArrayType(VectorType(f32, 4), 1)).module

    (store,) = module.kernel.body
    assert isinstance(store, nodes.Store)
    assert store.place.view == (1,)
    assert isinstance(store.value, nodes.Load)
    assert store.value.place.view == (3,)


# --- structs ----------------------------------------------------------------------------------------------------------


def test_struct_is_made_passed_and_kept_in_memory() -> None:
    kernel = kernel_of(
        """
@qn.func
def moved(p: Particle, dx):
    return Particle(Point(p.position.x + dx, p.position.y), p.mass, tag=p.tag + 1)

def kernel(out):
    i = qn.global_id()
    mine = qn.private(2, Particle)
    mine[0] = Particle(Point(i, 2), 3.5, 4)
    p = mine[0]
    for k in range(3):
        p = moved(p, 0.5)
    mine[1] = p
    mine[1].position.y *= 10
    q = mine[1] if i > 0 else Particle(Point(-1, -1), 0, 0)
    out[i] = q.position.x + q.position.y * 10 + q.mass * 1000 + q.tag
""",
        Particle=Particle,
        Point=Point,
    )
    out = np.zeros(3)

    over(kernel, 3, out)

    assert out.tolist() == [-11, 3709.5, 3710.5]


def test_struct_elements_of_an_array_are_read_and_written_by_field_and_whole() -> None:
    kernel = kernel_of(
        """
def kernel(ps):
    i = qn.global_id()
    ps[i].position.x += ps[i].mass
    a = ps[i]
    ps[i] = Particle(a.position, a.mass + 1, a.tag * 2)
""",
        Particle=Particle,
    )
    particles = np.zeros(4, PARTICLE)
    particles["mass"], particles["tag"] = np.arange(4), 5

    over(kernel, 4, particles)

    assert particles["position"]["x"].tolist() == [0, 1, 2, 3]
    assert particles["mass"].tolist() == [1, 2, 3, 4]
    assert particles["tag"].tolist() == [10] * 4


def test_struct_parameter_holds_arrays_and_weak_numbers() -> None:
    kernel = kernel_of(
        "def kernel(p: Params, out):\n    i = qn.global_id()\n    if i < p.n:\n"
        "        out[i] = p.data[i] * p.scale + len(p.data)\n",
        Params=Params,
    )
    out = np.zeros(4, np.float32)

    over(kernel, 4, Params(np.arange(4, dtype=np.float32), 3.0, 2), out)

    assert out.tolist() == [4, 7, 0, 0]


def test_fields_of_a_struct_parameter_are_parameters_of_their_own() -> None:
    types = {"p.data": array("float32"), "p.at.x": ScalarType(f64), "p.at.n": ScalarType(i32)}
    kernel = kernel_of("def kernel(p):\n    p.data[p.at.n] = p.at.x\n")

    module, _ = expand(kernel, name="kernel", parameter_types=types, constants={}, form=LaunchForm.OVER, block=(256,))

    assert [(parameter.name, parameter.type) for parameter in module.kernel.params] == list(types.items())


def test_class_is_laid_out_as_c_does() -> None:
    struct = struct_of(Particle)

    assert [(field.name, field.offset_bytes) for field in struct.fields] == [("position", 0), ("mass", 8), ("tag", 16)]
    assert (struct.itemsize, struct.alignment) == (24, 8)
    assert numpy_of(struct) == PARTICLE


def test_structured_dtype_keeps_its_offsets() -> None:
    packed = np.dtype([("a", "u1"), ("b", "f8"), ("v", "f4", (4,))])

    struct = value_type_of(packed)

    assert isinstance(struct, StructType)
    assert [field.offset_bytes for field in struct.fields] == [0, 1, 9]
    assert struct.fields[2].type == VectorType(f32, 4)
    assert struct.itemsize == packed.itemsize
    assert struct.alignment == 1


@pytest.mark.parametrize("length", [0, 1, 3, 8])
def test_vector_has_two_or_four_components(length: int) -> None:
    with pytest.raises(KernelTypeError, match=f"a vector of {length} components?\n"):
        vec(f32, length)


def test_launch_of_blocks_shares_vectors() -> None:
    kernel = kernel_of(
        """
float2 = qn.vec(qn.f32, 2)

def kernel(out):
    tile = qn.shared(4, float2)
    i = qn.local_id()
    tile[i] = float2(i, 10 * i)
    qn.barrier()
    out[i] = tile[3 - i].x + tile[3 - i].y
"""
    )
    out = np.zeros(4, np.float32)

    launch(kernel, 1, 4, out)

    assert out.tolist() == [33, 22, 11, 0]


def test_parts_of_a_value_do_not_change() -> None:
    error = refusal("def kernel(x):\n    v = qn.vec(qn.f32, 2)(1, 2)\n    v.x = 3\n")

    assert error.what == "`v` is a value (vec<f32, 2>), and its parts do not change"


def test_identity_of_a_kernel_holds_the_fields_of_its_structs() -> None:
    text = "def kernel(x):\n    x[0] = Pair(1, 2).a\n"
    digests = set()
    for fields in ({"a": qn.f32, "b": qn.f32}, {"a": qn.f32, "b": qn.f64}, {"a": qn.f32, "b": Point}):
        pair = attrs.make_class("Pair", {name: attrs.field(type=type_) for name, type_ in fields.items()}, frozen=True)
        digests.add(capture(kernel_of(text, Pair=pair)).digest)

    assert len(digests) == 3


def test_identity_of_a_kernel_holds_its_vector_types() -> None:
    text = "def kernel(x):\n    x[0] = V(1)[0]\n"

    assert len({capture(kernel_of(text, V=vec(dtype, n))).digest for dtype in (f32, f64) for n in (2, 4)}) == 4


STRUCTS = [
    ("Particle(1, 2)", "`Particle` has the fields position, mass, tag", "each of them one value"),
    ("Point(1, 2, x=3)", "`Point` has the fields x, y", "each of them one value"),
    ("Point(1, z=3)", "`Point` has the fields x, y", "each of them one value"),
    ("Particle(1, 2, 3)", "field `position` of `Particle` is struct<Point>, and the value is 1", "the field's type"),
    ("Point(True, (1, 2))", "field `y` of `Point` is f32, and the value is tuple of 2", "the field's type"),
    ("Particle(Point(0, 0), 1, 2.5)", "a float is stored into an array of i32", "qn.i32"),
]


@pytest.mark.parametrize(("call", "what", "fix"), STRUCTS)
def test_struct_of_other_fields_is_refused(call: str, what: str, fix: str) -> None:
    kernel = kernel_of(f"def kernel(x):\n    p = {call}\n", Particle=Particle, Point=Point)

    with pytest.raises(KernelTypeError, match=re.escape(what)) as caught:
        lowered(kernel)

    assert caught.value.what == what
    assert caught.value.where is not None
    assert (caught.value.where.line, caught.value.where.column >= 8) == (2, True)
    assert fix in (caught.value.fix or "")
