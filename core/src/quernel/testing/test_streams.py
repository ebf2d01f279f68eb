"""Streams, events, graphs and bound launches: work in one stream runs in order, and waits where it is told to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import KernelTypeError, LaunchError


@qn.kernel
def scales(x: qn.Array[qn.i32], a: qn.i32, b: qn.i32):
    i = qn.global_id()
    x[i] = x[i] * a + b


@qn.kernel
def takes(x: qn.Array[qn.i32], y: qn.Array[qn.i32]):
    i = qn.global_id()
    y[i] = x[i] + 1


COUNT = 3000


def scaling(device: Any, stream: Any = None) -> Any:
    return scales.over(COUNT, device=device, stream=stream)


def worked(rounds: int) -> int:
    value = 0
    for number in range(rounds):
        value = (value * 3 + number) % 2**32
    return value - 2**32 if value >= 2**31 else value


def test_launches_in_the_default_stream_run_in_order(quernel_device: Any) -> None:
    x = quernel_device.zeros(COUNT, qn.i32)
    for number in range(50):
        scaling(quernel_device)(x, 3, number)
    assert x.numpy().tolist() == [worked(50)] * COUNT


def test_launches_and_copies_in_a_stream_of_ones_own_run_in_order(quernel_device: Any) -> None:
    x = quernel_device.zeros(COUNT, qn.i32)
    quernel_device.synchronize()
    with quernel_device.stream() as stream:
        for number in range(50):
            scaling(quernel_device, stream)(x, 3, number)
        stream.synchronize()
        assert x.numpy().tolist() == [worked(50)] * COUNT


def test_a_stream_waits_for_an_event_of_another(quernel_device: Any) -> None:
    first, second = quernel_device.stream(), quernel_device.stream()
    x, y = quernel_device.zeros(COUNT, qn.i32), quernel_device.zeros(COUNT, qn.i32)
    quernel_device.synchronize()
    for number in range(20):
        scaling(quernel_device, first)(x, 3, number)
    second.wait(first.record())
    takes.over(COUNT, device=quernel_device, stream=second)(x, y)
    done = second.record()
    done.synchronize()
    assert y.numpy().tolist() == [worked(20) + 1] * COUNT
    for stream in (first, second):
        stream.close()


def test_synchronizing_the_device_waits_for_every_stream(quernel_device: Any) -> None:
    streams = [quernel_device.stream() for _ in range(3)]
    arrays = [quernel_device.zeros(COUNT, qn.i32) for _ in streams]
    quernel_device.synchronize()
    for number in range(10):
        for stream, x in zip(streams, arrays, strict=True):
            scaling(quernel_device, stream)(x, 3, number)
    quernel_device.synchronize()
    assert [set(x.numpy().tolist()) for x in arrays] == [{worked(10)}] * 3
    for stream in streams:
        stream.close()


def test_events_tell_the_time_between_them(quernel_device: Any) -> None:
    x = quernel_device.zeros(COUNT, qn.i32)
    scaling(quernel_device)(x, 1, 1)
    with quernel_device.stream() as stream:
        start = stream.record()
        for _ in range(5):
            scaling(quernel_device, stream)(x, 1, 1)
        end = stream.record()
        elapsed_ns = start.elapsed_ns(end)
        assert start.elapsed_ns(start) == 0
    assert 0 < elapsed_ns < 60 * 10**9


def test_a_closed_stream_says_so(quernel_device: Any) -> None:
    stream = quernel_device.stream()
    stream.close()
    stream.close()
    with pytest.raises(LaunchError, match=r"this stream .* is closed") as caught:
        stream.synchronize()
    assert caught.value.fix
    with pytest.raises(LaunchError, match="closed"):
        scaling(quernel_device, stream)(quernel_device.zeros(COUNT, qn.i32), 1, 1)


def test_a_graph_runs_nothing_while_it_is_captured_and_all_when_it_is_launched(quernel_device: Any) -> None:
    x, y = quernel_device.zeros(COUNT, qn.i32), quernel_device.zeros(COUNT, qn.i32)
    scaling(quernel_device)(x, 1, 0)
    with quernel_device.graph() as graph:
        scaling(quernel_device)(x, 2, 1)
        takes.over(COUNT, device=quernel_device)(x, y)
        x[: COUNT // 2].fill(9)
        y[:10].copy_from(x[:10])
    assert len(graph) == 4
    assert not x.numpy().any()
    graph()
    assert x.numpy().tolist() == [9] * (COUNT // 2) + [1] * (COUNT // 2)
    assert y.numpy().tolist() == [9] * 10 + [2] * (COUNT - 10)
    with quernel_device.stream() as stream:
        quernel_device.synchronize()
        graph.launch(stream)
        stream.synchronize()
    assert y.numpy().tolist() == [9] * 10 + [20] * (COUNT // 2 - 10) + [4] * (COUNT // 2)


def test_a_graph_takes_other_numbers(quernel_device: Any) -> None:
    x = quernel_device.zeros(COUNT, qn.i32)
    scaling(quernel_device)(x, 1, 0)
    with quernel_device.graph() as graph:
        scaling(quernel_device)(x, 1, 5)
        scaling(quernel_device)(x, 10, 0)
    graph()
    assert set(x.numpy().tolist()) == {50}
    graph.update("scales", b=1)
    graph()
    assert set(x.numpy().tolist()) == {511}
    graph.update(1, a=-1)()
    assert set(x.numpy().tolist()) == {-511}
    with pytest.raises(LaunchError, match="captured no launch 'another'"):
        graph.update("another", a=1)


def test_a_graph_that_was_left_with_an_error_runs_nothing(quernel_device: Any) -> None:
    x = quernel_device.zeros(COUNT, qn.i32)
    graph = quernel_device.graph()
    with pytest.raises(KernelTypeError, match="'b'"), graph:
        scaling(quernel_device)(x, 1, "five")
    with pytest.raises(LaunchError, match="failed, not ready"):
        graph()
    scaling(quernel_device)(x, 1, 2)
    assert set(x.numpy().tolist()) == {2}


def test_a_bound_launch_keeps_its_stream_and_takes_other_numbers(quernel_device: Any) -> None:
    x = quernel_device.zeros(COUNT, qn.i32)
    quernel_device.synchronize()
    with quernel_device.stream() as stream:
        bound = scaling(quernel_device, stream).bind(x, 3, 0)
        for number in range(20):
            bound.update(b=number)
            bound()
        stream.synchronize()
    assert x.numpy().tolist() == [worked(20)] * COUNT


def test_bound_launches_are_each_their_own(quernel_device: Any) -> None:
    arrays = [quernel_device.zeros(COUNT, qn.i32) for _ in range(3)]
    bound = [scaling(quernel_device).bind(x, 1, number) for number, x in enumerate(arrays)]
    for one in [*bound, *reversed(bound)]:
        one()
    assert [set(x.numpy().tolist()) for x in arrays] == [{0}, {2}, {4}]


def test_a_profile_names_what_ran(quernel_device: Any) -> None:
    x = quernel_device.zeros(COUNT, qn.i32)
    scaling(quernel_device)(x, 1, 1)
    with quernel_device.profile() as profile:
        scaling(quernel_device)(x, 1, 1)
        x.fill(0)
        scaling(quernel_device)(x, 1, 1)
    assert [done.name for done in profile.work] == ["scales", "fill", "scales"]
    assert all(done.duration_ns >= 0 for done in profile.work)
    assert np.array_equal(x.numpy(), np.ones(COUNT, np.int32))
