"""The operations on an OpenCL device: memory, queues as streams, events, and launches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from quernel.codegen.pointers import Pointers
from quernel.compiler.artifacts import ANY_RANK, ArtifactHeader, SlotKind
from quernel.geometry import Geometry
from quernel.runtime.open_streams import OpenStreams
from quernel.runtime.operations import DeviceInfo, DeviceOperations, Memory, PreparedLaunch
from quernel_opencl import _driver
from quernel_opencl._toolchain import DeviceKey
from quernel_opencl.compiler import OpenclCompiler
from quernel_opencl.memory import AddressMemory, BufferMemory, MemoryKind
from quernel_opencl.target import OpenclTarget
from quernel_opencl.targets import device_key
from quernel_opencl.types import Loaded

__all__ = ["OpenclDevice"]

_CELL: Final = 8
_MOST_WAITING_BYTES: Final = 256 << 20
"""Freed memory of this process that may wait for running kernels before `free` itself waits for them."""


class OpenclDevice(DeviceOperations[Loaded]):
    """One device. Launches run on in its queues; every method may be called from any thread."""

    def __init__(self, info: DeviceInfo, compiler: OpenclCompiler) -> None:
        self.info = info
        self._key = device_key(compiler.target_info)
        self._target = OpenclTarget(compiler)
        self._memory: MemoryKind
        if compiler.pointers is Pointers.ADDRESS:
            self._memory = AddressMemory()
        else:
            self._memory = BufferMemory(self._key, most_bytes=info.memory_bytes, maps_host_memory=info.kind == "cpu")
        self.host_accessible = self._memory.is_shared
        self._default = _Stream(self._key)
        self._streams: OpenStreams[_Stream] = OpenStreams()
        self._flushes = info.kind != "cpu"
        self._latest: object = None
        """Changes with each launch."""
        self._finished: object = None
        """What `_latest` was before all queues were last waited for."""
        self._freeing = threading.RLock()  # The collector may free arrays in the midst of any method.
        self._waiting: list[Memory] = []
        """Freed memory that running kernels may still use."""
        self._waiting_bytes = 0

    @property
    def target(self) -> OpenclTarget:
        """The half that stays with this device."""
        return self._target

    # --- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        """Memory of this process where kernels reach it, else a buffer.

        Raises:
            DeviceError: there is not enough.
        """
        return self._memory.allocate(nbytes)

    def free(self, memory: Memory) -> None:
        """Gives the memory back, once the work that was given to the device before is done."""
        if not self._memory.is_shared or self._latest is self._finished:
            self._memory.free(memory)
            return
        with self._freeing:  # What waits before the queues are waited for is done afterwards.
            self._waiting.append(memory)
            self._waiting_bytes += memory.nbytes
        if self._waiting_bytes > _MOST_WAITING_BYTES:
            self.synchronize(None)

    def copy_from_host(self, target: Memory, offset_bytes: int, source: np.ndarray[Any, Any], stream: Any) -> None:
        """Copies `source` (C-contiguous) to the memory."""
        self._memory.write(self._queue_of(stream), target, offset_bytes, source)

    def copy_to_host(self, target: np.ndarray[Any, Any], source: Memory, offset_bytes: int, stream: Any) -> None:
        """Copies from the memory into `target` (C-contiguous)."""
        self._memory.read(self._queue_of(stream), target, source, offset_bytes)

    def copy(
        self, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int, stream: Any
    ) -> None:
        """Copies on the device."""
        into = self._default if stream is None else stream
        queue = into.queue
        self._memory.copy(queue, target, target_offset, source, source_offset, nbytes)
        into.catch_up(queue)

    def fill(self, target: Memory, offset_bytes: int, pattern: bytes, count: int, stream: Any) -> None:
        """Writes `count` copies of `pattern`, one after the other."""
        into = self._default if stream is None else stream
        queue = into.queue
        self._memory.fill(queue, target, offset_bytes, pattern, count)
        into.catch_up(queue)

    def host_view(self, memory: Memory) -> memoryview | None:
        """The memory's bytes, where they are this process's own."""
        return self._memory.host_view(memory)

    # --- launching ----------------------------------------------------------------------------------------------------

    def launch(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any) -> None:
        """Gives the launch to the stream's queue. On the launch path."""
        if loaded.prepared is None:
            loaded.prepared = self.prepare(loaded, header)
        loaded.prepared(geometry, arguments, stream)

    def prepare(self, loaded: Loaded, header: ArtifactHeader) -> PreparedLaunch:
        """A function for repeated launches, with one kernel object per thread, which sets only what has changed."""
        kept = threading.local()
        memory, default, flushes, enqueue = self._memory, self._default, self._flushes, _driver.enqueue()
        plan, failures = _plan(header, memory), _driver.error_type()

        def prepared(geometry: Geometry, arguments: bytes, stream: Any) -> None:
            try:
                state: _KernelState = kept.state
            except AttributeError:
                state = kept.state = _KernelState(loaded, plan, memory)
            try:
                if arguments != state.arguments or memory.num_freed != state.num_freed:
                    state.set(arguments)
                if geometry is not state.geometry:
                    state.use(geometry)
                into = default if stream is None else stream
                queue = into.queue
                enqueue(queue, state.kernel, state.global_size, state.local_size)
                self._latest = object()
                if flushes:
                    queue.flush()
                if queue is not into.queue:
                    into.catch_up(queue)
            except failures as error:
                state.arguments = b""
                raise _driver.failure(f"launching {loaded.entry}", error) from error

        return prepared

    # --- streams and events -------------------------------------------------------------------------------------------

    def open_stream(self) -> _Stream:
        """Another queue."""
        stream = _Stream(self._key)
        self._streams.add(stream)
        return stream

    def close_stream(self, stream: _Stream) -> None:
        """Waits for the queue's work."""
        _driver.finish(stream.queue)
        self._streams.discard(stream)

    def synchronize(self, stream: Any) -> None:
        """Waits for the stream's work, or for that of all queues.

        Raises:
            DeviceError: a launch before this failed.
        """
        if stream is not None:
            _driver.finish(stream.queue)
            return
        latest = self._latest
        with self._freeing:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        _driver.finish(self._default.queue)
        for other in self._streams:
            _driver.finish(other.queue)
        self._finished = latest
        for memory in waiting:
            self._memory.free(memory)

    def record_event(self, stream: Any) -> Any:
        """A marker in the queue. The first one in a stream makes its queue a timed one."""
        return (self._default if stream is None else stream).marker()

    def wait_event(self, stream: Any, event: Any) -> None:
        """Makes later work of the queue wait for the event."""
        _driver.wait_in(self._queue_of(stream), event)

    def synchronize_event(self, event: Any) -> None:
        """Waits for the event."""
        with _driver.translated("waiting for an event"):
            event.wait()

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Nanoseconds between two events, by the device's clock."""
        return _driver.end_ns(end) - _driver.end_ns(start)

    def close(self) -> None:
        """Waits for what runs, and lets the queues go."""
        self.synchronize(None)
        self._streams.clear()

    def _queue_of(self, stream: Any) -> Any:
        return (self._default if stream is None else stream).queue


