from __future__ import annotations

import copy
import gc
import operator
import pydoc
import re
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.unit.runtime.scripted import ScriptedBackend, ScriptedDevice

import quernel as qn
from quernel.errors import DeviceError, KernelTypeError, LaunchError, OutOfBoundsError
from quernel.runtime.casts import cast_array
from quernel.runtime.devices import Device
from quernel.runtime.indexing import view_of


@qn.kernel
def collatz(steps, out, rounds: int):
    i = qn.global_id()
    n = steps[i] + 1
    for _ in range(rounds):
        n = n // 2 if n % 2 == 0 else 3 * n + 1
    out[i] = n


@pytest.fixture(params=["away", "here"])
def device(request: pytest.FixtureRequest, gpu: Device) -> Device:
    """A device whose memory the host does not see, and one whose memory it does."""
    return gpu if request.param == "away" else qn.device("reference")


def test_array_copies_and_comes_back(device: Device) -> None:
    host = np.arange(12, dtype=np.int32).reshape(3, 4)
    array = device.array(host)
    host[:] = 0
    assert array.numpy().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert (array.shape, array.ndim, array.size, array.nbytes, array.strides) == ((3, 4), 2, 12, 48, (16, 4))
    assert array.dtype is qn.i32
    assert array.device is device
    assert len(array) == 3


@pytest.mark.parametrize(
    "key",
    [
        np.s_[1],
        np.s_[-1],
        np.s_[1:],
        np.s_[::-1],
        np.s_[:, ::-2],
        np.s_[..., 1],
        np.s_[None, 2, 1:3],
        np.s_[5:1],
        np.s_[2:0:-1, 1],
    ],
)
def test_view_reads_and_writes_the_elements_that_numpy_would(device: Device, key: Any) -> None:
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = device.array(host)
    assert array[key].numpy().tolist() == host[key].tolist()
    array[key] = np.asarray(host[key] * 10 + 1, np.float32)
    host[key] = host[key] * 10 + 1
    assert array.numpy().tolist() == host.tolist()


@settings(max_examples=100, deadline=None)
@given(shape=hnp.array_shapes(max_dims=4, max_side=5), data=st.data())
def test_view_has_the_offset_shape_and_strides_of_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    host = np.zeros(shape, np.int16)
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    expected = (
        host[key]
        if isinstance(host[key], np.ndarray)
        else host[(*key, ...)]
        if isinstance(key, tuple)
        else host[key, ...]
    )
    offset, lengths, strides = view_of(key, host.shape, host.strides)
    assert lengths == expected.shape
    if expected.size:
        start = expected.__array_interface__["data"][0] - host.__array_interface__["data"][0]
        assert offset == start
        assert [s for s, n in zip(strides, lengths, strict=True) if n > 1] == [
            s for s, n in zip(expected.strides, expected.shape, strict=True) if n > 1
        ]


def test_index_outside_the_array_is_an_index_error(device: Device) -> None:
    array = device.zeros((2, 3), qn.f32)
    with pytest.raises(OutOfBoundsError, match="index 2 is outside axis 0 of length 2"):
        array[2]
    with pytest.raises(IndexError, match="3 indices for an array of shape"):
        array[0, 0, 0]
    with pytest.raises(KernelTypeError, match=r"integers and slices as indices, not list"):
        array[[0, 1]]
    with pytest.raises(KernelTypeError, match="not bool"):
        array[True]


def test_iteration_ends_after_the_last_row(device: Device) -> None:
    assert [row.numpy().tolist() for row in device.array(np.eye(2))] == [[1.0, 0.0], [0.0, 1.0]]


def test_fill_zeros_and_full_convert_as_scalar_arguments_do(device: Device) -> None:
    assert device.zeros(3, qn.bool).numpy().tolist() == [False] * 3
    assert device.full((2, 2), 7, qn.u8).numpy().tolist() == [[7, 7], [7, 7]]
    assert device.full(2, 1.5).dtype is qn.f64
    array = device.zeros((2, 3), qn.f32)
    array[:, 1].fill(2)
    assert array.numpy().tolist() == [[0, 2, 0], [0, 2, 0]]
    with pytest.raises(KernelTypeError, match="is u8 and got 300, which does not fit"):
        device.full(2, 300, qn.u8)
    with pytest.raises(KernelTypeError, match=r"is i32 and got 1\.5 of type float"):
        array.astype(qn.i32).fill(1.5)


