"""Who may compile: no code that is part of a compilation, which could wait for itself, and nobody in `no_compiling`."""

from __future__ import annotations

import threading
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final

from quernel.errors import LaunchError
from quernel.forks import in_child

__all__ = [
    "Compiling",
    "is_compiling_allowed",
    "no_compiling",
    "refuse_not_compiling",
    "refuse_while_compiling",
    "stand",
    "standing",
    "step_aside",
]

standing: Final[list[object]] = []
"""All that stands anywhere in the process between launches and their devices, threads that compile included. Launches
on the quick path only ask whether it is empty; while it is not, launches of every thread go the general way, which
looks for what is theirs."""
_standing_lock = threading.Lock()


def stand(what: object) -> None:
    """Has launches go the general way, until `what` steps aside."""
    with _standing_lock:
        standing.append(what)


def step_aside(what: object) -> None:
    """Takes `what` out of the way of launches."""
    with _standing_lock:
        standing[:] = [found for found in standing if found is not what]


def _renew_after_fork() -> None:
    global _standing_lock
    _standing_lock = threading.Lock()
    standing.clear()


in_child(_renew_after_fork)

_thread = threading.local()
_is_allowed: ContextVar[bool] = ContextVar("quernel_compiling_is_allowed", default=True)

is_compiling_allowed = _is_allowed.get
"""`is_compiling_allowed() -> bool`: whether this context is outside every `no_compiling()`."""


class no_compiling:  # noqa: N801 — used as a function: with no_compiling(): ...
    """Within the `with` block, a launch that would have to compile raises `LaunchError`, which says why and what to do.

    What is loaded is launched, and what the store has is loaded. It holds for the current context, as `contextvars`
    define it: other threads go on compiling, and a launch may wait for what they compile. Nests.
    """

    def __init__(self) -> None:
        self._tokens: list[Token[bool]] = []

    def __enter__(self) -> None:
        self._tokens.append(_is_allowed.set(False))

    def __exit__(self, *exception: object) -> None:
        _is_allowed.reset(self._tokens.pop())


def refuse_not_compiling(action: str) -> None:
    """Raises within `no_compiling()`. `action` completes the sentence "cannot …", for example `tune saxpy`.

    Raises:
        LaunchError: the context compiles nothing.
    """
    if not _is_allowed.get():
        raise LaunchError(f"cannot {action} within no_compiling()", fix="leave the block first")


class Compiling:
    """Marks the calling thread, for as long as the context lasts, as compiling `what`. Nests."""

    __slots__ = ("_outer", "_what")

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._outer: str | None = getattr(_thread, "what", None)
        _thread.what = self._what
        stand(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _thread.what = self._outer
        step_aside(self)


def refuse_while_compiling(action: str) -> None:
    """Raises where the calling thread is itself part of a compilation: a worker, a reporter, a hook, a target method.

    `action` completes the sentence "cannot … here", for example `load saxpy`.

    Raises:
        LaunchError: the thread is compiling.
    """
    what = getattr(_thread, "what", None)
    if what is not None:
        raise LaunchError(
            f"cannot {action} here: this thread is {what}, and would wait for itself",
            fix="return from the worker, reporter or hook first, or hand the work to another thread and do not wait",
        )
