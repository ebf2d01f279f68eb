"""Any thread may compile, launch, copy and allocate, all at once, and each gets what it would have got alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import quernel as qn
from quernel.testing.launching import is_interpreted

NUM_THREADS = 6


@qn.kernel
def scales(x: qn.Array[qn.i64], a: qn.i64, b: qn.i64):
    i = qn.global_id()
    x[i] = x[i] * a + b + i


@qn.kernel
def steps(x: qn.Array[qn.i32], by: qn.Const[int]):
    i = qn.global_id()
    x[i] += by


def at_once(work: Callable[[int], None], count: int = NUM_THREADS) -> None:
    """Runs `work(number)` on threads that start together; the first failure is raised here."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            barrier.wait(60)
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not any(thread.is_alive() for thread in threads), "threads that never end"
    if failures:
        raise failures[0]


def rounds_of(device: Any) -> tuple[int, int]:
    """How many launches of how many points each thread makes."""
    return (10, 50) if is_interpreted(device) else (60, 700)


def scaled(count: int, rounds: int, number: int) -> Any:
    x = np.zeros(count, np.int64)
    for turn in range(rounds):
        x = x * (number + 2) + number * 1000 + turn + np.arange(count)
    return x


def test_threads_launch_one_kernel_with_arguments_of_their_own(quernel_device: Any) -> None:
    rounds, count = rounds_of(quernel_device)
    arrays = [quernel_device.zeros(count, qn.i64) for _ in range(NUM_THREADS)]
    launcher = scales.over(count, device=quernel_device)
    launcher(quernel_device.zeros(count, qn.i64), 1, 1)

    def work(number: int) -> None:
        for turn in range(rounds):
            launcher(arrays[number], number + 2, number * 1000 + turn)

    at_once(work)
    with np.errstate(over="ignore"):
        for number, x in enumerate(arrays):
            assert np.array_equal(x.numpy(), scaled(count, rounds, number)), f"of thread {number}"


def test_threads_launch_into_streams_of_their_own(quernel_device: Any) -> None:
    rounds, count = rounds_of(quernel_device)
    arrays = [quernel_device.zeros(count, qn.i64) for _ in range(NUM_THREADS)]
    quernel_device.synchronize()

    def work(number: int) -> None:
        with quernel_device.stream() as stream:
            launcher = scales.over(count, device=quernel_device, stream=stream)
            for turn in range(rounds):
                launcher(arrays[number], number + 2, number * 1000 + turn)
            stream.synchronize()

    at_once(work)
    with np.errstate(over="ignore"):
        for number, x in enumerate(arrays):
            assert np.array_equal(x.numpy(), scaled(count, rounds, number)), f"of thread {number}"


def test_a_bound_launch_of_each_thread_is_its_own(quernel_device: Any) -> None:
    rounds, count = rounds_of(quernel_device)
    arrays = [quernel_device.zeros(count, qn.i64) for _ in range(NUM_THREADS)]

    def work(number: int) -> None:
        bound = scales.over(count, device=quernel_device).bind(arrays[number], number + 2, 0)
        for turn in range(rounds):
            bound.update(b=number * 1000 + turn)
            bound()

    at_once(work)
    with np.errstate(over="ignore"):
        for number, x in enumerate(arrays):
            assert np.array_equal(x.numpy(), scaled(count, rounds, number)), f"of thread {number}"


def test_a_kernel_that_all_threads_want_first_is_loaded_once(quernel_device: Any) -> None:
    @qn.kernel
    def new(x: qn.Array[qn.i32], by: qn.Const[int]):
        i = qn.global_id()
        x[i] = x[i] * 2 + by

    before = len(quernel_device.kernels)
    arrays = [quernel_device.full(9, number, qn.i32) for number in range(NUM_THREADS)]
    at_once(lambda number: new.over(9, device=quernel_device)(arrays[number], 5))
    assert [x.numpy().tolist() for x in arrays] == [[number * 2 + 5] * 9 for number in range(NUM_THREADS)]
    assert len(quernel_device.kernels) == before + 1


def test_threads_compile_kernels_of_their_own(quernel_device: Any) -> None:
    arrays = [quernel_device.zeros(9, qn.i32) for _ in range(NUM_THREADS)]

    def work(number: int) -> None:
        for by in (number + 1, (number + 1) * 100):
            steps.over(9, device=quernel_device)(arrays[number], by)

    at_once(work)
    assert [x.numpy().tolist() for x in arrays] == [[(number + 1) * 101] * 9 for number in range(NUM_THREADS)]


def test_threads_allocate_fill_and_copy_beside_each_other(quernel_device: Any) -> None:
    def work(number: int) -> None:
        for turn in range(20):
            value = number * 100 + turn
            there = quernel_device.full(1000 + turn, value, qn.i32)
            other = there.copy()
            other[::2].fill(-value)
            back = other.numpy()
            assert set(back[1::2].tolist()) == {value}
            assert set(back[::2].tolist()) == {-value}
            assert np.array_equal(quernel_device.array(back).numpy(), back)

    at_once(work)
