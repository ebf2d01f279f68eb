from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from tests.unit.runtime.scripted import ScriptedDevice

import quernel as qn
from quernel.errors import LaunchError
from quernel.runtime.devices import Device


@qn.kernel
def add(x: qn.Array[qn.f32], n: float):
    i = qn.global_id()
    x[i] = x[i] + n


def test_stream_closes_once_and_says_so(gpu: Device, seen: ScriptedDevice) -> None:
    with gpu.stream() as stream:
        stream.synchronize()
    stream.close()
    assert seen.log == [("open stream", 1), ("synchronize", 1), ("close stream", 1)]
    for use in (stream.synchronize, stream.record, stream.__enter__):
        with pytest.raises(LaunchError, match="this stream of fake:0 is closed"):
            use()


def test_stream_that_is_dropped_is_closed(gpu: Device, seen: ScriptedDevice) -> None:
    stream = gpu.stream()
    del stream
    gc.collect()
    assert ("close stream", 1) in seen.log


def test_events_measure_time_and_belong_to_their_device(gpu: Device) -> None:
    stream = gpu.stream()
    start = stream.record()
    end = stream.record()
    assert start.elapsed_ns(end) > 0
    stream.wait(end)
    foreign = qn.device("reference").stream().record()
    with pytest.raises(LaunchError, match="fake:0 cannot wait for an event of reference:0"):
        stream.wait(foreign)
    with pytest.raises(LaunchError, match="of two devices"):
        start.elapsed_ns(foreign)


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_graph_keeps_work_and_runs_it_again(name: str) -> None:
    device = qn.device(name)
    x = device.zeros(4, qn.f32)
    y = device.zeros(4, qn.f32)
    with device.graph() as graph:
        add.over(4)(x, 2.0)
        add.over(4).bind(x, 1.0)()
        y.copy_from(x)
        x[2:].fill(9)
    assert len(graph) == 4
    assert x.numpy().tolist() == [0] * 4
    graph()
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([3, 3, 9, 9], [3] * 4)
    graph.launch(device.stream())
    assert y.numpy().tolist() == [6, 6, 12, 12]


def test_graph_keeps_its_arrays_alive() -> None:
    device = qn.device("cpu")
    total = np.zeros(1000, np.float32)
    with device.graph() as graph:
        add.over(1000)(device.asarray(total), 1.0)
    gc.collect()
    graph()
    assert total.tolist() == [1.0] * 1000


def test_graph_takes_the_work_of_its_own_thread_only() -> None:
    device = qn.device("cpu")
    x = device.zeros(4, qn.f32)
    with device.graph() as graph:
        thread = threading.Thread(target=lambda: add.over(4)(x, 1.0))
        thread.start()
        thread.join()
    assert len(graph) == 0
    assert x.numpy().tolist() == [1.0] * 4


def test_host_copies_are_refused_while_a_graph_is_captured(gpu: Device) -> None:
    x = gpu.zeros(4, qn.f32)
    with gpu.graph():
        for use in (x.numpy, lambda: x.copy_from(np.zeros(4, np.float32))):
            with pytest.raises(LaunchError, match="while a graph is captured"):
                use()
        with pytest.raises(LaunchError, match="strided or overlapping"):
            x[::2].copy_from(x[1::2])
        with pytest.raises(LaunchError, match="strided array cannot be filled"):
            x[::2].fill(0)
        with pytest.raises(LaunchError, match="captures another graph"), gpu.graph():
            pass
    assert x.numpy().tolist() == [0.0] * 4


def test_graph_is_launched_only_once_it_is_whole(gpu: Device) -> None:
    graph = gpu.graph()
    with pytest.raises(LaunchError, match="this graph is new, not ready"):
        graph()
    with pytest.raises(ZeroDivisionError, match="division by zero"), graph:
        1 / 0  # noqa: B018
    with pytest.raises(LaunchError, match="this graph is failed, not ready"):
        graph()
    with pytest.raises(LaunchError, match="captured before"), graph:
        pass
    with gpu.graph() as other:
        pass
    with pytest.raises(LaunchError, match="the graph is of fake:0, the stream of reference:0"):
        other.launch(qn.device("reference").stream())