class _Stream:
    """A queue, replaced by a timed one when an event is first recorded: timing costs some drivers 6 µs a launch.

    Whoever gives work to `queue` looks at it once more afterwards and calls `catch_up` where it has changed meanwhile.

    Attributes:
        queue: what work is given to now.
    """

    def __init__(self, device: DeviceKey) -> None:
        self.queue = _driver.open_queue(device)
        self._device = device
        self._is_timed = False
        self._lock = threading.Lock()

    def catch_up(self, queue: Any) -> None:
        """Waits for a queue that was replaced while work was given to it, so that later work comes after it."""
        if queue is not self.queue:
            _driver.finish(queue)

    def marker(self) -> Any:
        """An event that ends when the work given before is done."""
        if not self._is_timed:
            with self._lock:
                if not self._is_timed:
                    timed = _driver.open_queue(self._device, is_timed=True)
                    _driver.wait_in(timed, _driver.marker(self.queue))
                    self.queue.flush()
                    self.queue, self._is_timed = timed, True
        return _driver.marker(self.queue)


_Plan = tuple[tuple[int, int, int, Callable[[Any, int, int], None] | None], ...]
"""For each slot: its argument's number, the first byte and the end of its value in the cells; what sets a pointer."""


def _plan(header: ArtifactHeader, memory: MemoryKind) -> _Plan:
    planned: list[tuple[int, int, int, Callable[[Any, int, int], None] | None]] = []
    number = 0
    for index, slot in enumerate(header.slots):
        first = index * _CELL
        if slot.kind not in (SlotKind.POINTER, SlotKind.DIAGNOSTICS):
            planned.append((number, first, first + slot.dtype.itemsize, None))
            number += 1
            continue
        is_alone = slot.param >= 0 and header.params[slot.param].ndim == ANY_RANK
        set_pointer = memory.set_pointer_alone if is_alone else memory.set_pointer
        planned.append((number, first, first + _CELL, set_pointer))
        number += 1 if is_alone or memory.is_shared else 2
    return tuple(planned)


class _KernelState:
    """A kernel object of one thread, and what is set in it."""

    __slots__ = ("arguments", "geometry", "global_size", "kernel", "local_size", "memory", "num_freed", "plan")

    def __init__(self, loaded: Loaded, plan: _Plan, memory: MemoryKind) -> None:
        self.kernel = _driver.kernel(loaded)
        self.plan = plan
        self.memory = memory
        self.arguments = b""
        self.num_freed = memory.num_freed
        self.geometry: Geometry | None = None
        self.global_size: tuple[int, ...] = ()
        self.local_size: tuple[int, ...] = ()

    def set(self, arguments: bytes) -> None:
        """Sets the arguments that differ from those of the last launch. On the launch path."""
        num_freed = self.memory.num_freed
        before = self.arguments if num_freed == self.num_freed else b""
        kernel = self.kernel
        self.arguments = b""  # Should one be refused, all are set again next time.
        for number, first, end, set_pointer in self.plan:
            value = arguments[first:end]
            if value == before[first:end]:
                continue
            if set_pointer is None:
                _driver.set_value(kernel, number, value)
            else:
                set_pointer(kernel, number, int.from_bytes(value, "little"))
        self.arguments = arguments
        self.num_freed = num_freed

    def use(self, geometry: Geometry) -> None:
        """Takes on the sizes of a launch, the fastest axis first as OpenCL counts."""
        sizes = [count * size for count, size in zip(geometry.grid, geometry.block, strict=True)]
        self.global_size = tuple(reversed(sizes))
        self.local_size = tuple(reversed(geometry.block))
        self.geometry = geometry
