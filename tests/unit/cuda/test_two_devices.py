"""Two devices of a stand-in for the driver: the way between their memories, and a failure of one seen on the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.cuda.fake_driver import FakeDriver, real
from tests.unit.cuda.foreign import Producer

import quernel as qn
from quernel.errors import DeviceError
from quernel.runtime.devices import Device
from quernel_cuda.plugin import CudaBackend

STATUS = real.CUresult


@qn.kernel
def double(x: qn.Array1[qn.f32]):
    i = qn.global_id()
    x[i] = x[i] + x[i]


@qn.kernel
def halve(x: qn.Array1[qn.f32]):
    i = qn.global_id()
    x[i] = x[i] * qn.f32(0.5)


def opened() -> list[Device]:
    backend = CudaBackend()
    infos = backend.devices()
    assert isinstance(infos, tuple)
    return [Device(backend.open(info), backend=backend) for info in infos]


@pytest.fixture
def pair(fake: FakeDriver) -> Iterator[list[Device]]:
    fake.num_devices = 2
    devices = opened()
    yield devices
    fake.failing.clear()
    for device in devices:
        device.close()


def copied(source: Device, target: Device) -> list[float]:
    found: list[float] = source.array(np.arange(4, dtype=np.float32)).to(target).numpy().tolist()
    return found


def opened_pools(fake: FakeDriver) -> list[tuple[int, int]]:
    """Which device was let into which pool."""
    return [(access.location.id, int(pool)) for name, (pool, (access,), _) in calls(fake, "cuMemPoolSetAccess")]


def calls(fake: FakeDriver, name: str) -> list[tuple[str, Any]]:
    return [(called, arguments) for called, arguments in fake.calls if called == name]


def test_the_way_is_opened_once_and_both_ways_before_the_first_copy(pair: list[Device], fake: FakeDriver) -> None:
    first, second = pair
    assert copied(first, second) == copied(second, first) == [0, 1, 2, 3]
    names = fake.names()
    assert [arguments for _, arguments in calls(fake, "cuCtxEnablePeerAccess")] == [(77, 0), (78, 0)]
    assert [number for number, _ in opened_pools(fake)] == [1, 0]
    assert len({pool for _, pool in opened_pools(fake)}) == 2
    assert max(index for index, name in enumerate(names) if name == "cuMemPoolSetAccess") < names.index(
        "cuMemcpyPeerAsync"
    )


def test_without_a_way_the_driver_copies_as_it_can(
    pair: list[Device], fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeDriver, "do_cuDeviceCanAccessPeer", lambda self, device, other: (0,))
    assert copied(*pair) == [0, 1, 2, 3]
    assert not calls(fake, "cuCtxEnablePeerAccess")
    assert not calls(fake, "cuMemPoolSetAccess")


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("cuCtxEnablePeerAccess", STATUS.CUDA_ERROR_TOO_MANY_PEERS),
        ("cuCtxEnablePeerAccess", STATUS.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
        ("cuMemPoolSetAccess", STATUS.CUDA_ERROR_INVALID_DEVICE),
    ],
)
def test_a_driver_that_refuses_the_way_still_copies(
    pair: list[Device], fake: FakeDriver, name: str, status: Any
) -> None:
    fake.failing[name] = status
    assert copied(*pair) == [0, 1, 2, 3]
    is_open = status == STATUS.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
    assert bool(calls(fake, "cuMemPoolSetAccess")) is (is_open or name == "cuMemPoolSetAccess")


def test_a_device_that_was_opened_anew_has_its_way_opened_anew(pair: list[Device], fake: FakeDriver) -> None:
    first, second = pair
    copied(first, second)
    second.close()
    again = opened()[1]
    fake.calls.clear()
    copied(first, again)
    assert len(calls(fake, "cuCtxEnablePeerAccess")) == 2
    again.close()


def test_an_array_of_another_library_is_asked_for_on_its_device(pair: list[Device], fake: FakeDriver) -> None:
    second = pair[1]
    current: list[list[int]] = []

    class Careful(Producer):
        def __dlpack__(self, **arguments: Any) -> Any:
            current.append(list(fake.current))
            return super().__dlpack__(**arguments)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 1

    second.asarray(Careful(np.arange(4, dtype=np.float32)))
    assert current == [[78]]
    assert fake.current == []


def failing_with(fake: FakeDriver, status: Any) -> None:
    for name in ("cuCtxSynchronize", "cuStreamSynchronize", "cuMemAllocAsync"):
        fake.failing[name] = status
    fake.on_launch = lambda *arguments: status


def test_a_lost_device_names_the_launches_of_all_devices_on_all_devices(pair: list[Device], fake: FakeDriver) -> None:
    first, second = pair
    x, y = first.zeros(4, qn.f32), second.zeros(4, qn.f32)
    double.over(4)(x)
    halve.over(4)(y)
    failing_with(fake, STATUS.CUDA_ERROR_ILLEGAL_ADDRESS)
    suspects = r"most probably the launch of double on cuda:0 or the launch of halve on cuda:1\."
    with pytest.raises(DeviceError, match=suspects):
        first.synchronize()
    with pytest.raises(DeviceError, match=suspects):
        second.zeros(4, qn.f32)
    fake.calls.clear()
    del y
    assert fake.names() == []  # nothing is given back to a lost context


def test_what_was_waited_for_is_not_suspected(pair: list[Device], fake: FakeDriver) -> None:
    first, second = pair
    x, y = first.zeros(4, qn.f32), second.zeros(4, qn.f32)
    double.over(4)(x)
    first.synchronize()
    halve.over(4)(y)
    failing_with(fake, STATUS.CUDA_ERROR_ILLEGAL_ADDRESS)
    with pytest.raises(DeviceError, match=r"most probably the launch of halve on cuda:1\."):
        first.synchronize()


def test_a_context_that_somebody_destroyed_takes_no_other_with_it(pair: list[Device], fake: FakeDriver) -> None:
    first, second = pair
    fake.failing["cuCtxSynchronize"] = STATUS.CUDA_ERROR_CONTEXT_IS_DESTROYED
    with pytest.raises(DeviceError, match="somebody destroyed"):
        first.synchronize()
    fake.failing.clear()
    assert second.full(4, 2.0, qn.f32).numpy().tolist() == [2] * 4
