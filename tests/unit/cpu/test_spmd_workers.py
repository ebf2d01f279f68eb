"""Native worker threads: every item once, on several threads, from several launches at once, and after a fork."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built
from tests.unit.cpu.test_spmd import A1, A2, module_of

from quernel.geometry import LaunchForm
from quernel_cpu import native_pool, pool, workers
from quernel_cpu.workers import NativeWorkers, make_native_workers

CUTS = [(0, 1, 1, 2), (0, 10, 100, 2), (3, 1003, 64, 2), (5, 70, 13, 1), (0, 7, 1, 3), (0, 64, 16, 5), (0, 5, 2, 0)]
SIZE = 300_007
BODY = "i = qn.global_id()\nx = i\nfor k in range(40):\n    x = x * 3 + k\nout[i] = out[i] + x"


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> NativeWorkers:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "3")
    made = make_native_workers()
    if made is None:
        pytest.skip("needs Linux, for its futex")
    return made


def wanted(size: int) -> np.ndarray[Any, Any]:
    result = np.arange(size, dtype=np.int64)
    with np.errstate(over="ignore"):
        for k in range(40):
            result = result * 3 + k
    return result


@pytest.mark.usefixtures("native")
def test_every_item_runs_once_in_every_one_of_many_launches() -> None:
    built, out = Built(module_of(BODY, out=A1), CONTIGUOUS), np.zeros(SIZE, np.int64)
    for _ in range(50):
        built.over(SIZE, out)
    with np.errstate(over="ignore"):
        assert np.array_equal(out, wanted(SIZE) * 50)


def test_a_launch_is_shared_and_workers_are_kept(native: NativeWorkers) -> None:
    built, out = Built(module_of(BODY, out=A1), CONTIGUOUS), np.zeros(SIZE, np.int64)
    built.loaded.ns_per_item = 100.0
    built.over(SIZE, out)
    built.over(SIZE, out)
    assert native._num_started == 2
    assert len(os.listdir("/proc/self/task")) >= 3


@pytest.mark.usefixtures("native")
def test_launches_from_several_threads_all_finish() -> None:
    built = Built(module_of(BODY, out=A1), CONTIGUOUS)
    outs = [np.zeros(SIZE + number, np.int64) for number in range(6)]

    def launch(out: np.ndarray[Any, Any]) -> None:
        for _ in range(10):
            built.over(len(out), out)

    threads = [threading.Thread(target=launch, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with np.errstate(over="ignore"):
        assert all(np.array_equal(out, wanted(len(out)) * 10) for out in outs)


@pytest.mark.usefixtures("native")
def test_blocks_with_shared_memory_have_it_for_themselves_on_every_worker() -> None:
    module = module_of(
        """
row, column = qn.global_id()
i, j = qn.local_id()
part = qn.shared((8, 16), qn.i64)
part[i, j] = x[row, column]
qn.barrier()
total = 0
for k in range(16):
    total += part[i, k]