def test_copies_refuse_another_shape_or_dtype(device: Device) -> None:
    array = device.zeros(3, qn.f32)
    with pytest.raises(KernelTypeError, match=r"f32 of shape \(3,\) and f64 of shape \(3,\)"):
        array.copy_from(np.zeros(3))
    with pytest.raises(KernelTypeError, match=r"shape \(4,\)"):
        array.copy_to(device.zeros(4, qn.f32))
    with pytest.raises(KernelTypeError, match="out is int32"):
        array.numpy(out=np.zeros(3, np.int32))


def test_numpy_fills_the_array_given_even_a_strided_one(device: Device) -> None:
    target = np.zeros((3, 2), np.float32)
    device.array(np.array([1, 2, 3], np.float32)).numpy(out=target[:, 1])
    assert target.tolist() == [[0, 1], [0, 2], [0, 3]]


def test_copy_between_views_of_one_array_that_overlap_is_right(device: Device) -> None:
    array = device.array(np.arange(5, dtype=np.int64))
    array[1:].copy_from(array[:-1])
    assert array.numpy().tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_python_copies_are_copies_on_the_device(device: Device, duplicate: Any) -> None:
    array = device.array(np.arange(4))
    other = duplicate(array)
    array.fill(0)
    assert (other.device, other.numpy().tolist()) == (device, [0, 1, 2, 3])


def test_copy_and_to_another_device(device: Device, gpu: Device) -> None:
    array = device.array(np.arange(4, dtype=np.int8))[::2]
    copied = array.copy()
    assert copied.is_contiguous
    assert copied.numpy().tolist() == [0, 2]
    elsewhere = array.to(gpu)
    assert elsewhere.device is gpu
    assert elsewhere.numpy().tolist() == [0, 2]
    assert elsewhere.to(gpu) is elsewhere


def test_reshape_is_a_view_and_refuses_what_it_cannot_be(device: Device) -> None:
    array = device.array(np.arange(6, dtype=np.int32))
    array.reshape(2, -1)[1].fill(9)
    assert array.numpy().tolist() == [0, 1, 2, 9, 9, 9]
    with pytest.raises(KernelTypeError, match=r"cannot become \(4, 2\)"):
        array.reshape((4, 2))
    with pytest.raises(KernelTypeError, match=r"fix: reshape its \.copy\(\)"):
        array[::2].reshape(3, 1)


def test_astype_saturates_truncates_and_takes_nan_as_zero(device: Device) -> None:
    host = np.array([np.nan, 1e30, -1e30, -1.9, 2.9], np.float32)
    assert device.array(host).astype(qn.i8).numpy().tolist() == [0, 127, -128, -1, 2]


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=True, width=64), min_size=1, max_size=8),
    dtype=st.sampled_from([qn.i8, qn.u8, qn.i16, qn.u16, qn.i32, qn.u32, qn.i64, qn.u64, qn.f32, qn.bool]),
)
def test_cast_of_an_array_is_that_of_each_element(values: list[float], dtype: Any) -> None:
    cast = cast_array(np.array(values), dtype)
    expected = np.array([dtype(value) for value in values])
    assert cast.dtype == expected.dtype
    np.testing.assert_array_equal(cast, expected)


def test_empty_arrays_work(device: Device) -> None:
    array = device.zeros((5, 0, 5), qn.f32)
    assert array.numpy().shape == (5, 0, 5)
    assert array[1:3].copy().shape == (2, 0, 5)
    array.fill(1)


