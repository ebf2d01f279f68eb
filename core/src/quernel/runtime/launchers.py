"""Launchers: one look-up from what the arguments are to a kernel that is ready, then the launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from quernel.compiler.reentrancy import refuse_while_compiling
from quernel.errors import LaunchError, QuernelError
from quernel.geometry import Geometry, LaunchForm
from quernel.runtime.argument_reading import read_arguments
from quernel.runtime.devices import Device
from quernel.runtime.directory import directory
from quernel.runtime.interceptors import has_modes, is_taken, standing
from quernel.runtime.launch_sites import as_raised_by_the_call
from quernel.runtime.launchables import Launchable
from quernel.runtime.layouts import CONTIGUOUS
from quernel.runtime.parameters import MISSING
from quernel.runtime.ready import Ready, RequestedLaunch
from quernel.store import generation

if TYPE_CHECKING:
    from quernel.runtime.operations import RepeatedLaunch
    from quernel.runtime.parameters import Spec
    from quernel.runtime.quick import QuickLaunch, QuickPlan
    from quernel.runtime.streams import Stream

__all__ = ["BoundLaunch", "Launcher"]


class _Prepared(NamedTuple):
    """A launch with its arguments packed.

    Attributes:
        ready: what is launched.
        arguments: the arguments' bytes.
        on_host: whether NumPy arrays are among them.
        args: the arguments, in the parameters' order.
    """

    ready: Ready
    arguments: bytes
    on_host: bool
    args: tuple[Any, ...]


class Launcher:
    """A kernel with the shape of a launch: call it with the kernel's arguments. Any thread, any number of times.

    Its class changes once its kernel was launched with arguments of the same kinds before: the new one has a `__call__`
    that was written for them (`quick`), and leaves to this one what differs.
    """

    __slots__ = ("_device", "_facts", "_geometry", "_kernel", "_last", "_quick", "_stream", "_table")

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
        self._quick: QuickLaunch | None = None
        """The plan that its class is of, and what launches by it: one value, as another thread may replace both."""
        self._last: QuickPlan | None = None
        latest = kernel.latest.get(geometry.form)
        if latest is not None and self._fits(latest):
            self._adopt(latest)

    def __repr__(self) -> str:
        geometry = self._geometry
        name = self._kernel.origin.name
        if geometry.form is LaunchForm.OVER:
            return f"<{name} over {geometry.extent}, block {geometry.block}>"
        return f"<{name} on a grid of {geometry.grid}, block {geometry.block}>"

    @property
    def stream(self) -> Stream | None:
        """The stream in which it launches, or `None` for its device's own."""
        return self._stream

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launches. With NumPy arrays it is done on return; else the device goes on in its stream.

        Raises:
            QuernelError: the arguments do not fit, or the kernel cannot be compiled or launched.
        """
        try:
            found = self._prepare(args, kwargs)
        except QuernelError as error:
            raise as_raised_by_the_call(error, 1) from error.__cause__
        if found is not None:
            self._launch(*found)

    def _general(self, given: tuple[Any, ...], rest: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Launches what a written `__call__` leaves to the general path: it was `given` that for the parameters."""
        args, kwargs = given, named
        first = next((place for place, value in enumerate(given) if value is MISSING), None)
        if first is not None:
            names = self._kernel.parameters.names
            later = zip(names[first:], given[first:], strict=True)
            args, kwargs = given[:first], {**{name: value for name, value in later if value is not MISSING}, **named}
        try:
            found = self._prepare((*args, *rest), kwargs)
        except QuernelError as error:
            raise as_raised_by_the_call(error, 2) from error.__cause__
        if found is not None:
            self._launch(*found)

    def bind(self, *args: Any, **kwargs: Any) -> BoundLaunch:
        """The launch with its arguments fixed and checked: `b()` repeats it, `b.update(a=3.0)` changes arguments."""
        try:
            return BoundLaunch(self, self._kernel.parameters.bind(args, kwargs))
        except QuernelError as error:
            raise as_raised_by_the_call(error, 1) from error.__cause__

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Prepared | None:
        """What the general path launches, or `None` where there is nothing left to do.

        Raises:
            QuernelError: the arguments do not fit, or the kernel cannot be compiled.
        """
        if self._stream is not None:
            self._stream.check_open()
        kernel = self._kernel
        if kernel.interprets_now():
            self._interpret(args, kwargs)
            return None
        args = self._in_order(args, kwargs)
        found = self._find(kernel.parameters.specs, args, self._device)
        if found is None:
            return None
        ready, values, on_host = found
        arguments = ready.packed(values, self._geometry)
        ready.check(self._geometry)
        return _Prepared(ready, arguments, on_host, args)

    def _launch(self, ready: Ready, arguments: bytes, on_host: bool, args: tuple[Any, ...]) -> None:
        """Launches on the general path."""
        _launch(ready, self._geometry, arguments, self._handle, on_host, args)
        ready.num_launches += 1
        if ready.num_launches > 1 and not standing:
            self._quicken(ready, args)

    @property
    def _handle(self) -> Any:
        return None if self._stream is None else self._stream.handle

    def _in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments in the order of the kernel's parameters."""
        parameters = self._kernel.parameters
        names = parameters.names
        if kwargs or len(args) != len(names) or parameters.num_positional != len(names):
            return parameters.bind(args, kwargs)
        return args

    def _find(
        self, specs: Sequence[Spec], args: Sequence[Any], device: Device | None, names: object = None
    ) -> tuple[Ready, list[Any], bool] | None:
        """What is ready for these arguments, their values for packing, and whether NumPy arrays are among them.

        The arguments are in the order of `specs`; `names` tells apart what only its parts' names do. `None` stands for
        a launch that a mode took. On the launch path: a hit takes no lock.
        """
        kernel = self._kernel
        options = kernel.options_now()
        kinds, values, facts, read_only, repeating, on_host, arrays_on = read_arguments(specs, args, self._facts)
        is_named = device is not None
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
        is_placed = is_named or arrays_on is not None
        request = RequestedLaunch(
            kernel, device, specs, args, geometry.form, geometry.block, facts, options, is_placed=is_placed
        )
        if standing:
            refuse_while_compiling(f"launch {kernel.origin.name}")
            if is_taken(request):
                return None
        key = (device, generation(), facts, geometry.block, options.checked, names, *kinds)
        ready = self._table.get(key)
        if ready is None or not ready.is_current():
            ready = request.load()
            kernel.keep(self._table, key, ready)
        if (read_only | repeating) & ready.written:
            if read_only & ready.written:
                ready.refuse_writes(read_only, "read-only")
            ready.refuse_writes(repeating, "repeating")
        if ready.whole and not facts & CONTIGUOUS:
            ready.refuse_parts(values)
        return ready, values, on_host

    def _quicken(self, ready: Ready, args: tuple[Any, ...]) -> None:
        """Launches quickly from now on, where the last launch can be made again by a plan."""
        geometry = self._geometry
        if 0 in geometry.extent or ready.reports is not None:
            return
        from quernel.runtime.quick import plan_for

        plan = plan_for(self, ready, args)
        last, self._last = self._last, plan
        if plan is None:
            return
        if plan.launcher_type is None:
            members = {"__slots__": (), "__call__": plan.function, "__module__": __name__, "__doc__": Launcher.__doc__}
            plan.launcher_type = type("Launcher", (Launcher,), members)
        if self._quick is None or (plan is last and plan is not self._quick[0]):
            self._adopt(plan)
        self._kernel.latest[geometry.form] = plan

    def _fits(self, plan: QuickPlan) -> bool:
        geometry, stream, device = self._geometry, self._stream, plan.ready.device
        return (
            plan.block == geometry.block
            and plan.facts == self._facts
            and plan.has_stream is (stream is not None)
            and plan.is_placed_for(self._device)
            and 0 not in geometry.extent
            and not device.is_closed
        )

    def _adopt(self, plan: QuickPlan) -> None:
        try:
            self._quick = plan.shape(self._geometry, self._handle)
        except QuernelError:  # The general path says so.
            return
        self.__class__ = plan.launcher_type

    def _interpret(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Launches in the reference interpreter: memory of other devices is copied in, and back where it is written."""
        from quernel.runtime.borrowing import Borrowed
        from quernel.runtime.compounds import flattened

        reference = directory.device("reference")
        parameters = self._kernel.parameters
        specs, given, structs = flattened(parameters.specs, parameters.bind(args, kwargs))
        borrowed = Borrowed(given, reference)
        found = self._find(specs, borrowed.values, reference, tuple(structs))
        if found is None:
            return
        ready, values, on_host = found
        arguments = ready.packed(values, self._geometry)
        ready.check(self._geometry)
        try:
            _launch(ready, self._geometry, arguments, None, on_host, borrowed)
        finally:
            written = iter(ready.header.params)
            borrowed.give_back([not spec.is_const and next(written).is_written for spec in specs])


@final
class _Bound:
    """One value, read once by a launch: another thread's `update` must not mix one launch's code with another's bytes.

    Attributes:
        args: the arguments, in the parameters' order.
        prepared: the launch, or `None` where each one goes through all checks.
        device: where it runs.
        run: launches where nothing stands between; `None` where there is always something.
    """

    __slots__ = ("args", "device", "prepared", "run")

    def __init__(
        self,
        args: tuple[Any, ...],
        prepared: _Prepared | None,
        device: Any = None,
        run: RepeatedLaunch | None = None,
    ) -> None:
        self.args = args
        self.prepared = prepared
        self.device = device
        self.run = run


@final
class BoundLaunch:
    """A launch with its arguments fixed: `b()` repeats it without checks, `b.update(a=3.0)` changes arguments.

    It keeps what it captured: a constant of the kernel that changes later counts from the next `update` on.
    """

    __slots__ = ("_bound", "_launcher", "_stream")

    def __init__(self, launcher: Launcher, args: tuple[Any, ...]) -> None:
        self._launcher = launcher
        self._stream = launcher._stream
        self._bound = self._bind(args)

    def __repr__(self) -> str:
        return f"<bound {self._launcher!r}>"

    def __call__(self) -> None:
        """Launches again. On the launch path."""
        bound = self._bound
        run, stream = bound.run, self._stream
        if run is None or standing or bound.device.is_closed or (stream is not None and stream._closed):
            self._repeat(bound)
        else:
            run()

    def _repeat(self, bound: _Bound) -> None:
        """The same where something stands between."""
        stream, prepared = self._stream, bound.prepared
        if prepared is None or (standing and has_modes()):
            given, named = self._launcher._kernel.parameters.unbind(bound.args)
            self._launcher(*given, **named)
            return
        refuse_while_compiling(f"launch {self._launcher._kernel.origin.name}")
        prepared.ready.device.check_open()
        if stream is not None:
            stream.check_open()
        ready, arguments, on_host, args = prepared
        _launch(ready, self._launcher._geometry, arguments, self._launcher._handle, on_host, args)

    def update(self, *args: Any, **kwargs: Any) -> BoundLaunch:
        """Replaces arguments, by name or from the first on, with all the checks of a launch; gives itself.

        Launches of other threads run with all of the old arguments or all of the new ones.

        Raises:
            QuernelError: as a launch; then the arguments stay as they were.
        """
        try:
            self._bound = self._bind(self._changed(args, kwargs))
        except QuernelError as error:
            raise as_raised_by_the_call(error, 1) from error.__cause__
        return self

    def _changed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        parameters = self._launcher._kernel.parameters
        changed = list(self._bound.args)
        if len(args) > len(changed):
            parameters.bind(args, {})
        changed[: len(args)] = args
        for name, value in kwargs.items():
            changed[parameters.index_of(name)] = value
        return tuple(changed)

    def _bind(self, args: tuple[Any, ...]) -> _Bound:
        launcher = self._launcher
        if launcher._kernel.interprets_now():
            return _Bound(args, None)
        prepared = launcher._prepare(*launcher._kernel.parameters.unbind(args))
        if prepared is None:
            return _Bound(args, None)
        ready, arguments, on_host, _ = prepared
        run = _repeated(ready, launcher._geometry, arguments, launcher._handle, on_host)
        return _Bound(args, prepared, ready.device, run)


def _repeated(ready: Ready, geometry: Geometry, arguments: bytes, stream: Any, on_host: bool) -> RepeatedLaunch | None:
    """What makes one launch again, where nothing stands between it and its device."""
    if 0 in geometry.extent or ready.reports is not None:
        return None
    operations = ready.device.operations
    run = operations.prepare_bound(ready.run, ready.loaded, ready.header, geometry, arguments, stream)
    if not (on_host and ready.waits):
        return run

    def run_and_wait() -> None:
        run()
        operations.synchronize(stream)

    return run_and_wait


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
