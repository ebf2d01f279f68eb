"""What there is: devices as the core shows them, and what stands between them and a kernel, with the mend."""

from __future__ import annotations

from typing import Any

from quernel.errors import QuernelError
from quernel.runtime.operations import DeviceInfo, Health, Unavailable
from quernel_cuda import _driver, _toolchain
from quernel_cuda._driver import call
from quernel_cuda.targets import known_targets

__all__ = ["capability", "device_infos", "driver_problem", "health"]


def device_infos() -> tuple[DeviceInfo, ...]:
    """The devices, in the driver's order; no context is opened.

    Raises:
        DeviceError: there is no driver, or it lists none.
    """
    return tuple(_device_info(index) for index in range(call("cuDeviceGetCount")))


def _device_info(index: int) -> DeviceInfo:
    device = call("cuDeviceGet", index)
    name: bytes = call("cuDeviceGetName", 256, device)
    major, minor = capability(index)
    attributes = _driver.driver().CUdevice_attribute
    processors = call("cuDeviceGetAttribute", attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
    driver = ".".join(map(str, _driver.driver_version()))
    return DeviceInfo(
        backend="cuda",
        index=index,
        name=name.rstrip(b"\0 ").decode(errors="replace"),
        kind="gpu",
        uuid=_uuid(device),
        memory_bytes=int(call("cuDeviceTotalMem", device)),
        details=(
            ("compute capability", f"{major}.{minor}"),
            ("multiprocessors", str(processors)),
            ("driver's CUDA", driver),
        ),
    )


def _uuid(device: Any) -> str:
    found = call("cuDeviceGetUuid", device)
    digits = bytes(found.bytes).hex()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def capability(index: int) -> tuple[int, int]:
    """The device's compute capability."""
    device, attributes = call("cuDeviceGet", index), _driver.driver().CUdevice_attribute
    major = call("cuDeviceGetAttribute", attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    minor = call("cuDeviceGetAttribute", attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    return int(major), int(minor)


def driver_problem() -> Unavailable | None:
    """Why nothing that is compiled here would run: no driver, no device, or one that is older than the compiler."""
    try:
        driver = _driver.driver_version()
        count = call("cuDeviceGetCount")
    except QuernelError as error:
        return Unavailable(error.what, error.fix or "see what nvidia-smi says")
    if not count:
        return Unavailable("NVIDIA's driver lists no device", "see that CUDA_VISIBLE_DEVICES names one")
    try:
        compiler = _toolchain.version()
    except QuernelError:
        return None
    if driver[0] < int(compiler.partition(".")[0]):
        shown = ".".join(map(str, driver))
        return Unavailable(
            f"the driver runs CUDA {shown}, which is older than NVRTC {compiler}: it loads nothing compiled here",
            "update NVIDIA's driver",
        )
    return None


def _is_device_missing() -> bool:
    """Whether the machine just has no device of NVIDIA's; a driver that is there and fails is another matter."""
    try:
        return not call("cuDeviceGetCount")
    except _driver.DriverMissingError:
        return _driver.is_absent()
    except QuernelError:
        return False


def health() -> Health:
    """Versions, and problems each with its mend; without a device the compiler still works, which is worth a note."""
    from importlib.metadata import PackageNotFoundError, version

    versions: list[tuple[str, str]] = []
    problems: list[Unavailable] = []
    notes: list[Unavailable] = []
    try:
        versions.append(("cuda-python", version("cuda-bindings")))
    except PackageNotFoundError:
        problems.append(Unavailable("cuda-python is not installed", "pip install cuda-python"))
    try:
        versions.append(("NVRTC", _toolchain.version()))
        versions.append(("compiles for", known_targets()))
    except QuernelError as error:
        problems.append(Unavailable(error.what, error.fix or "pip install nvidia-cuda-nvrtc"))
    problem = driver_problem()
    if problem is not None:
        (notes if _is_device_missing() and not problems else problems).append(problem)
    try:
        versions.append(("driver's CUDA", ".".join(map(str, _driver.driver_version()))))
    except QuernelError:
        versions.append(("driver's CUDA", "none; compiling works without it"))
    return Health(tuple(versions), tuple(problems), tuple(notes))
