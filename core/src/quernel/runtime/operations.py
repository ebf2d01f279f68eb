"""What a backend contributes beside its two halves: its devices, and the operations on one of them.

Only what nothing works without is abstract; the rest has a default that is right, if not always fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

import numpy as np

from quernel.errors import DeviceError
from quernel.values import frozen

if TYPE_CHECKING:
    from quernel.capabilities import TargetInfo
    from quernel.compiler.artifacts import ArtifactHeader
    from quernel.compiler.halves import ArtifactCompiler, CompilationTarget
    from quernel.geometry import Geometry
    from quernel.runtime.exchange import MemoryExchange

__all__ = [
    "PLUGIN_API",
    "Backend",
    "CellLaunch",
    "DeviceInfo",
    "DeviceOperations",
    "Health",
    "Memory",
    "Operand",
    "PreparedLaunch",
    "ReadingLaunch",
    "RepeatedLaunch",
    "ShapedLaunch",
    "Unavailable",
]

PLUGIN_API = 1
"""Version of everything that a plugin imports from the core; a plugin states the one it was built for."""

LoadedT = TypeVar("LoadedT")
T = TypeVar("T")

PreparedLaunch = Callable[["Geometry", bytes, Any], None]
"""`prepared(geometry, arguments, stream)`: one launch of one loaded kernel, as `DeviceOperations.launch`."""

ShapedLaunch = Callable[[bytes], None]
"""`shaped(arguments)`: one launch of one loaded kernel in one shape and stream."""

CellLaunch = tuple[Callable[[], Any], Callable[[Any], None]]
"""`take, shaped`: `take()` gives cells that are nobody else's, or raises `IndexError` when there are none left.

Their attribute `buffer` is writable memory for one cell per slot; `shaped(cells)` launches, and takes them back. In
`held` the launcher keeps the values that it wrote last, one per slot: `None` for each in new cells, and in those that
somebody else has written since.
"""

Operand = tuple[type, "np.dtype[Any] | None", int]
"""What one argument of a launch is: its class exactly, and of a NumPy array the dtype and rank.

An array of the device, of which only the address is passed, is given as that: an `int`.
"""

ReadingLaunch = Callable[..., Any]
"""`reading(*arguments)`: one launch in one shape and stream of arguments that it reads itself, one per parameter.

