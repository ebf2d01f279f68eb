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
from collections.abc import Callable, Iterable, Iterator
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

_started: list[str] = []
"""Backends whose drivers were started here, once for each start: another thread's may fail."""
_left_behind: set[str] = set()
"""Backends whose drivers a process started that this one was forked from."""


def driver_started(backend: str) -> None:
    """Notes that a driver was started in this process which does not work in processes forked from it. Any thread.

    A backend SHOULD say so before it starts the driver, as another thread may fork meanwhile; where starting may fail,
    `starting_driver` does that. Of opened devices that do not survive a fork it is noted.
    """
    if backend not in _started:
        _started.append(backend)


@contextmanager
def starting_driver(backend: str) -> Iterator[None]:
    """Starts a driver within the block: noted from its beginning on, and no more if it ends with an error."""
    _started.append(backend)
    try:
        yield
    except BaseException:
        _started.remove(backend)
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
_forking = threading.RLock()
_ONE_AT_A_TIME = _Rest(_forking.acquire, _forking.release, _forking.release)


def around(rest: Callable[[], object], go_on: Callable[[], object], renew: Callable[[], object] | None = None) -> None:
    """Has every fork call `rest` before it and `go_on` after it, on the same thread; in the child `renew` in its place.

    `rest` returns once no other thread is inside what a fork must not cut through, and keeps them out until `go_on`. It
    MUST NOT wait for its own thread, which may be inside when a signal's handler forks; and where it raises, nothing
    rests. One fork at a time; what was named last rests first. Naming the same again changes nothing.
    """
    found = _Rest(rest, go_on, go_on if renew is None else renew)
    if found not in _around:
        _around.append(found)


class Passage:
    """Calls into a library that several threads may be inside of at once, and that a fork must not cut through.

    A `with` block of the passage is one such call; a fork waits until no other thread is within one, and none begins
    meanwhile. The forking thread itself is not waited for, nor does it wait: a signal's handler may fork amid a call,
    and another library's hook around the fork may call. It lives as long as the process.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: list[int] = []
        """The threads, once for each call that they are within."""
        self._closed_by: int | None = None
        around(self._close, self._open, self._renew)

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            while self._closed_by not in (None, me) and me not in self._inside:
                self._changed.wait()
            self._inside.append(me)

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._inside.remove(threading.get_ident())
            self._changed.notify_all()

    def _close(self) -> None:
        self._closed_by = me = threading.get_ident()
        try:
            with self._changed:
                while any(inside != me for inside in self._inside):
                    self._changed.wait()
                    self._closed_by = me  # A signal's handler may have forked meanwhile, and opened it.
        except BaseException:
            self._open()
            raise

    def _open(self) -> None:
        with self._changed:
            self._closed_by = None
            self._changed.notify_all()

    def _renew(self) -> None:
        me = threading.get_ident()
        self._changed = threading.Condition()
        self._inside, self._closed_by = [inside for inside in self._inside if inside == me], None


# --- imports ----------------------------------------------------------------------------------------------------------

_INDIVISIBLE: Final = "numpy"
"""Its native code refuses to be loaded a second time, so a fork waits for its import. Not for others: a module that
calls `os.register_at_fork` in the midst of a fork is called after it and was not called before."""
_IMPORT_S: Final = 2.0
"""Not longer: the importing thread may wait for what the forking one holds."""
_POLL_S: Final = 0.001


def _module_locks() -> dict[str, Any]:
    """Python's own locks of the modules that are being imported, as weak references.

    Python tells of them nowhere; where its import system has changed, none are found.
    """
    found: dict[str, Any] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    return found


def _foreign_imports(*, are_all_foreign: bool = False) -> list[str]:
    """The modules that other threads import just now. `are_all_foreign`: locks that nobody owns count too."""
    me, found = threading.get_ident(), []
    for name, reference in list(_module_locks().items()):
        owner = getattr(reference(), "owner", None)
        if owner != me and (are_all_foreign or owner is not None):
            found.append(name)
    return found


def _forget_imports() -> None:
    """In the child: the locks of modules that are not its own will never be freed, nor their modules be complete."""
    for name in _foreign_imports(are_all_foreign=True):
        _module_locks().pop(name, None)
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            # A package's modules are complete or not, but all that has imported them belongs to this import too.
            for part in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
                del sys.modules[part]


# --- the fork itself --------------------------------------------------------------------------------------------------


class _Forks(threading.local):
    """What rests for the forks that a thread is in: one, or several where a signal's handler or a hook forks meanwhile.

    The inner ones leave alone what rests already.
    """

    def __init__(self) -> None:
        self.resting: list[list[_Rest]] = []


_forks = _Forks()


def _before() -> None:
    tried = [found for resting in _forks.resting for found in resting]
    mine: list[_Rest] = []
    _forks.resting.append(mine)
    waking = [] if _ONE_AT_A_TIME in tried else [_ONE_AT_A_TIME]
    end_s, errors = time.monotonic() + _IMPORT_S, []
    while True:
        tried += waking
        errors += _all_of([partial(_rest_one, found, mine) for found in waking])
        # Other threads may name some while this one waits.
        waking = [found for found in reversed(_around) if found not in tried]
        if not waking:
            if _INDIVISIBLE not in _foreign_imports() or time.monotonic() >= end_s:
                break
            time.sleep(_POLL_S)
    _raise_all(errors)


def _rest_one(found: _Rest, resting: list[_Rest]) -> None:
    found.rest()
    resting.append(found)


def _in_parent() -> None:
    _raise_all(_all_of([found.go_on for found in reversed(_forks.resting.pop())]))


def _in_child() -> None:
    _left_behind.update(_started)
    rested = reversed(_forks.resting.pop())
    renewals = [found.renew_after_fork for found in list(_objects)]
    _raise_all(_all_of([_forget_imports, *[found.renew for found in rested], *renewals, *_renewals]))


def _all_of(calls: Iterable[Callable[[], object]]) -> list[BaseException]:
    """Makes every call, whatever another raises, be it an interrupt: the fork takes place all the same.

    Returns:
        What they have raised.
    """
    errors: list[BaseException] = []
    for call in calls:
        try:
            call()
        except BaseException as error:
            errors.append(error)
    return errors


def _raise_all(errors: list[BaseException]) -> None:
    """Raises errors, which Python shows and goes on.

    Raises:
        BaseExceptionGroup: there are some.
    """
    if errors:
        raise BaseExceptionGroup("around a fork", errors)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