@pytest.mark.parametrize("key", [np.s_[..., 2:], np.s_[::-2, :, 1], np.s_[:, :, ::-1], np.s_[3:1, 0:0, 4]])
def test_views_of_an_empty_array_work_wherever_they_would_begin(device: Device, key: Any) -> None:
    view = device.zeros((5, 0, 5), qn.f32)[key]
    assert view.numpy().shape == view.shape == np.empty((5, 0, 5))[key].shape
    view.copy_from(np.zeros(view.shape, np.float32))
    view.copy_from(view.copy())
    view[...] = 5


def test_value_of_one_element_as_a_python_number(device: Device) -> None:
    array = device.array(np.array([1.5, 0.0]))
    assert array[0].item() == 1.5
    assert float(array[0]) == 1.5
    assert int(array[0]) == 1
    assert bool(array[1]) is False
    with pytest.raises(TypeError, match="0-d device array"):
        len(array[0])


def test_repr_shows_values_of_a_small_array_and_says_where_it_is(device: Device) -> None:
    assert repr(device.array(np.array([1, 2]))) == f"device_array([1, 2], i64, shape (2,), on {device.name})"
    assert repr(device.zeros(5000)) == f"<device array of f64, shape (5000,), on {device.name}>"


def test_memory_is_given_back_when_the_last_view_is_gone(gpu: Device, seen: ScriptedDevice) -> None:
    array = gpu.zeros(4, qn.f32)
    view = array[1:]
    del array
    gc.collect()
    assert len(seen.live) == 1
    del view
    gc.collect()
    assert seen.live == {}
    assert ("free", 16) in seen.log


def test_host_protocols_share_memory_where_the_host_sees_it() -> None:
    array = qn.device("reference").array(np.arange(4, dtype=np.float32))
    shared = np.asarray(array[::-1])
    shared[0] = 9
    assert array.numpy().tolist() == [0, 1, 2, 9]
    np.from_dlpack(array)[0] = 5
    assert array[0].item() == 5
    del array
    gc.collect()
    assert shared.tolist() == [9, 2, 1, 5]


@pytest.fixture(
    params=[np.from_dlpack, np.asarray, lambda array: array.__array__(), lambda array: array[::-1].__array__()]
)
def export(request: pytest.FixtureRequest) -> Any:
    """A way to take an array of the host's memory out of a device array without a copy."""
    return request.param


def test_export_keeps_memory_that_was_lent(export: Any) -> None:
    source = np.full(50_000, 7.0)
    lender = weakref.ref(source)
    array = qn.device("reference").asarray(source)
    exported = export(array)
    assert np.shares_memory(exported, source)
    del array, source
    gc.collect()
    assert lender() is not None
    assert exported[-1] == 7.0
    del exported
    gc.collect()
    assert lender() is None


def test_export_keeps_memory_of_the_device(export: Any) -> None:
    array = qn.device("reference").full(50_000, 7.0)
    memory = array.allocation.memory
    exported = export(array)
    del array
    gc.collect()
    assert memory.handle is not None
    assert exported[-1] == 7.0
    del exported
    gc.collect()
    assert memory.handle is None


def test_host_protocols_refuse_silent_copies_from_a_device(gpu: Device) -> None:
    array = gpu.zeros(4, qn.f32)
    with pytest.raises(KernelTypeError, match=r"not copied to the host unasked\n  fix: call its method \.numpy\(\)"):
        np.asarray(array)
    with pytest.raises(BufferError, match="fake:0"):
        np.from_dlpack(array)


def test_asarray_shares_a_numpy_array_where_kernels_reach_it() -> None:
    device = qn.device("reference")
    host = np.arange(6, dtype=np.int32)
    shared = device.asarray(host[::-2])
    assert shared.numpy().tolist() == [5, 3, 1]
    shared[0] = 50
    assert host.tolist() == [0, 1, 2, 3, 4, 50]
    assert device.asarray(shared) is shared
    assert shared.address == host[5:].__array_interface__["data"][0]


def test_asarray_copies_what_cannot_be_shared(gpu: Device) -> None:
    host = np.arange(3, dtype=np.int32)
    gpu.asarray(host).fill(0)
    assert host.tolist() == [0, 1, 2]
    host.setflags(write=False)
    qn.device("reference").asarray(host).fill(0)
    assert host.tolist() == [0, 1, 2]
    assert qn.device("reference").asarray(host, qn.f64).dtype is qn.f64


