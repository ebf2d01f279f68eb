"""The entry of the backend: the host as a device, wherever there is a C compiler."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from quernel.errors import DeviceError
from quernel.runtime.operations import Backend, DeviceInfo, Health, Unavailable

if TYPE_CHECKING:
    from quernel.capabilities import TargetInfo
    from quernel_c.compiler import CCompiler
    from quernel_c.device import CDevice

__all__ = ["QUERNEL_PLUGIN_API", "CBackend", "quernel_backend"]

QUERNEL_PLUGIN_API: Final = 1


class CBackend(Backend):
    """One device: this machine."""

    name = "c"

    def devices(self) -> tuple[DeviceInfo, ...] | Unavailable:
        """The host, or that there is no C compiler."""
        from quernel_c._toolchain import find_toolchain

        toolchain = find_toolchain()
        if isinstance(toolchain, Unavailable):
            return toolchain
        return (DeviceInfo(self.name, 0, f"{platform.machine()} by {toolchain.name}", "cpu"),)

    def target_info(self, target: str) -> TargetInfo:
        """This machine, by the name of its processors or by no name.

        Raises:
            DeviceError: it is another machine, or there is no C compiler.
        """
        from quernel_c._toolchain import find_toolchain
        from quernel_c.compiler import target_of

        toolchain = find_toolchain()
        if isinstance(toolchain, Unavailable):
            raise DeviceError(toolchain.reason, fix=toolchain.fix)
        if target not in ("", platform.machine()):
            here = f"c:{platform.machine()}"
            raise DeviceError(f"the C compiler makes no code for {target!r}", fix=f"use {here}, which is this machine")
        return target_of(toolchain)

    def compiler(self, target: TargetInfo) -> CCompiler:
        """The half that compiles."""
        from quernel_c.compiler import CCompiler

        return CCompiler(target)

    def open(self, info: DeviceInfo) -> CDevice:
        """The operations on the host.

        Raises:
            DeviceError: there is no C compiler.
        """
        from quernel_c.device import CDevice
        from quernel_c.target import CTarget

        return CDevice(info, CTarget(self.compiler(self.target_info(""))))

    def health(self) -> Health:
        """The compiler's version."""
        from quernel_c._toolchain import find_toolchain

        toolchain = find_toolchain()
        return Health() if isinstance(toolchain, Unavailable) else Health(((toolchain.name, toolchain.version),))


def quernel_backend() -> Backend:
    """The backend `c`."""
    return CBackend()
