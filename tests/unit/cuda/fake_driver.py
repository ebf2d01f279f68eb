"""A stand-in for the driver's bindings: memory of this process, streams that are numbers, and a list of all calls.

Names of attributes, enumerations and handles are those of the real bindings, and each call is held against the real
function's signature, so that what is never run here is at least called as the driver wants it.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from cuda.bindings import driver as real

OK = real.CUresult.CUDA_SUCCESS


@cache
def num_parameters(name: str) -> int:
    """How many arguments the real function takes, by its own documentation."""
    found = re.match(rf"{name}\((.*)\)", (getattr(real, name).__doc__ or "").strip().splitlines()[0])
    assert found is not None, name
    inside = re.sub(r"\[[^\]]*\]", "", re.sub(r"\[[^\[\]]*\]", "", found[1]))
    return len(inside.split(",")) if inside else 0


class FakeDriver:
    """Devices of compute capability 9.0, one unless told otherwise.

    Attributes:
        calls: what was called with which arguments.
        launched: the name and argument cells of each launch.
        failing: by name of a call, the status that it reports from now on.
        current: the stack of current contexts.
        num_devices: how many there are, all alike.
    """

    def __init__(self, capability: tuple[int, int] = (9, 0), version: int = 13000) -> None:
        self.capability = capability
        self.version = version
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.launched: list[tuple[Any, tuple[int, ...], int, int]] = []
        self.failing: dict[str, Any] = {}
        self.current: list[int] = []
        self.num_devices = 1
        self.memory: dict[int, Any] = {}
        self.numbers = itertools.count(1000)
        self.on_launch: Callable[..., Any] = lambda *arguments: OK

    def __getattr__(self, name: str) -> Any:
        found = getattr(real, name)
        if not name.startswith("cu") or isinstance(found, type):
            return found

        def called(*arguments: Any) -> tuple[Any, ...]:
            assert len(arguments) == num_parameters(name), f"{name} takes {num_parameters(name)} arguments"
            self.calls.append((name, arguments))
            if name in self.failing:
                return (self.failing[name], None)
            try:
                result = getattr(type(self), f"do_{name}", type(self).nothing)(self, *arguments)
            except MemoryError:
                return (real.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None)
            return (OK, *result)

        return called

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def nothing(self, *arguments: Any) -> tuple[Any, ...]:
        return ()

    def number(self, *arguments: Any) -> tuple[int]:
        return (next(self.numbers),)

    do_cuStreamCreate = do_cuEventCreate = do_cuModuleLoadData = do_cuModuleGetFunction = number
    do_cuStreamEndCapture = do_cuGraphInstantiate = do_cuDeviceGetDefaultMemPool = number

    def do_cuDriverGetVersion(self) -> tuple[int]:
        return (self.version,)

    def do_cuDeviceGetCount(self) -> tuple[int]:
        return (self.num_devices,)

    def do_cuDeviceGet(self, number: int) -> tuple[int]:
        return (number,)

    def do_cuDeviceGetName(self, length: int, device: int) -> tuple[bytes]:
        return (b"Fake GPU\0\0",)

    def do_cuDeviceTotalMem(self, device: int) -> tuple[int]:
        return (1 << 30,)

    def do_cuDeviceGetUuid(self, device: int) -> tuple[Any]:
        return (type("Uuid", (), {"bytes": bytes(range(16))})(),)

    def do_cuDeviceGetAttribute(self, attribute: Any, device: int) -> tuple[int]:
        attributes = real.CUdevice_attribute
        if attribute == attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            return (self.capability[0],)
        if attribute == attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
            return (self.capability[1],)
        return (1,)

    def do_cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int]:
        return (77 + device,)

    def do_cuCtxPushCurrent(self, context: int) -> tuple[()]:
        self.current.append(context)
        return ()

    def do_cuCtxPopCurrent(self) -> tuple[int]:
        return (self.current.pop(),)

    def do_cuMemPoolGetAttribute(self, pool: Any, attribute: Any) -> tuple[int]:
        return (0,)

    def do_cuMemGetInfo(self) -> tuple[int, int]:
        return (1 << 20, 1 << 30)

    def do_cuPointerGetAttribute(self, attribute: Any, address: int) -> tuple[int]:
        return (0,)

    def do_cuEventElapsedTime(self, start: Any, end: Any) -> tuple[float]:
        return (1.5,)

    # --- memory -------------------------------------------------------------------------------------------------------

    def allocated(self, nbytes: int) -> tuple[int]:
        assert self.current or nbytes == 2 << 20
        buffer = (ctypes.c_char * (nbytes + 256))()
        address = -(-ctypes.addressof(buffer) // 256) * 256
        self.memory[address] = buffer
        return (address,)

    def do_cuMemAllocAsync(self, nbytes: int, stream: Any) -> tuple[int]:
        return self.allocated(nbytes)

    def do_cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[int]:
        return self.allocated(nbytes)

    def do_cuMemFreeAsync(self, address: int, stream: Any) -> tuple[()]:
        del self.memory[address]
        return ()

    def do_cuMemFreeHost(self, address: int) -> tuple[()]:
        del self.memory[address]
        return ()

    def moved(self, to: int, source: int, nbytes: int, *stream: Any) -> tuple[()]:
        assert self.current
        ctypes.memmove(to, source, nbytes)
        return ()

    do_cuMemcpyHtoDAsync = do_cuMemcpyDtoHAsync = do_cuMemcpyDtoDAsync = moved

    def do_cuDeviceCanAccessPeer(self, device: int, other: int) -> tuple[int]:
        return (1,)

    def do_cuMemcpyPeerAsync(self, to: int, a: Any, source: int, b: Any, nbytes: int, stream: Any) -> tuple[()]:
        return self.moved(to, source, nbytes)

    def do_cuMemsetD8Async(self, to: int, value: int, count: int, stream: Any) -> tuple[()]:
        return self.moved(to, *self.repeated(value, 1, count))

    def do_cuMemsetD16Async(self, to: int, value: int, count: int, stream: Any) -> tuple[()]:
        return self.moved(to, *self.repeated(value, 2, count))

    def do_cuMemsetD32Async(self, to: int, value: int, count: int, stream: Any) -> tuple[()]:
        return self.moved(to, *self.repeated(value, 4, count))

    def do_cuMemsetD2D32Async(self, to: int, pitch: int, value: int, width: int, height: int, stream: Any) -> tuple[()]:
        for row in range(height):
            self.moved(to + row * pitch, *self.repeated(value, 4, width))
        return ()

    def do_cuMemsetD2D8Async(self, to: int, pitch: int, value: int, width: int, height: int, stream: Any) -> tuple[()]:
        for row in range(height):
            self.moved(to + row * pitch, *self.repeated(value, 1, width))
        return ()

    def repeated(self, value: int, size: int, count: int) -> tuple[int, int]:
        data = value.to_bytes(size, "little") * count
        self.kept = ctypes.create_string_buffer(data, len(data))
        return ctypes.addressof(self.kept), len(data)

    # --- launches -----------------------------------------------------------------------------------------------------

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: int, extra: int) -> tuple[Any]:
        assert num_parameters("cuLaunchKernelEx") == 4
        assert not config.numAttrs
        assert not extra
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        dimensions = (*grid, config.blockDimX, config.blockDimY, config.blockDimZ)
        self.calls.append(("cuLaunchKernelEx", (config, function, pointers, extra)))
        self.launched.append((function, dimensions, config.sharedMemBytes, pointers))
        return (self.on_launch(function, list(dimensions), config.sharedMemBytes, config.hStream, pointers),)


def cells_at(pointers: int, count: int) -> list[int]:
    """The 8-byte cells that an array of pointers points to."""
    addresses = (ctypes.c_void_p * count).from_address(pointers)
    return [ctypes.c_uint64.from_address(address or 0).value for address in addresses]
