"""Quernel: write a kernel once, compile and launch it on any device.

By convention `import quernel as qn`. Every name is loaded at its first use, so that importing the package costs next to
nothing.
"""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING, Any

import quernel.forks  # noqa: F401 — first of all: what threads import from here on, a forked child lets go of

_imported_ns = time_ns()
"""Sources that changed after this are not those that the process runs."""

if TYPE_CHECKING:
    __version__: str

    from quernel import errors
    from quernel.api import (
        Kernel,
        SpecializedKernel,
        backends,
        device,
        devices,
        kernel,
        set_default_device,
        source_kernel,
        use,
    )
    from quernel.api.static import (
        Array,
        Array1,
        Array2,
        Array3,
        Array4,
        Const,
        atomic,
        bf16,
        block,
        f16,
        f32,
        f64,
        i8,
        i16,
        i32,
        i64,
        random,
        subgroup,
        u8,
        u16,
        u32,
        u64,
    )
    from quernel.api.static import boolean as bool  # noqa: A004 — the language's name
    from quernel.compiler import no_compiling
    from quernel.intrinsics import (
        DeviceFunction,
        barrier,
        bitcast,
        block_dim,
        block_id,
        cdiv,
        ceil,
        clamp,
        clz,
        ctz,
        floor,
        fma,
        func,
        global_dim,
        global_id,
        grid_dim,
        local_id,
        popcount,
        private,
        rint,
        rsqrt,
        shared,
        trunc,
        uniform,
        unroll,
        vec,
    )
    from quernel.plugins import BackendInfo
    from quernel.runtime.arrays import DeviceArray
    from quernel.runtime.devices import Device
    from quernel.runtime.graphs import Graph
    from quernel.runtime.operations import DeviceInfo
    from quernel.runtime.profiles import Profile
    from quernel.runtime.streams import Event, Stream
    from quernel.store import environment


_HOMES = {
    "quernel.api.decorators": "kernel source_kernel",
    "quernel.api.discovery": "backends device devices set_default_device use",
    "quernel.api.kernels": "Kernel",
    "quernel.api.specialized": "SpecializedKernel",
    "quernel.compiler.reentrancy": "no_compiling",
    "quernel.dtypes": "Array Array1 Array2 Array3 Array4 Const bf16 bool f16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64",
    "quernel.intrinsics": (
        "DeviceFunction atomic barrier bitcast block block_dim block_id cdiv ceil clamp clz ctz floor fma func "
        "global_dim global_id grid_dim local_id popcount private random rint rsqrt shared subgroup trunc uniform "
        "unroll vec"
    ),
    "quernel.plugins": "BackendInfo",
    "quernel.runtime.arrays": "DeviceArray",
    "quernel.runtime.devices": "Device",
    "quernel.runtime.graphs": "Graph",
    "quernel.runtime.operations": "DeviceInfo",
    "quernel.runtime.profiles": "Profile",
    "quernel.runtime.streams": "Event Stream",
    "quernel.store": "environment",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [  # noqa: RUF022 — grouped as the documentation groups them
    "Array", "Array1", "Array2", "Array3", "Array4", "Const",
    "BackendInfo", "Device", "DeviceArray", "DeviceFunction", "DeviceInfo", "Event", "Graph", "Kernel", "Profile",
    "SpecializedKernel", "Stream",
    "atomic", "backends", "barrier", "bf16", "bitcast", "block", "block_dim", "block_id", "bool", "cdiv", "ceil",
    "clamp", "clz", "ctz", "device", "devices", "environment", "errors", "f16", "f32", "f64", "floor", "fma", "func",
    "global_dim", "global_id", "grid_dim", "i8", "i16", "i32", "i64", "kernel", "local_id", "no_compiling", "popcount",
    "private", "random", "rint", "rsqrt", "set_default_device", "shared", "source_kernel", "subgroup", "trunc", "u8",
    "u16", "u32", "u64", "uniform", "unroll", "use", "vec",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module("quernel.errors")
    if name == "__version__":
        return import_module("importlib.metadata").version("quernel")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'quernel' has no attribute {name!r}")
    value = getattr(import_module(home), "bool_" if name == "bool" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
