"""Keeps code that runs as part of a compilation from starting another one, which could wait for itself."""

from __future__ import annotations

import threading
from types import TracebackType

from quernel.errors import LaunchError

__all__ = ["Compiling", "refuse_while_compiling"]

_thread = threading.local()


class Compiling:
    """Marks the calling thread, for as long as the context lasts, as compiling `what`. Nests."""

    __slots__ = ("_outer", "_what")

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._outer: str | None = getattr(_thread, "what", None)
        _thread.what = self._what

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _thread.what = self._outer


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
