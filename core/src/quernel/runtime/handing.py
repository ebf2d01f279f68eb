"""Device arrays handed to other libraries where they are: what DLPack and CUDA's interface say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from quernel.dtypes import DType, bf16
from quernel.runtime.dlpack import HOST, capsule_of, numpy_capsule

if TYPE_CHECKING:
    from quernel.runtime.arrays import DeviceArray
    from quernel.runtime.exchange import MemoryExchange

__all__ = ["as_capsule", "as_cuda_interface"]


def as_capsule(
    array: DeviceArray,
    exchange: MemoryExchange,
    stream: int | None,
    max_version: tuple[int, int] | None,
    wanted: tuple[int, int] | None,
    copy: bool | None,
) -> object:
    """The array as DLPack's `__dlpack__` gives it: where it is, unless a copy or the host's memory is asked for.

    Raises:
        BufferError: that cannot be.
    """
    place = exchange.dlpack_kinds[0], exchange.number
    if wanted is not None and tuple(wanted) != place:
        if wanted[0] != HOST[0]:
            raise BufferError(f"an array on {array.device.name} is handed over there or in the host's memory only")
        if copy is False:
            raise BufferError(f"the host does not see the memory of {array.device.name}, so this would be a copy")
        return numpy_capsule(array.numpy(), max_version)
    array._check_readable()
    array._check_usable("handed to another library")
    handed = array.copy() if copy else array
    capsule = capsule_of(handed, place, max_version, is_copy=bool(copy))
    if not exchange.give(stream):
        handed.allocation.is_shared = True
    return capsule


def as_cuda_interface(array: DeviceArray, exchange: MemoryExchange) -> dict[str, Any]:
    """The array as version 3 of CUDA's array interface says it; the stream is the device's default one.

    Raises:
        AttributeError: the interface has no name for the elements' type.
    """
    if array.dtype is bf16:
        raise AttributeError("__cuda_array_interface__ has no bf16; use DLPack")
    array._check_readable()
    array._check_usable("handed to another library")
    exchange.give(exchange.stream)
    array.allocation.is_shared = True
    dtype = array.numpy_dtype
    interface = {
        "version": 3,
        "shape": array.shape,
        "strides": None if array.is_contiguous else array.strides,
        "typestr": dtype.str,
        "data": (array.address if array.size else 0, array.allocation.is_read_only),
        "stream": exchange.stream,
    }
    return interface if isinstance(array.dtype, DType) else {**interface, "descr": np.lib.format.dtype_to_descr(dtype)}
