"""Arrays whose elements are structs of a class, or vectors: made, read back, filled and copied by their layout."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import numpy as np
import pytest

import quernel as qn
from quernel.errors import DeviceError, KernelTypeError
from quernel.runtime.devices import Device


@attrs.frozen
class Place:
    a: qn.f32
    b: qn.vec(qn.f32, 2)  # type: ignore[valid-type]


@attrs.frozen
class Body:
    x: qn.f32
    k: qn.i8
    place: Place
    m: qn.f64


ONE = Body(1.0, 2, Place(3.0, (4.0, 5.0)), 6.0)
PACKED = np.dtype([("x", "f4"), ("k", "i1"), ("place", [("a", "f4"), ("b", "f4", 2)]), ("m", "f8")])


@qn.kernel
def move(bodies: qn.Array1[Body]):
    i = qn.global_id()
    bodies[i].x = bodies[i].x + qn.f32(bodies[i].m)


@pytest.fixture(params=["cpu", "opencl", "reference", "fake"])
def device(request: pytest.FixtureRequest) -> Device:
    if request.param == "fake":
        scripted: Device = request.getfixturevalue("gpu")
        return scripted
    try:
        return qn.device(request.param)
    except DeviceError as error:
        pytest.skip(f"needs a device of {request.param}: {error.what}")


@pytest.fixture
def host(device: Device) -> np.ndarray[Any, Any]:
    """Four bodies in the layout of the class."""
    bodies = np.zeros(4, device.empty(0, Body).numpy_dtype)
    bodies["x"] = [1, 2, 3, 4]
    bodies["place"]["b"][:, 1] = 5
    return bodies


def test_structs_are_read_back_by_every_way_of_copying(device: Device, host: np.ndarray[Any, Any]) -> None:
    bodies = device.zeros(4, Body)
    assert bodies.numpy()["x"].tolist() == [0] * 4
    bodies.copy_from(host)
    np.testing.assert_array_equal(bodies.numpy(), host)
    assert bodies.numpy(out=np.zeros_like(host))["place"]["b"][:, 1].tolist() == [5] * 4
    assert bodies.copy().numpy()["x"].tolist() == copy.copy(bodies).numpy()["x"].tolist() == [1, 2, 3, 4]
    assert bodies.to("cpu").numpy()["x"].tolist() == [1, 2, 3, 4]
    assert bodies[1].item()[0] == 2
    assert bodies[::-2].numpy()["x"].tolist() == [4, 2]
    assert "(2., 0, (0., [0., 5.]), 0.)" in repr(bodies)
    same = device.array(host)
    same.copy_from(bodies)
    bodies.copy_from(same)
    assert bodies.numpy()["x"].tolist() == [1, 2, 3, 4]


def test_host_arrays_and_instances_become_structs(device: Device, host: np.ndarray[Any, Any]) -> None:
    packed = np.zeros(4, PACKED)
    packed["x"], packed["m"] = host["x"], 7
    made = device.array(packed, Body)
    assert str(made.dtype) == "struct<Body>"
    assert made.numpy()["m"].tolist() == [7] * 4
    for source in (host, device.array(host)):
        for given in (device.array(source, Body), device.asarray(source, Body)):
            assert str(given.dtype) == "struct<Body>"
            assert given.numpy()["x"].tolist() == [1, 2, 3, 4]
    assert device.array([[ONE, ONE]], Body).numpy()["place"]["b"].tolist() == [[[4, 5], [4, 5]]]
    assert device.array([], Body).shape == (0,)
    assert device.array(packed).astype(Body).numpy()["m"].tolist() == [7] * 4


def test_arrays_are_filled_with_structs(device: Device, host: np.ndarray[Any, Any]) -> None:
    for full in (device.full(3, ONE, Body), device.full(3, ONE), device.full(3, device.full(1, ONE).numpy()[0], Body)):
        assert full.numpy()["m"].tolist() == [6] * 3
        assert full.numpy()["place"]["b"].tolist() == [[4, 5]] * 3
    bodies = device.array(host, Body)
    bodies[::2].fill(ONE)
    bodies[3] = ONE
    assert bodies.numpy()["k"].tolist() == [2, 0, 2, 2]


def test_kernel_writes_structs_that_are_read_back() -> None:
    for name in ("cpu", "reference"):
        bodies = qn.device(name).full(4, ONE)
        move.over(4)(bodies)
        assert bodies.numpy()["x"].tolist() == [7] * 4


def test_arrays_of_vectors_are_made_of_host_arrays(device: Device) -> None:
    ones = np.ones((3, 4), np.float32)
    for made in (device.array(ones, qn.vec(qn.f32, 4)), device.asarray(ones, qn.vec(qn.f32, 4))):
        assert (made.shape, made.dtype) == ((3, 4), qn.f32)
        assert made.numpy().tolist() == ones.tolist()
    assert device.array(made, qn.vec(qn.f64, 4)).dtype is qn.f64
    assert device.full(2, (1.0, 2.0), qn.vec(qn.f32, 2)).numpy().tolist() == [[1, 2], [1, 2]]
    with pytest.raises(KernelTypeError, match="last axis has 4 elements"):
        device.array(np.ones((3, 3)), qn.vec(qn.f32, 4))
    with pytest.raises(KernelTypeError, match="give 2 numbers"):
        device.full(2, (1.0, 2.0, 3.0), qn.vec(qn.f32, 2))


def test_what_is_no_such_struct_is_refused(device: Device) -> None:
    bodies = device.zeros(4, Body)
    with pytest.raises(KernelTypeError, match="a copy between struct<Body>"):
        bodies.copy_from(np.zeros(4, [("x", "f4")]))
    with pytest.raises(KernelTypeError, match="its fields are x: f32, k: i8"):
        device.array(np.zeros(4, [("y", "f4")]), Body)
    with pytest.raises(KernelTypeError, match="an array of float64 is none of struct<Body>"):
        device.array(np.ones(3), Body)
    with pytest.raises(KernelTypeError, match="got 'a' of type str"):
        bodies.fill("a")
    with pytest.raises(KernelTypeError, match="field 'k' is i8 and got 300, which does not fit"):
        bodies.fill(attrs.evolve(ONE, k=300))
    with pytest.raises(KernelTypeError, match=r"field 'place\.b' is vec<f32, 2>"):
        bodies.fill(attrs.evolve(ONE, place=Place(1.0, 2.0)))
    with pytest.raises(KernelTypeError, match="do not become f32"):
        bodies.astype(qn.f32)


def test_field_of_an_array_says_how_to_read_it(device: Device) -> None:
    bodies = device.zeros(4, Body)
    for index in (bodies, bodies[0]):
        with pytest.raises(KernelTypeError, match=r"read array\.numpy\(\)\['x'\]"):
            index["x"]
