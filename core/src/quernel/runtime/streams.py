"""Streams, in which work runs in order, and events, which mark places in them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from quernel.errors import DeviceError, LaunchError
from quernel.runtime.interceptors import before_waiting, standing

if TYPE_CHECKING:
    from quernel.runtime.devices import Device

__all__ = ["Event", "Stream"]


@final
class Stream:
    """A queue of work on one device, made by `device.stream()`. Works as a context manager that closes it.

    Attributes:
        device: the device that it belongs to.
        handle: the backend's own object.
    """

    __slots__ = ("_closed", "device", "handle")

    def __init__(self, device: Device) -> None:
        self.device = device
        self._closed = True
        self.handle: Any = device.operations.open_stream()
        self._closed = False

    def __repr__(self) -> str:
        return f"<{'closed ' if self._closed else ''}stream of {self.device.name}>"

    def __enter__(self) -> Stream:
        self.check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed and not self.device.is_closed:
            with suppress(DeviceError):  # Whoever uses the device next is told.
                self.close()

    def check_open(self) -> None:
        """Raises where this stream or its device is closed.

        Raises:
            LaunchError: it is.
        """
        if self._closed:
            raise LaunchError(f"this stream of {self.device.name} is closed", fix="make another with device.stream()")
        self.device.check_open()

    def synchronize(self) -> None:
        """Waits for the work given to this stream, and shows what its kernels have printed."""
        self.check_open()
        if standing:
            before_waiting(self.device)
        self.device.operations.synchronize(self.handle)
        self.device.show_reports(self.handle)

    def record(self) -> Event:
        """An event after the work given to this stream so far."""
        self.check_open()
        return Event(self.device, self.device.operations.record_event(self.handle))

    def wait(self, event: Event) -> None:
        """Makes work given to this stream from now on wait for an event of the same device.

        Raises:
            LaunchError: the event is another device's.
        """
        self.check_open()
        if event.device is not self.device:
            raise LaunchError(
                f"a stream of {self.device.name} cannot wait for an event of {event.device.name}",
                fix="call event.synchronize() instead",
            )
        self.device.operations.wait_event(self.handle, event.handle)

    def close(self) -> None:
        """Ends the stream once its work is done. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if not self.device.is_closed:
            if self.device.reports:
                self.device.operations.synchronize(self.handle)
                self.device.show_reports(self.handle)
            self.device.operations.close_stream(self.handle)


@final
class Event:
    """A mark in a stream's work, made by `stream.record()`.

    Attributes:
        device: the device that it belongs to.
        handle: the backend's own object.
    """

    __slots__ = ("device", "handle")

    def __init__(self, device: Device, handle: Any) -> None:
        self.device = device
        self.handle = handle

    def __repr__(self) -> str:
        return f"<event of {self.device.name}>"

    def synchronize(self) -> None:
        """Waits until the work before the event is done."""
        self.device.check_open()
        if standing:
            before_waiting(self.device)
        self.device.operations.synchronize_event(self.handle)

    def elapsed_ns(self, later: Event) -> int:
        """Nanoseconds from this event to a later one of the same device. Waits for both."""
        if later.device is not self.device:
            raise LaunchError("the events are of two devices", fix="measure on one device")
        self.synchronize()
        later.synchronize()
        return self.device.operations.elapsed_ns(self.handle, later.handle)