It gives `True` if it has launched, the arguments' bytes for a `ShapedLaunch` if it has only read them, and `None`, with
nothing done, for whatever the general path should look at: arguments that are not exactly of the operands' kinds, that
do not fit, or that the kernel writes and must not.
"""

RepeatedLaunch = Callable[[], None]
"""`repeated()`: one launch again, arguments and all."""


@frozen
class Unavailable:
    """Why something is not there, and how to get it."""

    reason: str
    fix: str


@frozen
class DeviceInfo:
    """One device, known without opening it.

    Attributes:
        backend: the backend's name.
        index: its number within the backend, from 0.
        name: what the driver calls it.
        kind: `cpu`, `gpu` or `accelerator`.
        uuid: a stable id, or an empty string.
        memory_bytes: its memory, or 0 where it is not known.
        details: further facts to show, as (name, value) pairs.
    """

    backend: str
    index: int
    name: str
    kind: str
    uuid: str = ""
    memory_bytes: int = 0
    details: tuple[tuple[str, str], ...] = ()


@frozen
class Health:
    """What `quernel doctor` shows of a backend.

    Attributes:
        versions: (component, version) pairs: toolchain, driver, vector library.
        problems: what does not work, each with its mend; empty when all is well.
        notes: what is not there, though nothing is broken: no device, on a machine where the backend still compiles.
    """

    versions: tuple[tuple[str, str], ...] = ()
    problems: tuple[Unavailable, ...] = ()
    notes: tuple[Unavailable, ...] = ()


@final
class Memory:
    """A block of device memory, owned by whoever allocated it and freed once.

    Attributes:
        address: of its first byte, as kernels see it (0 for an empty block).
        nbytes: its size.
        handle: the backend's own object.
    """

    __slots__ = ("address", "handle", "nbytes")

    def __init__(self, address: int, nbytes: int, handle: Any = None) -> None:
        self.address = address
        self.nbytes = nbytes
        self.handle = handle

    def __repr__(self) -> str:
        return f"Memory(address={self.address}, nbytes={self.nbytes}, handle={self.handle!r})"


class DeviceOperations(ABC, Generic[LoadedT]):
    """The operations on one open device. Every method MAY be called from any thread.

    A `stream` is the backend's own object, or `None` for the device's default stream. Operations in one stream run in
    order; a backend that runs everything synchronously is right too.
    """

    info: DeviceInfo
    host_accessible: bool = False
    """Whether kernels read and write host memory in place, so that NumPy arrays are arguments."""
    exchange: MemoryExchange | None = None
    """How memory that the host does not see is shared with other libraries; `None`: not at all."""
    survives_fork: bool = False
    """Whether a forked child may go on using the open device: no driver's context, no threads that it waits for."""

    @property
    @abstractmethod
    def target(self) -> CompilationTarget[Any, Any, LoadedT]:
        """The half that stays with this device; one object per device."""

    # --- memory -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory of at least `nbytes`, aligned to at least 64 bytes.

        Raises:
            DeviceError: there is not enough.
        """

    @abstractmethod
    def free(self, memory: Memory) -> None:
        """Gives the memory back, once all work that was given to the device before is done."""

    @abstractmethod
    def copy_from_host(self, target: Memory, offset_bytes: int, source: np.ndarray[Any, Any], stream: Any) -> None:
        """Copies `source` (C-contiguous, of bytes) to the memory. The source may be reused when this returns."""

    @abstractmethod
    def copy_to_host(self, target: np.ndarray[Any, Any], source: Memory, offset_bytes: int, stream: Any) -> None:
        """Copies from the memory into `target` (C-contiguous, of bytes), after the stream's earlier work. Blocks."""

    def copy(
        self, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int, stream: Any
    ) -> None:
        """Copies within this device. The default goes through the host."""
        staging = np.empty(nbytes, np.uint8)
        self.copy_to_host(staging, source, source_offset, stream)
        self.copy_from_host(target, target_offset, staging, stream)

    def copy_from_peer(
        self,
        target: Memory,
        target_offset: int,
        other: DeviceOperations[Any],
        source: Memory,
        source_offset: int,
        nbytes: int,
    ) -> bool:
        """Copies from another device without the host, in both devices' default streams; whether it did."""
        return False

    def fill(self, target: Memory, offset_bytes: int, pattern: bytes, count: int, stream: Any) -> None:
        """Writes `count` copies of `pattern`, one after the other. The default goes through the host."""
        data = np.frombuffer(pattern * count, np.uint8)
        self.copy_from_host(target, offset_bytes, data, stream)

    def host_view(self, memory: Memory) -> memoryview | None:
        """The memory's bytes as the host sees them, where both share it; else `None`."""
        return None

    # --- launching ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def launch(
        self, loaded: LoadedT, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any
    ) -> None:
        """Launches a loaded kernel. On the launch path.

        `arguments` holds one 8-byte little-endian cell per slot of the header, the value in its low bytes. `geometry`
        is never empty.

        Raises:
            LaunchError, DeviceError: the device refuses the launch.
        """

    def prepare(self, loaded: LoadedT, header: ArtifactHeader) -> PreparedLaunch:
        """A function for repeated launches of one kernel. The default calls `launch`."""

        def prepared(geometry: Geometry, arguments: bytes, stream: Any) -> None:
            self.launch(loaded, header, geometry, arguments, stream)

        return prepared

    def prepare_shape(
        self, prepared: PreparedLaunch, loaded: LoadedT, header: ArtifactHeader, geometry: Geometry, stream: Any
    ) -> ShapedLaunch:
        """A function for repeated launches of one kernel in one shape and stream. `prepared` is what `prepare` gave.

        Like that one it MAY be called by any thread, by several at once too.

        Raises:
            LaunchError: the device does not take that shape.
        """

        def shaped(arguments: bytes) -> None:
            prepared(geometry, arguments, stream)

        return shaped

    def prepare_cells(
        self, loaded: LoadedT, header: ArtifactHeader, geometry: Geometry, stream: Any
    ) -> CellLaunch | None:
        """The same for a launcher that writes the cells itself, where the driver reads them; MAY be given.

        `None`: the bytes are as good.

        Raises:
            LaunchError: the device does not take that shape.
        """
        return None

    def prepare_reading(
        self,
        loaded: LoadedT,
        header: ArtifactHeader,
        geometry: Geometry,
        stream: Any,
        operands: tuple[Operand, ...],
        *,
        aligned16: bool,
    ) -> tuple[ReadingLaunch, ShapedLaunch] | None:
        """A function that reads arguments of these kinds as well as it launches, and what launches if that did not.

        MAY be given. The NumPy arrays among the arguments are C-contiguous, hold at least one element and fewer than
        2**31, and lie at multiples of 16 bytes all together or, without `aligned16`, not all of them.

        Raises:
            LaunchError: the device does not take that shape.
        """
        return None

    def prepare_bound(
        self,
        prepared: PreparedLaunch,
        loaded: LoadedT,
        header: ArtifactHeader,
        geometry: Geometry,
        arguments: bytes,
        stream: Any,
    ) -> RepeatedLaunch:
        """A function that repeats one launch: the same, with the arguments fixed too. Their memory outlives it."""
        shaped = self.prepare_shape(prepared, loaded, header, geometry, stream)

        def bound() -> None:
            shaped(arguments)

        return bound

    # --- streams and events -------------------------------------------------------------------------------------------

    def open_stream(self) -> Any:
        """A new stream. The default backend has only the default one and returns `None`."""
        return None

    def close_stream(self, stream: Any) -> None:
        """Ends a stream once its work is done."""
        return None

    def synchronize(self, stream: Any) -> None:
        """Waits for the stream's work (`None`: for all of the device's). The default has nothing to wait for.

        Raises:
            DeviceError: a launch before this failed.
        """
        return None

    def record_event(self, stream: Any) -> Any:
        """A mark after the work given so far. The default notes the host's time in nanoseconds."""
        import time

        self.synchronize(stream)
        return time.perf_counter_ns()

    def wait_event(self, stream: Any, event: Any) -> None:
        """Makes later work of the stream wait for the event."""
        return None

    def synchronize_event(self, event: Any) -> None:
        """Waits for the event."""
        return None

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """Nanoseconds from one event of this device to another, both done."""
        return int(end) - int(start)

    # --- graphs -------------------------------------------------------------------------------------------------------

    def begin_graph(self, stream: Any) -> Any | None:
        """Starts capturing what is given to the stream. `None`: no native graphs, the core keeps and replays a list."""
        return None

    def end_graph(self, capture: Any) -> Any:
        """The captured graph, ready to launch."""
        raise DeviceError(f"{self.info.name} has no native graphs", fix="use the graph that the core replays")

    def update_graph(self, graph: Any, capture: Any) -> Any:
        """The graph with what was captured anew, the same work with other values. The default makes another graph."""
        return self.end_graph(capture)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        """Launches a captured graph."""
        raise DeviceError(f"{self.info.name} has no native graphs", fix="use the graph that the core replays")

    def close(self) -> None:
        """Gives back what the device holds. MUST be idempotent."""
        return None


