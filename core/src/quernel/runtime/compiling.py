"""Compiling without launching: blocks whose launches are queued, and lists of kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, final

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.reentrancy import is_compiling_allowed, refuse_while_compiling
from quernel.errors import CompilationError, KernelSyntaxError, KernelTypeError, LaunchError
from quernel.forks import renewed
from quernel.runtime.arrays import DeviceArray
from quernel.runtime.interceptors import LaunchMode, modes
from quernel.wording import counted

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from quernel.compiler import LoadedKernel, Progress
    from quernel.runtime.devices import Device
    from quernel.runtime.ready import RequestedLaunch

__all__ = ["CompilingLaunches", "compile_kernels"]

Wanted = dict[ArtifactId[Any], KernelDefinition]
"""What is to be compiled, each once, in the order in which it was first wanted."""

Arrays = list[tuple[DeviceArray, str, KernelDefinition]]
"""Arrays that were arguments, with the parameter's name and the kernel."""

Failures = list[tuple[str, Exception]]


@final
class CompilingLaunches(LaunchMode):
    """`with device.compiling():` queues this context's launches on the device instead of running them.

    At its end what was queued is compiled and loaded, as one batch, in the environment of that moment; if kernels fail,
    the others are loaded all the same, and the error is raised then. Within another such block of the device, the outer
    one compiles for both. A block that is left with an error compiles nothing and forgets what it queued.

    Tasks and threads that have a copy of the block's context are in the block too, until it ends; then they launch.

    Launches on other devices run, if the launch names the device or its arrays are there. One that says neither is
    refused where it would run on another device than the block's: whoever wrote it took it for one of the block's.

    As no launch runs, no result is there: inside, reading an array that a queued launch would write, or waiting for the
    device, raises `LaunchError`. The elements of NumPy arrays that were arguments just stay as they are.
    """

    def __init__(
        self, device: Device, executor: Executor | None = None, progress: bool | Progress | None = None
    ) -> None:
        self.device = device
        self._executor = executor
        self._progress = progress
        self._wanted: Wanted = {}
        self._arrays: Arrays = []
        self._ending = threading.Lock()
        renewed(self)

    def renew_after_fork(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not there."""
        self._ending = threading.Lock()

    def __len__(self) -> int:
        return len(self._wanted)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'kernel')} to be compiled for {self.device.name}>"

    def __enter__(self) -> CompilingLaunches:
        self.device.check_open()
        if self._entry is not None:
            raise LaunchError("this block is entered already", fix="make another with device.compiling()")
        self._wanted, self._arrays = {}, []
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._ending:
            super().__exit__(*exception)
        arrays, self._arrays = self._arrays, []
        if exception[0] is not None or not self._wanted:
            return
        outer = (mode for mode in reversed(modes()) if isinstance(mode, CompilingLaunches))
        if not any(mode.device is self.device and mode._add(self._wanted, arrays) for mode in outer):
            compile_wanted(self.device, self._wanted, self._executor, self._progress)

    def _add(self, wanted: Wanted, arrays: Arrays) -> bool:
        """Whether the block took what is to be compiled; not if it has just ended, as other threads may be in it."""
        with self._ending:
            if self._entry is None:
                return False
            for id, definition in wanted.items():  # noqa: A001
                self._wanted.setdefault(id, definition)
            self._arrays += arrays
            return True

    def take(self, launch: RequestedLaunch) -> bool:
        """Queues what the launch needs, if it is on this device.

        Raises:
            QuernelError: an argument does not fit.
        """
        if launch.device is not self.device:
            return False
        refuse_while_compiling(f"queue {launch.kernel.origin.name}")
        definition, id = launch.identified()  # noqa: A001
        arrays = [(value, spec.name, definition) for spec, value in _parts(launch) if isinstance(value, DeviceArray)]
        return self._add({id: definition}, arrays)

    def before_running(self, launch: RequestedLaunch) -> None:
        """Raises where a launch would run elsewhere that does not say so.

        Raises:
            LaunchError: it would.
        """
        if not launch.is_placed:
            raise LaunchError(
                f"this launch of kernel {launch.kernel.origin.name} names no device and would run on "
                f"{launch.device.name}, within compiling() of {self.device.name}",
                fix=f"name the device, as in .over(..., device={self.device.name!r}), here and where it is to run",
            )

    def take_graph(self, device: Device) -> bool:
        """Takes launches of graphs of the device: nothing of them is left to compile."""
        return device is self.device

    def before_reading(self, array: DeviceArray) -> None:
        """Raises where a launch that was queued would write what is about to be read.

        Raises:
            LaunchError: it would.
        """
        low, high = array.bounds
        for other, parameter, definition in self._arrays:
            if other.allocation is not array.allocation:
                continue
            first, end = other.bounds
            if low < end and first < high and _writes(definition, parameter):
                raise LaunchError(
                    f"this array would be written by kernel {definition.name}, whose launch was queued and does not "
                    f"run within compiling() of {self.device.name}",
                    fix="launch outside the block before you read its results",
                )

    def before_waiting(self, device: Device) -> None:
        """Raises where something was queued for the device that is about to be waited for.

        Raises:
            LaunchError: launches were queued, which never run.
        """
        if device is self.device and self._wanted:
            raise LaunchError(
                f"nothing to wait for: launches within compiling() of {device.name} are queued and do not run",
                fix="wait after launches outside the block",
            )


def compile_kernels(
    device: Device, kernels: Iterable[Any], executor: Executor | None, progress: bool | Progress | None
) -> tuple[LoadedKernel[Any, Any], ...]:
    """What `Device.compile` does."""
    compiler = device.operations.target.compiler
    ids: list[ArtifactId[Any]] = []
    wanted: Wanted = {}
    failures: Failures = []
    for kernel in [kernels] if _is_one(kernels) else kernels:
        try:
            definition = _definition(kernel)
        except (KernelTypeError, KernelSyntaxError) as error:
            failures.append((_name(kernel), error))
            continue
        variant = compiler.default_variant(definition.specialization.signature)
        ids.append(ArtifactId(definition.id, variant))
        wanted.setdefault(ids[-1], definition)
    loaded = compile_wanted(device, wanted, executor, progress, failures)
    return tuple(loaded[id] for id in ids)  # noqa: A001


def compile_wanted(
    device: Device,
    wanted: Wanted,
    executor: Executor | None,
    progress: bool | Progress | None,
    failures: Sequence[tuple[str, Exception]] = (),
) -> dict[ArtifactId[Any], LoadedKernel[Any, Any]]:
    """Compiles and loads as one batch; failures, those so far too, are raised once all the others are loaded.

    Raises:
        QuernelError: a kernel's own error, or a `CompilationError` that lists those of several.
        LaunchError: something would have to be compiled within `no_compiling()`.
    """
    from quernel.compiler.pending import Pending
    from quernel.runtime.progress import shown

    refuse_while_compiling(f"compile for {device.name}")
    device.check_open()
    loader = device.loader
    requests: list[Pending[Any, Any]] = [
        Pending(loader, id, loader.request(definition, id)[0])
        for id, definition in wanted.items()  # noqa: A001
    ]
    if is_compiling_allowed() and not all(request.is_done for request in requests):
        with shown(progress, f"compiling for {device.name}") as tell:
            loader.compile_queued(workers=executor, progress=tell)
    loaded: dict[ArtifactId[Any], LoadedKernel[Any, Any]] = {}
    failures = list(failures)
    for request in requests:
        try:
            loaded[request.id] = request.result()
        except Exception as error:
            failures.append((request.name, error))
    if failures:
        raise _failure(failures, len(failures) + len(loaded))
    return loaded


def _failure(failures: Failures, num_kernels: int) -> Exception:
    first = failures[0][1]
    if len(failures) == 1:
        return first
    error = CompilationError(
        f"{len(failures)} of {num_kernels} kernels failed: {', '.join(name for name, _ in failures)}",
        fix=getattr(first, "fix", None),
        chain=tuple(f"{name}: {line}" for name, failure in failures for line in str(failure).splitlines()[:1]),
    )
    error.__cause__ = first
    return error


def _is_one(kernels: Any) -> bool:
    return isinstance(kernels, KernelDefinition) or hasattr(kernels, "definition") or hasattr(kernels, "specialize")


def _definition(kernel: Any) -> KernelDefinition:
    if isinstance(kernel, KernelDefinition):
        return kernel
    if isinstance(kernel, tuple) and len(kernel) == 2 and hasattr(kernel[0], "specialize"):
        specialize: Callable[..., Any] = kernel[0].specialize
        types = kernel[1]
        kernel = specialize(**types) if isinstance(types, dict) else specialize(*_as_sequence(types))
    elif hasattr(kernel, "specialize"):
        kernel = kernel.specialize()
    definition = getattr(kernel, "definition", None)
    if not isinstance(definition, KernelDefinition):
        raise KernelTypeError(
            f"{kernel!r} is no kernel to compile",
            fix="give kernel.specialize(...), (kernel, types), or a kernel whose annotations say all types",
        )
    return definition


def _name(kernel: Any) -> str:
    named = kernel[0] if isinstance(kernel, tuple) and kernel else kernel
    return str(getattr(named, "__name__", named))


def _as_sequence(types: Any) -> Sequence[Any]:
    return types if isinstance(types, tuple | list) else (types,)


def _parts(launch: RequestedLaunch) -> Iterable[tuple[Any, Any]]:
    """The parameters of a launch with their arguments, structs taken apart."""
    from quernel.runtime.compounds import flattened

    specs, values, _ = flattened(launch.specs, launch.values)
    return zip(specs, values, strict=True)


def _writes(definition: KernelDefinition, parameter: str) -> bool:
    """Whether a kernel writes an array parameter; so it seems where that cannot be told, as it will not compile."""
    if definition.foreign is not None:
        return parameter in definition.foreign.writes
    from quernel.errors import QuernelError
    from quernel.ir.analysis import parameter_uses

    try:
        return parameter_uses(definition.expand()).array(parameter).is_written
    except QuernelError:
        return True
