"""The streams that users opened on a device and still hold, for operations that have to keep order with all of them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["OpenStreams"]

StreamT = TypeVar("StreamT")


class OpenStreams(Generic[StreamT]):
    """Holds streams weakly. Any thread may add, remove and go through them at once, as a `WeakSet` does not allow."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # The collector may end a stream in the midst of any method, and so come back.
        self._streams: tuple[weakref.ref[StreamT], ...] = ()

    def __bool__(self) -> bool:
        return bool(self._streams)

    def __iter__(self) -> Iterator[StreamT]:
        """Those that were open when this was called, in the order of their opening."""
        return (stream for held in self._streams if (stream := held()) is not None)

    def add(self, stream: StreamT) -> None:
        """Adds a stream, until it is discarded or nobody holds it any more."""
        with self._lock:
            self._streams = (*(held for held in self._streams if held() is not None), weakref.ref(stream))

    def discard(self, stream: StreamT) -> None:
        """Forgets a stream."""
        with self._lock:
            self._streams = tuple(held for held in self._streams if held() not in (None, stream))

    def clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._streams = ()
