"""Native worker threads, made beside the first launches that are worth it; `pool` serves where there are none.

A forked child has no workers and starts its own. The threads end with the process.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from quernel.errors import DeviceError
from quernel.forks import in_child
from quernel_cpu import native_pool
from quernel_cpu.code_image import is_image, map_image
from quernel_cpu.host import host
from quernel_cpu.host_store import keep, kept

if TYPE_CHECKING:
    from logging import Logger

    from quernel.store import Environment

__all__ = ["NativeWorkers", "make_native_workers", "native_workers"]

_RUN_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_int32,
)
_START = struct.Struct("<Qq")
_LINE_BYTES = 64
_WORTH_WAKING_NS = 50_000
"""Waking a core takes about that long, and the thread that does it some microseconds."""
_SOON_NS = 200_000


def _lines(num_bytes: int) -> np.ndarray[Any, Any]:
    """Zeros that begin a cache line and share none with anything else."""
    buffer = np.zeros(num_bytes + 2 * _LINE_BYTES, np.uint8)
    start = -buffer.ctypes.data % _LINE_BYTES
    return buffer[start : start + num_bytes]


class NativeWorkers:
    """The worker threads of this process, as many as any launch has asked for so far."""

    def __init__(self, run: int, worker: int, keep_alive: object) -> None:
        """`run`, `worker`: addresses of the two functions of `native_pool`, whose code `keep_alive` holds."""
        self._keep_alive = keep_alive
        self._run = _RUN_TYPE(run)
        self._run_address = run
        self._worker = worker
        self._libc = ctypes.CDLL(None)
        self._memory = _lines(native_pool.POOL_BYTES)
        self._address = self._memory.ctypes.data
        self._shares = [_lines(native_pool.SHARE_BYTES)]
        self._shares_for = (0, self._shares[0].ctypes.data)
        """How many workers the latest shares suffice for, and their address: one value, as a thread may replace it."""
        self._starts: list[Any] = []
        self._lock = threading.Lock()
        self._num_started = 0
        self._launched_ns = self._woke_ns = -_SOON_NS
        self._set_cores(os.sched_getaffinity(0))

    def _set_cores(self, cores: set[int]) -> None:
        mask = bytearray(native_pool.MASK_BYTES)
        for core in cores:
            if core < 8 * native_pool.MASK_BYTES:
                mask[core >> 3] |= 1 << (core & 7)
        self._memory[native_pool.MASK : native_pool.MASK + native_pool.MASK_BYTES] = np.frombuffer(mask, np.uint8)
        self._memory[native_pool.NUM_CORES : native_pool.NUM_CORES + 4].view(np.int32)[0] = len(cores)

    def run(
        self,
        entry: int,
        arguments: bytes,
        geometry: bytes,
        geometry_stride: int,
        first: int,
        end: int,
        step: int,
        num_workers: int,
        *,
        wakes: bool = True,
    ) -> bool:
        """Runs a launch in pieces of `step` items, on this thread and the workers. Blocks. On the launch path.

        The worker of number `k` gets the geometry `k * geometry_stride` bytes further; this thread's is the first.
        `wakes`: workers that sleep are woken, instead of left out. Gives whether it ran: not if another launch has the
        workers.
        """
        if self._num_started < num_workers:
            self._start(num_workers)
        most, shares = self._shares_for
        num = min(num_workers, most)
        return bool(
            self._run(self._address, entry, arguments, geometry, geometry_stride, shares, first, end, step, num, wakes)
        )

    def addresses(self, num_workers: int) -> tuple[int, int, int] | None:
        """Of what runs a launch on so many workers, of the pool and its shares; `None` before they were started."""
        most, shares = self._shares_for
        if min(most, self._num_started) < num_workers:
            return None
        return self._run_address, self._address, shares

    def are_worth_waking(self, expected_ns: float, now_ns: int) -> bool:
        """Whether a launch that takes so long on one core wakes the workers that sleep. On the launch path.

        It does if it is long. A short one does for the sake of those that follow, if one came just before; and then
        none does for a while, as workers that sleep again so soon have no core to run on.
        """
        is_one_of_many = now_ns - self._launched_ns < _SOON_NS
        self._launched_ns = now_ns
        if expected_ns < _WORTH_WAKING_NS and not (is_one_of_many and now_ns - self._woke_ns >= _SOON_NS):
            return False
        self._woke_ns = now_ns
        return True

    def leave_behind(self) -> None:
        """In a forked child, which has none of the threads: no launch gets these workers any more.

        Launches prepared in the parent still refer to them, so they are kept.
        """
        self._memory[native_pool.OWNER : native_pool.OWNER + 4].view(np.int32)[0] = 1
        _left_behind.append(self)

    def _start(self, num_workers: int) -> None:
        """Starts as many in all, unless that is being done: a signal's handler may have interrupted it to launch."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._shares_for[0] < num_workers:
                # A launch of another thread may still use the former ones.
                self._shares.append(_lines((num_workers + 1) * native_pool.SHARE_BYTES))
                self._shares_for = (num_workers, self._shares[-1].ctypes.data)
            while self._num_started < num_workers and self._start_one(self._num_started + 1):
                self._num_started += 1
        finally:
            self._lock.release()

    def _start_one(self, number: int) -> bool:
        """Starts the worker of that number; whether there could be one more thread."""
        start = ctypes.create_string_buffer(_START.pack(self._address, number), _START.size)
        self._starts.append(start)
        thread = ctypes.c_ulong()
        status = self._libc.pthread_create(
            ctypes.byref(thread), None, ctypes.c_void_p(self._worker), ctypes.byref(start)
        )
        if status:
            _log().warning("a worker thread could not be started: %s", os.strerror(status))
            return False
        self._libc.pthread_detach(thread)
        return True


