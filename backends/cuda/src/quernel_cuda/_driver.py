"""The running side of cuda-python: every call of NVIDIA's driver goes through here, and so does what its status means.

The driver is loaded when a function here is first called. Calls that work on a device need its context to be current:
`Context` makes it so and restores the previous one.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from quernel.errors import DeviceError, LaunchError, QuernelError, ValidationError
from quernel.forks import check_driver, in_child, is_left_behind, starting_driver
from quernel_cuda.ahead import Meanwhile

__all__ = [
    "Context",
    "DriverMissingError",
    "LostContextError",
    "begin",
    "call",
    "driver",
    "driver_version",
    "failure",
    "status_name",
]

_MENDS: Final = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free arrays, or use smaller ones",
    "CUDA_ERROR_NO_DEVICE": "see that CUDA_VISIBLE_DEVICES names a device and that nvidia-smi lists it",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "another process holds the device alone: end it, or use another device",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the code is for another architecture: remove it with quernel cache clear",
    "CUDA_ERROR_INVALID_IMAGE": "the driver is older than the compiler: update it, or install an older NVRTC",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "update the driver, or install an NVRTC of its version",
    "CUDA_ERROR_INVALID_SOURCE": "update the driver, or install an NVRTC of its version",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "use a smaller block: its threads need more registers than there are",
    "CUDA_ERROR_INVALID_VALUE": "report it: a launch or copy was given what the driver does not take",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "restart the machine: driver and kernel module differ",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "capture again, without synchronizing between begin and end",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "take that out of the graph: the driver cannot capture it",
}
"""What to do about a status, by its name."""

_LOST: Final = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel read or wrote outside its arrays",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a kernel used an address that is no multiple of the element's size",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "a kernel used an address of the wrong kind of memory",
    "CUDA_ERROR_INVALID_PC": "a kernel jumped outside its code",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "a kernel ran into an instruction that the device does not have",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "a kernel's stack overflowed or was overwritten",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a kernel ran longer than the system lets it",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel failed",
    "CUDA_ERROR_ASSERT": "a device-side assertion failed",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "the device's memory has an error that cannot be corrected",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "somebody destroyed the device's context",
}
"""Statuses after which the context is lost, and what they mean."""

_OF_ONE_CONTEXT: Final = frozenset({"CUDA_ERROR_CONTEXT_IS_DESTROYED"})
"""After all others the driver refuses work on every device of the process."""

_OF_LAUNCHES: Final = frozenset({"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "CUDA_ERROR_INVALID_VALUE"})


_KEPT: Final = 16
"""So many launches are remembered for the case that one of them fails."""


class DriverMissingError(DeviceError):
    """There is no driver, or cuda-python cannot use it."""


class LostContextError(DeviceError):
    """The device's context is lost, with all of its memory and kernels: nothing works there any more."""


_INSTALL: Final = (
    "install NVIDIA's driver; compiling works without it where the target is named, as in quernel compile with "
    "--target cuda:sm_90"
)

_lock = threading.Lock()
_loaded: Any = None
_missing: tuple[str, str] | None = None
"""What stands in the way, and the mend."""
_absent = False
_beginning: Meanwhile[None] | None = None
"""The start of the driver, where it was begun before its bindings were imported."""
_LIBRARY: Final = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"


def driver() -> Any:
    """The module of the driver's bindings, initialised. What was found once is kept.

    Raises:
        DriverMissingError: there is none, or it does not start.
        DeviceError: it was started before this process was forked.
    """
    check_driver("cuda")
    if _loaded is not None:
        return _loaded
    with _lock:
        if _missing is not None:
            raise DriverMissingError(_missing[0], fix=_missing[1])
        if _loaded is None:
            with starting_driver("cuda"):
                return _load()
        return _loaded


def begin() -> None:
    """Begins to start the driver, on a thread: its bindings can be imported meanwhile. Any thread.

    What is wrong with it, `driver` says.
    """
    global _beginning
    with _lock:
        if _beginning is None and _loaded is None and _missing is None and not is_left_behind("cuda"):
            _beginning = Meanwhile(_start)


def _start() -> None:
    with suppress(_NotStartedError, OSError, AttributeError):  # The bindings meet it too, and know more of it.
        library = ctypes.CDLL(_LIBRARY)
        with starting_driver("cuda"):
            if library.cuInit(0):
                raise _NotStartedError


class _NotStartedError(Exception):
    """The driver has reported a status."""


def _renew_after_fork() -> None:
    global _lock, _beginning
    _lock, _beginning = threading.Lock(), None


in_child(_renew_after_fork)


def _load() -> Any:
    global _loaded, _missing, _absent, _beginning
    try:
        from cuda.bindings import driver as bindings

        beginning = _beginning
        if beginning is not None:
            beginning.import_next()
            beginning.result()
            _beginning = None
        status, *_ = bindings.cuInit(0)
    except ImportError as error:
        _missing = f"cuda-python cannot be imported: {error}", "pip install --force-reinstall cuda-python"
    except Exception as error:  # the loader's own classes differ between versions of cuda-python
        _missing = f"NVIDIA's driver cannot be loaded: {error}", _INSTALL
        _absent = True
    else:
        if not int(status):
            _loaded = bindings
            return bindings
        name = status.name
        _absent = name == "CUDA_ERROR_NO_DEVICE"
        _missing = (
            f"NVIDIA's driver does not start: it reports {name}",
            _MENDS.get(name, "see what nvidia-smi says"),
        )
    raise DriverMissingError(_missing[0], fix=_missing[1])


