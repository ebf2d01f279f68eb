"""Launchers: one look-up from what the arguments are to a kernel that is ready, then the launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import attrs
import numpy as np

from quernel import settings
from quernel.errors import LaunchError, QuernelError
from quernel.geometry import Geometry, LaunchForm
from quernel.runtime.argument_reading import read_arguments
from quernel.runtime.devices import Device
from quernel.runtime.directory import directory
from quernel.runtime.interceptors import has_modes, is_taken, standing
from quernel.runtime.launch_sites import as_raised_by_the_call
from quernel.runtime.launchables import Launchable
from quernel.runtime.ready import Ready, RequestedLaunch
from quernel.store import generation

if TYPE_CHECKING:
    from quernel.runtime.parameters import Spec
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
            if self._kernel.interpret or settings.interpret():
                self._interpret(args, kwargs)
                return
            ready, values, on_host = self._look_up(args, kwargs)
            if ready is None:
                return
            arguments = ready.packed(values, geometry)
            ready.check(geometry)
        except QuernelError as error:
            raise as_raised_by_the_call(error, 1) from error.__cause__
        stream = self._stream
        _launch(ready, geometry, arguments, None if stream is None else stream.handle, on_host, (args, kwargs))

    def bind(self, *args: Any, **kwargs: Any) -> BoundLaunch:
        """The launch with its arguments fixed and checked: `b()` repeats it, `b.update(a=3.0)` changes arguments."""
        try:
            return BoundLaunch(self, self._kernel.parameters.bind(args, kwargs))
        except QuernelError as error:
            raise as_raised_by_the_call(error, 1) from error.__cause__

    def _look_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Ready | None, list[Any], bool]:
        """What is ready for these arguments, their values for packing, and whether NumPy arrays are among them.

        `None` stands for a launch that a mode took. On the launch path: a hit takes no lock.
        """
        kernel = self._kernel
        names = kernel.parameters.names
        if kwargs or len(args) != len(names) or kernel.parameters.num_positional != len(names):
            args = kernel.parameters.bind(args, kwargs)
        return self._find(kernel.parameters.specs, args, self._device)

    def _find(
        self, specs: Sequence[Spec], args: Sequence[Any], device: Device | None, names: object = None
    ) -> tuple[Ready | None, list[Any], bool]:
        """The same for arguments in the order of `specs`; `names` tells apart what only its parts' names do."""
        kernel = self._kernel
        options = kernel.options
        if settings.checked() and not options.checked:
            options = attrs.evolve(options, checked=True)

        kinds, values, facts, read_only, repeating, on_host, arrays_on = read_arguments(specs, args, self._facts)
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
            _refuse_host_arrays(specs, args, device)

        geometry = self._geometry
        request = RequestedLaunch(kernel, device, specs, args, geometry.form, geometry.block, facts, options)
        if standing and is_taken(request):
            return None, [], False
        key = (device, generation(), facts, geometry.block, options.checked, names, *kinds)
        ready = self._table.get(key)
        if ready is None or not ready.is_current():
            ready = request.load()
            kernel.keep(self._table, key, ready)
        if (read_only | repeating) & ready.written:
            if read_only & ready.written:
                ready.refuse_writes(read_only, "read-only")
            ready.refuse_writes(repeating, "repeating")
        return ready, values, on_host

    def _interpret(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Launches in the reference interpreter: memory of other devices is copied in, and back where it is written."""
        from quernel.runtime.borrowing import Borrowed
        from quernel.runtime.compounds import flattened

        reference = directory.device("reference")
        parameters = self._kernel.parameters
        specs, given, structs = flattened(parameters.specs, parameters.bind(args, kwargs))
        borrowed = Borrowed(given, reference)
        ready, values, on_host = self._find(specs, borrowed.values, reference, tuple(structs))
        if ready is None:
            return
        arguments = ready.packed(values, self._geometry)
        ready.check(self._geometry)
        try:
            _launch(ready, self._geometry, arguments, None, on_host, borrowed)
        finally:
            written = iter(ready.header.params)
            borrowed.give_back([not spec.is_const and next(written).is_written for spec in specs])


@final
class BoundLaunch:
    """A launch with its arguments fixed: `b()` repeats it without checks, `b.update(a=3.0)` changes arguments.

    It keeps what it captured: a constant of the kernel that changes later counts from the next `update` on.
    """

    __slots__ = ("_geometry", "_launcher", "_prepared", "_stream")

    def __init__(self, launcher: Launcher, args: tuple[Any, ...]) -> None:
        self._launcher = launcher
        self._geometry = launcher._geometry
        self._stream = None if launcher._stream is None else launcher._stream.handle
        self._prepared = self._prepare(args)
        """The arguments, what is ready for them, their bytes and whether NumPy arrays are among them.

        One value, read once by a launch: another thread's `update` must not mix one launch's code with another's bytes.
        """

    def __repr__(self) -> str:
        return f"<bound {self._launcher!r}>"

    def __call__(self) -> None:
        """Launches again. On the launch path."""
        args, ready, arguments, on_host = self._prepared
        if ready is None or (standing and has_modes()):
            given, named = self._launcher._kernel.parameters.unbind(args)
            self._launcher(*given, **named)
            return
        if ready.device.is_closed:
            ready.device.check_open()
        _launch(ready, self._geometry, arguments, self._stream, on_host, args)

    def update(self, *args: Any, **kwargs: Any) -> BoundLaunch:
        """Replaces arguments, by name or from the first on, with all the checks of a launch; gives itself.

        Launches of other threads run with all of the old arguments or all of the new ones.

        Raises:
            QuernelError: as a launch; then the arguments stay as they were.
        """
        try:
            self._prepared = self._prepare(self._changed(args, kwargs))
        except QuernelError as error:
            raise as_raised_by_the_call(error, 1) from error.__cause__
        return self

    def _changed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        parameters = self._launcher._kernel.parameters
        changed = list(self._prepared[0])
        if len(args) > len(changed):
            parameters.bind(args, {})
        changed[: len(args)] = args
        for name, value in kwargs.items():
            changed[parameters.index_of(name)] = value
        return tuple(changed)

    def _prepare(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Ready | None, bytes, bool]:
        launcher = self._launcher
        given, named = launcher._kernel.parameters.unbind(args)
        if launcher._kernel.interpret or settings.interpret():
            return args, None, b"", False
        ready, values, on_host = launcher._look_up(given, named)
        if ready is None:
            return args, None, b"", on_host
        arguments = ready.packed(values, self._geometry)
        ready.check(self._geometry)
        return args, ready, arguments, on_host


def _launch(ready: Ready, geometry: Geometry, arguments: bytes, stream: Any, on_host: bool, keep: object) -> None:
    if 0 in geometry.extent:
        return
    if ready.reports is not None:
        ready.reports.launch(geometry, arguments, stream, on_host, keep)
        return
    device = ready.device
    if device.interceptors:
        from quernel.runtime.captured import CapturedLaunch

        device.give(ready.name, CapturedLaunch(ready, geometry, arguments), stream, keep)
        if device.is_capturing:
            return
    else:
        ready.run(geometry, arguments, stream)
    if on_host and ready.waits:
        device.operations.synchronize(stream)


def _refuse_host_arrays(specs: Sequence[Spec], args: Sequence[Any], device: Device) -> None:
    from quernel.runtime.compounds import flattened

    specs, args, _ = flattened(specs, args)
    name = next(spec.name for spec, value in zip(specs, args, strict=True) if isinstance(value, np.ndarray))
    raise LaunchError(
        f"parameter {name!r} got a NumPy array, and {device.name} does not reach the host's memory",
        fix=f"copy it to the device first: {name} = device.array({name})",
    )