def test_shared_array_lives_as_long_as_what_shares_it() -> None:
    host = np.arange(1000, dtype=np.int64)
    shared = qn.device("reference").asarray(host)
    del host
    gc.collect()
    junk = [np.full(1000, -1) for _ in range(8)]
    assert int(shared.numpy().sum()) == 499500
    del junk


def test_close_waits_for_what_is_in_flight_and_closes_even_where_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ScriptedBackend("fake", [("gpu", "Fake")])
    device = Device(backend.open(backend.devices()[0]))  # type: ignore[index]
    operations = backend.opened[0]

    def fail(stream: Any) -> None:
        assert not operations.is_closed
        raise DeviceError("the launch before this failed")

    monkeypatch.setattr(operations, "synchronize", fail)
    with pytest.raises(DeviceError, match="the launch before this failed"):
        device.close()
    assert device.is_closed
    assert operations.is_closed
    device.close()


def test_launch_of_another_thread_ends_though_the_device_is_closed_meanwhile() -> None:
    cpu = qn.device("cpu")
    assert cpu.backend is not None
    device = Device(cpu.backend.open(cpu.info))
    steps, out = np.arange(64, dtype=np.int64), np.zeros(64, np.int64)
    steps_there, out_there = device.asarray(steps), device.asarray(out)
    launcher = collatz.over(64, device=device)
    rounds, took = 1000, 0.0
    while took < 1.0:  # of a processor's time: so long that it is still running a moment later, on any machine
        rounds *= 4
        started = time.process_time()
        launcher(steps_there, out_there, rounds)
        took = time.process_time() - started
    begun, failures = threading.Event(), []

    def launch() -> None:
        begun.set()
        try:
            launcher(steps_there, out_there, rounds)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    begun.wait()
    time.sleep(0.05)
    assert thread.is_alive()
    device.close()
    thread.join()
    assert failures == []
    assert (out > 0).all()


