"""Environments: the folder in which compiled kernels, records and locks are kept, per context."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from quernel import settings
from quernel.errors import StoreError
from quernel.forks import in_child, renewed

__all__ = ["Environment", "current_environment", "default_environment", "environment", "generation"]


class _Closeable(Protocol):
    def close(self) -> None: ...


class Environment:
    """A folder with the subfolders `store`, `records` and `locks`. Making the object touches no disk.

    `environment(path)` and `default_environment()` give one object per folder for as long as it is open, so the
    object itself serves as a key. Any thread may use it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        named = os.fspath(path) if isinstance(path, str | os.PathLike) else path
        if not isinstance(named, str) or "\0" in named:
            raise StoreError(f"{path!r} names no folder", fix="give the path of a folder as text or as a pathlib.Path")
        try:
            self.path = os.path.abspath(os.path.expanduser(named))
        except OSError as error:  # There is no current folder any more that it could be relative to.
            raise StoreError(
                f"{named!r} is relative to the current folder, which cannot be found: {error.strerror}",
                fix="give an absolute path",
            ) from error
        self.store_path = os.path.join(self.path, "store")
        self.records_path = os.path.join(self.path, "records")
        self.locks_path = os.path.join(self.path, "locks")
        self.is_closed = False
        self.unusable: StoreError | None = None
        """Why nothing can ever be kept here, where that is known without trying."""
        self._said_unusable = False
        self._lock = threading.RLock()
        self._held: dict[object, Any] = {}
        self._callbacks: list[Callable[[Environment], object]] = []
        _environments.add(self)
        renewed(self)

    def __repr__(self) -> str:
        return f"Environment({self.path!r})"

    def hold(self, key: object, make: Callable[[], Any]) -> Any:
        """What is held under `key` until this environment closes; made at the first call.

        `make` runs without any lock, as it may call plugins; where several threads make it at once, one result is held
        and the others are closed.

        Raises:
            StoreError: the environment is closed, or `make` raised it.
        """
        held = self._held_unless_closed(key)
        if held is not None:
            return held
        made = make()
        try:
            with self._lock:
                held = self._held_unless_closed(key)
                if held is None:
                    held = self._held[key] = made
        finally:
            if held is not made:
                made.close()
        return held

    def _held_unless_closed(self, key: object) -> Any:
        with self._lock:
            if self.is_closed:
                raise StoreError(f"the environment {self.path} is closed", fix="enter it again")
            return self._held.get(key)

    def when_closed(self, callback: Callable[[Environment], object]) -> None:
        """Calls back with this environment when it closes: the place to drop what was loaded from it."""
        with self._lock:
            self._callbacks.append(callback)

    def say_unusable(self, error: StoreError, *, what: str = "compiled kernels") -> None:
        """Warns, once in the life of this object, that nothing is kept; later failures go to the debug log.

        So do those after it is closed: a process that ends keeps nothing of its last launches, and works.
        """
        import logging

        with self._lock:
            first, self._said_unusable = not self._said_unusable and not self.is_closed, True
        log = logging.getLogger(__name__)
        if first:
            log.warning("%s are not kept in %s: %s", what, self.path, error)
        else:
            log.debug("not kept in %s: %s", self.path, error)

    def close(self) -> None:
        """Closes the stores and records held, then calls back; idempotent. A failing callback is logged."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            held, self._held = list(self._held.values()), {}
            callbacks, self._callbacks = self._callbacks, []
        for call in (*(item.close for item in held), *(_bound(callback, self) for callback in reversed(callbacks))):
            try:
                call()
            except Exception:
                import logging

                logging.getLogger(__name__).exception("closing the environment %s", self.path)

    def renew_after_fork(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not there."""
        self._lock = threading.RLock()


