"""Drivers and forks: a driver's threads stay with the parent, so what it started is of no use in a forked child.

Even to ask such a driver for its devices may wait for ever there. Backends say when they start theirs; everything that
would use one asks here first.
"""

from __future__ import annotations

import os
from typing import Final

from quernel.errors import DeviceError

__all__ = ["FORKED_FIX", "check_driver", "driver_started"]

FORKED_FIX: Final = "start processes with 'spawn', as multiprocessing.get_context('spawn') does"

_started: set[str] = set()
_left_behind: set[str] = set()
"""Backends whose drivers a process started that this one was forked from."""


def driver_started(backend: str) -> None:
    """Notes that a driver was started in this process which does not work in processes forked from it. Any thread.

    A backend SHOULD say so as it starts the driver. Of opened devices that do not survive a fork it is noted.
    """
    _started.add(backend)


def check_driver(backend: str) -> None:
    """Raises where the driver of a backend was started before this process was forked.

    Raises:
        DeviceError: it was.
    """
    if backend in _left_behind:
        raise DeviceError(
            f"{backend} was started before this process was forked: its driver does not survive a fork", fix=FORKED_FIX
        )


def _leave_behind() -> None:
    _left_behind.update(_started)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_behind)
