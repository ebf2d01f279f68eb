"""A kernel as its user holds it: launched over an extent or on a grid, with settings, specialized, pickled by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Never, NoReturn, final

from quernel.errors import KernelTypeError, LaunchError, QuernelError
from quernel.options import refuse_unknown_settings, switch
from quernel.runtime.launchables import Launchable

if TYPE_CHECKING:
    from types import ModuleType

    from quernel.api.specialized import SpecializedKernel
    from quernel.compiler import Pending
    from quernel.runtime.devices import Device
    from quernel.runtime.launchers import Launcher
    from quernel.runtime.operations import DeviceInfo
    from quernel.runtime.streams import Stream

__all__ = ["UNSET", "Kernel", "normalized"]

UNSET: Any = type("_Unset", (), {"__repr__": lambda self: "unset"})()
"""The setting that nobody has given."""
_SWITCHES = ("checked", "fast_math", "debug", "contract", "interpret")
_MAX_KEPT = 256


@final
class Kernel:
    """A function that many threads run, made by `@qn.kernel` or `qn.source_kernel`. It returns nothing.

    `kernel.over(n)(...)` runs one thread per point of an extent; `kernel[grid, block](...)` runs explicit blocks.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, launchable: Launchable, function: Callable[..., Any] | None = None) -> None:
        self._launchable = launchable
        self._settings: dict[str, Any] = {}
        self._on_grids: dict[Any, tuple[Any, Launcher]] = {}
        self._over: dict[Any, tuple[Any, Launcher]] = {}
        self.__name__ = self.__qualname__ = launchable.origin.name
        if function is not None:
            functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value!r}" for name, value in self._settings.items())
        return f"<kernel {self.__qualname__}({', '.join(self._launchable.parameters.names)}){settings}>"

    def over(
        self,
        extent: int | range | tuple[int | range, ...],
        *more: Never,
        block: int | tuple[int, ...] | None = None,
        device: str | DeviceInfo | Device | None = None,
        stream: Stream | None = None,
        **unknown: Never,
    ) -> Launcher:
        """A launcher of one thread per point of a 1- to 3-D extent; edges are masked. On the launch path.

        Args:
            extent: per axis a length, or `range(start, stop)`; the last axis is the fastest.
            block: how many threads go together; it does not change what is computed.
            device: where to run; by default the arrays' device.
            stream: the stream to run in; by default the device's.

        Raises:
            LaunchError: there is no such extent or block.
            KernelTypeError: there is no such setting, or the extent is not one argument.
        """
        if more or unknown:
            _refuse_over(self.__name__, (extent, *more), unknown)
        if stream is None:
            key = extent if block is None and device is None else (extent, block, device, ...)
            try:
                known, launcher = self._over[key]
            except (KeyError, TypeError):  # not seen before, or not hashable
                pass
            else:
                if extent.__class__ is int or _is_same(known, key):
                    named = launcher._device
                    if named is None or not named.is_closed:
                        return launcher
        made: Launcher = _launching().over(self._launchable, extent, block, device, stream)
        if stream is None:
            _keep(self._over, key, made)
        return made

    def __getitem__(self, key: Any) -> Launcher:
        """A launcher of an explicit grid: `kernel[grid]`, `kernel[grid, block]`, `kernel[grid, block, stream]`.

        A grid of several axes is written as a tuple before its block, or alone as `kernel[(gy, gx),]`.

        Raises:
            LaunchError: there is no such grid or block.
        """
        try:
            known, launcher = self._on_grids[key]
        except (KeyError, TypeError):  # not seen before, or not hashable
            pass
        else:
            # Pairs of integers are told here, as they are most of what is not the very key of the last launch.
            if (
                known is key
                or (key.__class__ is tuple and len(key) == 2 and key[0].__class__ is key[1].__class__ is int)
                or _is_same(known, key)
            ):
                device = launcher._device
                if device is None or not device.is_closed:
                    return launcher
        made: Launcher = _launching().on_grid(self._launchable, key)
        if made.stream is None:
            _keep(self._on_grids, key, made)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Refuses: a kernel needs the shape of its launch.

        Raises:
            KernelTypeError: always, showing both forms.
        """
        from quernel.runtime.launch_sites import as_raised_by_the_call

        name = self.__name__
        error = KernelTypeError(
            f"kernel {name} was called without saying how many threads run",
            fix=f"{name}.over(extent)(...) for one thread per point, or {name}[grid, block](...) for explicit blocks",
        )
        raise as_raised_by_the_call(error, 1) from error.__cause__

    def options(
        self,
        *,
        block: int | tuple[int, ...] | None = UNSET,
        device: str | DeviceInfo | Device | None = UNSET,
        checked: bool = UNSET,
        fast_math: bool = UNSET,
        debug: bool = UNSET,
        interpret: bool = UNSET,
        contract: bool = UNSET,
        **unknown: Never,
    ) -> Kernel:
        """The same kernel with other settings; what is not named stays as it is.

        Args:
            block: the block of launches that name none.
            device: the device of launches that name none.
            checked: every index is checked; a violation raises `IndexError` at the kernel's line. Where no setting of
                the kernel says it, `QUERNEL_CHECKED` does.
            fast_math: allows reassociation, reciprocals, approximate functions and flush to zero.
            debug: line tables in the compiled code.
            interpret: runs in the reference interpreter, where `breakpoint()` works. Where no setting of the kernel
                says it, `QUERNEL_INTERPRET` does.
            contract: `a*b ± c` within one expression becomes one fused multiply-add.

        Raises:
            KernelTypeError: there is no such setting, or it does not take that value.
            LaunchError: there is no such block.
        """
        given: dict[str, Any] = {
            "block": block,
            "device": device,
            "checked": checked,
            "fast_math": fast_math,
            "debug": debug,
            "interpret": interpret,
            "contract": contract,
        }
        try:
            if unknown:
                refuse_unknown_settings("kernel.options", unknown, tuple(given))
            return self._with({name: value for name, value in given.items() if value is not UNSET})
        except QuernelError as error:
            from quernel.runtime.launch_sites import as_raised_by_the_call

            raise as_raised_by_the_call(error, 1) from error.__cause__

    def specialize(self, *types: Any, **types_or_constants: Any) -> SpecializedKernel:
        """One specialization, to look at without launching: types (or arguments) by position or name.

        A parameter whose annotation says its type may be left out; a `Const` parameter takes its value. The device is
        the kernel's own or the current one.

        Raises:
            KernelTypeError: a type is missing or does not fit.
        """
        from quernel.api.specialized import specialize

        try:
            return specialize(self._launchable, types, types_or_constants)
        except QuernelError as error:
            from quernel.runtime.launch_sites import as_raised_by_the_call

            raise as_raised_by_the_call(error, 1) from error.__cause__

    def warm(self, *types: Any, **types_or_constants: Any) -> Pending[Any, Any]:
        """Compiles one specialization in the background, without launching; gives at once what to wait for.

        It takes types or arguments as `specialize` does, for the kernel's own device or the current one, and compiles
        what most launches need; `with device.compiling():` compiles exactly what the launches inside need. What is
        given has `result()`, which waits, can be awaited, and knows its `state`.

        Raises:
            KernelTypeError: a type is missing or does not fit. What is wrong with the kernel itself, `result()` raises.
        """
        from quernel.api.specialized import warm

        try:
            return warm(self._launchable, types, types_or_constants)
        except QuernelError as error:
            from quernel.runtime.launch_sites import as_raised_by_the_call

            raise as_raised_by_the_call(error, 1) from error.__cause__

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of the array parameters that it writes.

        Raises:
            KernelTypeError: it has parameters without types and was not launched yet.
        """
        from quernel.api.specialized import written_names

        return written_names(self._launchable)

    def __reduce__(self) -> Any:
        module, name = getattr(self, "__module__", None), self.__qualname__
        if module is None or "<" in name:
            raise LaunchError(
                f"kernel {name} does not pickle: it cannot be imported by name", fix="define it at the top of a module"
            )
        settings = dict(self._settings)
        if "device" in settings:
            from quernel.runtime.devices import Device

            device = settings["device"]
            settings["device"] = device.name if isinstance(device, Device) else device
        return _imported, (module, name, settings)

    def _with(self, settings: dict[str, Any]) -> Kernel:
        old = self._launchable
        options, block = old.options, old.block
        switches = {name: switch(name, settings[name]) for name in _SWITCHES if name in settings}
        settings = {**settings, **switches}
        interpret = switches.pop("interpret", old.interpret)
        checked = switches.pop("checked", old.checked)
        if switches:
            import attrs

            options = attrs.evolve(options, **switches)
        if "block" in settings:
            block = normalized(settings["block"])
        if "device" in settings:
            _check_names_a_device(settings["device"])
        launchable = Launchable(
            old.origin,
            old.parameters,
            options,
            block=block,
            device=settings.get("device", old.device),
            checked=checked,
            interpret=interpret,
        )
        made = Kernel(launchable, getattr(self, "__wrapped__", None))
        made._settings = {**self._settings, **settings}
        return made


