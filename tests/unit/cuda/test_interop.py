"""Arrays shared with other libraries, against a stand-in for the driver: fields, owners, and who waits for whom."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.cuda.fake_driver import FakeDriver
from tests.unit.cuda.foreign import Consumed, Producer, name_of

import quernel as qn
from quernel.errors import KernelTypeError, LaunchError
from quernel.runtime.devices import Device
from quernel_cuda import _driver
from quernel_cuda.plugin import CudaBackend

HAS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
versioned = pytest.mark.skipif(not HAS_VERSIONS, reason="needs NumPy 2.1, which makes capsules with a version")


@pytest.fixture
def gpu(fake: FakeDriver) -> Iterator[Device]:
    backend = CudaBackend()
    infos = backend.devices()
    assert isinstance(infos, tuple)
    device = Device(backend.open(infos[0]), backend=backend)
    yield device
    device.close()


@qn.kernel
def double(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = x[i] + x[i]


@qn.kernel
def clear(pairs: qn.Array1[qn.vec(qn.f32, 2)]):
    pairs[qn.global_id()] = qn.vec(qn.f32, 2)(0.0, 0.0)


def waits(fake: FakeDriver) -> list[tuple[int, int]]:
    """Which stream was made to wait for which, in order."""
    recorded: dict[int, int] = {}
    found = []
    for name, arguments in fake.calls:
        if name == "cuEventRecord":
            recorded[int(arguments[0])] = int(arguments[1])
        elif name == "cuCtxRecordEvent":
            recorded[int(arguments[1])] = -1
        elif name == "cuStreamWaitEvent":
            found.append((int(arguments[0]), recorded[int(arguments[1])]))
    return found


def default_of(gpu: Device) -> int:
    exchange = gpu.operations.exchange
    assert exchange is not None
    return exchange.stream


# --- given ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3)])
def test_a_capsule_describes_the_array_where_it_is(gpu: Device, version: tuple[int, int] | None) -> None:
    array = gpu.array(np.arange(24, dtype=np.float32).reshape(4, 6))[3:0:-1, ::2]
    taken = Consumed(array.__dlpack__(max_version=version))
    assert taken.is_versioned == (HAS_VERSIONS and version is not None and version[0] == 1)
    assert (taken.shape, taken.strides) == ((3, 3), (-6, 2))
    tensor = taken.tensor
    assert tensor.data + tensor.byte_offset == array.address
    assert (tensor.device_type, tensor.device_id) == array.__dlpack_device__() == (2, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
    assert ctypes.c_float.from_address(tensor.data).value == 18.0
    if taken.is_versioned:
        assert (taken.held.major, taken.held.flags) == (1, 0)
    taken.done()


@pytest.mark.parametrize(
    ("dtype", "code"),
    [(qn.i8, 0), (qn.i64, 0), (qn.u16, 1), (qn.f16, 2), (qn.f64, 2), (qn.bf16, 4), (qn.bool, 6)],
)
def test_types_of_elements_are_dlpack_s(gpu: Device, dtype: Any, code: int) -> None:
    tensor = Consumed(gpu.empty((3,), dtype).__dlpack__()).tensor
    assert (tensor.code, tensor.bits, tensor.lanes) == (code, dtype.bits, 1)


def test_structs_are_not_handed_over(gpu: Device) -> None:
    with pytest.raises(BufferError, match="DLPack has no type for"):
        gpu.empty(3, np.dtype([("a", "<f4"), ("b", "<i4")])).__dlpack__()


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), ()])
def test_arrays_without_elements_and_without_axes_are_handed_over(gpu: Device, shape: tuple[int, ...]) -> None:
    array = gpu.empty(shape, qn.f32)
    taken = Consumed(array.__dlpack__(max_version=(1, 0)))
    assert taken.shape == shape
    assert taken.tensor.data == (array.address if shape == () else None)
    taken.done()


def is_freed(fake: FakeDriver, address: int) -> bool:
    return address not in fake.memory


def test_the_memory_lives_until_the_deleter_is_called(gpu: Device, fake: FakeDriver) -> None:
    array = gpu.zeros(10, qn.f32)
    address = array.address
    taken = Consumed(array[2:].__dlpack__())
    del array
    gc.collect()
    assert not is_freed(fake, address)
    taken.done()
    assert is_freed(fake, address)


def test_a_capsule_that_nobody_takes_frees_the_memory(gpu: Device, fake: FakeDriver) -> None:
    array = gpu.zeros(10, qn.f32)
    address, capsule = array.address, array.__dlpack__(max_version=(1, 0))
    del array
    gc.collect()
    assert not is_freed(fake, address)
    del capsule
    gc.collect()
    assert is_freed(fake, address)


def test_a_capsule_that_goes_while_an_error_is_raised_leaves_the_error(gpu: Device) -> None:
    def taken(capsule: object) -> None:
        raise RuntimeError("not to be taken")

    array = gpu.zeros(10, qn.f32)
    with pytest.raises(RuntimeError, match="not to be taken"):
        taken(array.__dlpack__())
    assert array.numpy().sum() == 0


def test_the_consumer_waits_for_every_stream_of_ours(gpu: Device, fake: FakeDriver) -> None:
    array, stream = gpu.zeros(10, qn.f32), gpu.stream()
    fake.calls.clear()
    kept = [array.__dlpack__(stream=number) for number in (None, 1, 2, 0xABC0)]
    ours = [default_of(gpu), int(stream.handle.handle)]
    assert waits(fake) == [(number, each) for number in (1, 1, 2, 0xABC0) for each in ours]
    fake.calls.clear()
    kept.append(array.__dlpack__(stream=-1))
    assert waits(fake) == []


@pytest.mark.parametrize("stream", [0, -2, "1", 1.0, True])
def test_what_is_no_stream_is_refused(gpu: Device, stream: Any) -> None:
    with pytest.raises(BufferError, match="is none of CUDA's: pass 1 for the legacy default stream"):
        gpu.zeros(10, qn.f32).__dlpack__(stream=stream)


@pytest.mark.parametrize("stream", [2, 0xABC0, -1])
def test_memory_that_went_to_unordered_streams_is_freed_after_all_work(
    gpu: Device, fake: FakeDriver, stream: int
) -> None:
    taken = Consumed(gpu.zeros(10, qn.f32).__dlpack__(stream=stream))
    fake.calls.clear()
    taken.done()
    assert waits(fake) == [(default_of(gpu), -1)]
    assert fake.names().index("cuCtxRecordEvent") < fake.names().index("cuMemFreeAsync")


def test_memory_that_kept_to_the_legacy_stream_is_freed_in_order_anyway(gpu: Device, fake: FakeDriver) -> None:
    taken = Consumed(gpu.zeros(10, qn.f32).__dlpack__(stream=1))
    taken.done()
    assert "cuMemFreeAsync" in fake.names()
    assert "cuCtxRecordEvent" not in fake.names()


def test_an_older_driver_waits_for_all_work_instead(gpu: Device, fake: FakeDriver) -> None:
    fake.failing["cuCtxRecordEvent"] = _driver.driver().CUresult.CUDA_ERROR_NOT_SUPPORTED
    taken = Consumed(gpu.zeros(10, qn.f32).__dlpack__(stream=2))
    taken.done()
    assert fake.names().index("cuCtxSynchronize") < fake.names().index("cuMemFreeAsync")


@versioned
def test_a_copy_is_another_array_and_says_so(gpu: Device) -> None:
    array = gpu.full(4, 3, qn.i32)
    taken = Consumed(array.__dlpack__(max_version=(1, 0), copy=True))
    assert taken.tensor.data != array.address
    assert taken.held.flags == 2
    assert (ctypes.c_int32 * 4).from_address(taken.tensor.data)[:] == [3] * 4
    assert Consumed(array.__dlpack__(copy=False)).tensor.data == array.address


@versioned
def test_the_host_gets_a_copy_where_it_asks_for_one(gpu: Device) -> None:
    array = gpu.array(np.arange(5, dtype=np.int16))
    assert np.from_dlpack(array, device="cpu").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(BufferError, match="the host does not see the memory of cuda:0, so this would be a copy"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="is handed over there or in the host's memory only"):
        array.__dlpack__(dl_device=(2, 1))
    assert Consumed(array.__dlpack__(dl_device=(2, 0))).tensor.data == array.address


def test_the_interface_of_cuda_describes_the_array(gpu: Device, fake: FakeDriver) -> None:
    array, stream = gpu.zeros((4, 6), qn.f32), gpu.stream()
    fake.calls.clear()
    described = array.__cuda_array_interface__
    assert described == {
        "version": 3,
        "shape": (4, 6),
        "strides": None,
        "typestr": "<f4",
        "data": (array.address, False),
        "stream": default_of(gpu),
    }
    assert (default_of(gpu), int(stream.handle.handle)) in waits(fake)
    assert array[1:, ::-2].__cuda_array_interface__["strides"] == (24, -8)
    assert gpu.zeros((0, 3), qn.f32).__cuda_array_interface__["data"] == (0, False)


def test_the_interface_of_cuda_is_absent_where_it_cannot_say_it(gpu: Device) -> None:
    assert not hasattr(gpu.empty(3, qn.bf16), "__cuda_array_interface__")
    assert not hasattr(qn.device("reference").zeros(3), "__cuda_array_interface__")


def test_nothing_is_handed_over_while_a_graph_is_captured(gpu: Device) -> None:
    array = gpu.zeros(4, qn.f32)
    with gpu.graph(), pytest.raises(LaunchError, match="cannot be handed to another library while a graph is captured"):
        array.__dlpack__()


def test_a_closed_device_hands_nothing_over(gpu: Device) -> None:
    array = gpu.zeros(4, qn.f32)
    gpu.close()
    with pytest.raises(LaunchError, match="the device cuda:0 is closed"):
        array.__dlpack__()


# --- taken ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [True, False])
def test_an_array_is_taken_where_it_is(gpu: Device, fake: FakeDriver, versions: bool) -> None:
    theirs = np.arange(24, dtype=np.float32).reshape(4, 6)[::-2, 1::2]
    producer = Producer(theirs, versions=versions)
    array = gpu.asarray(producer)
    assert array.address == theirs.__array_interface__["data"][0]
    assert (array.dtype, array.shape, array.strides) == (qn.f32, theirs.shape, theirs.strides)
    assert array.numpy().tolist() == theirs.tolist()
    assert producer.asked == [{"stream": default_of(gpu), **({"max_version": (1, 0)} if versions else {})}]
    array[0, 0] = -5
    assert theirs[0, 0] == -5
    assert "cuMemAllocAsync" not in fake.names()


def test_strides_may_be_left_out_and_the_offset_counts(gpu: Device) -> None:
    theirs = np.arange(12, dtype=np.int32).reshape(3, 4)
    producer = Producer(theirs)
    producer.strides = None

    def moved(held: Any) -> None:
        held.tensor.data -= 256
        held.tensor.byte_offset = 256

    producer.change = moved
    assert gpu.asarray(producer).numpy().tolist() == theirs.tolist()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64"])
def test_types_are_taken_as_they_are(gpu: Device, dtype: str) -> None:
    array = gpu.asarray(Producer(np.ones(5, dtype)))
    assert array.numpy_dtype == np.dtype(dtype)
    assert array.numpy().tolist() == [1] * 5


def test_bf16_is_taken(gpu: Device) -> None:
    producer = Producer(np.array([0x3F80, 0x4000], np.uint16))

    def as_bfloat(held: Any) -> None:
        held.tensor.code = 4

    producer.change = as_bfloat
    array = gpu.asarray(producer)
    assert array.dtype is qn.bf16
    assert array.numpy().astype(float).tolist() == [1.0, 2.0]


def test_arrays_without_elements_are_taken(gpu: Device) -> None:
    array = gpu.asarray(Producer(np.zeros((3, 0), np.float32)))
    assert (array.shape, array.numpy().shape) == ((3, 0), (3, 0))


def test_the_owner_lives_as_long_as_the_last_view_and_gets_its_memory_back_once(gpu: Device) -> None:
    producer = Producer(np.zeros(10, np.float32))
    view = gpu.asarray(producer)[2:]
    gc.collect()
    assert producer.num_live == 1
    del view
    gc.collect()
    assert producer.num_live == 0


def be_busy(fake: FakeDriver) -> None:
    """From now on there is always work that is not done."""
    fake.failing |= dict.fromkeys(("cuEventQuery", "cuStreamQuery"), _driver.driver().CUresult.CUDA_ERROR_NOT_READY)


def test_the_owner_is_kept_until_the_work_is_done(gpu: Device, fake: FakeDriver) -> None:
    producer = Producer(np.zeros(10, np.float32))
    stream = gpu.stream()
    array = gpu.asarray(producer)
    be_busy(fake)
    fake.calls.clear()
    del array
    gc.collect()
    assert producer.num_live == 1
    assert (default_of(gpu), int(stream.handle.handle)) in waits(fake)
    assert not {"cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"} & set(fake.names())
    gpu.empty(3)
    assert producer.num_live == 1
    fake.failing.clear()
    gpu.synchronize()
    assert producer.num_live == 0


def test_a_closed_device_keeps_no_owner(gpu: Device, fake: FakeDriver) -> None:
    producer, later = Producer(np.zeros(10, np.float32)), Producer(np.zeros(10, np.float32))
    array, kept = gpu.asarray(producer), gpu.asarray(later)
    be_busy(fake)
    del array
    gpu.close()
    assert producer.num_live == 0
    del kept
    gc.collect()
    assert later.num_live == 0


def test_open_streams_wait_for_what_was_taken(gpu: Device, fake: FakeDriver) -> None:
    stream = gpu.stream()
    fake.calls.clear()
    array = gpu.asarray(Producer(np.zeros(10, np.float32)))
    assert waits(fake) == [(int(stream.handle.handle), default_of(gpu))]
    del array


@pytest.mark.parametrize("versions", [True, False])
def test_what_is_refused_is_given_back(gpu: Device, versions: bool) -> None:
    producer = Producer(np.zeros(4, np.complex64), versions=versions)
    with pytest.raises(KernelTypeError, match=r"kernels have no complex64\n  fix: pass its real and imaginary parts"):
        gpu.asarray(producer)
    gc.collect()
    assert producer.num_live == 0


def test_a_later_major_version_is_given_back_unread(gpu: Device) -> None:
    producer = Producer(np.zeros(4, np.float32))

    def later(held: Any) -> None:
        held.major = 2
        held.tensor.ndim = -1

    producer.change = later
    with pytest.raises(KernelTypeError, match=r"comes by DLPack 2\.0, which is not understood here"):
        gpu.asarray(producer)
    gc.collect()
    assert producer.num_live == 0


def test_vectors_inside_are_refused(gpu: Device) -> None:
    producer = Producer(np.zeros(4, np.float32))

    def in_fours(held: Any) -> None:
        held.tensor.lanes = 4

    producer.change = in_fours
    with pytest.raises(KernelTypeError, match="kernels have no float32 in vectors of 4"):
        gpu.asarray(producer)


def test_an_array_of_another_device_is_refused_by_name(gpu: Device) -> None:
    with pytest.raises(LaunchError, match=r"the Producer is on cuda:3, not on cuda:0\n  fix: copy"):
        gpu.asarray(Producer(np.zeros(4, np.float32), place=(2, 3)))
    with pytest.raises(LaunchError, match="the Producer is on a device of DLPack's kind 10, not on cuda:0"):
        gpu.asarray(Producer(np.zeros(4, np.float32), place=(10, 0)))


class HostTensor:
    """As those of other libraries in the host's memory."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.array = array.__dlpack__, array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


