"""What there is: devices as the core shows them, and drivers that are broken, with the mend."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from quernel.errors import QuernelError
from quernel.runtime.operations import DeviceInfo, Health, Unavailable
from quernel_opencl import _toolchain
from quernel_opencl._toolchain import FoundDevice
from quernel_opencl.targets import device_kind

__all__ = ["device_info", "health"]


def device_info(index: int, found: FoundDevice) -> DeviceInfo:
    """A device, named together with its platform: one processor may be listed by several."""
    device, key = found.device, found.key
    return DeviceInfo(
        backend="opencl",
        index=index,
        name=f"{key.name} ({_short_platform(key.platform)})",
        kind=device_kind(device),
        memory_bytes=int(device.global_mem_size),
        details=(
            ("platform", key.platform),
            ("platform version", key.platform_version),
            ("driver", key.driver),
            ("compute units", str(device.max_compute_units)),
        ),
    )


def _short_platform(platform: str) -> str:
    return "PoCL" if platform == "Portable Computing Language" else platform


def health(install: str) -> Health:
    """Versions, and problems each with its mend."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        versions = [("pyopencl", version("pyopencl"))]
    except PackageNotFoundError:
        return Health((), (Unavailable("pyopencl is not installed", "pip install pyopencl"),))
    try:
        found, silent = _toolchain.find_devices()
    except QuernelError as error:
        return Health(tuple(versions), (Unavailable(error.what, error.fix or install),))
    platforms = dict.fromkeys((device.key.platform, device.key.platform_version) for device in found)
    versions += platforms
    problems = [Unavailable(f"platform {reason}", "update or reinstall that driver") for reason in silent]
    problems += [problem for path, library in _toolchain.icd_files() if (problem := _broken(path, library)) is not None]
    if not found and not problems:
        problems.append(Unavailable("no OpenCL driver was found", install))
    return Health(tuple(versions), tuple(problems))


def _broken(entry: Path, library: str) -> Unavailable | None:
    """What is wrong with the driver that an entry names, if it cannot even be loaded."""
    mend = f"reinstall the driver that {entry} belongs to, or remove that file"
    if not library:
        return Unavailable(f"{entry} names no library", mend)
    if os.path.isabs(library) and not os.path.exists(library):
        return Unavailable(f"{entry} names {library}, which is not there", mend)
    path = library
    if not os.path.isabs(library) and (entry.parent / library).exists():
        path = str(entry.parent / library)  # as the loader in pyopencl's own folder does
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return Unavailable(f"{entry} names {library}, which cannot be loaded: {error}", mend)
    return None
