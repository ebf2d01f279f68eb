"""The entry of the cpu backend: one device, the cores that this process may run on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from quernel.runtime.operations import Backend, DeviceInfo, Health, Unavailable

if TYPE_CHECKING:
    from quernel.capabilities import TargetInfo
    from quernel_cpu.compiler import CpuCompiler
    from quernel_cpu.device import CpuDevice

__all__ = ["QUERNEL_PLUGIN_API", "CpuBackend", "quernel_backend"]

QUERNEL_PLUGIN_API: Final = 1


class CpuBackend(Backend):
    """The host's processor. LLVM is loaded when a kernel is compiled, or nothing is kept of this machine."""

    name = "cpu"

    def devices(self) -> tuple[DeviceInfo, ...]:
        """The one device: all cores together."""
        from quernel_cpu.pool import available_threads

        threads = str(available_threads())
        details = (("architecture", _architecture()), ("threads", threads))
        return (DeviceInfo(self.name, 0, _processor_name(), "cpu", "", _memory_bytes(), details),)

    def target_info(self, target: str) -> TargetInfo:
        """The host for an empty string, `host` or its own name; or a level of its architecture such as `x86-64-v3`.

        Raises:
            DeviceError: there is no such target.
        """
        from quernel_cpu.targets import named_target

        return named_target(target)

    def compiler(self, target: TargetInfo) -> CpuCompiler:
        """The half that lowers."""
        from quernel_cpu.compiler import CpuCompiler

        return CpuCompiler(target)

    def open(self, info: DeviceInfo) -> CpuDevice:
        """The operations on the host's processor."""
        from quernel.compiler.loader import caching_environment
        from quernel_cpu.device import CpuDevice
        from quernel_cpu.host import recall_host

        recall_host(caching_environment())
        return CpuDevice(info, self.compiler(self.target_info("")))

    def health(self) -> Health:
        """Versions of LLVM and llvmlite, the processor, and the vector library."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            llvmlite = version("llvmlite")
        except PackageNotFoundError:
            llvmlite = "unknown"
        try:
            from quernel_cpu.targets import host_target, toolchain_version

            target = host_target()
        except (ImportError, OSError, RuntimeError) as error:
            problem = Unavailable(f"LLVM cannot be loaded: {error}", "pip install --force-reinstall llvmlite")
            return Health((("llvmlite", llvmlite),), (problem,))
        library = target.detail("vector_library")
        return Health(
            versions=(
                ("llvmlite", llvmlite),
                ("LLVM", toolchain_version()),
                ("processor", f"{_processor_name()} ({target.detail('cpu')})"),
                (
                    "vector library",
                    library if library != "none" else "none; functions without a form of our own run in scalar code",
                ),
            )
        )


def quernel_backend() -> Backend:
    """The cpu's backend."""
    return CpuBackend()


def _architecture() -> str:
    if hasattr(os, "uname"):
        return os.uname().machine
    import platform

    return platform.machine()


def _processor_name() -> str:
    """The processor as its maker calls it, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine() or "CPU"


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
