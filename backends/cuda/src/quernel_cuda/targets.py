"""Targets: what an architecture can do, and the fingerprint of what NVRTC makes for it.

A target is an architecture, `sm_90`, whether it was named or found in a device, so that what was compiled without a GPU
runs on one. Its facts for the compiler are the details `architecture` (as NVRTC takes it), `code` (`cubin`, or `ptx`,
which the driver compiles) and `nvrtc`, its version.

An architecture that is newer than the NVRTC at hand gets PTX for the newest one that it knows. `compute_90` names such
a target: its artifacts run on every device from 9.0 on, and cost 11 to 17 ms each time that one is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from quernel.capabilities import Capabilities, Limits, TargetInfo, details_digest
from quernel.errors import DeviceError, QuernelError
from quernel_cuda import _toolchain

__all__ = ["PIPELINE_VERSION", "fingerprint", "known_targets", "named_target", "target_of_device"]

PIPELINE_VERSION: Final = 1
"""Version of how an artifact is made of a text, and of how a launch passes arguments."""

_NAME: Final = re.compile(r"(sm|compute)_(\d{2,3})([af]?)")
_OLDEST: Final = 75
_ESTABLISHED: Final = frozenset({75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121})
"""Architectures that every NVRTC which this backend may be installed with knows."""

_CAPABILITIES: Final = Capabilities(
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
    source_languages=("cuda-c++",),
)
"""What every architecture from 7.5 on can do."""

_KIB: Final = 1024
_SHARED_BYTES: Final = {75: 64 * _KIB, 80: 163 * _KIB, 87: 163 * _KIB, 90: 227 * _KIB, 100: 227 * _KIB}
"""Shared memory that a block may ask for, of the architectures that have more or less than others."""
_MORE_SHARED: Final = frozenset({103, 110})
_FEWER_SHARED_BYTES: Final = 99 * _KIB


def named_target(name: str) -> TargetInfo:
    """The target called `sm_90`, `sm_90a` or `compute_90`.

    Raises:
        DeviceError: there is no such target, or this NVRTC does not know it.
    """
    found = _NAME.fullmatch(name)
    if found is None or int(found[2]) < _OLDEST:
        raise DeviceError(f"{name!r} is no CUDA target", fix=f"use one of {known_targets()}, or compute_90 for PTX")
    number = int(found[2])
    if number not in _ESTABLISHED and number not in _toolchain.supported_architectures():
        raise DeviceError(
            f"NVRTC {_toolchain.version()} does not know {name}; it knows {known_targets()}",
            fix="pip install --upgrade nvidia-cuda-nvrtc, or use compute_ of an older one",
        )
    return _target(name, number, name, is_ptx=found[1] == "compute")


def known_targets() -> str:
    """The names of what this NVRTC compiles for, or where there is none of what any would."""
    try:
        numbers = _toolchain.supported_architectures()
    except QuernelError:
        numbers = tuple(sorted(_ESTABLISHED))
    return ", ".join(f"sm_{number}" for number in numbers if number >= _OLDEST)


def target_of_device(major: int, minor: int) -> TargetInfo:
    """The target of a device of that compute capability.

    Raises:
        DeviceError: it is older than what NVRTC compiles for.
    """
    number = 10 * major + minor
    if number < _OLDEST:
        from quernel.installing import install_backend

        raise DeviceError(
            f"compute capability {major}.{minor} is older than 7.5, the oldest that NVRTC compiles for",
            fix=f"use a newer device, or OpenCL: {install_backend('opencl')}",
        )
    name = f"sm_{number}"
    if number in _ESTABLISHED or number in _toolchain.supported_architectures():
        return _target(name, number, name, is_ptx=False)
    older = max(known for known in _toolchain.supported_architectures() if known <= number)
    return _target(name, number, f"compute_{older}", is_ptx=True)


def _target(name: str, number: int, architecture: str, *, is_ptx: bool) -> TargetInfo:
    try:
        version = _toolchain.version()
    except QuernelError as error:
        raise DeviceError(error.what, fix=error.fix) from error
    details = {"architecture": architecture, "code": "ptx" if is_ptx else "cubin", "nvrtc": version}
    return TargetInfo(
        backend="cuda",
        name=name,
        fingerprint=fingerprint(name, details),
        capabilities=_CAPABILITIES,
        limits=Limits(
            max_block_threads=1024,
            max_block=(64, 1024, 1024),
            max_grid=(65535, 65535, (1 << 31) - 1),
            max_shared_bytes=_shared_bytes(number),
        ),
        subgroup_size=32,
        details=tuple(sorted(details.items())),
    )


def fingerprint(name: str, details: Mapping[str, str]) -> str:
    """The fingerprint of what this process's NVRTC makes for a target of that name and those details."""
    version = _toolchain.version()
    digest = details_digest({**details, "nvrtc": version}, str(PIPELINE_VERSION))
    return f"{name}-nvrtc{version}-{digest}"


def _shared_bytes(number: int) -> int:
    if number in _MORE_SHARED:
        return _SHARED_BYTES[100]
    return _SHARED_BYTES.get(number, _FEWER_SHARED_BYTES)
