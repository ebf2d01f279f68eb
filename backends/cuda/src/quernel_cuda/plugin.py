"""The entry of the cuda backend: every device of NVIDIA's driver."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from quernel.errors import QuernelError
from quernel.runtime.operations import Backend, DeviceInfo, Health, Unavailable

if TYPE_CHECKING:
    from quernel.capabilities import TargetInfo
    from quernel_cuda.compiler import CudaCompiler
    from quernel_cuda.device import CudaDevice

__all__ = ["QUERNEL_PLUGIN_API", "CudaBackend", "quernel_backend"]

QUERNEL_PLUGIN_API: Final = 1


class CudaBackend(Backend):
    """All CUDA devices. The driver is loaded when devices are asked for, and NVRTC when something is compiled."""

    name = "cuda"

    def devices(self) -> tuple[DeviceInfo, ...] | Unavailable:
        """The devices, in the driver's order."""
        from quernel_cuda import _driver

        _driver.begin()
        from quernel_cuda.inventory import device_infos, driver_problem

        problem = driver_problem()
        if problem is not None:
            return problem
        try:
            return device_infos()
        except QuernelError as error:
            return Unavailable(error.what, error.fix or "see what nvidia-smi says")

    def target_info(self, target: str) -> TargetInfo:
        """The target of an architecture such as `sm_90`; that of the first device for an empty string.

        Raises:
            DeviceError: there is no such target, or no device to take it from.
        """
        from quernel_cuda.inventory import capability
        from quernel_cuda.targets import named_target, target_of_device

        if target:
            return named_target(target)
        return target_of_device(*capability(0))

    def compiler(self, target: TargetInfo) -> CudaCompiler:
        """The half that compiles, which needs neither a driver nor a device."""
        from quernel_cuda.compiler import CudaCompiler

        return CudaCompiler(target)

    def open(self, info: DeviceInfo) -> CudaDevice:
        """The operations on a device.

        Raises:
            DeviceError: the driver refuses.
        """
        from quernel_cuda._driver import Context
        from quernel_cuda.ahead import Meanwhile

        opening = Meanwhile(lambda: Context(info.index))
        try:
            opening.import_next()
            from quernel_cuda.device import CudaDevice
            from quernel_cuda.inventory import capability
            from quernel_cuda.targets import target_of_device

            compiler = self.compiler(target_of_device(*capability(info.index)))
            context = opening.result()
        except BaseException:
            with suppress(Exception):  # A context that was refused needs no giving back.
                opening.result().release()
            raise
        return CudaDevice(info, compiler, context)

    def health(self) -> Health:
        """Versions of cuda-python, NVRTC and the driver, and what is missing."""
        from quernel_cuda.inventory import health

        return health()


def quernel_backend() -> Backend:
    """The cuda backend."""
    return CudaBackend()
