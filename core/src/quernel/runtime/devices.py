"""A device as users hold it: one object per device, with its memory, its streams and its kernels."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, final

import numpy as np

from quernel.dtypes import DType, StructType, VectorType, f64
from quernel.errors import DeviceError, KernelTypeError, LaunchError, QuernelError
from quernel.forks import FORKED_FIX, driver_started, renewed
from quernel.runtime.arrays import (
    Allocation,
    DeviceArray,
    contiguous_strides,
    element_of,
    is_alike,
    reach_of,
    refuse_masked,
)
from quernel.runtime.interceptors import before_waiting, standing
from quernel.runtime.operations import Backend, DeviceInfo, DeviceOperations, Memory

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from quernel.capabilities import TargetInfo
    from quernel.compiler import KernelLoader, Kernels, LoadedKernel, Progress
    from quernel.runtime.compiling import CompilingLaunches
    from quernel.runtime.graphs import Graph
    from quernel.runtime.interceptors import Interceptor
    from quernel.runtime.layouts import ArrayKind
    from quernel.runtime.profiles import Profile
    from quernel.runtime.reports import PendingReport
    from quernel.runtime.streams import Stream

__all__ = ["Device"]

HostArray = np.ndarray[Any, np.dtype[Any]]
_PROTOCOLS = ("__dlpack__", "__cuda_array_interface__")


@final
class Device:
    """What kernels run on. There is one object per device of a process; `qn.device` gives it.

    As a context manager it closes the device at the end. Every method MAY be called from any thread.

    Attributes:
        operations: the backend's operations on it.
        info: what was known of it without opening it.
        name: the string that names it, for example `cuda:0`.
        is_host_accessible: whether NumPy arrays are arguments as they are.
        array_kinds: the kinds of its arrays that there were, so that there is one object per kind.
        interceptors: graphs being captured and profiles being taken; empty but for those.
        reports: what launches may have printed that are not known to be over.
    """

    def __init__(
        self,
        operations: DeviceOperations[Any],
        *,
        backend: Backend | None = None,
        on_close: Callable[[Device], object] | None = None,
    ) -> None:
        self.operations = operations
        self.backend = backend
        self.info: DeviceInfo = operations.info
        self.name = f"{self.info.backend}:{self.info.index}"
        self.is_host_accessible = operations.host_accessible
        self.array_kinds: dict[tuple[Any, ...], ArrayKind] = {}
        self.interceptors: tuple[Interceptor, ...] = ()
        self.reports: list[PendingReport] = []  # Never changed, only replaced, under the lock.
        self.is_closed = False
        self._closed_because = ""
        self._on_close = on_close
        self._lock = threading.RLock()
        self._loader: KernelLoader[Any, Any, Any] | None = None
        self._kernels: Kernels[Any, Any, Any] | None = None
        if not operations.survives_fork:
            driver_started(self.info.backend)
        renewed(self)

    def __repr__(self) -> str:
        closed = ", closed" if self.is_closed else ""
        return f"<device {self.name}: {self.info.name}{closed}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"a device does not pickle; pass its name {self.name!r} and call qn.device there")

    def __enter__(self) -> Device:
        self.check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def kind(self) -> str:
        """`cpu`, `gpu` or `accelerator`."""
        return self.info.kind

    @property
    def target_info(self) -> TargetInfo:
        """What a compiler must know of it."""
        return self.operations.target.compiler.target_info

    @property
    def loader(self) -> KernelLoader[Any, Any, Any]:
        """What compiles and holds the kernels of this device."""
        loader = self._loader
        if loader is None:
            from quernel.runtime.loading import open_loader

            self.check_open()
            with self._lock:
                loader = self._loader
                if loader is None:
                    loader = self._loader = open_loader(self)
        return loader

    @property
    def kernels(self) -> Kernels[Any, Any, Any]:
        """The kernels of this device, to look at, to ask for and to watch."""
        if self._kernels is None:
            from quernel.runtime.loading import open_kernels

            loader = self.loader
            with self._lock:
                if self._kernels is None:
                    self._kernels = open_kernels(loader)
        return self._kernels

    def compiling(
        self, *, executor: Executor | None = None, progress: bool | Progress | None = None
    ) -> CompilingLaunches:
        """A block that compiles without launching: `with device.compiling():` queues this context's launches.

        None of them runs; one that says by neither its device nor its arrays where it runs, and would run elsewhere, is
        refused. At the end of the block what they need is compiled and loaded as one batch, so that the same
        launches run at once afterwards; a block that is left with an error compiles nothing. Reading inside what a
        queued launch would write, or waiting for the device, is an error. Blocks nest: the outermost compiles.

        Args:
            executor: where to compile; by default where the backend scales best.
            progress: `False` for no progress bar on a terminal, or a function to call instead.
        """
        from quernel.runtime.compiling import CompilingLaunches

        return CompilingLaunches(self, executor, progress)

    def compile(
        self, kernels: Iterable[Any], *, executor: Executor | None = None, progress: bool | Progress | None = None
    ) -> tuple[LoadedKernel[Any, Any], ...]:
        """Compiles and loads kernels for this device as one batch, in the likely variant, without launching.

        Args:
            kernels: each is `kernel.specialize(...)`, a kernel with its types such as `(saxpy, (qn.f32, x, y))` or
                `(saxpy, {"a": qn.f32})`, or a kernel whose annotations say all types.
            executor: where to compile; by default where the backend scales best.
            progress: `False` for no progress bar on a terminal, or a function to call instead.

        Raises:
            QuernelError: a kernel's own error, or one that lists those of several; the other kernels are loaded then.
        """
        from quernel.runtime.compiling import compile_kernels
        from quernel.runtime.launch_sites import as_raised_by_the_call

        try:
            return compile_kernels(self, kernels, executor, progress)
        except QuernelError as error:
            raise as_raised_by_the_call(error, 1) from error.__cause__

    # --- arrays -------------------------------------------------------------------------------------------------------

    def empty(self, shape: int | Sequence[int], dtype: Any = f64) -> DeviceArray:
        """A C-contiguous array whose elements are not set; of vectors, its last axis holds their components."""
        lengths, element = _laid_out(shape, dtype)
        self.check_open()
        nbytes = element.itemsize
        for length in lengths:
            nbytes *= length
        memory = self.operations.allocate(nbytes)
        allocation = Allocation(self, memory, None)  # From here on it is given back, whatever follows.
        view = self.operations.host_view(memory)
        if view is not None:
            allocation.host = np.frombuffer(view, np.uint8) if len(view) else np.empty(0, np.uint8)
        return DeviceArray(allocation, element, lengths, contiguous_strides(lengths, element.itemsize), 0)

    def zeros(self, shape: int | Sequence[int], dtype: Any = f64) -> DeviceArray:
        """An array of zeros."""
        shape, element = _laid_out(shape, dtype)
        if isinstance(element, DType):
            return self.full(shape, False if element.is_bool else 0, element)
        result = self.empty(shape, element)
        self.fill(result.allocation.memory, 0, bytes(1), result.nbytes, result)
        return result

    def full(self, shape: int | Sequence[int], value: Any, dtype: Any = None) -> DeviceArray:
        """An array whose elements are all `value`; without `dtype`, of the value's own type."""
        if dtype is None:
            dtype = type(value) if "__attrs_attrs__" in type(value).__dict__ else np.asarray(value).dtype
        result = self.empty(shape, dtype)
        if isinstance(dtype, VectorType) and isinstance(value, tuple | list | np.ndarray):
            from quernel.runtime.elements import vector_element

            result.copy_from(np.broadcast_to(vector_element(value, dtype, "the elements' type"), result.shape))
        else:
            result.fill(value)
        return result

    def empty_like(self, source: HostArray | DeviceArray, dtype: Any = None) -> DeviceArray:
        """A C-contiguous array of the shape and element type of `source`, a NumPy or device array; not set."""
        return self.empty(*_like(source, dtype))

    def zeros_like(self, source: HostArray | DeviceArray, dtype: Any = None) -> DeviceArray:
        """An array of zeros, of the shape and element type of `source`, a NumPy or device array."""
        return self.zeros(*_like(source, dtype))

    def full_like(self, source: HostArray | DeviceArray, value: Any, dtype: Any = None) -> DeviceArray:
        """An array whose elements are all `value`, of the shape and element type of `source`."""
        shape, element = _like(source, dtype)
        return self.full(shape, value, element)

    def array(self, source: Any, dtype: Any = None) -> DeviceArray:
        """A copy of `source` (an array of NumPy, a device or another library, or what makes one) on this device."""
        refuse_masked(source, "an array of a device")
        source = self._brought(source)
        wanted = None if dtype is None else _element_for(source, dtype)
        if isinstance(wanted, StructType):
            from quernel.runtime.elements import as_structs

            if not (isinstance(source, DeviceArray) and is_alike(source.dtype, wanted)):
                source = as_structs(source.numpy() if isinstance(source, DeviceArray) else source, wanted)
            result = self.empty(source.shape, wanted)
        elif isinstance(source, DeviceArray):
            if wanted is not None and wanted != source.dtype:
                source = source.astype(wanted)
            result = self.empty(source.shape, source.dtype)
        else:
            source = np.asarray(source, None if wanted is None else wanted.numpy)
            result = self.empty(source.shape, source.dtype)
        result.copy_from(source)
        return result

    def asarray(self, source: Any, dtype: Any = None) -> DeviceArray:
        """`source` on this device without a copy where that is possible, else a copy.

        An array of this device is given back as it is. A writable NumPy array is shared where kernels read and write
        the host's memory; an array of another library that is on this device, where the backend shares memory. What is
        shared lives as long as the result.

        Raises:
            LaunchError: an array of another library is on another device, or laid out as no kernel takes it.
        """
        refuse_masked(source, "an array of a device")
        source = self._brought(source)
        if dtype is not None:
            dtype = _element_for(source, dtype)
        if isinstance(source, DeviceArray) and source.device is self and (dtype is None or dtype == source.dtype):
            return source
        if self.is_host_accessible and isinstance(source, np.ndarray) and source.flags.writeable:
            element = element_of(source.dtype)
            is_whole = not any(stride % element.itemsize for stride in source.strides)
            is_plain = source.size and source.flags.aligned and is_whole
            if is_plain and (dtype is None or dtype == element):
                return self._lent(source, element)
        return self.array(source, dtype)

    def _brought(self, source: Any) -> Any:
        """`source`, or in place of another library's array one of this device or of NumPy, in the same memory."""
        if isinstance(source, DeviceArray | np.ndarray) or not any(hasattr(source, name) for name in _PROTOCOLS):
            return source
        from quernel.runtime.foreign import shared

        found = shared(self, source)
        if found is not None:
            return found
        if hasattr(source, "__array__") or not hasattr(source, "__dlpack_device__"):
            return np.asarray(source)
        return np.from_dlpack(source)

    def _lent(self, source: HostArray, element: DType | StructType) -> DeviceArray:
        from ctypes import c_char

        self.check_open()
        address = source.__array_interface__["data"][0]
        below, above = reach_of(source.shape, source.strides)
        low, nbytes = address - below, below + above + source.itemsize
        host = np.frombuffer(memoryview((c_char * nbytes).from_address(low)), np.uint8)
        allocation = Allocation(self, Memory(low, nbytes, source), host, lent_by=source)
        return DeviceArray(allocation, element, source.shape, source.strides, below)

    # --- work ---------------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Waits for all work given to this device, and shows what kernels have printed.

        Raises:
            DeviceError: a launch before this failed.
            LaunchError: within `compiling()`, where launches do not run.
        """
        if standing:
            before_waiting(self)
        self._wait()

    def _wait(self) -> None:
        """The same, of whatever was launched: also where launches are queued that do not run.

        Raises:
            DeviceError: a launch before this failed.
        """
        if self.is_closed:
            self.check_open()
        self.operations.synchronize(None)
        if self.reports:
            self.show_reports(None, everywhere=True)

    def show_reports(self, stream: Any, *, everywhere: bool = False) -> None:
        """Shows what finished launches have printed, in one stream or everywhere.

        Raises:
            OutOfBoundsError, KernelAssertionError: the first violation found; all else is shown before.
        """
        if not self.reports:
            return
        with self._lock:
            over = [report for report in self.reports if everywhere or report.stream is stream]
            self.reports = [report for report in self.reports if not (everywhere or report.stream is stream)]
        if over:
            from quernel.runtime.reports import finish_all

            finish_all(over)

    def keep_report(self, report: PendingReport) -> None:
        """Shows, once somebody waits for it, what a launch that is not over prints."""
        with self._lock:
            self.reports = [*self.reports, report]

    def stream(self) -> Stream:
        """A new stream, whose work runs in order and beside that of other streams."""
        from quernel.runtime.streams import Stream

        self.check_open()
        return Stream(self)

    def graph(self) -> Graph:
        """A graph: `with device.graph() as graph:` captures this thread's work, `graph()` then runs it again."""
        from quernel.runtime.graphs import Graph

        self.check_open()
        return Graph(self)

    def profile(self) -> Profile:
        """A profile: `with device.profile() as profile:` times each launch and copy on this device."""
        from quernel.runtime.profiles import Profile

        self.check_open()
        return Profile(self)

    @property
    def is_capturing(self) -> bool:
        """Whether this thread captures a graph of this device."""
        return any(found.captures and found.applies() for found in self.interceptors)

    @property
    def is_intercepted(self) -> bool:
        """Whether this thread captures a graph of this device or profiles it."""
        return any(found.applies() for found in self.interceptors)

    def give(self, name: str, run: Callable[[Any], None], stream: Any, keep: object) -> None:
        """Runs a piece of work in a stream, or hands it to the graph that is being captured.

        `run(stream)` does it; `keep` is what it needs to stay alive.
        """
        for interceptor in self.interceptors:
            if interceptor.applies():
                interceptor.take(name, run, stream, keep)
                return
        run(stream)

    def fill(self, memory: Memory, offset: int, pattern: bytes, count: int, keep: object) -> None:
        """Writes copies of a pattern in the default stream; part of a graph that is being captured."""
        self.check_open()
        if count:
            self.give("fill", lambda stream: self.operations.fill(memory, offset, pattern, count, stream), None, keep)

    def copy_memory(
        self, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int, keep: object
    ) -> None:
        """Copies on this device in the default stream; part of a graph that is being captured."""
        self.check_open()
        if nbytes:
            copy = self.operations.copy
            self.give(
                "copy",
                lambda stream: copy(target, target_offset, source, source_offset, nbytes, stream),
                None,
                keep,
            )

    # --- life ---------------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raises where the device is closed, or was left behind by a fork.

        Raises:
            LaunchError: it was closed.
            DeviceError: it belongs to the parent process.
        """
        if not self.is_closed:
            return
        if self._closed_because:
            raise DeviceError(
                f"{self.name} was opened before this process was forked: {self._closed_because}",
                fix=FORKED_FIX,
            )
        raise LaunchError(f"the device {self.name} is closed", fix=f"open it again with qn.device({self.name!r})")

    @property
    def is_left_behind(self) -> bool:
        """Whether it was closed because this process was forked from the one that opened it."""
        return bool(self._closed_because)

    def close(self) -> None:
        """Waits for the device's work, shows what kernels printed, and gives back what it holds, its arrays included.

        Idempotent. A launch that another thread is still inside of, where launches return once they are done, goes on
        to its end; every later one is refused.

        Raises:
            DeviceError: a launch before this failed. The device is closed all the same.
        """
        with self._lock:
            if self.is_closed:
                return
            try:
                self._wait()
            finally:
                self.is_closed = True
                if self._on_close is not None:
                    self._on_close(self)
                self.operations.close()

    def renew_after_fork(self) -> None:
        """In the child of a fork: only what has no driver's context goes on."""
        self._lock = threading.RLock()
        self.interceptors = ()
        self.reports = []  # They are the parent's to show.
        if not self.operations.survives_fork:
            self.is_closed = True
            self._closed_because = "a driver's context does not survive a fork"


