"""Asking a backend: what it raises or gives against its contract becomes an error of that backend alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from quernel.errors import PluginError, QuernelError
from quernel.forks import check_driver
from quernel.runtime.operations import Backend, DeviceInfo, DeviceOperations, Health, Unavailable

if TYPE_CHECKING:
    from quernel.compiler import ArtifactCompiler

__all__ = ["ask_compiler", "ask_devices", "ask_health", "ask_operations"]

T = TypeVar("T")


def ask_devices(backend: Backend) -> tuple[DeviceInfo, ...] | Unavailable:
    """The devices of a backend, or why it has none.

    Raises:
        DeviceError: its driver was started before this process was forked.
        PluginError: the backend fails, or gives something else.
    """
    check_driver(backend.name)
    found: Any = _asked(backend, "devices()", backend.devices)
    if isinstance(found, Unavailable):
        return found
    if not isinstance(found, tuple | list) or not all(isinstance(info, DeviceInfo) for info in found):
        raise _refused(backend, f"devices() gave {_shown(found)}, not a tuple of DeviceInfo or Unavailable")
    if any(info.backend != backend.name for info in found):
        raise _refused(backend, "devices() gave a device of another backend")
    return tuple(found)


def ask_operations(backend: Backend, info: DeviceInfo) -> DeviceOperations[Any]:
    """The operations on a device, which is open from now on.

    Raises:
        DeviceError: the driver refuses, or was started before this process was forked.
        PluginError: the backend fails, or gives something else.
    """
    check_driver(backend.name)
    found: Any = _asked(backend, f"open() of device {info.index}", lambda: backend.open(info))
    if not isinstance(found, DeviceOperations):
        raise _refused(backend, f"open() of device {info.index} gave {_shown(found)}, not DeviceOperations")
    return found


def ask_compiler(backend: Backend, name: str) -> ArtifactCompiler[Any, Any, Any]:
    """The compiler of a backend for the target of that name.

    Raises:
        DeviceError: there is no such target.
        PluginError: the backend fails, or gives something else.
    """
    from quernel.compiler import ArtifactCompiler

    target = _asked(backend, f"target_info({name!r})", lambda: backend.target_info(name))
    found: Any = _asked(backend, f"compiler() for {name!r}", lambda: backend.compiler(target))
    if not isinstance(found, ArtifactCompiler):
        raise _refused(backend, f"compiler() for {name!r} gave {_shown(found)}, not an ArtifactCompiler")
    return found


def ask_health(backend: Backend) -> Health:
    """Versions and problems of a backend.

    Raises:
        DeviceError: its driver was started before this process was forked.
        PluginError: the backend fails, or gives something else.
    """
    check_driver(backend.name)
    found: Any = _asked(backend, "health()", backend.health)
    if not isinstance(found, Health):
        raise _refused(backend, f"health() gave {_shown(found)}, not Health")
    return found


def _asked(backend: Backend, what: str, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except QuernelError:
        raise
    except (Exception, SystemExit) as error:
        raise _refused(backend, f"{what} failed: {type(error).__name__}: {error}") from error


def _refused(backend: Backend, what: str) -> PluginError:
    fix = "report it to the authors of the backend, or uninstall it"
    return PluginError(f"the backend {backend.name!r} does not work: {what}", fix=fix)


def _shown(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
