"""The entry of the opencl backend: the devices of every driver that the machine or pip brought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quernel.errors import DeviceError, QuernelError
from quernel.runtime.operations import Backend, DeviceInfo, Health, Unavailable

if TYPE_CHECKING:
    from quernel.capabilities import TargetInfo
    from quernel_opencl.compiler import OpenclCompiler
    from quernel_opencl.device import OpenclDevice

__all__ = ["QUERNEL_PLUGIN_API", "OpenclBackend", "quernel_backend"]

QUERNEL_PLUGIN_API: Final = 1


class OpenclBackend(Backend):
    """All OpenCL devices. Drivers are loaded when devices are asked for, and not before."""

    name = "opencl"

    def devices(self) -> tuple[DeviceInfo, ...] | Unavailable:
        """The devices of all drivers, in the order of the loader."""
        from quernel_opencl._toolchain import find_devices
        from quernel_opencl.inventory import device_info

        try:
            found, silent = find_devices()
        except QuernelError as error:
            return Unavailable(error.what, error.fix or _how_to_install())
        if not found:
            reason = "; ".join(silent) or "no OpenCL driver was found"
            return Unavailable(reason, _how_to_install())
        return tuple(device_info(index, device) for index, device in enumerate(found))

    def target_info(self, target: str) -> TargetInfo:
        """The target of a device: the target's name, the device's number or part of its name, or the first for "".

        Raises:
            DeviceError: there is no such device: OpenCL compiles for the devices of the machine only.
        """
        from quernel.runtime.device_strings import DeviceChoice, select_device
        from quernel_opencl._toolchain import find_devices
        from quernel_opencl.targets import target_of

        infos = self.devices()
        if isinstance(infos, Unavailable):
            raise DeviceError(infos.reason, fix=infos.fix)
        targets = [target_of(device) for device in find_devices()[0]] if target else []
        named = next((info for info in targets if info.name == target), None)
        if named is not None:
            return named
        chosen = select_device(DeviceChoice(self.name, target), infos)
        if chosen is None:
            shown = ", ".join(f"{info.index}: {info.name}" for info in infos)
            raise DeviceError(
                f"no OpenCL device is called {target!r}; found {shown}", fix="use its number or part of its name"
            )
        return target_of(find_devices()[0][chosen.index])

    def compiler(self, target: TargetInfo) -> OpenclCompiler:
        """The half that compiles. Its last step needs the device, as OpenCL has no compiler without one."""
        from quernel_opencl.compiler import OpenclCompiler

        return OpenclCompiler(target)

    def open(self, info: DeviceInfo) -> OpenclDevice:
        """The operations on a device.

        Raises:
            DeviceError: the driver refuses.
        """
        from quernel_opencl._toolchain import find_devices
        from quernel_opencl.device import OpenclDevice
        from quernel_opencl.targets import target_of

        return OpenclDevice(info, self.compiler(target_of(find_devices()[0][info.index])))

    def health(self) -> Health:
        """Versions of pyopencl and of every driver, and what is wrong with drivers that do not work."""
        from quernel_opencl.inventory import health

        return health(_how_to_install())


def quernel_backend() -> Backend:
    """The opencl backend."""
    return OpenclBackend()


def _how_to_install() -> str:
    from quernel.installing import install_backend

    ways = " or ".join(install_backend("opencl", extra=extra) for extra in ("pocl", "intel"))
    return f"install a driver of the device's vendor, or one for CPUs: {ways}"
