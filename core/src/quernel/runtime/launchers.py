"""Launchers: one look-up from what the arguments are to a kernel that is ready, then the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs
import numpy as np

from quernel import settings
from quernel.errors import LaunchError
from quernel.geometry import Geometry, LaunchForm
from quernel.runtime.argument_reading import read_arguments
from quernel.runtime.arrays import DeviceArray
from quernel.runtime.devices import Device
from quernel.runtime.directory import directory
from quernel.runtime.launch_sites import OF_A_LAUNCH, locate
from quernel.runtime.launchables import Launchable
from quernel.runtime.ready import Ready, make_ready
from quernel.store import generation

if TYPE_CHECKING:
    from quernel.runtime.streams import Stream

__all__ = ["BoundLaunch", "Launcher"]


@final
class Launcher:
    """A kernel with the shape of a launch: call it with the kernel's arguments. Any thread, any number of times."""

    __slots__ = ("_device", "_facts", "_geometry", "_kernel", "_stream", "_table")

    def __init__(
        self, kernel: Launchable, geometry: Geometry, facts: int, device: Device | None, stream: Stream | None
    ) -> None:
        if stream is not None:
            stream.check_open()
            if device is not None and device is not stream.device:
                raise LaunchError(
                    f"the device is {device.name}, the stream is of {stream.device.name}", fix="name one of the two"
                )
            device = stream.device
        self._kernel = kernel
        self._geometry = geometry
        self._facts = facts
        self._device = device
        self._stream = stream
        self._table = kernel.over if geometry.form is LaunchForm.OVER else kernel.grid

    def __repr__(self) -> str:
        geometry = self._geometry
        name = self._kernel.origin.name
        if geometry.form is LaunchForm.OVER:
            return f"<{name} over {geometry.extent}, block {geometry.block}>"
        return f"<{name} on a grid of {geometry.grid}, block {geometry.block}>"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launches. With NumPy arrays it is done on return; else the device goes on in its stream.

        Raises:
            QuernelError: the arguments do not fit, or the kernel cannot be compiled or launched.
        """
        geometry = self._geometry
        try:
            ready, values, on_host = self._look_up(args, kwargs)
            if ready is None:
                self._interpret(args, kwargs)
                return
            arguments = ready.packed(values, geometry)
            ready.check(geometry)
        except OF_A_LAUNCH as error:
            locate(error, 1)
            raise
        stream = self._stream
        _launch(ready, geometry, arguments, None if stream is None else stream.handle, on_host, (args, kwargs))

    def bind(self, *args: Any, **kwargs: Any) -> BoundLaunch:
        """The launch with its arguments fixed and checked: `b()` repeats it, `b.update(a=3.0)` changes arguments."""
        try:
            return BoundLaunch(self, self._kernel.parameters.bind(args, kwargs))
        except OF_A_LAUNCH as error:
            locate(error, 1)
            raise

    def _look_up(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], device: Device | None = None
    ) -> tuple[Ready | None, list[Any], bool]:
        """What is ready for these arguments, their values for packing, and whether NumPy arrays are among them.

        `None` stands for a launch that the interpreter takes. On the launch path: a hit takes no lock.
        """
        kernel = self._kernel
        names = kernel.parameters.names
        if kwargs or len(args) != len(names) or kernel.parameters.num_positional != len(names):
            args = kernel.parameters.bind(args, kwargs)
        options = kernel.options
        if device is None:
            if kernel.interpret or settings.interpret():
                return None, [], False
            device = self._device
        if settings.checked() and not options.checked:
            options = attrs.evolve(options, checked=True)

        kinds, values, facts, read_only, repeating, on_host, arrays_on = read_arguments(
            kernel.parameters.specs, args, self._facts
        )
        if device is None:
            device = arrays_on
            if device is None:
                device = directory.named() or (directory.host() if on_host else directory.current())
        elif arrays_on is not None and arrays_on is not device:
            raise LaunchError(
                f"the launch is on {device.name}, its arrays are on {arrays_on.name}",
                fix=f"move them with .to({device.name!r}), or leave out the device",
            )
        if device.is_closed:
            device.check_open()
        if on_host and not device.is_host_accessible:
            _refuse_host_arrays(kernel, args, device)

        geometry = self._geometry
        key = (device, generation(), facts, geometry.block, options.checked, *kinds)
        ready = self._table.get(key)
        if ready is None or not ready.is_current():
            ready = make_ready(kernel, device, args, geometry.form, geometry.block, facts, options)
            kernel.keep(self._table, key, ready)
        if (read_only | repeating) & ready.written:
            if read_only & ready.written:
                ready.refuse_writes(read_only, "read-only")
            ready.refuse_writes(repeating, "repeating")
        return ready, values, on_host

    def _interpret(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Launches in the reference interpreter: arrays of other devices are copied in, and back if written."""
        reference = directory.device("reference")
        given = self._kernel.parameters.bind(args, kwargs)
        away = {
            index: value.numpy()
            for index, value in enumerate(given)
            if isinstance(value, DeviceArray) and value.device is not reference
        }
        brought = tuple(away.get(index, value) for index, value in enumerate(given))
        ready, values, on_host = self._look_up(*self._kernel.parameters.unbind(brought), reference)
        assert ready is not None
        arguments = ready.packed(values, self._geometry)
        ready.check(self._geometry)
        _launch(ready, self._geometry, arguments, None, on_host, brought)
        names = {parameter.name for parameter in ready.header.params if parameter.is_written}
        for index, copied in away.items():
            if self._kernel.parameters.names[index] in names:
                given[index].copy_from(copied)