def test_an_array_of_the_host_is_copied(gpu: Device) -> None:
    array = gpu.asarray(HostTensor(np.arange(3)))
    assert array.numpy().tolist() == [0, 1, 2]
    assert array.allocation.lent_by is None


def test_a_copy_is_made_on_the_device(gpu: Device, fake: FakeDriver) -> None:
    producer = Producer(np.arange(3, dtype=np.float32))
    array = gpu.array(producer)
    assert array.address != producer.array.__array_interface__["data"][0]
    assert "cuMemcpyDtoHAsync" not in fake.names()
    assert gpu.asarray(producer, qn.f32).address == producer.array.__array_interface__["data"][0]
    assert gpu.asarray(producer, np.float32).address == producer.array.__array_interface__["data"][0]
    assert gpu.asarray(producer, qn.i64).numpy().tolist() == [0, 1, 2]


def test_our_own_arrays_come_back_as_capsules_say(gpu: Device) -> None:
    class Wrapper:
        def __init__(self, array: Any) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    array = gpu.array(np.arange(6, dtype=np.int32))[::-1]
    again = gpu.asarray(Wrapper(array))
    assert (again.address, again.strides) == (array.address, array.strides)


# --- the interface of CUDA --------------------------------------------------------------------------------------------


class Described:
    """An object with CUDA's interface alone."""

    def __init__(self, array: np.ndarray[Any, Any], **fields: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "strides": array.strides,
            "typestr": array.dtype.str,
            "data": (array.__array_interface__["data"][0], False),
            "stream": None,
            **fields,
        }


