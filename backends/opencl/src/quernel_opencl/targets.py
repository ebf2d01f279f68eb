"""Targets: what a device can do, as its driver says, and the fingerprint of what its compiler makes.

A target's facts for the compiler are the details `platform`, `platform_version`, `device`, `driver` and `number` (which
name the device), `kind`, `pointers` (how arrays are passed) and `options` (what every program is built with).
"""

from __future__ import annotations

import re
from typing import Any, Final

from quernel.capabilities import Capabilities, Limits, TargetInfo, details_digest
from quernel.codegen.pointers import Pointers
from quernel_opencl import _toolchain
from quernel_opencl._toolchain import DeviceKey, FoundDevice

__all__ = ["PIPELINE_VERSION", "device_key", "device_kind", "target_of"]

PIPELINE_VERSION: Final = 1
"""Version of how a binary is made of a text, and of how a launch passes arguments."""

# As the specification numbers them, since naming them through pyopencl takes longer than all else here.
_DENORM, _CORRECTLY_ROUNDED = 1, 128  # CL_FP_…
_FINE_GRAIN_BUFFER, _FINE_GRAIN_SYSTEM = 2, 4  # CL_DEVICE_SVM_…
_CPU, _GPU = 2, 4  # CL_DEVICE_TYPE_…
_INT64_ATOMICS: Final = {"cl_khr_int64_base_atomics", "cl_khr_int64_extended_atomics"}

_SUBGROUPS: Final = {"cl_intel_subgroups", "cl_intel_required_subgroup_size"}
_SUBGROUP_SIZE: Final = 16  # as the lowering has it, which a warm start does not import


def device_kind(device: Any) -> str:
    """`cpu`, `gpu` or `accelerator`."""
    return "cpu" if device.type & _CPU else "gpu" if device.type & _GPU else "accelerator"


def device_key(target: TargetInfo) -> DeviceKey:
    """The device that the target was made from."""
    return DeviceKey(
        target.detail("platform"),
        target.detail("platform_version"),
        target.detail("device"),
        target.detail("driver"),
        int(target.detail("number", "0")),
    )


def target_of(found: FoundDevice, pointers: Pointers | None = None) -> TargetInfo:
    """The target of a device. `pointers` passes arrays in another way than the device's best."""
    device, key = found.device, found.key
    extensions = set(device.extensions.split())
    pointers = pointers or (Pointers.ADDRESS if _shares_addresses(device) else Pointers.BUFFER)
    single, double = device.single_fp_config, _optional(device, "double_fp_config")
    is_rounding = bool(single & _CORRECTLY_ROUNDED)
    options = "-cl-fp32-correctly-rounded-divide-sqrt" if is_rounding else ""
    details = {
        "device": key.name,
        "driver": key.driver,
        "kind": device_kind(device),
        "number": str(key.number),
        "options": options,
        "platform": key.platform,
        "platform_version": key.platform_version,
        "pointers": pointers.value,
    }
    digest = details_digest(details, str(PIPELINE_VERSION))
    has_subgroups = extensions >= _SUBGROUPS
    has_int64_atomics = extensions >= _INT64_ATOMICS
    name = re.sub(r"[^a-z0-9]+", "-", f"{key.platform.split(' ')[0]} {key.name}".lower()).strip("-")
    fastest_first = [int(size) for size in device.max_work_item_sizes[:3]]
    return TargetInfo(
        backend="opencl",
        name=name,
        fingerprint=f"{name[:40]}-{digest}",
        capabilities=Capabilities(
            # A processor's own division and square root are correctly rounded, whether the driver says so or not.
            exact_f32=bool(single & _DENORM) and (is_rounding or device_kind(device) == "cpu"),
            exact_f64=bool(double),
            f64=bool(double),
            f16=True,
            bf16=True,
            barriers=True,
            int64_atomics=has_int64_atomics,
            f64_atomics=bool(double) and has_int64_atomics,
            subgroups=has_subgroups,
            checked=True,
            source_languages=("opencl-c",),
        ),
        limits=Limits(
            max_block_threads=int(device.max_work_group_size),
            max_block=(fastest_first[2], fastest_first[1], fastest_first[0]),
            max_shared_bytes=int(device.local_mem_size),
        ),
        subgroup_size=_SUBGROUP_SIZE if has_subgroups else 1,
        details=tuple(sorted(details.items())),
    )


def _shares_addresses(device: Any) -> bool:
    """Whether kernels read and write any memory of this process by its own addresses.

    The specification calls it fine-grained system sharing. A processor whose kernels share buffers finely with the host
    runs them in this very process, and some drivers do not say the rest.
    """
    shared = _optional(device, "svm_capabilities")
    if shared & _FINE_GRAIN_SYSTEM:
        return True
    return device_kind(device) == "cpu" and bool(shared & _FINE_GRAIN_BUFFER) and bool(device.host_unified_memory)


def _optional(device: Any, name: str) -> int:
    """A property that older drivers do not know; 0 then."""
    try:
        value: int = getattr(device, name)
    except (AttributeError, _toolchain.opencl().Error):
        return 0
    return value