class environment:  # noqa: N801 — used as a function: with environment(path): ...
    """Keeps what is compiled inside the `with` block in `path`; gives the `Environment`.

    It holds for the current context, as `contextvars` define it: other threads are not affected. Entering a folder
    that is open already, here or in another thread, shares it; the last one to leave closes it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._entered: list[tuple[Environment, contextvars.Token[Any], contextvars.Token[int]]] = []

    def __enter__(self) -> Environment:
        opened = _acquire(self._path)
        self._entered.append((opened, _current.set(opened), _generation.set(next(_generations))))
        return opened

    def __exit__(self, *exception: object) -> None:
        opened, current, number = self._entered.pop()
        _generation.reset(number)
        _current.reset(current)
        _release(opened)


def current_environment() -> Environment:
    """The environment of the innermost `with environment(...)` of this context, else the default one."""
    return _current.get() or default_environment()


def default_environment() -> Environment:
    """The folder in `QUERNEL_ENVIRONMENT`, else `quernel` in the user's cache folder. Stays open until exit.

    Where there is no such folder the environment given is marked unusable: nothing is kept in it.
    """
    path = settings.environment_path()
    if path is None:
        path = _user_cache()
        if not os.path.isabs(path):
            fix = "set QUERNEL_ENVIRONMENT to a folder"
            return _nowhere(StoreError("this user has no home folder to keep compiled kernels in", fix=fix))
    try:
        return _permanent(path)
    except StoreError as error:
        return _nowhere(error)


def _nowhere(reason: StoreError) -> Environment:
    """An environment in which nothing is ever kept, and why."""
    nowhere = _permanent(os.path.join(os.sep, "nonexistent", "quernel"))
    nowhere.unusable = reason
    return nowhere


_current: contextvars.ContextVar[Environment | None] = contextvars.ContextVar("quernel_environment", default=None)
_generation: contextvars.ContextVar[int] = contextvars.ContextVar("quernel_generation", default=0)
_generations = itertools.count(1)

generation = _generation.get
"""`generation() -> int`: a number that differs inside and outside every `with environment(...)`, and between two of
them; leaving one restores the number from before it. Launchers compare it, so it is the bare method of a context
variable (about 20 ns)."""

_environments: weakref.WeakSet[Environment] = weakref.WeakSet()
_registry_lock = threading.Lock()
_opened: dict[str, tuple[Environment, int]] = {}


def _bound(callback: Callable[[Environment], object], closing: Environment) -> Callable[[], object]:
    return lambda: callback(closing)


def _acquire(path: str | os.PathLike[str]) -> Environment:
    fresh = Environment(path)
    with _registry_lock:
        opened, users = _opened.get(fresh.path, (fresh, 0))
        _opened[fresh.path] = (opened, users + 1)
    return opened


def _release(opened: Environment) -> None:
    with _registry_lock:
        found, users = _opened.get(opened.path, (None, 0))
        if found is not opened:
            return
        if users > 1:
            _opened[opened.path] = (opened, users - 1)
            return
        del _opened[opened.path]
    opened.close()


_defaults: dict[str, Environment] = {}


def _permanent(path: str) -> Environment:
    """The environment of a default folder, held once so that no `with` block closes it."""
    kept = _defaults.get(path)
    if kept is None or kept.is_closed:
        acquired = _acquire(path)
        with _registry_lock:
            kept = _defaults.get(path)
            if kept is None or kept.is_closed:
                _defaults[path] = acquired
                return acquired
        _release(acquired)
    return kept


def _user_cache() -> str:
    """`quernel` in the user's cache folder; on Linux without the 6 ms that importing platformdirs takes."""
    if sys.platform == "linux" and not hasattr(sys, "getandroidapilevel"):
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not base.strip():
            return os.path.join(os.path.expanduser("~"), ".cache", "quernel")
        if os.path.isabs(base):
            return os.path.join(base, "quernel")
    import platformdirs

    return platformdirs.user_cache_dir("quernel", appauthor=False)


@atexit.register
def _close_all() -> None:
    for opened in list(_environments):
        with contextlib.suppress(Exception):
            opened.close()


def _renew_registry() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()


in_child(_renew_registry)