def is_absent() -> bool:
    """Whether there is no driver or no device for it, after `driver` has refused; else something is broken."""
    return _absent


def driver_version() -> tuple[int, int]:
    """The newest CUDA version that the driver runs.

    Raises:
        DeviceError: there is no driver.
    """
    number = call("cuDriverGetVersion")
    return number // 1000, number % 1000 // 10


def call(name: str, *arguments: Any, doing: str = "") -> Any:
    """What a call of the driver gives back; `doing` says for errors what it is for.

    Raises:
        DeviceError: the driver refuses.
    """
    api = driver()
    status, *results = getattr(api, name)(*arguments)
    if int(status):
        raise failure(name, status, doing)
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def status_name(status: Any) -> str:
    """A status as the driver calls it."""
    name: str = getattr(status, "name", None) or f"status {int(status)}"
    return name


def failure(name: str, status: Any, doing: str = "", *, context: Context | None = None) -> QuernelError:
    """The one place where a status becomes an error.

    One that means a lost context names the launches that may have caused it: those in `context`, else in the one that
    this thread has entered.
    """
    reported = status_name(status)
    what = f"{doing or name} failed: {name} reports {reported}"
    if reported in _LOST:
        context = context or _entered.innermost()
        suspects = "" if context is None else context.lose(alone=reported in _OF_ONE_CONTEXT)
        return LostContextError(
            f"{what}: {_LOST[reported]}{suspects}. The device's context is lost, with all of its arrays",
            fix="start the process anew; QUERNEL_CHECKED=1 finds the line of an index outside its array",
        )
    mend = _MENDS.get(reported, "see quernel doctor")
    if name.startswith("cuLaunch") and reported in _OF_LAUNCHES:
        return LaunchError(what, fix=mend)
    if name.startswith("cuFuncSetAttribute"):
        return ValidationError(what, fix="use less shared memory")
    return DeviceError(what, fix=mend)


class Context:
    """A device's primary context, which all libraries of the process share. As a context manager it is current within.

    Attributes:
        number: of the device, as the driver counts them.
        device: the driver's handle.
        handle: of the context.
        recent: names of what was launched since the device was last waited for, as far as they are kept.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.device = call("cuDeviceGet", number)
        self.handle = call("cuDevicePrimaryCtxRetain", self.device, doing=f"opening cuda:{number}")
        self.recent: deque[str] = deque(maxlen=_KEPT)
        self._suspects: str | None = None
        with _lock:
            _contexts.add(self)

    def __enter__(self) -> Context:
        _entered.contexts.append(self)
        try:
            call("cuCtxPushCurrent", self.handle)
        except BaseException:
            _entered.contexts.pop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        _entered.contexts.pop()
        driver().cuCtxPopCurrent()

    @property
    def is_lost(self) -> bool:
        """Whether a call found the context lost. There is nothing to give back to the driver then."""
        return self._suspects is not None

    def lose(self, *, alone: bool) -> str:
        """Takes note that the context is lost, and unless `alone` all others of the process with it.

        Returns:
            Which launches that may be due to, in words; from the first time on the same ones.
        """
        if self._suspects is None:
            with _lock:
                lost = [self] if alone else [self, *(each for each in _contexts if each is not self)]
            suspects = _suspects(lost)
            for context in lost:
                if context._suspects is None:
                    context._suspects = suspects
        return self._suspects or ""

    def release(self) -> None:
        """Gives the context up; it ends once no other library of the process holds it."""
        with _lock:
            _contexts.discard(self)
        driver().cuDevicePrimaryCtxRelease(self.device)


_contexts: Final[WeakSet[Context]] = WeakSet()
"""Those of the process."""


def _suspects(contexts: Sequence[Context]) -> str:
    """The launches that were last given to contexts and not waited for, in words."""
    launches = [(list(context.recent), context.number) for context in contexts if context.recent]
    if not launches:
        return ""
    at = {number: f" on cuda:{number}" if len(contexts) > 1 else "" for _, number in launches}
    last = " or ".join(f"the launch of {names[-1]}{at[number]}" for names, number in launches)
    before = [f"{name}{at[number]}" for names, number in launches for name in dict.fromkeys(names) if name != names[-1]]
    return f"; most probably {last}" + (
        f" (launched before it and not waited for: {', '.join(before)})" if before else ""
    )


class _Entered(threading.local):
    """The contexts that a thread has entered and not yet left."""

    def __init__(self) -> None:
        self.contexts: list[Context] = []

    def innermost(self) -> Context | None:
        return self.contexts[-1] if self.contexts else None


_entered: Final = _Entered()
