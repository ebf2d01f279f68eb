"""The streams that users opened on a device and still hold, for operations that have to keep order with all of them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["OpenStreams"]

StreamT = TypeVar("StreamT")


class OpenStreams(Generic[StreamT]):
    """Holds streams weakly, by who they are. Any thread may add, remove and go through them at once.

    Each change is one step of a dictionary, and takes no lock: the collector may end or open a stream in the midst of
    any method.
    """

    def __init__(self) -> None:
        self._streams: weakref.WeakValueDictionary[int, StreamT] = weakref.WeakValueDictionary()

    def __bool__(self) -> bool:
        return bool(self._streams)

    def __iter__(self) -> Iterator[StreamT]:
        """Those that were open when this was called, in the order of their opening."""
        return (stream for held in self._streams.valuerefs() if (stream := held()) is not None)

    def add(self, stream: StreamT) -> None:
        """Adds a stream, until it is discarded or nobody holds it any more."""
        self._streams[id(stream)] = stream

    def discard(self, stream: StreamT) -> None:
        """Forgets a stream."""
        self._streams.pop(id(stream), None)

    def clear(self) -> None:
        """Forgets all."""
        self._streams.clear()
