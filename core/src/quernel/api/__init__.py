"""What users call: the decorators, and the functions that find devices; wires plugins into the layers below.

Names are loaded at their first use: a kernel that is defined and never launched costs little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quernel.api.decorators import kernel, source_kernel
    from quernel.api.discovery import backends, device, devices, set_default_device, use
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

_MODULE_OF = {
    "Kernel": "kernels",
    "SpecializedKernel": "specialized",
    "backends": "discovery",
    "device": "discovery",
    "devices": "discovery",
    "kernel": "decorators",
    "set_default_device": "discovery",
    "source_kernel": "decorators",
    "use": "discovery",
}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)
