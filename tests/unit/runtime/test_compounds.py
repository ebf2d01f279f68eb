"""Structs, vectors, arrays of them and type variables as arguments: how they reach a kernel, and what is refused."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs
import numpy as np
import pytest
from tests.unit.runtime.scripted import ir_kernel

import quernel as qn
from quernel.dtypes import ArrayType, ScalarType, StructType
from quernel.errors import KernelTypeError, LaunchError
from quernel.runtime.argument_reading import read_arguments
from quernel.runtime.argument_types import argument_type
from quernel.runtime.compounds import flattened
from quernel.runtime.devices import Device
from quernel.runtime.generics import with_variables
from quernel.runtime.parameters import MISSING, Parameters, Spec, declared_type
from quernel.structs import struct_of, vec

float2, float4 = vec(qn.f32, 2), vec(qn.f32, 4)


@attrs.frozen
class Point:
    x: qn.f32  # type: ignore[valid-type]
    y: float


@attrs.frozen
class Body:
    at: Point
    velocity: float2  # type: ignore[valid-type]
    mass: qn.Array[qn.f64]
    steps: qn.Const[int]


@pytest.fixture(params=["cpu", "reference"])
def host(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def spec(annotation: Any, name: str = "p") -> Spec:
    return Spec(name, None if annotation is None else declared_type(name, annotation))


# --- taken apart ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("annotation", [Body, None])
def test_struct_is_taken_apart_in_the_order_of_its_fields(annotation: Any) -> None:
    mass = np.ones(3)
    body = Body(Point(1.0, 2.0), (3.0, 4.0), mass, 5)
    specs, values, kinds = flattened([spec(int, "n"), spec(annotation)], [7, body])
    assert [part.name for part in specs] == [
        "n",
        "p.at.x",
        "p.at.y",
        "p.velocity.0",
        "p.velocity.1",
        "p.mass",
        "p.steps",
    ]
    assert values[:5] == (7, 1.0, 2.0, 3.0, 4.0)
    assert values[5] is mass
    assert [part.is_const for part in specs] == [False] * 6 + [True]
    assert specs[1].declared == ScalarType(qn.f32)
    assert specs[2].declared == ScalarType(qn.f64, weak=True)
    assert specs[5].declared == ArrayType(qn.f64)
    assert kinds == [Body, Point]


def test_missing_struct_has_missing_parts() -> None:
    _, values, _ = flattened([spec(Body)], [MISSING])
    assert values == (MISSING,) * 6


def test_structured_scalar_is_a_struct() -> None:
    dtype = np.dtype([("x", "<f4"), ("n", "<i2"), ("v", "<f4", (2,))])
    value = np.array([(1.5, 3, (7, 8))], dtype)[0]
    for annotation in (None, dtype):
        specs, values, _ = flattened([spec(annotation)], [value])
        assert [part.name for part in specs] == ["p.x", "p.n", "p.v.0", "p.v.1"]
        assert values == (1.5, 3, 7, 8)
        assert specs[1].declared == ScalarType(qn.i16)


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Point, 3.0, "parameter 'p' is Point and got 3.0 of type float"),
        (Point, Body(Point(1, 2), (1, 2), np.ones(1), 1), "parameter 'p' is Point and got Body"),
        (float2, (1.0, 2.0, 3.0), r"parameter 'p' is vec<f32, 2> and got \(1.0, 2.0, 3.0\)"),
        (float2, np.ones(2), r"parameter 'p' is vec<f32, 2> and got array"),
        (None, attrs.make_class("Loose", ["x"])(1), "got an instance of Loose, which may change"),
    ],
)
def test_what_is_no_such_struct_is_refused(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message):
        flattened([spec(annotation)], [value])


def test_reading_tells_structs_of_two_classes_apart() -> None:
    @attrs.frozen
    class Other:
        u: qn.f32  # type: ignore[valid-type]
        v: float

    one = read_arguments([spec(None)], (Point(1.0, 2.0),), 7)
    other = read_arguments([spec(None)], (Other(1.0, 2.0),), 7)
    assert one[0] != other[0]
    assert one[1:] == other[1:]
    assert one[1] == [1.0, 2.0]


def test_struct_parts_reach_the_kernel(host: str) -> None:
    text = "kernel k(a: f32, b: f64 weak, x: array<f64, 1>) over (8):\n    x[global_id(0)] = f64(a) * b\n"
    kernel = ir_kernel(text, p=Point, x=qn.Array1[qn.f64])
    out = np.zeros(3)
    launcher = kernel.over(3, device=host)
    launcher(Point(2.0, 3.0), out)
    launcher(Point(2.0, 4.0), x=out)
    assert out.tolist() == [8.0] * 3
    bound = launcher.bind(Point(1.0, 1.0), out)
    bound()
    assert out.tolist() == [1.0] * 3
    with pytest.raises(KernelTypeError, match=r"parameter 'a' is f32 and got 1e\+300"):
        launcher(Point(1e300, 1.0), out)


# --- arrays of vectors and structs ------------------------------------------------------------------------------------

VECTORS = "kernel k(x: array<vec<f32, 4>, 1>) over (8):\n    x[global_id(0)].2 = (x[global_id(0)]).0\n"


def test_array_of_vectors_takes_scalars_along_the_last_axis(host: str) -> None:
    kernel = ir_kernel(VECTORS, x=qn.Array1[float4])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = x.copy()
    expected[::-2, 2] = expected[::-2, 0]
    kernel.over(2, device=host)(x[::-2])
    assert x.tolist() == expected.tolist()
    device = qn.device(host)
    on_device = device.array(x)
    kernel.over(3)(on_device)
    assert on_device.numpy()[:, 2].tolist() == expected[:, 0].tolist()


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.zeros((3, 2), np.float32), KernelTypeError, r"array of vec<f32, 4> and got one of f32 with shape \(3, 2\)"),
        (np.zeros((3, 4)), KernelTypeError, r"array of vec<f32, 4> and got one of f64"),
        (np.zeros(4, np.float32), KernelTypeError, r"with shape \(4,\)"),
        (np.zeros((2, 3, 4), np.float32), KernelTypeError, "array of 1 axis"),
        (np.zeros((4, 3), np.float32).T, LaunchError, "vectors of 16 bytes lie whole"),
        (np.zeros((3, 8), np.float32)[:, 1:5], LaunchError, "vectors of 16 bytes lie whole"),
        (np.zeros((3, 6), np.float32)[:, :4], LaunchError, "vectors of 16 bytes lie whole"),
        (3.0, KernelTypeError, "array of vec<f32, 4> and got 3.0"),
    ],
)
def test_array_that_holds_no_such_vectors_is_refused(array: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ir_kernel(VECTORS, x=qn.Array1[float4]).over(2, device="reference")(array)


def test_read_only_vectors_are_not_written() -> None:
    x = np.zeros((3, 4), np.float32)
    x.flags.writeable = False
    with pytest.raises(LaunchError, match="writes parameter 'x', and the array is read-only"):
        ir_kernel(VECTORS, x=qn.Array1[float4]).over(2, device="reference")(x)


PAIR = struct_of(attrs.make_class("Pair", {"a": attrs.field(type=qn.i32), "b": attrs.field(type=qn.f64)}, frozen=True))
LAYOUTS = {
    "natural": np.dtype([("a", "<i4"), ("b", "<f8")], align=True),
    "packed": np.dtype([("a", "<i4"), ("b", "<f8")]),
    "turned": np.dtype([("b", "<f8"), ("c", "<i2"), ("a", "<i4")], align=True),
}
OFFSETS = {
    "natural": "a: i32 at 0, b: f64 at 8) size 16 align 8",
    "packed": "a: i32 at 0, b: f64 at 4) size 12 align 1",
}


@pytest.mark.parametrize(
    ("layout", "offsets", "itemsize", "alignment"),
    [("natural", [0, 8], 16, 8), ("packed", [0, 4], 12, 1), ("turned", [12, 0], 16, 8)],
)
def test_fields_are_found_by_name_at_the_offsets_of_the_array(
    layout: str, offsets: list[int], itemsize: int, alignment: int
) -> None:
    given = argument_type(spec(qn.Array[PAIR]), np.zeros((2, 3), LAYOUTS[layout]))
    assert isinstance(given, ArrayType)
    assert given.ndim == 2
    element = given.element
    assert isinstance(element, StructType)
    assert (element.name, [field.name for field in element.fields]) == ("Pair", ["a", "b"])
    assert [field.offset_bytes for field in element.fields] == offsets
    assert (element.itemsize, element.alignment) == (itemsize, alignment)


@pytest.mark.parametrize("layout", OFFSETS)
def test_arrays_of_structs_are_written_where_they_lie(host: str, layout: str) -> None:
    text = f"struct Pair({OFFSETS[layout]}\n\nkernel k(p: array<struct<Pair>, 1>) over (8):\n" + (
        "    p[global_id(0)].b = f64((p[global_id(0)]).a) * 2.0\n"
    )
    array = np.zeros(5, LAYOUTS[layout])
    array["a"] = np.arange(5)
    ir_kernel(text, p=qn.Array1[PAIR]).over(3, device=host)(array[::2])
    assert array["b"].tolist() == [0, 0, 4, 0, 8]
    on_device = qn.device(host).array(array)
    ir_kernel(text, p=qn.Array1[PAIR]).over(5)(on_device)
    assert on_device.numpy()["b"].tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ([("a", "<i4")], "have no field 'b'"),
        ([("a", "<i8"), ("b", "<f8")], "field 'a' is i32, and its elements have i64 there"),
        ([("a", ">i4"), ("b", "<f8")], "byte-swapped"),
        ([("a", "<i4"), ("b", "<c16")], "complex128"),
        ([("a", "<i4"), ("b", "U4")], "is no element type"),
        ([("a", "<i4"), ("b", "<f8", (3,))], "is no element type"),
        ("<i4", "is an array of struct<Pair> and got one of i32"),
    ],
)
def test_dtype_that_holds_no_such_struct_is_refused(dtype: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=f"parameter 'p'.*{message}"):
        argument_type(spec(qn.Array[PAIR]), np.zeros(3, np.dtype(dtype)))


def test_struct_that_is_not_aligned_is_refused() -> None:
    data = np.zeros(16 * 3 + 4, np.uint8)[4:].view(LAYOUTS["natural"])
    with pytest.raises(LaunchError, match="not aligned to the 8 bytes of struct"):
        read_arguments([spec(None)], (data,), 7)


def test_device_arrays_hold_structs(host: str) -> None:
    device: Device = qn.device(host)
    array = np.zeros(4, LAYOUTS["turned"])
    array["a"] = [1, 2, 3, 4]
    on_device = device.array(array)
    assert on_device.numpy().tolist() == array.tolist()
    assert device.zeros(3, LAYOUTS["packed"]).numpy().tolist() == [(0, 0.0)] * 3
    with pytest.raises(KernelTypeError, match="an element is struct<struct> and got 1 of type int"):
        on_device.fill(1)
    assert on_device[1:3].numpy()["a"].tolist() == [2, 3]


# --- f16, bf16, bool --------------------------------------------------------------------------------------------------


def test_bf16_arrays_are_made_without_numpy_knowing_them(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.setattr(qn.bf16, "_numpy", None)
    text = "kernel k(x: array<bf16, 1>, y: array<f32, 1>) over (8):\n    y[global_id(0)] = f32(x[global_id(0)])\n"
    x, y = qn.device(host).full(3, 1.00390625, qn.bf16), np.zeros(3, np.float32)
    ir_kernel(text, x=qn.Array1[qn.bf16], y=qn.Array1[qn.f32]).over(3, device=host)(x, y)
    assert y.tolist() == [1.0] * 3
    with pytest.raises(KernelTypeError, match=r"NumPy has no bf16 of its own(?:.|\n)*pip install ml_dtypes"):
        x.numpy()


def test_halves_and_bools_are_arguments(host: str) -> None:
    text = (
        "kernel k(x: array<f16, 1>, b: array<bool, 1>, s: f16) over (8):\n"
        "    x[global_id(0)] = select(b[global_id(0)], x[global_id(0)] + s, x[global_id(0)])\n"
    )
    kernel = ir_kernel(text, x=qn.Array1[qn.f16], b=qn.Array1[qn.bool], s=qn.f16)
    x = np.array([1, 2, 2048], np.float16)
    kernel.over(3, device=host)(x, np.array([True, False, True]), 1.0)
    assert x.tolist() == [2, 2, 2048]
    with pytest.raises(KernelTypeError, match=r"parameter 's' is f16 and got 70000\.0, which does not fit"):
        kernel.over(3, device=host)(x, np.ones(3, np.bool_), 70000.0)


# --- type variables ---------------------------------------------------------------------------------------------------

T = TypeVar("T")
Real = TypeVar("Real", qn.f32, qn.f64)  # type: ignore[misc]
Whole = TypeVar("Whole", bound=int)


def resolved(*pairs: tuple[Any, Any]) -> list[str]:
    specs = [spec(annotation, f"p{number}") for number, (annotation, _) in enumerate(pairs)]
    values = [value for _, value in pairs]
    types = [argument_type(one, value) for one, value in zip(specs, values, strict=True)]
    return [str(type_) for type_ in with_variables(specs, types, values)]


def test_variable_is_one_type_and_numbers_adapt_to_it() -> None:
    x = np.zeros(3, np.float32)
    assert resolved((qn.Array[T], x), (qn.Array[T], x[None]), (T, 2.0)) == ["array<f32, 1>", "array<f32, 2>", "f32"]
    assert resolved((T, 2), (T, np.int16(3))) == ["i16", "i16"]
    assert resolved((T, 2), (T, 3.0)) == ["f64", "f64"]
    assert resolved((T, 2), (Real, 3.0)) == ["i64", "f64"]
    assert resolved((qn.Array2[T], np.zeros((2, 2), LAYOUTS["packed"]))) == ["array<struct<struct>, 2>"]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (
            ((qn.Array[T], np.zeros(3)), (qn.Array[T], np.zeros(3, np.int8))),
            "T is f64 for parameter 'p0' and i8 for 'p1'",
        ),
        (((qn.Array[T], np.zeros(3, np.int8)), (T, 2.5)), "parameter 'p1' is i8 and got 2.5"),
        (((qn.Array[T], np.zeros(3, np.int8)), (T, 300)), "parameter 'p1' is i8 and got 300, which does not fit"),
        (((qn.Array[Real], np.zeros(3, np.int8)),), "'p0' has type i8, and its type variable Real is one of f32, f64"),
        (((qn.Array[Whole], np.zeros(3)),), "'p0' has type f64, and its type variable Whole is int"),
        (((qn.Array1[T], np.zeros((3, 3))),), "array of 1 axis and got shape"),
    ],
)
def test_variable_that_does_not_fit_is_refused(pairs: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message):
        resolved(*pairs)


def test_variables_are_read_in_annotations_that_are_text() -> None:
    space: dict[str, Any] = {"qn": qn, "T": T}
    exec("from __future__ import annotations\ndef f(x: qn.Array[T], a: T): pass", space)
    assert [one.declared for one in Parameters(space["f"], {}).specs] == [ArrayType(T), T]  # type: ignore[arg-type]


def test_launch_with_a_variable_converts_its_numbers(host: str) -> None:
    text = "kernel k(x: array<f32, 1>, a: f32) over (8):\n    x[global_id(0)] = a\n"
    x = np.zeros(3, np.float32)
    launcher = ir_kernel(text, x=qn.Array[T], a=T).over(3, device=host)
    for value in (0.1, 2, np.float32(0.5)):
        launcher(x, value)
        assert x.tolist() == [float(np.float32(value))] * 3
