"""Forks: what a forked child finds, made fit for it in one place.

Only the thread that forks is in the child. Locks that other threads held are held there for ever, what they were in the
midst of is half done, and a driver's threads stay with the parent. So whoever has a lock says here how the child gets
a new one (`renewed`, `in_child`); whoever calls into a library with locks of its own has forks wait until nobody is
inside (`around`, `Passage`); and who starts a driver says so (`starting_driver`), whereupon the child is refused it.

A module that another thread is importing would be waited for in the child for ever, as Python does not renew the locks
of modules. So the child lets them go, and imports such a module anew.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

__all__ = [
    "FORKED_FIX",
    "Passage",
    "around",
    "check_driver",
    "driver_started",
    "in_child",
    "is_left_behind",
    "renewed",
    "starting_driver",
]

FORKED_FIX: Final = "start processes with 'spawn', as multiprocessing.get_context('spawn') does"

_started: set[str] = set()
_left_behind: set[str] = set()
"""Backends whose drivers a process started that this one was forked from."""


def driver_started(backend: str) -> None:
    """Notes that a driver was started in this process which does not work in processes forked from it. Any thread.

    A backend SHOULD say so before it starts the driver, as another thread may fork meanwhile; where starting may fail,
    `starting_driver` does that. Of opened devices that do not survive a fork it is noted.
    """
    _started.add(backend)


@contextmanager
def starting_driver(backend: str) -> Iterator[None]:
    """Starts a driver within the block: noted from its beginning on, and no more if it ends with an error."""
    was_started = backend in _started
    _started.add(backend)
    try:
        yield
    except BaseException:
        if not was_started:
            _started.discard(backend)
        raise


def check_driver(backend: str) -> None:
    """Raises where the driver of a backend was started before this process was forked.

    Even to ask such a driver for its devices may wait for ever.

    Raises:
        DeviceError: it was.
    """
    if is_left_behind(backend):
        from quernel.errors import DeviceError

        raise DeviceError(
            f"{backend} was started before this process was forked: its driver does not survive a fork", fix=FORKED_FIX
        )


def is_left_behind(backend: str) -> bool:
    """Whether the driver of a backend was started before this process was forked, so that `check_driver` raises."""
    return backend in _left_behind


# --- what is renewed --------------------------------------------------------------------------------------------------


class _Renewed(Protocol):
    def renew_after_fork(self) -> None: ...


RenewedT = TypeVar("RenewedT", bound=_Renewed)

_objects: weakref.WeakSet[Any] = weakref.WeakSet()
_renewals: list[Callable[[], object]] = []


def renewed(found: RenewedT) -> RenewedT:
    """Has a forked child call `found.renew_after_fork()`, for as long as the object lives, and gives it. Any thread.

    The method replaces the object's locks and what other threads had half done. It MUST NOT call other code that takes
    locks: what that takes may not have been renewed yet. No order is promised.
    """
    _objects.add(found)
    return found


def in_child(renew: Callable[[], object]) -> None:
    """Has a forked child call `renew`, after the renewals that were named before. Any thread; as for `renewed`."""
    if renew not in _renewals:
        _renewals.append(renew)


# --- what forks wait for ----------------------------------------------------------------------------------------------


class _Rest(NamedTuple):
    rest: Callable[[], object]
    go_on: Callable[[], object]
    renew: Callable[[], object]


_around: list[_Rest] = []
_rested: list[_Rest] = []
_forking = threading.RLock()
_LOCK = _Rest(_forking.acquire, _forking.release, _forking.release)


def around(rest: Callable[[], object], go_on: Callable[[], object], renew: Callable[[], object] | None = None) -> None:
    """Has every fork call `rest` before it and `go_on` after it, on the same thread; in the child `renew` in its place.

    `rest` returns once no other thread is inside what a fork must not cut through, and keeps them out until `go_on`.
    One fork at a time; what was named last rests first. Naming the same again changes nothing.
    """
    found = _Rest(rest, go_on, go_on if renew is None else renew)
    if found not in _around:
        _around.append(found)


class Passage:
    """Calls into a library that several threads may be inside of at once, and that a fork must not cut through.

    A `with` block of the passage is one such call; a fork waits until none is going on, and none begins meanwhile. A
    thread that is inside MUST NOT enter once more, nor fork. It lives as long as the process.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._is_closed = False
        around(self._close, self._open, self._renew)

    def __enter__(self) -> None:
        with self._changed:
            while self._is_closed:
                self._changed.wait()
            self._num_inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._num_inside -= 1
            self._changed.notify_all()

    def _close(self) -> None:
        with self._changed:
            self._is_closed = True
            while self._num_inside:
                self._changed.wait()

    def _open(self) -> None:
        with self._changed:
            self._is_closed = False
            self._changed.notify_all()

    def _renew(self) -> None:
        self._changed = threading.Condition()
        self._num_inside, self._is_closed = 0, False


# --- imports ----------------------------------------------------------------------------------------------------------

_INDIVISIBLE: Final = "numpy"
"""Its native code refuses to be loaded a second time, so a fork waits for its import. Not for others: a module that
calls `os.register_at_fork` in the midst of a fork is called after it and was not called before."""
_IMPORT_S: Final = 2.0
"""Not longer: the importing thread may wait for what the forking one holds."""
_POLL_S: Final = 0.001


def _foreign_imports(*, are_all_foreign: bool = False) -> list[str]:
    """The modules that other threads import just now. `are_all_foreign`: locks that nobody owns count too.

    Python says so nowhere; where its import system has changed, none are found.
    """
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    me, found = threading.get_ident(), []
    for name, reference in list(locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner != me and (are_all_foreign or owner is not None):
            found.append(name)
    return found


def _forget_imports() -> None:
    """In the child: the locks of modules that are not its own will never be freed, nor their modules be complete."""
    locks = sys.modules["_frozen_importlib"].__dict__.get("_module_locks", {})
    for name in _foreign_imports(are_all_foreign=True):
        locks.pop(name, None)
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            # A package's modules are complete or not, but all that has imported them belongs to this import too.
            for part in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
                del sys.modules[part]


# --- the fork itself --------------------------------------------------------------------------------------------------


def _before() -> None:
    _rest_one(_LOCK)
    tried: list[_Rest] = []
    end_s = time.monotonic() + _IMPORT_S
    while True:
        waking = [found for found in reversed(_around) if found not in tried]
        tried += waking
        _all_of([partial(_rest_one, found) for found in waking])
        if _INDIVISIBLE in _foreign_imports() and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        elif len(tried) == len(_around):  # Other threads may have named some while this one waited.
            return


def _rest_one(found: _Rest) -> None:
    found.rest()
    _rested.append(found)


def _in_parent() -> None:
    _all_of([found.go_on for found in _taken_rested()])


def _in_child() -> None:
    _left_behind.update(_started)
    renewals = [found.renew_after_fork for found in list(_objects)]
    _all_of([_forget_imports, *[found.renew for found in _taken_rested()], *renewals, *_renewals])


def _taken_rested() -> list[_Rest]:
    """Those that rest, the last first; another fork may begin as soon as the first has gone on."""
    rested = _rested[::-1]
    _rested.clear()
    return rested


def _all_of(calls: list[Callable[[], object]]) -> None:
    """Makes every call, whatever another raises.

    Raises:
        ExceptionGroup: what they have raised. Python shows it and goes on.
    """
    errors = []
    for call in calls:
        try:
            call()
        except Exception as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("around a fork", errors)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