@final
class BoundLaunch:
    """A launch with its arguments fixed: `b()` repeats it without checks, `b.update(a=3.0)` changes arguments.

    It keeps what it captured: a constant of the kernel that changes later counts from the next `update` on.
    """

    __slots__ = ("_args", "_arguments", "_geometry", "_launcher", "_on_host", "_ready", "_stream")

    def __init__(self, launcher: Launcher, args: tuple[Any, ...]) -> None:
        self._launcher = launcher
        self._args = args
        self._prepare()

    def __repr__(self) -> str:
        return f"<bound {self._launcher!r}>"

    def __call__(self) -> None:
        """Launches again. On the launch path."""
        ready = self._ready
        if ready is None:
            args, kwargs = self._launcher._kernel.parameters.unbind(self._args)
            self._launcher(*args, **kwargs)
            return
        if ready.device.is_closed:
            ready.device.check_open()
        _launch(ready, self._geometry, self._arguments, self._stream, self._on_host, self._args)

    def update(self, *args: Any, **kwargs: Any) -> BoundLaunch:
        """Replaces arguments, by name or from the first on, with all the checks of a launch; gives itself.

        Raises:
            QuernelError: as a launch; then the arguments stay as they were.
        """
        before = self._args
        try:
            self._args = self._changed(args, kwargs)
            self._prepare()
        except BaseException as error:
            self._args = before
            if isinstance(error, OF_A_LAUNCH):
                locate(error, 1)
            raise
        return self

    def _changed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        parameters = self._launcher._kernel.parameters
        changed = list(self._args)
        if len(args) > len(changed):
            parameters.bind(args, {})
        changed[: len(args)] = args
        for name, value in kwargs.items():
            changed[parameters.index_of(name)] = value
        return tuple(changed)

    def _prepare(self) -> None:
        launcher = self._launcher
        ready, values, on_host = launcher._look_up(*launcher._kernel.parameters.unbind(self._args))
        if ready is not None:
            self._arguments = ready.packed(values, launcher._geometry)
            ready.check(launcher._geometry)
        self._ready, self._on_host = ready, on_host
        self._geometry = launcher._geometry
        self._stream = None if launcher._stream is None else launcher._stream.handle


def _launch(ready: Ready, geometry: Geometry, arguments: bytes, stream: Any, on_host: bool, keep: object) -> None:
    if 0 in geometry.extent:
        return
    if ready.reports is not None:
        ready.reports.launch(geometry, arguments, stream, on_host, keep)
        return
    device = ready.device
    if device.interceptors:
        run = ready.run
        device.give(ready.name, lambda into: run(geometry, arguments, into), stream, keep)
        if device.is_capturing:
            return
    else:
        ready.run(geometry, arguments, stream)
    if on_host and ready.waits:
        device.operations.synchronize(stream)


def _refuse_host_arrays(kernel: Launchable, args: tuple[Any, ...], device: Device) -> None:
    name = next(
        name for name, value in zip(kernel.parameters.names, args, strict=True) if isinstance(value, np.ndarray)
    )
    raise LaunchError(
        f"parameter {name!r} got a NumPy array, and {device.name} does not reach the host's memory",
        fix=f"copy it to the device first: {name} = device.array({name})",
    )
