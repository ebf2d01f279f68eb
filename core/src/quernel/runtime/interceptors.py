"""What may stand between a launch and its device: graphs that are captured, profiles that are taken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quernel.runtime.devices import Device

__all__ = ["Interceptor"]


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

    def _end(self) -> None:
        with self.device._lock:
            self.device.interceptors = tuple(found for found in self.device.interceptors if found is not self)
