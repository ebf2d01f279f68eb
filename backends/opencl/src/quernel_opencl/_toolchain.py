"""The compiling side of pyopencl: drivers made visible, devices found, one context per device, programs built.

pyopencl is imported when a function here is first called. Contexts are kept for the process: a program's binary is made
in one, and OpenCL has no compiler without it.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

from quernel.errors import CompilationError, DeviceError
from quernel.forks import check_driver, in_child, starting_driver
from quernel.values import frozen
from quernel_opencl._intel import LIBRARY, installed_library, open_context

__all__ = [
    "FoundDevice",
    "build_binary",
    "context_of",
    "device_of",
    "find_devices",
    "icd_files",
    "load_binary",
    "opencl",
    "status_name",
]

_VENDORS = "OCL_ICD_VENDORS"
_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")

_importing = threading.Lock()
_imported: list[Any] = []
_lock = threading.Lock()
_contexts: dict[tuple[int, DeviceKey], Any] = {}


def opencl() -> Any:
    """The module `pyopencl`, with every driver visible that pip installed beside it.

    Its loader looks for drivers once, when it is first asked for platforms. It is shown a folder that lives only until
    then: the system's entries, and one for Intel's runtime, whose own entry names a path of the machine that built it.
    A user who names a folder in `OCL_ICD_VENDORS` is left alone.

    Raises:
        DeviceError: pyopencl is missing or broken, or drivers were started before this process was forked.
    """
    check_driver("opencl")
    if _imported:
        return _imported[0]
    with _importing:  # One thread at a time changes the process's environment, and one alone.
        if not _imported:
            with starting_driver("opencl"):
                _imported.append(_import())
    return _imported[0]


def _renew_after_fork() -> None:
    global _importing, _lock
    _importing, _lock = threading.Lock(), threading.Lock()


in_child(_renew_after_fork)


def _import() -> Any:
    try:
        library = installed_library()
        if library is None or os.environ.get(_VENDORS):
            import pyopencl
        else:
            import tempfile

            with tempfile.TemporaryDirectory(prefix="quernel-icd-") as folder:
                for number, (path, text) in enumerate(_entries(_SYSTEM_VENDORS)):
                    if LIBRARY not in text:
                        Path(folder, f"{number:03}-{path.name}").write_text(text)
                Path(folder, "intel.icd").write_text(f"{library}\n")
                os.environ[_VENDORS] = folder
                try:
                    import pyopencl

                    _platforms(pyopencl)
                finally:
                    del os.environ[_VENDORS]
    except ImportError as error:
        raise DeviceError(
            f"pyopencl cannot be imported: {error}", fix="pip install --force-reinstall pyopencl"
        ) from error
    return pyopencl


def icd_files() -> list[tuple[Path, str]]:
    """The drivers' entries that the loader reads: each file, and the library that it names."""
    named = os.environ.get(_VENDORS)
    folders = [Path(named) if named else _SYSTEM_VENDORS]
    try:
        import pyopencl

        folders.append(Path(pyopencl.__file__).parent / ".libs")
    except ImportError:
        pass
    return [entry for folder in folders for entry in _entries(folder)]


def _entries(folder: Path) -> list[tuple[Path, str]]:
    try:
        return [(path, path.read_text(errors="replace").strip()) for path in sorted(folder.glob("*.icd"))]
    except OSError:
        return []


def _platforms(cl: Any) -> list[Any]:
    try:
        platforms: list[Any] = cl.get_platforms()
    except cl.Error as error:
        if error.code == _NO_PLATFORM:
            return []
        raise
    return platforms


_NO_PLATFORM = -1001


# --- devices ----------------------------------------------------------------------------------------------------------


@frozen
class DeviceKey:
    """What names a device in every process of a machine: platform, its version, name, driver, and which of equals."""

    platform: str
    platform_version: str
    name: str
    driver: str
    number: int


@frozen(eq=False)
class FoundDevice:
    """A device that a driver lists, not opened."""

    key: DeviceKey
    device: Any