class Backend(ABC):
    """A plugin's way to devices. Made without side effects; nothing native is imported before it is needed."""

    name: str

    @abstractmethod
    def devices(self) -> tuple[DeviceInfo, ...] | Unavailable:
        """The devices, without opening any, in the driver's order. MUST NOT raise for a missing driver."""

    @abstractmethod
    def target_info(self, target: str) -> TargetInfo:
        """The target of that name, for example `sm_90`, or of the host or first device for an empty string.

        Raises:
            DeviceError: there is no such target.
        """

    @abstractmethod
    def compiler(self, target: TargetInfo) -> ArtifactCompiler[Any, Any, Any]:
        """The compiler half for a target. MUST NOT need a device or driver (unless the backend states it)."""

    @abstractmethod
    def open(self, info: DeviceInfo) -> DeviceOperations[Any]:
        """Opens a device of `devices`.

        Raises:
            DeviceError: the driver refuses.
        """

    def health(self) -> Health:
        """Versions and problems, for `quernel doctor`. MUST NOT raise."""
        return Health()

    def known_gaps(self) -> Mapping[str, str]:
        """The tests of the conformance kit that this backend is known to fail, each with its reason. MAY be given.

        A name is `module::test` of `quernel.testing`, without parameters, in which `*` stands for any characters:
        `{"test_atomics::test_*_of_f64": "the driver's compare-and-swap is 32 bits wide"}`. A test that is named MUST
        fail with every parameter: one that passes is a failure, so the list never outlives its reasons.
        """
        return {}
