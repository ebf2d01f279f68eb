from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built, device
from tests.unit.ir_by_hand import add, array, const, global_id, kernel, load, mul, store

from quernel.dtypes import i64
from quernel.geometry import LaunchForm, extent_geometry, grid_geometry
from quernel.ir.nodes import Assign, For, Local
from quernel_cpu import pool
from quernel_cpu.device import _pieces, pack_geometry
from quernel_cpu.plugin import quernel_backend
from quernel_cpu.pool import available_threads, run_pieces


def busy(rounds: int = 50) -> Built:
    """A kernel with enough work for several threads: out[i] += i, many times over."""
    local = Local(name="s", type=i64)
    loop = For(
        variable="k",
        start=const(0),
        stop=const(rounds),
        step=const(1),
        body=(Assign(name="s", value=add(mul(local, const(3)), global_id())),),
    )
    body = (Assign(name="s", value=load("out", i64)), loop, store("out", local))
    return Built(kernel((array("out", i64),), body, variables={"s": i64, "k": i64}), CONTIGUOUS)


def wanted(size: int, rounds: int = 50) -> np.ndarray[Any, Any]:
    ids = np.arange(size, dtype=np.int64)
    result = np.zeros(size, np.int64)
    with np.errstate(over="ignore"):
        for _ in range(rounds):
            result = result * 3 + ids
    return result


SIZE = 200_000