def test_the_interface_is_taken_where_it_is_and_kept(gpu: Device) -> None:
    theirs = np.arange(12, dtype=np.float32).reshape(3, 4)
    source = Described(theirs.T)
    array = gpu.asarray(source)
    assert array.numpy().tolist() == theirs.T.tolist()
    kept = weakref.ref(source)
    del source
    gc.collect()
    assert kept() is not None
    del array
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("stream", [1, 2, 0xABC0])
def test_our_streams_wait_for_the_stream_of_the_interface(gpu: Device, fake: FakeDriver, stream: int) -> None:
    opened = gpu.stream()
    fake.calls.clear()
    array = gpu.asarray(Described(np.zeros(4, np.float32), stream=stream))
    assert waits(fake) == [(default_of(gpu), stream), (int(opened.handle.handle), default_of(gpu))]
    del array


def test_a_description_of_plain_elements_does_not_make_them_structured(gpu: Device) -> None:
    array = gpu.asarray(Described(np.arange(4, dtype=np.float32), descr=[("", "<f4")]))
    assert array.dtype is qn.f32
    assert array.numpy().tolist() == [0, 1, 2, 3]


def test_structured_elements_are_taken_by_the_interface(gpu: Device) -> None:
    dtype = np.dtype([("a", "<f4"), ("b", "<i4")])
    given = gpu.array(np.array([(1.5, 2), (2.5, 3)], dtype))
    described = given.__cuda_array_interface__
    assert described["descr"] == [("a", "<f4"), ("b", "<i4")]

    class Holder:
        __cuda_array_interface__ = described

    assert gpu.asarray(Holder()).numpy().tolist() == [(1.5, 2), (2.5, 3)]