def _like(source: Any, dtype: Any) -> tuple[tuple[int, ...], Any]:
    """The shape and the element type of an array, or another type.

    Raises:
        KernelTypeError: it is no array.
    """
    try:
        return source.shape, source.dtype if dtype is None else dtype
    except AttributeError:
        raise KernelTypeError(
            f"an array like a {type(source).__name__}, which has no shape and element type",
            fix="pass a NumPy or device array, as numpy.asarray makes one",
        ) from None


def _element_for(source: Any, dtype: Any) -> DType | StructType:
    """The element type of an array that is made of `source`; of vectors, that of their components."""
    if not isinstance(dtype, VectorType):
        return element_of(dtype)
    from quernel.runtime.elements import check_vectors

    return check_vectors(source.shape if isinstance(source, DeviceArray) else np.shape(source), dtype)


def _laid_out(shape: int | Sequence[int], dtype: Any) -> tuple[tuple[int, ...], DType | StructType]:
    """Lengths and element type: an array of vectors is one of their components, with an axis more."""
    if isinstance(dtype, VectorType):
        return (*_shape(shape), dtype.length), dtype.element
    return _shape(shape), element_of(dtype)


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    try:
        lengths = tuple(index(length) for length in given)
    except TypeError:
        wrong = next(length for length in given if not hasattr(length, "__index__"))
        raise LaunchError(
            f"shape {shape!r} is a {type(wrong).__name__}"
            if wrong is shape
            else f"shape {shape!r} has a part that is a {type(wrong).__name__}",
            fix="give integers",
        ) from None
    if any(length < 0 for length in lengths):
        raise LaunchError(f"shape {lengths} has a negative length", fix="give lengths of at least 0")
    if 0 in lengths and math.prod(length for length in lengths if length) > _MAX_ELEMENTS:  # NumPy refuses them too.
        raise LaunchError(f"shape {lengths} is beyond what any memory holds", fix="give smaller lengths")
    return lengths


_MAX_ELEMENTS = (1 << 63) // 64
"""So many elements of the largest types have byte counts within 64 bits."""