def _refuse_over(name: str, extents: tuple[object, ...], unknown: Mapping[str, object]) -> NoReturn:
    """Raises for what `over` does not take."""
    from quernel.runtime.launch_sites import as_raised_by_the_call

    if len(extents) > 1:
        shown = ", ".join(map(repr, extents))
        error = KernelTypeError(
            f"over takes one extent, and got {len(extents)}: {shown}",
            fix=f"several axes are one tuple: {name}.over(({shown}))(...)",
        )
        raise as_raised_by_the_call(error, 2)
    settings = [setting for setting in unknown if setting in _SWITCHES]
    if settings:
        shown = f"{settings[0]}={unknown[settings[0]]!r}"
        error = KernelTypeError(
            f"{settings[0]!r} is a setting of the kernel, not of one launch",
            fix=f"write {name}.options({shown}).over(...)(...)",
        )
    else:
        try:
            refuse_unknown_settings("kernel.over", unknown, ("block", "device", "stream"))
        except KernelTypeError as refusal:
            error = refusal
    raise as_raised_by_the_call(error, 2)


def _check_names_a_device(given: object) -> None:
    """Refuses what names no device, without looking for it or opening it."""
    if given is None or isinstance(given, str):
        return
    from quernel.runtime.devices import Device
    from quernel.runtime.operations import DeviceInfo

    if not isinstance(given, Device | DeviceInfo):
        raise KernelTypeError(
            f"the setting 'device' got {given!r}, which names no device",
            fix='use a string such as "cpu" or "cuda:1", one of qn.devices(), or a device',
        )


