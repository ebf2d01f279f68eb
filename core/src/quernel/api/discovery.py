"""Finding devices and choosing among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quernel.api.wiring import catalog, connect
from quernel.runtime.directory import directory, use
from quernel.runtime.operations import DeviceInfo

if TYPE_CHECKING:
    from quernel.plugins import BackendInfo
    from quernel.runtime.devices import Device

__all__ = ["backends", "device", "devices", "set_default_device", "use"]

connect()


def device(spec: str | DeviceInfo | Device | None = None) -> Device:
    """The device that `spec` names, one object per device; without `spec` the one that launches take now.

    Args:
        spec: a device string such as `"cpu"`, `"cuda:1"`, `"opencl:gpu"`, `"auto"` or `"cuda,cpu"`, or one of
            `qn.devices()`.

    Raises:
        DeviceError: there is no such device, it is ambiguous, or it cannot be opened.
        PluginError: its backend is missing or broken.
    """
    return directory.device(spec)


def devices(backend: str | None = None) -> tuple[DeviceInfo, ...]:
    """The devices of one backend, or of all that work. Opens none.

    Raises:
        DeviceError, PluginError: the backend named has none, is missing or broken.
    """
    return directory.infos(backend)


def backends() -> tuple[BackendInfo, ...]:
    """Every installed backend; those that do not work with their reason and how to mend it."""
    return catalog().infos()


def set_default_device(spec: str | DeviceInfo | Device | None) -> None:
    """Makes a device that of every launch in this process whose arguments do not say; `None` takes that back.

    Raises:
        DeviceError, PluginError: as `device`.
    """
    directory.set_default(spec)
