"""Which devices there are and which one a launch takes: one object per device, opened at first use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, final

from quernel import settings
from quernel.errors import DeviceError, PluginError, QuernelError, SettingError
from quernel.forks import renewed
from quernel.runtime.operations import Backend, DeviceInfo, Unavailable

if TYPE_CHECKING:
    import logging

    from quernel.runtime.device_strings import DeviceChoice
    from quernel.runtime.devices import Device

__all__ = ["BackendSource", "DeviceDirectory", "directory", "use", "used_device"]

_NEVER_AUTOMATIC = "reference"


_used: ContextVar[Device | None] = ContextVar("quernel_device", default=None)
used_device = _used.get
"""`used_device() -> Device | None`: the device of the innermost `with use(...)` of this context."""


class BackendSource(Protocol):
    """Where backends come from. The public package gives one that looks at installed plugins."""

    def names(self) -> tuple[str, ...]:
        """The names of the installed backends. MUST NOT import any."""
        ...

    def load(self, name: str) -> Backend:
        """The backend of that name.

        Raises:
            PluginError: it is missing or broken.
        """
        ...


class _NoBackends:
    def names(self) -> tuple[str, ...]:
        return ()

    def load(self, name: str) -> Backend:
        raise PluginError(f"no backend is named {name!r}", fix=_how_to_install())


@final
class DeviceDirectory:
    """The devices of a process. Every method MAY be called from any thread."""

    def __init__(self, source: BackendSource | None = None) -> None:
        self._source: BackendSource = source if source is not None else _NoBackends()
        self._lock = threading.RLock()
        self._open: dict[tuple[str, int], Device] = {}
        self._default: Device | None = None
        self._by_spec: dict[str, Device] = {}
        self._host: Device | None = None
        self._said_broken: set[str] = set()

    def use_source(self, source: BackendSource) -> None:
        """Takes backends from `source` from now on. Devices that are open stay open."""
        self._source = source

    def infos(self, backend: str | None = None) -> tuple[DeviceInfo, ...]:
        """The devices of one backend, or of all that work, without opening any.

        Raises:
            PluginError, DeviceError: the backend asked for by name is broken or has no devices to show.
        """
        if backend is not None:
            if not isinstance(backend, str):
                raise DeviceError(f"{backend!r} names no backend", fix='use its name, such as qn.devices("cpu")')
            return self._devices_of(backend.lower())
        found: list[DeviceInfo] = []
        for name in self._source.names():
            try:
                found.extend(self._devices_of(name))
            except QuernelError as error:
                is_news = isinstance(error, PluginError) and name not in self._said_broken
                self._said_broken.add(name)
                (_log().warning if is_news else _log().debug)("no devices of %s: %s", name, error)
        return tuple(found)

    def device(self, spec: str | DeviceInfo | Device | None = None) -> Device:
        """The device that `spec` names, or without one the current device.

        Raises:
            DeviceError, PluginError: there is none such, or it cannot be opened.
        """
        if spec is None:
            return self.current()
        if isinstance(spec, str):
            known = self._by_spec.get(spec)
            if known is not None and not known.is_closed:
                return known
            if known is not None and known.is_left_behind:
                known.check_open()
            opened = self._by_spec[spec] = self._resolve(spec)
            return opened
        if isinstance(spec, DeviceInfo):
            return self._opened(self._source.load(spec.backend), spec)
        from quernel.runtime.devices import Device

        if isinstance(spec, Device):
            spec.check_open()
            return spec
        raise DeviceError(
            f"{spec!r} names no device", fix='use a string such as "cpu" or "cuda:1", or one of qn.devices()'
        )

    def named(self) -> Device | None:
        """The device that the user named for launches: `use`, then `set_default_device`, then `QUERNEL_DEVICE`."""
        used = _used.get()
        if used is not None:
            return self._open_again(used) if used.is_closed else used
        default = self._default
        if default is not None:
            if default.is_closed:
                default = self._default = self._open_again(default)
            return default
        variable = settings.device()
        if variable is None:
            return None
        try:
            return self.device(variable)
        except (DeviceError, PluginError) as error:
            # Nothing at the launch's line says so.
            another = "set QUERNEL_DEVICE to another device, or unset it"
            raise (PluginError if isinstance(error, PluginError) else DeviceError)(
                f"QUERNEL_DEVICE={variable!r} names no device that can be used: {error.what}",
                fix=f"{error.fix}; {another}" if error.fix else another,
                chain=error.chain,
            ) from error.__cause__

    def current(self) -> Device:
        """The device of a launch whose arguments do not say: the named one, else `auto`."""
        named = self.named()
        return named if named is not None else self.device("auto")

    def host(self) -> Device:
        """The best device on which NumPy arrays are arguments: `cpu`, else another backend's.

        Raises:
            DeviceError: there is none.
        """
        host = self._host
        if host is not None and not host.is_closed:
            return host
        names = self._source.names()
        reasons = []
        for name in sorted(
            (name for name in names if name != _NEVER_AUTOMATIC), key=lambda name: (name != "cpu", name)
        ):
            try:
                for info in self._devices_of(name):
                    if info.kind == "cpu":
                        opened = self._opened(self._source.load(name), info)
                        if opened.is_host_accessible:
                            self._host = opened
                            return opened
            except SettingError:
                raise  # another device in its stead would hide what the user has to mend
            except QuernelError as error:
                reasons.append(f"{name}: {error.what}")
        raise self._none_found("no device takes NumPy arrays as they are", reasons)

    def set_default(self, spec: str | DeviceInfo | Device | None) -> None:
        """Makes `spec` the process's default device; `None` takes that back."""
        self._default = None if spec is None else self.device(spec)

    def forget(self, device: Device) -> None:
        """Drops a device that was closed, so that the next request opens it anew."""
        with self._lock:
            key = (device.info.backend, device.info.index)
            if self._open.get(key) is device:
                del self._open[key]
            self._by_spec = {spec: kept for spec, kept in self._by_spec.items() if kept is not device}

    def _open_again(self, closed: Device) -> Device:
        """What stands for a device that was named and then closed; one that a fork left behind stays closed."""
        if closed.is_left_behind:
            return closed
        return self._opened(self._source.load(closed.info.backend), closed.info)

    def renew_after_fork(self) -> None:
        """In the child of a fork: the lock may have been held by a thread that is not there."""
        self._lock = threading.RLock()

    def _devices_of(self, name: str) -> tuple[DeviceInfo, ...]:
        from quernel.runtime.asking import ask_devices

        devices = ask_devices(self._load(name))
        if isinstance(devices, Unavailable):
            raise DeviceError(f"{name} has no devices: {devices.reason}", fix=devices.fix)
        return devices

    def _load(self, name: str) -> Backend:
        """The backend that a user named; a kind of device is no backend."""
        from quernel.runtime.device_strings import is_only_a_kind

        if is_only_a_kind(name, self._source.names()):
            raise DeviceError(
                f"{name!r} is a kind of device, not a backend",
                fix=f'write "auto" for the best device there is, or BACKEND:{name}, such as "opencl:{name}"'
                + (' (of "cuda", every device is one)' if name == "gpu" else ""),
            )
        return self._source.load(name)

    def _opened(self, backend: Backend, info: DeviceInfo) -> Device:
        key = (info.backend, info.index)
        device = self._open.get(key)
        if device is not None and not device.is_closed:
            return device
        from quernel.runtime.asking import ask_operations
        from quernel.runtime.devices import Device

        with self._lock:
            device = self._open.get(key)
            if device is None or device.is_closed:
                device = self._open[key] = Device(ask_operations(backend, info), backend=backend, on_close=self.forget)
        return device

    def _resolve(self, spec: str) -> Device:
        from quernel.runtime.device_strings import parse_device_string

        choices = parse_device_string(spec)
        reasons = []
        for choice in choices:
            try:
                return self._automatic() if choice.backend is None else self._chosen(choice, choice.backend)
            except (DeviceError, PluginError) as error:
                if len(choices) == 1:
                    raise
                reasons.append(f"{choice}: {error.what}")
        raise DeviceError(
            f"none of {spec!r} is there", fix="see qn.devices(), or `quernel devices`", chain=tuple(reasons)
        )

    def _chosen(self, choice: DeviceChoice, name: str) -> Device:
        if not self._source.names():
            raise DeviceError("no backend is installed", fix=_how_to_install())
        from quernel.runtime.asking import ask_devices
        from quernel.runtime.device_strings import select_device

        backend = self._load(name)
        devices = ask_devices(backend)
        if not isinstance(devices, Unavailable):
            info = select_device(choice, devices)
            if info is not None:
                return self._opened(backend, info)
        if choice.selector and _is_target(backend, choice.selector):
            raise DeviceError(
                f"{choice} is a target for compiling, not a device",
                fix=f"name a device, such as {name} or {name}:0; give the target to the compile command",
            )
        if isinstance(devices, Unavailable):
            raise DeviceError(f"{name} has no devices: {devices.reason}", fix=devices.fix)
        shown = ", ".join(f"{info.backend}:{info.index} ({info.name})" for info in devices) or "none"
        raise DeviceError(
            f"no device of {name} matches {choice.selector!r}; it has: {shown}",
            fix="see qn.devices(), or `quernel devices`",
        )

    def _automatic(self) -> Device:
        reasons: list[str] = []
        for info in self._in_automatic_order(reasons):
            try:
                return self._opened(self._source.load(info.backend), info)
            except SettingError:
                raise
            except QuernelError as error:
                _log().warning("%s:%d cannot be opened, trying the next device: %s", info.backend, info.index, error)
                reasons.append(f"{info.backend}:{info.index}: {error.what}")
        raise self._none_found(
            "no backend is installed" if not reasons else "no installed backend has a device", reasons
        )

    def _in_automatic_order(self, reasons: list[str]) -> Iterator[DeviceInfo]:
        """CUDA devices, OpenCL GPUs, others' GPUs, `cpu`, OpenCL CPUs, others' CPUs; each backend asked when due."""
        names = self._source.names()
        others = [name for name in names if name not in ("cuda", "opencl", "cpu", _NEVER_AUTOMATIC)]
        asked: dict[str, tuple[DeviceInfo, ...]] = {}
        for name, on_host in (
            ("cuda", False),
            ("opencl", False),
            *((name, False) for name in others),
            ("cpu", True),
            ("opencl", True),
            *((name, True) for name in others),
        ):
            if name not in names:
                continue
            if name not in asked:
                try:
                    asked[name] = self._devices_of(name)
                except SettingError:
                    raise
                except QuernelError as error:
                    asked[name] = ()
                    reasons.append(f"{name}: {error.what}")
            yield from (info for info in asked[name] if (info.kind == "cpu") is on_host or name in ("cuda", "cpu"))

    def _none_found(self, what: str, reasons: list[str]) -> DeviceError:
        if not [name for name in self._source.names() if name != _NEVER_AUTOMATIC]:
            what = "no backend is installed"
        return DeviceError(what, fix=_how_to_install(), chain=tuple(reasons))


def _how_to_install() -> str:
    from quernel.installing import install_backend

    return install_backend("cpu")


def _log() -> logging.Logger:
    import logging

    return logging.getLogger(__name__)


def _is_target(backend: Backend, name: str) -> bool:
    try:
        backend.target_info(name)
    except (Exception, SystemExit):  # any failure means: not a target that this backend knows
        return False
    return True


directory = renewed(DeviceDirectory())
"""The directory of this process."""


@final
class use:  # noqa: N801 — used as a function: with use("cuda"): ...
    """Makes a device the one of launches whose arguments do not say, within a `with` block; gives the `Device`.

    It holds for the current context, as `contextvars` define it: other threads are not affected.
    """

    def __init__(self, spec: str | DeviceInfo | Device) -> None:
        self._spec = spec
        self._tokens: list[object] = []

    def __enter__(self) -> Device:
        device = directory.device(self._spec)
        self._tokens.append(_used.set(device))
        return device

    def __exit__(self, *exception: object) -> None:
        _used.reset(self._tokens.pop())  # type: ignore[arg-type]  # kept in the order of entering