out[row, column] = total
""",
        LaunchForm.GRID,
        (8, 16),
        x=A2,
        out=A2,
    )
    built = Built(module, CONTIGUOUS)
    x = np.random.default_rng(0).integers(0, 1000, (800, 640))
    out = np.zeros_like(x)
    for _ in range(5):
        built.loaded.ns_per_item = 10_000.0
        built.grid((100, 40), x, out)
        sums = x.reshape(800, 40, 16).sum(axis=2)
        assert np.array_equal(out, np.repeat(sums, 16, axis=1))
        x = out % 1000


@pytest.mark.usefixtures("native")
def test_workers_that_have_parked_are_woken() -> None:
    built, out = Built(module_of(BODY, out=A1), CONTIGUOUS), np.zeros(SIZE, np.int64)
    for _ in range(5):
        built.loaded.ns_per_item = 100.0
        built.over(SIZE, out)
        time.sleep(0.02)
    with np.errstate(over="ignore"):
        assert np.array_equal(out, wanted(SIZE) * 5)


@pytest.mark.parametrize(("first", "end", "step", "num_workers"), CUTS)
@pytest.mark.parametrize("wakes", [True, False])
def test_every_share_is_run_whoever_has_it(
    native: NativeWorkers, first: int, end: int, step: int, num_workers: int, wakes: bool
) -> None:
    """Pieces begin at the first item and then every `step`, and none runs twice, also while all workers sleep."""
    lock, pieces = threading.Lock(), []

    def entry(_cells: bytes, _geometry: bytes, begin: int, until: int) -> None:
        with lock:
            pieces.append((begin, until))

    called = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)(entry)
    address = ctypes.cast(called, ctypes.c_void_p).value
    assert address is not None
    time.sleep(0.002)
    for _ in range(20):
        pieces.clear()
        assert native.run(address, b"", b"", 0, first, end, step, num_workers, wakes=wakes)
        assert sorted(pieces) == [(begin, min(begin + step, end)) for begin in range(first, end, step)]


def test_threads_take_their_own_share_first(native: NativeWorkers) -> None:
    """The launching thread begins at the first item, and a worker that joins at once at a share of its own."""
    begun: dict[int, int] = {}

    def entry(_cells: bytes, _geometry: bytes, begin: int, _until: int) -> None:
        begun.setdefault(threading.get_native_id(), begin)
        time.sleep(0.001)

    called = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)(entry)
    address = ctypes.cast(called, ctypes.c_void_p).value
    assert address is not None
    assert native.run(address, b"", b"", 0, 0, 300, 1, 2)
    assert begun.pop(threading.get_native_id()) == 0
    assert begun
    assert min(begun.values()) >= 100


def test_a_short_launch_wakes_workers_only_in_a_row_of_launches_and_not_each_time() -> None:
    made = NativeWorkers(0, 0, None)
    assert made.are_worth_waking(60_000, 0)
    assert not made.are_worth_waking(9_000, 1_000_000)
    assert made.are_worth_waking(9_000, 1_100_000)
    assert not made.are_worth_waking(9_000, 1_150_000)
    assert made.are_worth_waking(9_000, 1_310_000)
    assert not made.are_worth_waking(9_000, 9_000_000)


def test_what_several_threads_write_shares_no_cache_line(native: NativeWorkers) -> None:
    written = [native_pool._EPOCH, native_pool._PARKED, native_pool._ACTIVE, native_pool._OPEN, native_pool.OWNER]
    lines = [offset // 64 for offset in (*written, native_pool._ENTRY)]
    assert len(set(lines)) == len(lines)
    assert native._address % 64 == 0
    native._start(2)
    assert native._shares_for[1] % 64 == 0
    assert native_pool.SHARE_BYTES % 64 == 0


def test_a_launch_goes_on_where_its_own_thread_is_just_starting_workers(native: NativeWorkers) -> None:
    """A signal's handler that launches may have interrupted just that, and waits for nobody."""
    made = NativeWorkers(ctypes.cast(native._run, ctypes.c_void_p).value or 0, native._worker, native)
    pieces = []

    def entry(_cells: bytes, _geometry: bytes, begin: int, until: int) -> None:
        pieces.append((begin, until))

    called = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)(entry)
    address = ctypes.cast(called, ctypes.c_void_p).value
    assert address is not None
    with made._lock:
        assert made.run(address, b"", b"", 0, 0, 10, 3, 2)
    assert sorted(pieces) == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert made._num_started == 0


def test_whoever_looks_for_workers_waits_for_nobody_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_making", workers._Making())
    with workers._making._lock:
        for _ in range(5):
            assert workers.native_workers(1e9) is None
    assert not workers._making.is_started
    native_workers = workers.native_workers(1e9)
    assert workers._making.is_started
    workers._making.wait()
    assert native_workers in (None, workers._making.workers)


def test_python_threads_do_what_they_can_where_there_can_be_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            if self.name != "quernel-cpu-1":
                raise RuntimeError("can't start new thread")
            super().start()

    made = pool._Workers()
    monkeypatch.setattr(pool, "_workers", made)
    monkeypatch.setattr(threading, "Thread", Refused)
    done: list[tuple[int, int]] = []
    bounds = [(number, number + 1) for number in range(20)]
    for _ in range(3):
        done.clear()
        pool.run_pieces(lambda first, end: done.append((first, end)), list(bounds), 4)
        assert sorted(done) == bounds
    assert made._num_started == 1
    with made._lock:  # as a signal's handler would find it
        done.clear()
        pool.run_pieces(lambda first, end: done.append((first, end)), list(bounds), 4)
        assert sorted(done) == bounds


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.usefixtures("native")
def test_a_forked_child_makes_workers_of_its_own() -> None:
    built, out = Built(module_of(BODY, out=A1), CONTIGUOUS), np.zeros(SIZE, np.int64)
    built.over(SIZE, out)
    before = workers._making
    child = os.fork()
    if child == 0:
        status = 3
        try:
            again = np.zeros(SIZE, np.int64)
            make_native_workers()
            built.loaded.ns_per_item = 100.0
            built.over(SIZE, again)
            status = 0 if np.array_equal(again, out) and workers._making is not before else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_other_processors_have_no_native_pool() -> None:
    assert native_pool.pool_ir("riscv64") is None
