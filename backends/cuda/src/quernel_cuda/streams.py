"""What the driver's handles of streams, events and graphs are held by; each gives its own back when it goes."""

from __future__ import annotations

from typing import Any

from quernel_cuda import _driver
from quernel_cuda._driver import Context

__all__ = ["CudaEvent", "CudaGraph", "CudaStream"]


class CudaStream:
    """A stream.

    Attributes:
        handle: the driver's.
        is_capturing: whether what is given to it becomes a graph.
    """

    __slots__ = ("__weakref__", "handle", "is_capturing")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.is_capturing = False


class CudaEvent:
    """A mark in a stream's work."""

    __slots__ = ("_context", "_destroy", "handle")

    def __init__(self, context: Context, flags: int = 0) -> None:
        self._context = context
        self._destroy = _driver.driver().cuEventDestroy
        self.handle = _driver.call("cuEventCreate", flags, doing="making an event")

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None:
            self._destroy(handle)


class CudaGraph:
    """A captured graph, and what launches it."""

    __slots__ = ("_destroy", "_destroy_executable", "executable", "graph")

    def __init__(self, graph: Any) -> None:
        api = _driver.driver()
        self._destroy, self._destroy_executable = api.cuGraphDestroy, api.cuGraphExecDestroy
        self.executable: Any = None
        self.graph = graph
        self.executable = _driver.call("cuGraphInstantiate", graph, 0, doing="making a graph ready")

    def update(self, graph: Any) -> None:
        """Takes on the parameters of a newly captured graph; one of another shape takes this one's place."""
        api = _driver.driver()
        status, *_ = api.cuGraphExecUpdate(self.executable, graph)
        if int(status):
            executable = _driver.call("cuGraphInstantiate", graph, 0, doing="making a graph ready")
            self._destroy_executable(self.executable)
            self.executable = executable
        self._destroy(self.graph)
        self.graph = graph

    def __del__(self) -> None:
        if getattr(self, "executable", None) is not None:
            self._destroy_executable(self.executable)
        if getattr(self, "graph", None) is not None:
            self._destroy(self.graph)