def test_what_no_kernel_takes_is_refused(gpu: Device, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    room = np.zeros(64, np.uint8)
    apart = np.ndarray(3, np.float32, room, 0, (6,))
    with pytest.raises(LaunchError, match=r"strides of \(6,\) bytes are no multiples of the 4-byte elements"):
        gpu.asarray(Described(apart))
    odd = np.ndarray(3, np.float32, room, 1)
    with pytest.raises(LaunchError, match="not aligned to the 4 bytes of f32"):
        gpu.asarray(Described(odd))
    with pytest.raises(KernelTypeError, match="a masked array"):
        gpu.asarray(Described(apart, mask=object()))
    monkeypatch.setattr(FakeDriver, "do_cuPointerGetAttribute", lambda *arguments: (1,))
    with pytest.raises(LaunchError, match="the Described is on cuda:1, not on cuda:0"):
        gpu.asarray(Described(np.zeros(3, np.float32)))


# --- read-only --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["dlpack", "interface"])
def fixed(request: pytest.FixtureRequest, gpu: Device) -> Any:
    """An array of another library that may only be read."""
    theirs = np.ones(8, np.float32)
    if request.param == "interface":
        source: Any = Described(theirs, data=(theirs.__array_interface__["data"][0], True))
    else:
        source = Producer(theirs)
        source.read_only = True
    return gpu.asarray(source)


def test_kernels_read_what_is_read_only_and_are_refused_to_write_it(gpu: Device, fixed: Any) -> None:
    other = gpu.zeros(8, qn.f32)
    for _ in range(4):
        double.over(8)(fixed, other)
    for _ in range(4):
        with pytest.raises(LaunchError, match="writes parameter 'y', and the array is read-only"):
            double.over(8)(other, fixed[:])
        double.over(8)(other, other)
    with pytest.raises(LaunchError, match="writes parameter 'y', and the array is read-only"):
        double.over(8).bind(other, fixed)
    with pytest.raises(LaunchError, match="writes parameter 'pairs', and the array is read-only"):
        clear.over(4)(fixed.reshape(4, 2))


def test_interpreted_kernels_do_not_write_it_either(gpu: Device, fixed: Any) -> None:
    with pytest.raises(LaunchError, match="writes parameter 'y', and the array is read-only"):
        double.options(interpret=True).over(8)(gpu.zeros(8, qn.f32), fixed)


def test_nothing_else_writes_what_is_read_only(gpu: Device, fixed: Any) -> None:
    for write in (
        lambda: fixed.fill(0),
        lambda: fixed[1:].fill(0),
        lambda: fixed.copy_from(np.zeros(8, np.float32)),
        lambda: fixed.__setitem__(0, 1),
    ):
        with pytest.raises(LaunchError, match="the array is read-only\n  fix: write to a copy of it"):
            write()
    assert fixed.copy().allocation.is_read_only is False
    assert fixed.numpy().tolist() == [1.0] * 8


@versioned
def test_what_is_read_only_is_handed_on_as_such(fixed: Any) -> None:
    assert Consumed(fixed.__dlpack__(max_version=(1, 0))).held.flags == 1
    assert fixed.__cuda_array_interface__["data"][1] is True
    with pytest.raises(BufferError, match="readonly"):
        fixed.__dlpack__()


# --- arguments, and the host ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Producer, Described])
def test_an_argument_of_another_library_is_refused_with_the_mend(gpu: Device, kind: Any) -> None:
    with pytest.raises(KernelTypeError, match=r"make it an array of the device first: x = device\.asarray\(x\)"):
        double.over(8, device=gpu)(kind(np.zeros(8, np.float32)), gpu.zeros(8, qn.f32))


@versioned
def test_the_host_s_arrays_are_numpy_s_own() -> None:
    device = qn.device("reference")
    array = device.array(np.arange(4, dtype=np.float32))
    assert array.__dlpack_device__() == (1, 0)
    assert name_of(array.__dlpack__()) == b"dltensor"
    assert name_of(array.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    back = device.asarray(np.from_dlpack(array))
    assert back.address == array.address
    with pytest.raises(RuntimeError, match="stream"):
        array.__dlpack__(stream=3)


def test_a_device_of_the_host_shares_what_other_libraries_have_there() -> None:
    theirs = np.arange(4, dtype=np.float32)
    shared = qn.device("reference").asarray(HostTensor(theirs))
    shared[0] = 9
    assert theirs.tolist() == [9, 1, 2, 3]
    assert qn.device("reference").array(HostTensor(theirs)).address != shared.address


def test_what_speaks_dlpack_alone_is_read_on_the_host(gpu: Device) -> None:
    class Alone:
        __dlpack__ = np.arange(4).__dlpack__
        __dlpack_device__ = np.arange(4).__dlpack_device__

    assert gpu.asarray(Alone()).numpy().tolist() == [0, 1, 2, 3]
    assert qn.device("reference").asarray(Alone()).numpy().tolist() == [0, 1, 2, 3]


def test_owners_are_kept_while_nobody_may_ask_for_events(gpu: Device, fake: FakeDriver) -> None:
    producer = Producer(np.zeros(10, np.float32))
    array = gpu.asarray(producer)
    refused = _driver.driver().CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    fake.failing |= dict.fromkeys(("cuEventQuery", "cuStreamQuery"), refused)
    del array
    gc.collect()
    assert producer.num_live == 1
    fake.failing.clear()
    gpu.empty(3)
    assert producer.num_live == 0
