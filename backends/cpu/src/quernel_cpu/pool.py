"""Worker threads that share one launch, started at the first one that is worth it.

The thread that launches works too, and takes every piece that no worker has taken yet: launches from several threads at
once share the workers, and one made while all are busy simply runs on its own thread. A forked child has no workers and
starts its own.

A woken thread may be put on the core of the one that woke it, and wait there for its own launch to end; so a worker
stays away from the core of the launch that it joins.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from queue import SimpleQueue

from quernel import settings
from quernel.compiler.own_workers import num_cores
from quernel.forks import in_child

__all__ = ["available_threads", "run_pieces", "threads_of_launch"]

Piece = Callable[[int, int], None]
"""`piece(first, end)`: runs a part of a launch; releases the GIL while it does."""


def available_threads() -> int:
    """How many threads a launch may use: `QUERNEL_NUM_THREADS`, or one for each core that this process may run on."""
    return settings.num_threads() or num_cores()


_KEPT_NS = 50_000_000
_cores = 1
_counted_ns = -_KEPT_NS


def threads_of_launch(now_ns: int) -> int:
    """The same for a launch at that time of `perf_counter_ns`; a change of cores counts after 50 ms.

    On the launch path: the system takes two microseconds to count them, as long as a small launch altogether.
    """
    global _cores, _counted_ns
    if now_ns - _counted_ns >= _KEPT_NS:
        _cores, _counted_ns = num_cores(), now_ns
    return settings.num_threads() or _cores


class _Job:
    """The pieces of one launch, and how many workers run some.

    The launching thread may be interrupted anywhere; what must not be lost is counted by the workers alone, which never
    are.
    """

    def __init__(self, piece: Piece, bounds: list[tuple[int, int]], cores: frozenset[int]) -> None:
        self.cores = cores
        self._piece = piece
        self._left = bounds  # `pop` takes one without a lock.
        self._changed = threading.Condition(threading.Lock())
        self._num_helping = 0
        self._is_over = False
        self._error: BaseException | None = None

    def work(self) -> None:
        """Runs pieces until none is left to take; what one raises is kept, unless it is to end the thread."""
        while True:
            try:
                first, end = self._left.pop()
            except IndexError:
                return
            try:
                self._piece(first, end)
            except Exception as error:
                self._error = self._error or error

    def help(self) -> None:
        """Works on a worker's thread, unless the launch is over."""
        with self._changed:
            if self._is_over:
                return
            self._num_helping += 1
        try:
            self.work()
        except BaseException as error:
            self._error = self._error or error
        finally:
            with self._changed:
                self._num_helping -= 1
                self._changed.notify()

    def end(self) -> None:
        """Runs what is left and returns when no worker runs a piece; an interrupt waits for that too. Idempotent.

        Raises:
            KeyboardInterrupt: it came meanwhile.
        """
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                self.work()  # There are pieces left if the launching thread was interrupted.
                with self._changed:
                    self._is_over = True
                    while self._num_helping:
                        self._changed.wait()
                break
            except KeyboardInterrupt as raised:
                interrupt = raised
        if interrupt is not None:
            raise interrupt

    def raise_error(self) -> None:
        """Raises what a piece has raised, if any has."""
        if self._error is not None:
            raise self._error


class _Workers:
    """The worker threads of this process, as many as any launch has asked for so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        self._num_started = 0

    def offer(self, job: _Job, num_workers: int) -> None:
        """Lets up to `num_workers` of them join in, or as many as there can be."""
        if self._num_started < num_workers:
            self._start(num_workers)
        for _ in range(min(num_workers, self._num_started)):
            self._queue.put(job)

    def _start(self, num_workers: int) -> None:
        """Starts as many in all, unless that is being done: a signal's handler may have interrupted it to launch."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            while self._num_started < num_workers:
                name = f"quernel-cpu-{self._num_started + 1}"
                threading.Thread(target=_serve, args=(self._queue,), name=name, daemon=True).start()
                self._num_started += 1
        except RuntimeError:  # The system, or an interpreter that ends, refuses more threads.
            pass
        finally:
            self._lock.release()


def _serve(queue: SimpleQueue[_Job]) -> None:
    cores: frozenset[int] = frozenset()
    while True:
        job = queue.get()
        if job.cores != cores:
            cores = job.cores
            _stay_on(cores)
        job.help()
        del job  # It holds on to the launch's arguments.


@cache
def _current_core() -> Callable[[], int] | None:
    """The C library's `sched_getcpu`, where there is one and threads can be kept from a core."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        function: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
    return function


def _cores_for_workers() -> frozenset[int]:
    """The cores that this thread may run on but the one that it runs on; empty where that cannot be told."""
    current_core = _current_core()
    if current_core is None:
        return frozenset()
    return frozenset(os.sched_getaffinity(0)) - {current_core()}


def _stay_on(cores: frozenset[int]) -> None:
    if cores:
        with suppress(OSError):  # The process may be confined meanwhile; then any core will do.
            os.sched_setaffinity(0, cores)


_workers = _Workers()


def _start_over() -> None:
    global _workers
    _workers = _Workers()


in_child(_start_over)


def run_pieces(piece: Piece, bounds: list[tuple[int, int]], num_threads: int) -> None:
    """Runs `piece` for each of `bounds`, on this thread and up to `num_threads - 1` others. Blocks.

    An exception of a piece is raised here once all pieces are done, and so is an interrupt: none runs any more when
    this returns or raises, as the arrays may be gone afterwards.
    """
    job = _Job(piece, bounds, _cores_for_workers())
    try:
        try:
            _workers.offer(job, min(num_threads, len(bounds)) - 1)
            job.work()
        finally:
            job.end()
    finally:
        job.end()  # Once more, for an interrupt that came before the first had begun to wait.
    job.raise_error()
