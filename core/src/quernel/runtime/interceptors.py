"""What may stand between a launch and its device: modes of a context, graphs being captured, profiles being taken."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from quernel.compiler.reentrancy import stand, standing, step_aside
from quernel.forks import in_child

if TYPE_CHECKING:
    from quernel.runtime.arrays import DeviceArray
    from quernel.runtime.devices import Device
    from quernel.runtime.ready import RequestedLaunch

__all__ = [
    "Interceptor",
    "LaunchMode",
    "before_reading",
    "before_waiting",
    "has_modes",
    "is_graph_taken",
    "is_taken",
    "modes",
    "standing",
]


class LaunchMode:
    """Is shown each launch of its context before anything is compiled for it, within a `with` block.

    It holds for the current context, as `contextvars` define it, and for tasks that are made within the block, until
    the block ends: other threads are not affected. An object stands for one `with` block at a time.
    """

    _entry: _Entry | None = None
    _token: Token[tuple[_Entry, ...]] | None = None

    def __enter__(self) -> Any:
        assert self._entry is None, "a mode was entered twice"
        self._entry = _Entry(self)
        self._token = _entries.set((*_entries.get(), self._entry))
        stand(self)
        return self

    def __exit__(self, *exception: object) -> None:
        token, self._token, self._entry = self._token, None, None
        step_aside(self)
        if token is not None:
            with contextlib.suppress(ValueError):  # another context than the one that entered, where it ended just now
                _entries.reset(token)

    def take(self, launch: RequestedLaunch) -> bool:
        """Is shown a launch whose arguments fit so far. Gives whether it was taken, and is not to run.

        What it raises, the launch raises. Of nested modes the innermost is asked first; one that was taken is not shown
        to the others.
        """
        raise AssertionError("a mode takes launches")

    def before_running(self, launch: RequestedLaunch) -> None:
        """Is shown a launch of its context that no mode took. What it raises, the launch raises."""
        return

    def take_graph(self, device: Device) -> bool:
        """Whether a graph that is launched on a device is not to run."""
        return False

    def before_reading(self, array: DeviceArray) -> None:
        """Is shown an array of its context whose elements are about to be read. What it raises, the reader raises."""
        return

    def before_waiting(self, device: Device) -> None:
        """Is shown a device whose work its context is about to wait for. What it raises, the waiter raises."""
        return


class _Entry:
    """One `with` block of a mode. Contexts that were copied within the block still have it when the block has ended."""

    __slots__ = ("mode",)

    def __init__(self, mode: LaunchMode) -> None:
        self.mode = mode


_entries: ContextVar[tuple[_Entry, ...]] = ContextVar("quernel_launch_modes", default=())


def modes() -> tuple[LaunchMode, ...]:
    """The modes whose blocks this context is in, the innermost last."""
    return tuple(entry.mode for entry in _entries.get() if entry.mode._entry is entry)


def _start_over() -> None:
    """In the child of a fork: only this thread is there, and devices have let their interceptors go."""
    standing[:] = modes()


in_child(_start_over)


def is_taken(launch: RequestedLaunch) -> bool:
    """Whether a mode of this context takes a launch, which is then not to run.

    Raises:
        QuernelError: a mode says that it may not run.
    """
    found = modes()
    if any(mode.take(launch) for mode in reversed(found)):
        return True
    for mode in reversed(found):
        mode.before_running(launch)
    return False


def is_graph_taken(device: Device) -> bool:
    """Whether a mode of this context takes the launch of a graph, which is then not to run."""
    return any(mode.take_graph(device) for mode in reversed(modes()))


def has_modes() -> bool:
    """Whether this context has any."""
    return bool(modes())


def before_reading(array: DeviceArray) -> None:
    """Asks the modes of this context whether the elements of an array may be read.

    Raises:
        LaunchError: one says that they may not.
    """
    for mode in modes():
        mode.before_reading(array)


def before_waiting(device: Device) -> None:
    """Asks the modes of this context whether a device may be waited for.

    Raises:
        LaunchError: one says that it may not.
    """
    for mode in modes():
        mode.before_waiting(device)


class Interceptor:
    """Takes the work that its own thread gives to a device between `__enter__` and `__exit__`."""

    captures = False
    """Whether the work is kept instead of done."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._thread = 0

    def applies(self) -> bool:
        """Whether the calling thread's work is taken."""
        return threading.get_ident() == self._thread

    def take(self, name: str, run: Callable[[Any], None], stream: Any, keep: object) -> None:
        """Takes one piece of work."""
        raise AssertionError("an interceptor takes work")

    def _begin(self) -> None:
        self._thread = threading.get_ident()
        with self.device._lock:
            self.device.interceptors = (self, *self.device.interceptors)
        stand(self)

    def _end(self) -> None:
        with self.device._lock:
            self.device.interceptors = tuple(found for found in self.device.interceptors if found is not self)
        step_aside(self)