def _is_same(known: Any, key: Any) -> bool:
    """Whether equal keys also mean the same launch: 8 and 8.0 are equal, and only one of them is an extent."""
    if key.__class__ is not tuple:
        return known.__class__ is key.__class__
    for one, other in zip(known, key, strict=True):
        if one.__class__ is not other.__class__ or (one.__class__ is tuple and not _is_same(one, other)):
            return False
    return True


def _keep(kept: dict[Any, tuple[Any, Launcher]], key: Any, launcher: Launcher) -> None:
    """Keeps a launcher for the next launch of that shape, within bounds: shapes may change for ever."""
    if len(kept) >= _MAX_KEPT:
        kept.clear()
    with suppress(TypeError):  # A list, say; it may change.
        kept[key] = key, launcher


def normalized(block: int | tuple[int, ...] | None) -> tuple[int, ...] | None:
    """A block as a setting names it, as a tuple.

    Raises:
        LaunchError: it is no block.
    """
    if block is None:
        return None
    from quernel.geometry import normalize_block

    return normalize_block(block)


@functools.cache
def _launching() -> ModuleType:
    """What launches need, imported at the first one."""
    from quernel.api import launching

    return launching


def _imported(module: str, qualified_name: str, settings: dict[str, Any]) -> Kernel:
    """The kernel of that name, for unpickling."""
    import importlib

    found: Any = importlib.import_module(module)
    for part in qualified_name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Kernel):
        raise KernelTypeError(f"{module}.{qualified_name} is no kernel any more", fix="pickle it again")
    missing = {name: value for name, value in settings.items() if found._settings.get(name, UNSET) != value}
    return found._with(missing) if missing else found
