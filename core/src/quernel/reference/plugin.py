"""The entry of the reference backend: one device, always there, never chosen unless it is named."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from quernel.capabilities import Capabilities, Limits, TargetInfo
from quernel.errors import DeviceError
from quernel.runtime.operations import Backend, DeviceInfo, Health

if TYPE_CHECKING:
    from quernel.reference.compiler import ReferenceCompiler
    from quernel.reference.device import ReferenceDevice

__all__ = ["QUERNEL_PLUGIN_API", "ReferenceBackend", "quernel_backend"]

QUERNEL_PLUGIN_API: Final = 1
_TARGET: Final = "python"


class ReferenceBackend(Backend):
    """The interpreter. It needs nothing that the core does not bring."""

    name = "reference"

    def devices(self) -> tuple[DeviceInfo, ...]:
        """The one interpreter."""
        return (DeviceInfo(self.name, 0, f"Reference interpreter (Python {_python_version()})", "cpu"),)

    def target_info(self, target: str) -> TargetInfo:
        """The one target, by its name or an empty string.

        Raises:
            DeviceError: another name.
        """
        if target not in ("", _TARGET):
            raise DeviceError(f"the interpreter has no target {target!r}", fix=f"use {_TARGET!r}")
        return TargetInfo(
            backend=self.name,
            name=_TARGET,
            fingerprint=f"python-{_python_version()}",
            capabilities=Capabilities(
                exact_f32=True,
                exact_f64=True,
                f64=True,
                f16=True,
                bf16=True,
                int64_atomics=True,
                f64_atomics=True,
                barriers=True,
                subgroups=True,
                checked=True,
                breakpoints=True,
            ),
            limits=Limits(max_grid=((1 << 62) - 1,) * 3, max_shared_bytes=256 * 1024),
        )

    def compiler(self, target: TargetInfo) -> ReferenceCompiler:
        """The half that lowers."""
        from quernel.reference.compiler import ReferenceCompiler

        return ReferenceCompiler(target)

    def open(self, info: DeviceInfo) -> ReferenceDevice:
        """The operations of the interpreter."""
        from quernel.reference.compiler import ReferenceCompiler
        from quernel.reference.device import ReferenceDevice

        return ReferenceDevice(info, ReferenceCompiler(self.target_info("")))

    def health(self) -> Health:
        """The version of Python; there is nothing that can be missing."""
        return Health(versions=(("Python", _python_version()),))


def quernel_backend() -> Backend:
    """The interpreter's backend."""
    return ReferenceBackend()


def _python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))
