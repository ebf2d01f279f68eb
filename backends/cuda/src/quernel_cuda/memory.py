"""The device's memory: allocated in the order of the default stream, from the driver's own pool."""

from __future__ import annotations

from typing import Any, Final

from quernel.errors import DeviceError
from quernel.runtime.operations import Memory
from quernel_cuda import _driver
from quernel_cuda._driver import call

__all__ = ["Pool", "fill"]

_FIRST_PATTERNS: Final = 256
"""So many copies of a long pattern are written word by word; the rest is copied from them."""


class Pool:
    """Allocates from the pool that the driver keeps for the device. The device's context is current in every call."""

    def __init__(self, device: Any) -> None:
        self._device = device
        attributes = _driver.driver().CUdevice_attribute
        self._has_pool = bool(
            call("cuDeviceGetAttribute", attributes.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device)
        )
        self._pool = call("cuDeviceGetDefaultMemPool", device) if self._has_pool else None
        if self._has_pool:
            self._keep_freed_memory()

    def _keep_freed_memory(self) -> None:
        """Without a threshold the driver gives all memory back to the system at each synchronization."""
        api = _driver.driver()
        threshold = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        if not int(call("cuMemPoolGetAttribute", self._pool, threshold)):
            call("cuMemPoolSetAttribute", self._pool, threshold, api.cuuint64_t((1 << 64) - 1))

    def allocate(self, nbytes: int, stream: Any) -> Memory:
        """Memory for work that is given to the stream from now on.

        Raises:
            DeviceError: there is not enough.
        """
        if not nbytes:
            return Memory(0, 0)
        status, address = self._try(nbytes, stream)
        if int(status) and _driver.status_name(status) == "CUDA_ERROR_OUT_OF_MEMORY":
            call("cuStreamSynchronize", stream)
            self.trim()
            status, address = self._try(nbytes, stream)
        if int(status):
            raise _driver.failure("cuMemAllocAsync", status, f"allocating {nbytes} bytes{_left()}")
        return Memory(int(address), nbytes)

    def _try(self, nbytes: int, stream: Any) -> tuple[Any, Any]:
        api = _driver.driver()
        result: tuple[Any, Any] = api.cuMemAllocAsync(nbytes, stream) if self._has_pool else api.cuMemAlloc(nbytes)
        return result

    def free(self, memory: Memory, stream: Any) -> None:
        """Gives the memory back, once the stream's earlier work is done."""
        if memory.address:
            if self._has_pool:
                call("cuMemFreeAsync", memory.address, stream)
            else:
                call("cuStreamSynchronize", stream)
                call("cuMemFree", memory.address)
        memory.address = 0

    def open_to(self, number: int) -> None:
        """Lets another device reach what is allocated here, now and later, unless the driver refuses."""
        if self._has_pool:
            api = _driver.driver()
            access = api.CUmemAccessDesc()
            access.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            access.location.id = number
            access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            api.cuMemPoolSetAccess(self._pool, [access], 1)

    def trim(self) -> None:
        """Gives freed memory back to the system."""
        if self._has_pool:
            call("cuMemPoolTrimTo", self._pool, 0)


def _left() -> str:
    try:
        free, total = call("cuMemGetInfo")
    except DeviceError:
        return ""
    return f" with {free} of {total} free"


def fill(address: int, pattern: bytes, count: int, stream: Any) -> None:
    """Writes `count` copies of a pattern, by the driver's own means, so that it can be part of a graph."""
    for size, name in ((1, "cuMemsetD8Async"), (2, "cuMemsetD16Async"), (4, "cuMemsetD32Async")):
        is_repeated = pattern == pattern[:size] * (len(pattern) // size)
        if len(pattern) % size == 0 and is_repeated and address % size == 0:
            number = len(pattern) // size * count
            call(name, address, int.from_bytes(pattern[:size], "little"), number, stream, doing="filling an array")
            return
    first = min(count, _FIRST_PATTERNS)
    size, name = (4, "cuMemsetD2D32Async") if len(pattern) % 4 == 0 and address % 4 == 0 else (1, "cuMemsetD2D8Async")
    for start in range(0, len(pattern), size):
        value = int.from_bytes(pattern[start : start + size], "little")
        call(name, address + start, len(pattern), value, 1, first, stream, doing="filling an array")
    done, total = first * len(pattern), count * len(pattern)
    while done < total:
        part = min(done, total - done)
        call("cuMemcpyDtoDAsync", address + done, address, part, stream, doing="filling an array")
        done += part