@cache
def find_devices() -> tuple[tuple[FoundDevice, ...], tuple[str, ...]]:
    """All devices in the order of the loader, and for each platform that lists none, why.

    Raises:
        DeviceError: pyopencl is missing or broken.
    """
    cl = opencl()
    found: list[FoundDevice] = []
    silent: list[str] = []
    for platform in _platforms(cl):
        try:
            devices = platform.get_devices()
        except cl.Error as error:
            silent.append(f"{platform.name}: {status_name(error)}")
            continue
        counts: dict[str, int] = {}
        for device in devices:
            name = device.name.strip()
            number = counts[name] = counts.get(name, -1) + 1
            key = DeviceKey(
                platform.name.strip(), platform.version.strip(), name, device.driver_version.strip(), number
            )
            found.append(FoundDevice(key, device))
    return tuple(found), tuple(silent)


def device_of(key: DeviceKey) -> Any:
    """The driver's device of that key.

    Raises:
        DeviceError: this process does not see it.
    """
    devices, _ = find_devices()
    for found in devices:
        if found.key == key:
            return found.device
    shown = ", ".join(f"{found.key.name} of {found.key.platform} {found.key.driver}" for found in devices) or "none"
    raise DeviceError(
        f"OpenCL device {key.name} of {key.platform} {key.driver} is not here; found: {shown}",
        fix="compile where the device is: OpenCL has no compiler without it",
    )


def context_of(key: DeviceKey) -> Any:
    """The context of a device in this process, opened when it is first asked for.

    Raises:
        DeviceError: the driver refuses, or the device is not here.
    """
    cl, place = opencl(), (os.getpid(), key)
    with _lock:
        context = _contexts.get(place)
        if context is None:
            try:
                context = _contexts[place] = _open(cl, key)
            except cl.Error as error:
                raise DeviceError(
                    f"{key.platform} does not open {key.name}: {status_name(error)}", fix="see quernel doctor"
                ) from error
        return context


def _open(cl: Any, key: DeviceKey) -> Any:
    device = device_of(key)
    if key.platform.startswith("Intel") and device.type & cl.device_type.CPU:
        return open_context(cl, device)
    return cl.Context([device])


# --- programs ---------------------------------------------------------------------------------------------------------


def build_binary(key: DeviceKey, text: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    """The driver's binary of a source, and the compiler's log.

    Raises:
        CompilationError: the compiler refuses it; `chain` is its log.
        DeviceError: the device is not here.
    """
    cl, context = opencl(), context_of(key)
    program = cl._cl._Program(context, text)
    log = _build(cl, program, key, options)
    binaries = program.get_info(cl.program_info.BINARIES)
    if not binaries or not binaries[0]:
        raise CompilationError(f"{key.platform} gives no binary of the program", chain=tuple(log.splitlines()))
    return bytes(binaries[0]), log


def load_binary(key: DeviceKey, binary: bytes) -> Any:
    """A program of a binary that this device's driver made.

    Raises:
        CompilationError: the driver refuses it.
    """
    cl, context = opencl(), context_of(key)
    try:
        program = cl._cl._Program(context, [device_of(key)], [binary])
    except cl.Error as error:
        raise CompilationError(f"{key.platform} refuses a program binary: {status_name(error)}") from error
    _build(cl, program, key, ())
    return program


def _build(cl: Any, program: Any, key: DeviceKey, options: tuple[str, ...]) -> str:
    device = device_of(key)
    try:
        program._build(" ".join(options).encode(), [device])
    except cl.Error as error:
        raise CompilationError(
            f"{key.platform} cannot build the program for {key.name}: {status_name(error)}",
            chain=tuple(_log_of(cl, program, device).splitlines()),
        ) from error
    return _log_of(cl, program, device)


def _log_of(cl: Any, program: Any, device: Any) -> str:
    try:
        log: str = program.get_build_info(device, cl.program_build_info.LOG)
    except cl.Error:  # some drivers keep none
        return ""
    return log.strip()


def status_name(error: Any) -> str:
    """What the driver said, as the specification names it."""
    cl = opencl()
    name: str = cl.status_code.to_string(error.code, "status %d")
    return name
