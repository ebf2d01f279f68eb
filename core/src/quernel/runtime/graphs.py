"""Graphs: work captured once and run again, by the backend's own means or by replaying a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from quernel.errors import LaunchError
from quernel.runtime.captured import CapturedLaunch
from quernel.runtime.interceptors import Interceptor, is_graph_taken, standing

if TYPE_CHECKING:
    from quernel.runtime.devices import Device
    from quernel.runtime.streams import Stream

__all__ = ["Graph"]


@final
class Graph(Interceptor):
    """Work on one device that runs as a whole.

    `with device.graph() as graph:` captures what this thread gives to the device, without running it; `graph()` or
    `graph.launch(stream)` runs it. The arrays that it uses live as long as the graph. Scalars are as they were when
    captured, unless `update` changes them.
    """

    captures = True

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._steps: list[tuple[str, Callable[[Any], None]]] = []
        self._keep: list[object] = []
        self._stream: Any = None
        self._capture: Any = None
        self._native: Any = None
        self._state = "new"

    def __repr__(self) -> str:
        return f"<graph of {len(self._steps)} steps on {self.device.name}, {self._state}>"

    def __len__(self) -> int:
        return len(self._steps)

    def __enter__(self) -> Graph:
        if self._state != "new":
            raise LaunchError("this graph was captured before", fix="make another with device.graph()")
        if self.device.is_capturing:
            raise LaunchError("this thread captures another graph of the device", fix="end that one first")
        self._stream = self.device.operations.open_stream()
        self._capture = self.device.operations.begin_graph(self._stream)
        self._state = "capturing"
        self._begin()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end()
        self._state = "ready" if kind is None else "failed"
        try:
            if self._capture is not None:
                native = self.device.operations.end_graph(self._capture)
                self._native = native if kind is None else None
        finally:
            self.device.operations.close_stream(self._stream)
            self._capture = self._stream = None

    def take(self, name: str, run: Callable[[Any], None], stream: Any, keep: object) -> None:
        """Keeps one piece of work; a backend with graphs of its own is given it in the stream that it captures."""
        self._steps.append((name, run))
        self._keep.append(keep)
        if self._capture is not None:
            run(self._stream)

    def update(self, launch: str | int, /, **scalars: Any) -> Graph:
        """Changes scalar arguments of captured launches; gives itself.

        `launch` is the kernel's name, which stands for all its launches, or the number of one step, from 0. Work that
        was given to the device before runs with the old values.

        Raises:
            LaunchError: nothing of that name was captured, or the kernel has no such scalar parameter.
            KernelTypeError: a value does not fit.
        """
        self._check_ready()
        chosen = [
            number
            for number, (name, run) in enumerate(self._steps)
            if isinstance(run, CapturedLaunch) and launch in (name, number)
        ]
        if not chosen:
            names = dict.fromkeys(name for name, run in self._steps if isinstance(run, CapturedLaunch))
            raise LaunchError(
                f"this graph has captured no launch {launch!r}", fix=f"use one of {', '.join(names) or 'its own'}"
            )
        steps = list(self._steps)
        for number in chosen:
            name, run = steps[number]
            assert isinstance(run, CapturedLaunch)
            steps[number] = (name, run.updated(scalars))
        if self._native is not None:
            self._native = self._captured_anew(steps)
        self._steps = steps
        return self

    def _captured_anew(self, steps: list[tuple[str, Callable[[Any], None]]]) -> Any:
        operations = self.device.operations
        stream = operations.open_stream()
        try:
            capture = operations.begin_graph(stream)
            for _, run in steps:
                run(stream)
            return operations.update_graph(self._native, capture)
        finally:
            operations.close_stream(stream)

    def __call__(self) -> None:
        """Runs the captured work in the device's default stream."""
        self.launch()

    def _check_ready(self) -> None:
        self.device.check_open()
        if self._state != "ready":
            raise LaunchError(
                f"this graph is {self._state}, not ready", fix="leave its with block without an error first"
            )

    def launch(self, stream: Stream | None = None) -> None:
        """Runs the captured work in a stream, or in the device's default one.

        Raises:
            LaunchError: nothing was captured, or the stream is another device's.
        """
        self._check_ready()
        if stream is not None:
            stream.check_open()
            if stream.device is not self.device:
                raise LaunchError(
                    f"the graph is of {self.device.name}, the stream of {stream.device.name}", fix="use one device"
                )
        if standing and is_graph_taken(self.device):
            return
        handle = None if stream is None else stream.handle
        if self._native is not None:
            native = self._native
            self.device.give("graph", lambda into: self.device.operations.launch_graph(native, into), handle, self)
            return
        for name, run in self._steps:
            self.device.give(name, run, handle, self)