@pytest.fixture
def python_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches on the worker threads of Python."""
    monkeypatch.setattr("quernel_cpu.device.native_workers", lambda expected_ns: None)


@pytest.mark.usefixtures("python_threads")
def test_a_large_launch_spreads_over_threads_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "3")
    built, out = busy(), np.zeros(SIZE, np.int64)
    seen: set[int] = set()
    entry = built.loaded.entry

    def watched(*arguments: Any) -> None:
        seen.add(threading.get_ident())
        time.sleep(0.01)  # lets the others take their pieces
        entry(*arguments)

    built.loaded.entry = watched
    built.loaded.ns_per_item = 1000.0
    built.over(SIZE, out)
    assert np.array_equal(out, wanted(SIZE))
    assert len(seen) == 3


def test_a_small_launch_stays_on_its_thread() -> None:
    built, out = busy(), np.zeros(10, np.int64)
    calls: list[tuple[int, int, int]] = []
    entry = built.loaded.entry

    def watched(cells: bytes, geometry: bytes, first: int, end: int) -> None:
        calls.append((threading.get_ident(), first, end))
        entry(cells, geometry, first, end)

    built.loaded.entry = watched
    built.over(10, out)
    built.over(10, out)
    here = threading.get_ident()
    assert calls[0] == (here, 0, 1), "the first launch looks at a part first"
    assert built.loaded.ns_per_item > 0


@pytest.mark.usefixtures("python_threads")
def test_the_first_launch_of_a_slow_kernel_is_shared_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "2")
    built, out = busy(20_000), np.zeros(300, np.int64)
    seen: set[int] = set()
    entry = built.loaded.entry

    def watched(*arguments: Any) -> None:
        seen.add(threading.get_ident())
        entry(*arguments)
        time.sleep(0.005)

    built.loaded.entry = watched
    built.over(300, out)
    assert np.array_equal(out, wanted(300, 20_000))
    assert len(seen) == 2


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 40, 300])
@pytest.mark.parametrize("ns_per_item", [0.0, 1e3, 1e5, 1e7, 1e9])
@pytest.mark.parametrize("workers", ["native", "python"])
def test_each_item_runs_once_whatever_the_last_launch_took(
    monkeypatch: pytest.MonkeyPatch, workers: str, ns_per_item: float, size: int
) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "3")
    if workers == "python":
        monkeypatch.setattr("quernel_cpu.device.native_workers", lambda *expected_ns: None)
    built = Built(kernel((array("out", i64),), (store("out", add(load("out", i64), const(1))),)), CONTIGUOUS)
    out = np.zeros(size, np.int64)
    for times in range(1, 4):
        built.loaded.ns_per_item = ns_per_item
        built.over(size, out)
        assert out.tolist() == [times] * size


def test_launches_from_several_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "2")
    built = busy()
    outs = [np.zeros(SIZE, np.int64) for _ in range(6)]

    def launch(out: np.ndarray[Any, Any]) -> None:
        built.loaded.ns_per_item = 100.0
        built.over(SIZE, out)

    threads = [threading.Thread(target=launch, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    right = wanted(SIZE)
    assert all(np.array_equal(out, right) for out in outs)


def test_a_launch_inside_a_piece_of_another_finishes() -> None:
    done: list[tuple[int, int]] = []

    def inner(first: int, end: int) -> None:
        done.append((first, end))

    def outer(first: int, end: int) -> None:
        run_pieces(inner, [(first * 10 + k, first * 10 + k + 1) for k in range(4)], 3)

    run_pieces(outer, [(k, k + 1) for k in range(5)], 3)
    assert sorted(done) == [(k * 10 + j, k * 10 + j + 1) for k in range(5) for j in range(4)]


def test_an_exception_of_a_piece_is_raised_once_all_are_done() -> None:
    done: list[int] = []

    def piece(first: int, end: int) -> None:
        if first == 2:
            raise ZeroDivisionError("piece 2")
        time.sleep(0.01)
        done.append(first)

    with pytest.raises(ZeroDivisionError, match="piece 2"):
        run_pieces(piece, [(k, k + 1) for k in range(6)], 3)
    assert sorted(done) == [0, 1, 3, 4, 5]


class Watched:
    """A piece that takes some milliseconds and notes how many workers run it."""

    def __init__(self) -> None:
        self.running = 0
        self.done = 0
        self.by_main = 0
        self.begun = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, first: int, end: int) -> None:
        if threading.current_thread() is threading.main_thread():  # which interrupts may keep from counting
            time.sleep(0.005)
            self.by_main += 1
            return
        with self._lock:
            self.running += 1
        self.begun.set()
        time.sleep(0.005)
        with self._lock:
            self.running -= 1
            self.done += 1

    def check_still(self) -> None:
        assert self.running == 0
        done = self.done
        time.sleep(0.03)
        assert (self.running, self.done) == (0, done)


@pytest.mark.parametrize("method", ["offer", "work", "end"])
def test_no_piece_runs_once_an_interrupt_is_raised(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    piece = Watched()
    owner = pool._Workers if method == "offer" else pool._Job
    original, main = getattr(owner, method), threading.current_thread()
    interrupts = [KeyboardInterrupt()]

    def interrupted(self: Any, *arguments: Any) -> None:
        if threading.current_thread() is main and interrupts:
            if method == "offer":
                original(self, *arguments)
            piece.begun.wait(5)  # for a worker to begin
            raise interrupts.pop()
        original(self, *arguments)

    monkeypatch.setattr(owner, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_pieces(piece, [(k, k + 1) for k in range(40)], 3)
    piece.check_still()
    assert piece.done + piece.by_main == 40


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals that come by time")
def test_no_piece_runs_once_a_real_interrupt_is_raised() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for delay in range(1, 40):
            piece = Watched()
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, delay * 0.0007)
                run_pieces(piece, [(k, k + 1) for k in range(6)], 3)
                signal.setitimer(signal.ITIMER_REAL, 0)  # within the block: it may come at the last moment
            assert piece.running == 0
    finally:
        signal.signal(signal.SIGALRM, before)


def test_the_gil_is_free_while_a_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "1")
    built, out = busy(2000), np.zeros(SIZE, np.int64)
    ticks = 0
    stop = threading.Event()
    interval = sys.getswitchinterval()

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(0.001):
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    started = time.perf_counter()
    built.over(SIZE, out)
    elapsed = time.perf_counter() - started
    during = ticks
    stop.set()
    ticker.join()
    assert during > 5, f"{during} ticks in {elapsed:.3f} s, switch interval {interval}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_launches_on_workers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "2")
    built, out = busy(), np.zeros(SIZE, np.int64)
    built.loaded.ns_per_item = 100.0
    built.over(SIZE, out)
    before = pool._workers
    child = os.fork()
    if child == 0:
        status = 1
        try:
            again = np.zeros(SIZE, np.int64)
            built.loaded.ns_per_item = 100.0
            built.over(SIZE, again)
            status = 0 if np.array_equal(again, out) and pool._workers is not before else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("first", [0, 1, 77])
@pytest.mark.parametrize("num_items", [1, 63, 64, 65, 1000, 10**6, 2**40])
@pytest.mark.parametrize("step", [1, 64])
@pytest.mark.parametrize("num_threads", [1, 2, 7, 64])
def test_pieces_cover_all_items_once(first: int, num_items: int, step: int, num_threads: int) -> None:
    bounds = _pieces(first, first + num_items, num_items * 3.0, num_threads, step)
    assert bounds[0][0] == first
    assert bounds[-1][1] == first + num_items
    assert all(before[1] == after[0] for before, after in itertools.pairwise(bounds))
    assert all(begin < end for begin, end in bounds)
    assert len(bounds) <= 8 * num_threads + 1
    if num_items >= 64 * 8 * num_threads:
        assert all(begin % step == 0 for begin, _ in bounds[1:])


def test_the_number_of_threads_follows_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "5")
    assert available_threads() == 5
    monkeypatch.delenv("QUERNEL_NUM_THREADS")
    assert available_threads() == len(os.sched_getaffinity(0))


def test_prepared_launches_follow_the_geometry() -> None:
    built = Built(kernel((array("out", i64),), (store("out", add(load("out", i64), const(1))),)), CONTIGUOUS)
    out = np.zeros(10, np.int64)
    prepared = device().prepare(built.loaded, built.header)
    for extent in (3, 3, 7):
        geometry = extent_geometry(extent, (256,))
        prepared(geometry, built.pack(geometry, out), None)
    assert out.tolist() == [3, 3, 3, 1, 1, 1, 1, 0, 0, 0]


def test_geometry_is_nine_numbers_in_array_order() -> None:
    over = extent_geometry((range(3, 8), 9), (8, 32))
    assert np.frombuffer(pack_geometry(over), np.int64).tolist() == [1, 1, 0, 5, 9, 0, 3, 0, 0, 0]
    grid = grid_geometry((2, 3, 4), (1, 2, 8))
    assert grid.form is LaunchForm.GRID
    assert np.frombuffer(pack_geometry(grid), np.int64).tolist() == [2, 3, 4, 2, 6, 32, 0, 0, 0, 0]


def test_memory_is_aligned_copied_filled_and_viewed() -> None:
    memory = device().allocate(1000)
    assert memory.address % 64 == 0
    device().fill(memory, 0, b"\x01\x02\x03\x04", 250, None)
    source = np.arange(25, dtype=np.uint8).reshape(5, 5)
    device().copy_from_host(memory, 10, source, None)
    device().copy(memory, 12, memory, 10, 20, None)
    back = np.zeros((5, 8), np.uint8)
    device().copy_to_host(back, memory, 8, None)
    assert back.reshape(-1).tolist() == [1, 2, 0, 1, *range(20), 22, 23, 24, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]
    assert bytes(device().host_view(memory)[:4]) == b"\x01\x02\x03\x04"
    device().free(memory)
    empty = device().allocate(0)
    assert (empty.address, len(device().host_view(empty))) == (0, 0)


def test_the_backend_lists_one_device_and_is_healthy() -> None:
    backend = quernel_backend()
    (info,) = backend.devices()
    assert (info.backend, info.index, info.kind) == ("cpu", 0, "cpu")
    health = backend.health()
    assert health.problems == ()
    assert {"llvmlite", "LLVM", "processor", "vector library"} == {name for name, _ in health.versions}