_LAUNCHES_BEFORE = 3
"""So many launches have the workers of `pool` before native ones are compiled: a short program needs none."""
_LONG_LAUNCH_NS = 200_000
"""A launch that takes less on one core does not wait for the code of native workers to be found and loaded."""


class _Making:
    """The native workers of this process, or the thread that compiles their code.

    Whoever looks for them or starts that thread is not waited for: others go on without, a signal's handler too that
    has interrupted this very work in order to launch.
    """

    def __init__(self) -> None:
        self.workers: NativeWorkers | None = None
        self.num_asked = 0
        self.is_started = False
        self._has_looked = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Makes them of kept code, if there is any in the current environment; the first call of a process decides."""
        if not self._has_looked and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()

    def start(self) -> None:
        """Makes them in a thread, once; the interpreter waits for it before it ends."""
        if self._lock.acquire(blocking=False):
            try:
                self._start()
            finally:
                self._lock.release()

    def wait(self) -> None:
        """Returns when they are made, or cannot be."""
        with self._lock:
            self._start()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        if not self._has_looked:
            self._has_looked = True
            self.workers = _kept_workers(_environment())

    def _start(self) -> None:
        """Not where the interpreter ends: a thread that is cut off within LLVM keeps the process from ending."""
        self._look()
        if not self.is_started and self.workers is None and threading.main_thread().is_alive():
            thread = threading.Thread(target=partial(self._make, _environment()), name="quernel-cpu-native")
            with suppress(RuntimeError):  # The system may refuse more threads; then there are no workers either.
                thread.start()
                self._thread = thread
        self.is_started = True

    def _make(self, environment: Environment | None) -> None:
        try:
            self.workers = _compiled_workers(environment)
        except Exception:
            _log().debug("native workers cannot be made here; Python's threads serve", exc_info=True)


def _environment() -> Environment | None:
    from quernel.compiler.loader import caching_environment

    return caching_environment()


def _pool_ir() -> str | None:
    triple = host().triple
    return native_pool.pool_ir(triple.partition("-")[0]) if "linux" in triple else None


def _kept_workers(environment: Environment | None) -> NativeWorkers | None:
    """Those of the code that an earlier process has kept."""
    text = _pool_ir()
    payload = None if text is None else kept(text, environment)
    if payload is None or not is_image(payload):
        return None
    try:
        return _mapped_workers(payload)
    except DeviceError:
        _log().debug("the kept code of native workers cannot be used", exc_info=True)
        return None


def _mapped_workers(image: bytes) -> NativeWorkers:
    code = map_image(image)
    return NativeWorkers(code.address_of(native_pool.RUN), code.address_of(native_pool.WORKER), code)


def _compiled_workers(environment: Environment | None) -> NativeWorkers | None:
    """Those of code made now, and kept where it needs no linker."""
    from quernel_cpu import _toolchain
    from quernel_cpu.linking import linked_image

    text, here = _pool_ir(), host()
    if text is None:
        return None
    object_code = _toolchain.compile_ir(text, here.triple, here.cpu, here.features, is_vector_code=True)
    image = linked_image(object_code, native_pool.RUN, native_pool.WORKER)
    if image is not None:
        keep(text, image, environment)
        return _mapped_workers(image)
    libraries = _toolchain.load_symbols(object_code, native_pool.RUN, native_pool.WORKER)
    run, worker = libraries
    return NativeWorkers(run.address, worker.address, libraries)


_making = _Making()


def native_workers(expected_ns: float = 0.0) -> NativeWorkers | None:
    """The workers for a launch that takes so long on one core, once they are made; `pool` serves until then.

    On the launch path.
    """
    making = _making
    if making.workers is not None:
        return making.workers
    making.num_asked += 1
    if expected_ns > _LONG_LAUNCH_NS:
        making.look()
    if making.num_asked >= _LAUNCHES_BEFORE and not making.is_started:
        making.start()
    return making.workers


def make_native_workers() -> NativeWorkers | None:
    """The workers, made now if they are not yet; `None` where the system has no futex."""
    _making.wait()
    return _making.workers


_left_behind: list[NativeWorkers] = []


def _start_over() -> None:
    global _making
    workers, _making = _making.workers, _Making()
    if workers is not None:
        workers.leave_behind()


in_child(_start_over)


def _log() -> Logger:
    """Imported when there is something to say: a warm start has nothing."""
    import logging

    return logging.getLogger(__name__)