def test_native_graph_is_captured_in_a_stream_and_launched_as_a_whole(gpu: Device, seen: ScriptedDevice) -> None:
    seen.native_graphs = True
    x = gpu.zeros(4, qn.f32)
    add.over(4)(x, 1.0)
    seen.launches.clear()
    seen.log.clear()
    with gpu.graph() as graph:
        add.over(4)(x, 1.0)
    assert [launch.stream for launch in seen.launches] == [1]
    assert seen.log == [("open stream", 1), "launch", ("close stream", 1)]
    graph()
    assert seen.log[-1] == ("launch graph", ("graph", 1), None)


def test_profile_times_each_launch_and_copy() -> None:
    device = qn.device("cpu")
    x = device.zeros(1000, qn.f32)
    with device.profile() as profile:
        add.over(1000)(x, 1.0)
        add.over(1000)(x, 1.0)
        x.fill(0)
        with pytest.raises(LaunchError, match="still being taken"):
            profile.work  # noqa: B018
    assert [work.name for work in profile.work] == ["add", "add", "fill"]
    assert all(work.duration_ns > 0 for work in profile.work)
    assert profile.total_ns == sum(work.duration_ns for work in profile.work)
    assert "add: 2 ×" in repr(profile)
    assert device.interceptors == ()


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_scalars_of_a_graph_are_updated_by_name_and_by_number(name: str) -> None:
    device = qn.device(name)
    x = device.zeros(4, qn.f32)
    with device.graph() as graph:
        add.over(4)(x, 1.0)
        add.over(4)(x, 10.0)
    assert graph.update("add", n=2.0) is graph
    graph()
    assert x.numpy().tolist() == [4.0] * 4
    graph.update(1, n=100.0)
    graph()
    assert x.numpy().tolist() == [106.0] * 4


def test_what_a_graph_has_not_captured_is_not_updated() -> None:
    device = qn.device("cpu")
    x = device.zeros(4, qn.f32)
    with device.graph() as graph:
        add.over(4)(x, 1.0)
        x.fill(3)
    with pytest.raises(LaunchError, match="captured no launch 'scale'"):
        graph.update("scale", n=2.0)
    with pytest.raises(LaunchError, match="captured no launch 1"):
        graph.update(1, n=2.0)
    with pytest.raises(LaunchError, match="add has no scalar parameter 'x'"):
        graph.update("add", x=2.0)
    with pytest.raises(qn.errors.KernelTypeError, match="parameter 'n'"):
        graph.update("add", n="two")


@pytest.fixture(params=["away", "here"])
def device(request: pytest.FixtureRequest, gpu: Device) -> Device:
    """A device whose memory the host does not see, and one whose memory it does."""
    return gpu if request.param == "away" else qn.device("reference")


def fill_and_copy_strided(x: qn.DeviceArray) -> None:
    x[::2].fill(1)
    x[1:] = x[:-1]
    x[::2].copy_from(x[1::2])


def test_strided_fills_and_overlapping_copies_work_inside_a_profile(device: Device) -> None:
    x = device.zeros(4, qn.f32)
    with device.profile() as profile:
        fill_and_copy_strided(x)
        x.fill(2)
    assert [one.name for one in profile.work] == ["fill"]
    assert x.numpy().tolist() == [2.0] * 4


@pytest.mark.parametrize("kind", ["profile", "graph"])
def test_strided_fills_and_overlapping_copies_work_while_another_thread_takes_its_own(
    device: Device, kind: str
) -> None:
    x = device.zeros(4, qn.f32)
    begun, over = threading.Event(), threading.Event()

    def take() -> None:
        with getattr(device, kind)():
            begun.set()
            over.wait(10)

    other = threading.Thread(target=take)
    other.start()
    begun.wait(10)
    try:
        fill_and_copy_strided(x)
    finally:
        over.set()
        other.join()
    assert x.numpy().tolist() == [1.0] * 4
