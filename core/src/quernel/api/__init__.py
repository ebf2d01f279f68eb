"""What users call: the decorators, and the functions that find devices; wires plugins into the layers below."""

from __future__ import annotations

from quernel.api import wiring as _wiring
from quernel.api.decorators import kernel, source_kernel
from quernel.api.devices import backends, device, devices, set_default_device, use
from quernel.api.kernels import Kernel
from quernel.api.specialized import SpecializedKernel

__all__ = [
    "Kernel",
    "SpecializedKernel",
    "backends",
    "device",
    "devices",
    "kernel",
    "set_default_device",
    "source_kernel",
    "use",
]

_wiring.connect()
