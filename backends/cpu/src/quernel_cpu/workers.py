"""Native worker threads, made beside the first launches that are worth it; `pool` serves where there are none.

A forked child has no workers and starts its own. The threads end with the process.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from quernel_cpu import native_pool

if TYPE_CHECKING:
    from logging import Logger

__all__ = ["NativeWorkers", "make_native_workers", "native_workers"]

_RUN_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int32,
)
_START = struct.Struct("<Qq")


class NativeWorkers:
    """The worker threads of this process, as many as any launch has asked for so far."""

    def __init__(self, libraries: tuple[Any, ...], libc: Any) -> None:
        run, worker = libraries
        self._libraries = libraries
        self._run = _RUN_TYPE(run.address)
        self._worker = worker.address
        self._libc = libc
        buffer = np.zeros(native_pool.POOL_BYTES + 64, np.uint8)
        start = -buffer.ctypes.data % 64
        self._memory = buffer[start : start + native_pool.POOL_BYTES]
        self._address = self._memory.ctypes.data
        self._starts: list[Any] = []
        self._lock = threading.Lock()
        self._num_started = 0
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
    ) -> bool:
        """Runs a launch in pieces of `step` items, on this thread and the workers. Blocks. On the launch path.

        The worker of number `k` gets the geometry `k * geometry_stride` bytes further; this thread's is the first.
        Gives whether it ran: not if another launch has the workers.
        """
        if self._num_started < num_workers:
            self._start(num_workers)
        return bool(
            self._run(self._address, entry, arguments, geometry, geometry_stride, first, end, step, num_workers)
        )

    def _start(self, num_workers: int) -> None:
        with self._lock:
            while self._num_started < num_workers:
                number = self._num_started + 1
                start = ctypes.create_string_buffer(_START.pack(self._address, number), _START.size)
                self._starts.append(start)
                thread = ctypes.c_ulong()
                status = self._libc.pthread_create(
                    ctypes.byref(thread), None, ctypes.c_void_p(self._worker), ctypes.byref(start)
                )
                if status:
                    _log().warning("a worker thread could not be started: %s", os.strerror(status))
                    return
                self._libc.pthread_detach(thread)
                self._num_started = number


_LAUNCHES_BEFORE = 3
"""So many launches have the workers of `pool` before native ones are made: a short program needs none."""


class _Making:
    """The native workers of this process, or the thread that makes them."""

    def __init__(self) -> None:
        self.workers: NativeWorkers | None = None
        self.num_asked = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Makes them, unless another thread does; the interpreter waits for it before it ends."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._make, name="quernel-cpu-native")
                self._thread.start()

    def wait(self) -> None:
        """Returns when they are made, or cannot be."""
        self.start()
        assert self._thread is not None
        self._thread.join()

    def _make(self) -> None:
        from quernel_cpu import _toolchain

        try:
            triple, cpu, features = _toolchain.host()
            text = native_pool.pool_ir(triple.partition("-")[0]) if "linux" in triple else None
            if text is None:
                return
            object_code = _toolchain.compile_ir(text, triple, cpu, features, is_vector_code=True)
            libraries = _toolchain.load_symbols(object_code, native_pool.RUN, native_pool.WORKER)
            self.workers = NativeWorkers(libraries, ctypes.CDLL(None))
        except Exception:
            _log().debug("native workers cannot be made here; Python's threads serve", exc_info=True)


_making = _Making()


def native_workers() -> NativeWorkers | None:
    """The workers, once they are made; `pool` serves until then. On the launch path."""
    making = _making
    if making.workers is not None:
        return making.workers
    making.num_asked += 1
    if making.num_asked == _LAUNCHES_BEFORE:
        making.start()
    return None


def make_native_workers() -> NativeWorkers | None:
    """The workers, made now if they are not yet; `None` where the system has no futex."""
    _making.wait()
    return _making.workers


def _start_over() -> None:
    global _making
    _making = _Making()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


def _log() -> Logger:
    """Imported when there is something to say: a warm start has nothing."""
    import logging

    return logging.getLogger(__name__)
