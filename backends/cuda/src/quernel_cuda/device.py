"""The operations on a CUDA device: memory, streams, events, graphs and launches, in its primary context.

The default stream is one of our own that keeps order with the legacy stream, on which PyTorch and CuPy work unless told
otherwise; streams that users open run beside all others. Memory that the default stream allocates, copies or fills is
ready for every open stream, and what they were given is done before memory is freed or read through the default one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

import numpy as np

from quernel.compiler.artifacts import ArtifactHeader
from quernel.errors import DeviceError
from quernel.geometry import Geometry
from quernel.runtime.open_streams import OpenStreams
from quernel.runtime.operations import (
    CellLaunch,
    DeviceInfo,
    DeviceOperations,
    Memory,
    PreparedLaunch,
    RepeatedLaunch,
    ShapedLaunch,
)
from quernel_cuda import _driver
from quernel_cuda._driver import Context, LostContextError, call
from quernel_cuda.compiler import CudaCompiler
from quernel_cuda.exchange import CudaExchange
from quernel_cuda.launching import Launches
from quernel_cuda.memory import Pool, fill
from quernel_cuda.peers import open_way
from quernel_cuda.staging import Staging
from quernel_cuda.streams import CudaEvent, CudaGraph, CudaStream
from quernel_cuda.target import CudaTarget
from quernel_cuda.types import Loaded

__all__ = ["CudaDevice"]

_BESIDE_LEGACY: Final = 1
"""The flag of a stream that keeps no order with the legacy one."""
_UNTIMED: Final = 2


class CudaDevice(DeviceOperations[Loaded]):
    """One device. Launches run on in its streams; every method may be called from any thread."""

    def __init__(self, info: DeviceInfo, compiler: CudaCompiler, context: Context) -> None:
        """Takes over `context`, and gives it back should it raise."""
        self.info = info
        self._context = context
        try:
            self._target = CudaTarget(compiler, self._context)
            with self._context:
                self._pool = Pool(self._context.device)
                self._default = CudaStream(call("cuStreamCreate", 0, doing="opening a stream"))
        except BaseException:
            self._context.release()
            raise
        self._staging = Staging()
        self._reached: WeakSet[CudaDevice] = WeakSet()
        """Devices to and from whose memory the straight way is open, or was found missing."""
        self._streams: OpenStreams[CudaStream] = OpenStreams()
        self._launches = Launches(self._context, self._default.handle)
        self.exchange: CudaExchange = CudaExchange(self, self._default.handle)
        self._is_closed = False

    @property
    def target(self) -> CudaTarget:
        """The half that stays with this device."""
        return self._target

    # --- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        """Memory of the driver's pool.

        Raises:
            DeviceError: there is not enough.
        """
        self.exchange.collect()
        with self._context:
            memory = self._pool.allocate(nbytes, self._default.handle)
            self._others_wait()
        return memory

    def free(self, memory: Memory) -> None:
        """Gives the memory back, once the work that was given to the device before is done.

        With a lost context it is gone: nobody who only lets go of an array is told, all who use the device are.
        """
        if self._is_closed or self._context.is_lost:
            return
        with suppress(LostContextError), self._context:
            self._wait_for_others()
            self._pool.free(memory, self._default.handle)

    def copy_from_host(self, target: Memory, offset_bytes: int, source: np.ndarray[Any, Any], stream: Any) -> None:
        """Copies `source` (C-contiguous) to the memory, by way of pinned memory."""
        with self._context:
            self._staging.write(target.address + offset_bytes, _bytes_of(source), self._handle(stream))
            self._after(stream)

    def copy_to_host(self, target: np.ndarray[Any, Any], source: Memory, offset_bytes: int, stream: Any) -> None:
        """Copies from the memory into `target` (C-contiguous), after the stream's work; waits.

        Raises:
            DeviceError: a launch before this failed.
        """
        with self._context:
            if stream is None:
                self._wait_for_others()
            self._wait(self._handle(stream))
            self._staging.read(_bytes_of(target), source.address + offset_bytes, self._handle(stream))

    def copy(
        self, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int, stream: Any
    ) -> None:
        """Copies on the device; the ranges may overlap."""
        to, start = target.address + target_offset, source.address + source_offset
        with self._context:
            handle = self._handle(stream)
            if abs(to - start) < nbytes and to != start:
                between = self._pool.allocate(nbytes, handle)
                try:
                    call("cuMemcpyDtoDAsync", between.address, start, nbytes, handle, doing="copying on the device")
                    call("cuMemcpyDtoDAsync", to, between.address, nbytes, handle, doing="copying on the device")
                finally:
                    self._pool.free(between, handle)
            else:
                call("cuMemcpyDtoDAsync", to, start, nbytes, handle, doing="copying on the device")
            self._after(stream)

    def copy_from_peer(
        self,
        target: Memory,
        target_offset: int,
        other: DeviceOperations[Any],
        source: Memory,
        source_offset: int,
        nbytes: int,
    ) -> bool:
        """Copies from another CUDA device, straight between the two where the machine can."""
        if not isinstance(other, CudaDevice):
            return False
        self._open_ways(other)
        with other._context:
            other._wait_for_others()
            ready = CudaEvent(other._context, _UNTIMED)
            call("cuEventRecord", ready.handle, other._default.handle)
        with self._context:
            call("cuStreamWaitEvent", self._default.handle, ready.handle, 0)
            call(
                "cuMemcpyPeerAsync",
                target.address + target_offset,
                self._context.handle,
                source.address + source_offset,
                other._context.handle,
                nbytes,
                self._default.handle,
                doing=f"copying from {other.info.name}",
            )
            done = CudaEvent(self._context, _UNTIMED)
            call("cuEventRecord", done.handle, self._default.handle)
            self._others_wait()
        with other._context:  # The source is neither freed nor written before it was read.
            call("cuStreamWaitEvent", other._default.handle, done.handle, 0)
        return True

    def fill(self, target: Memory, offset_bytes: int, pattern: bytes, count: int, stream: Any) -> None:
        """Writes `count` copies of `pattern`, one after the other."""
        with self._context:
            fill(target.address + offset_bytes, pattern, count, self._handle(stream))
            self._after(stream)

    # --- launching ----------------------------------------------------------------------------------------------------

    def launch(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any) -> None:
        """Gives the launch to the stream. On the launch path."""
        if loaded.prepared is None:
            loaded.prepared = self.prepare(loaded, header)
        loaded.prepared(geometry, arguments, stream)

    def prepare(self, loaded: Loaded, header: ArtifactHeader) -> PreparedLaunch:
        """A function for repeated launches."""
        return self._launches.prepare(loaded, header)

    def prepare_shape(
        self, prepared: PreparedLaunch, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, stream: Any
    ) -> ShapedLaunch:
        """A function for repeated launches in one shape and stream."""
        return self._launches.shape(loaded, header, geometry, stream)

    def prepare_cells(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, stream: Any) -> CellLaunch:
        """The same for cells that the caller writes."""
        return self._launches.cells(loaded, header, geometry, stream)

    def prepare_bound(
        self,
        prepared: PreparedLaunch,
        loaded: Loaded,
        header: ArtifactHeader,
        geometry: Geometry,
        arguments: bytes,
        stream: Any,
    ) -> RepeatedLaunch:
        """A function that repeats one launch."""
        return self._launches.bound(loaded, header, geometry, arguments, stream)

    # --- streams and events -------------------------------------------------------------------------------------------

    def open_stream(self) -> CudaStream:
        """A stream beside all others; what the default one was given so far is done before."""
        with self._context:
            stream = CudaStream(call("cuStreamCreate", _BESIDE_LEGACY, doing="opening a stream"))
            event = self._mark(self._default.handle, _UNTIMED)
            call("cuStreamWaitEvent", stream.handle, event.handle, 0)
        self._streams.add(stream)
        return stream

    def close_stream(self, stream: CudaStream) -> None:
        """Waits for the stream's work, and ends it.

        Raises:
            DeviceError: a launch before this failed, and nobody was told yet.
        """
        self._streams.discard(stream)
        if self._context.is_lost:
            return
        with self._context:
            self._wait(stream.handle)
            call("cuStreamDestroy", stream.handle)

    def synchronize(self, stream: Any) -> None:
        """Waits for the stream's work, or for all that any library of the process gave to the device.

        Raises:
            DeviceError: a launch before this failed.
        """
        with self._context:
            if stream is not None:
                self._wait(stream.handle)
                return
            call("cuCtxSynchronize", doing=f"waiting for cuda:{self.info.index}")
        self._context.recent.clear()
        self.exchange.collect()

    def record_event(self, stream: Any) -> CudaEvent:
        """A mark after the work given to the stream so far."""
        with self._context:
            return self._mark(self._handle(stream), 0)

    def wait_event(self, stream: Any, event: CudaEvent) -> None:
        """Makes later work of the stream wait for the event."""
        with self._context:
            call("cuStreamWaitEvent", self._handle(stream), event.handle, 0, doing="waiting for an event in a stream")

    def synchronize_event(self, event: CudaEvent) -> None:
        """Waits for the event."""
        with self._context:
            call("cuEventSynchronize", event.handle, doing="waiting for an event")

    def elapsed_ns(self, start: CudaEvent, end: CudaEvent) -> int:
        """Nanoseconds between two events, by the device's clock."""
        with self._context:
            milliseconds: float = call("cuEventElapsedTime", start.handle, end.handle, doing="reading the time")
        return round(milliseconds * 1e6)

    # --- graphs -------------------------------------------------------------------------------------------------------

    def begin_graph(self, stream: CudaStream) -> CudaStream:
        """Starts capturing what is given to the stream. Kernels may be loaded meanwhile."""
        relaxed = _driver.driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with self._context:
            call("cuStreamBeginCapture", stream.handle, relaxed, doing="capturing a graph")
        stream.is_capturing = True
        return stream

    def end_graph(self, capture: CudaStream) -> CudaGraph:
        """The captured graph, ready to launch."""
        with self._context:
            return CudaGraph(self._captured(capture))

    def update_graph(self, graph: CudaGraph, capture: CudaStream) -> CudaGraph:
        """The graph with the values of what was captured anew."""
        with self._context:
            graph.update(self._captured(capture))
        return graph

    def launch_graph(self, graph: CudaGraph, stream: Any) -> None:
        """Launches the graph."""
        with self._context:
            call("cuGraphLaunch", graph.executable, self._handle(stream), doing="launching a graph")
        self._context.recent.append("a graph")

    def _captured(self, capture: CudaStream) -> Any:
        capture.is_capturing = False
        graph = call("cuStreamEndCapture", capture.handle, doing="capturing a graph")
        if not int(graph):
            raise DeviceError("the capture of a graph was broken off", fix="capture again, without synchronizing in it")
        return graph

    # --- life and order -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Waits for what runs, and gives the context up."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._context.is_lost:
            with self._context:
                status, *_ = _driver.driver().cuCtxSynchronize()
                if not int(status):
                    self._target.unload()
                    self._staging.close()
                    self._pool.trim()
                    call("cuStreamDestroy", self._default.handle)
        self.exchange.close()
        self._streams.clear()
        self._context.release()

    def _open_ways(self, other: CudaDevice) -> None:
        if other not in self._reached:
            open_way(self._context, other._context, other._pool)
            open_way(other._context, self._context, self._pool)
            self._reached.add(other)
            other._reached.add(self)

    def _handle(self, stream: Any) -> Any:
        return self._default.handle if stream is None else stream.handle

    def _wait(self, handle: Any) -> None:
        call("cuStreamSynchronize", handle, doing=f"waiting for cuda:{self.info.index}")

    def _mark(self, handle: Any, flags: int) -> CudaEvent:
        event = CudaEvent(self._context, flags)
        call("cuEventRecord", event.handle, handle, doing="recording an event")
        return event

    def _after(self, stream: Any) -> None:
        if stream is None:
            self._others_wait()

    def _others_wait(self) -> None:
        """Open streams wait for what the default one was given so far."""
        if self._streams:
            event = self._mark(self._default.handle, _UNTIMED)
            for stream in self._streams:
                if not stream.is_capturing:
                    call("cuStreamWaitEvent", stream.handle, event.handle, 0)

    def _wait_for_others(self) -> None:
        """The default stream waits for what open ones were given so far."""
        for stream in self._streams:
            if not stream.is_capturing:
                event = self._mark(stream.handle, _UNTIMED)
                call("cuStreamWaitEvent", self._default.handle, event.handle, 0)


def _bytes_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return array.reshape(-1).view(np.uint8)