@pytest.mark.parametrize(
    "compute",
    [
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
        *(operator.matmul, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
        *(operator.lt, operator.le, operator.gt, operator.ge, operator.iadd, operator.imul),
        *(lambda a, _: -a, lambda a, _: ~a, lambda a, _: abs(a)),
    ],
)
def test_arithmetic_on_whole_arrays_is_refused_with_what_to_do(compute: Any) -> None:
    array = qn.device("reference").zeros(3, qn.i32)
    for left, right in ((array, 1), (array, array)):
        with pytest.raises(KernelTypeError, match=r"device arrays have no `.*\n  fix: write a kernel, or .*numpy\(\)"):
            compute(left, right)
    if compute in (operator.add, operator.matmul, operator.xor):
        with pytest.raises(KernelTypeError, match="device arrays have no"):
            compute(1, array)


def test_use_after_close_says_so() -> None:
    backend = ScriptedBackend("fake", [("gpu", "Fake")])
    device = Device(backend.open(backend.devices()[0]))  # type: ignore[index]
    array = device.zeros(3, qn.f32)
    device.close()
    device.close()
    assert backend.opened[0].is_closed
    for use in (array.numpy, array.copy, lambda: device.zeros(2), device.synchronize, device.stream):
        with pytest.raises(LaunchError, match=r"the device fake:0 is closed\n  fix: open it again"):
            use()
    assert "closed" in repr(array)
    assert "closed" in repr(device)
    del array
    gc.collect()
    assert len(backend.opened[0].live) == 1  # a closed device has given everything back by itself


@pytest.mark.parametrize("name", ["shape", "strides", "dtype", "address", "device", "launch_kind", "other"])
def test_attributes_of_an_array_never_change(device: Device, name: str) -> None:
    array = device.zeros(4, qn.f32)
    before = getattr(array, name, None)
    with pytest.raises(AttributeError, match=f"'{name}' of a device array cannot be assigned"):
        setattr(array, name, (1 << 20,))
    with pytest.raises(AttributeError, match=f"'{name}' of a device array cannot be deleted"):
        delattr(array, name)
    assert getattr(array, name, None) is before


def test_arrays_are_not_compared_silently_and_hash_by_identity(device: Device) -> None:
    one, other = device.zeros(2, qn.f32), device.zeros(2, qn.f32)
    for compare in (lambda: one == other, lambda: one != other, lambda: one == np.zeros(2), lambda: one == None):  # noqa: E711
        with pytest.raises(
            KernelTypeError, match=r"not compared on the device(.|\n)*fix: compare a.numpy\(\) == b.numpy"
        ):
            compare()
    assert one == one
    assert len({one, other, one}) == 2
    assert one in [one, other]
    kept = weakref.WeakSet([one, other])
    assert one in kept


def test_negative_length_is_refused(device: Device) -> None:
    with pytest.raises(LaunchError, match=r"shape \(2, -1\) has a negative length"):
        device.empty((2, -1))


def test_memory_is_given_back_when_the_host_cannot_be_shown_it(
    gpu: Device, seen: ScriptedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_view(memory: Any) -> None:
        raise DeviceError("the memory cannot be mapped")

    monkeypatch.setattr(seen, "host_view", no_view)
    with pytest.raises(DeviceError, match="cannot be mapped"):
        gpu.empty(4, qn.f32)
    gc.collect()
    assert seen.live == {}


@pytest.mark.parametrize(
    ("other", "says", "says_not"),
    [
        (np.zeros(3, np.float32), "astype", "reshape"),
        (np.zeros(4), "reshape", "astype"),
        (np.zeros(4, np.float32), r"astype.*; .*reshape", "nothing"),
        (np.zeros(3, [("x", "f4")]), r"array\['name'\]", "astype"),
    ],
)
def test_copy_that_does_not_fit_says_what_differs_and_no_more(other: Any, says: str, says_not: str) -> None:
    array = qn.device("reference").zeros(3)
    for transfer in (array.copy_from, array.copy_to, lambda given: array.__setitem__(slice(None), given)):
        with pytest.raises(KernelTypeError, match=r"a copy between f64 of shape \(3,\) and \w") as caught:
            transfer(other)
        assert re.search(says, caught.value.fix or "")
        assert says_not not in (caught.value.fix or "")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sum", r"on the host: host = a\.numpy\(\) has host\.sum$"),
        ("sort", r"on the host: host = a\.numpy\(\) has host\.sort$"),
        ("ravel", r"write a\.reshape\(-1\)$"),
        ("itemsize", r"write a\.dtype\.itemsize$"),
        ("get", r"write a\.numpy\(\), which"),
        ("tolist", r"write a\.numpy\(\), which"),
        ("nothing", "has no attribute 'nothing'$"),
        ("__nothing__", "has no attribute '__nothing__'$"),
    ],
)
def test_attribute_of_other_arrays_says_what_this_one_has(name: str, says: str) -> None:
    array = qn.device("reference").zeros(3)
    assert not hasattr(array, name)
    assert not hasattr(qn.DeviceArray, name)
    assert name not in dir(array)
    with pytest.raises(AttributeError, match=says) as caught:
        getattr(array, name)
    assert (caught.value.name, caught.value.obj) == (name, array)


def test_what_is_there_is_not_read_by_way_of_getattr() -> None:
    """With `__getattr__`, Python 3.11 reads each attribute at half the speed, several times a launch."""
    assert not hasattr(qn.DeviceArray, "__getattr__")
    assert qn.DeviceArray.__getattribute__ is object.__getattribute__


def test_help_on_device_arrays_is_shown() -> None:
    assert "numpy(self, out" in pydoc.plain(pydoc.render_doc(qn.DeviceArray))


def test_protocol_that_a_device_cannot_speak_still_says_why() -> None:
    array = qn.device("reference").zeros(3)
    with pytest.raises(AttributeError, match="arrays of reference:0 have no __cuda_array_interface__"):
        _ = array.__cuda_array_interface__
