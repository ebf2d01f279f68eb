"""Arrays of other libraries as arrays of a device, in the memory where they are: by DLPack or CUDA's interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from quernel.dtypes import DType, StructType
from quernel.errors import KernelTypeError, LaunchError
from quernel.runtime.arrays import Allocation, DeviceArray, contiguous_strides, element_of, reach_of
from quernel.runtime.dlpack import HOST, VERSION, Received
from quernel.runtime.operations import Memory

if TYPE_CHECKING:
    from quernel.runtime.devices import Device
    from quernel.runtime.exchange import MemoryExchange

__all__ = ["shared"]


def shared(device: Device, source: Any) -> DeviceArray | None:
    """`source` as an array of `device` that shares its memory, or `None` where the host has it or it says nothing.

    The result keeps `source` alive. Work that its library has given before is done before work that is given here.

    Raises:
        LaunchError: it is on another device, or laid out as no kernel takes it.
        KernelTypeError: its elements are of no type that kernels have, or it is masked.
    """
    exchange = device.operations.exchange
    if exchange is None:
        return None
    if hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__"):
        kind, number = source.__dlpack_device__()
        if kind in HOST:
            return None
        if kind not in exchange.dlpack_kinds or number != exchange.number:
            is_alike = kind in exchange.dlpack_kinds
            place = f"{device.info.backend}:{number}" if is_alike else f"a device of DLPack's kind {int(kind)}"
            raise _elsewhere(device, source, place)
        return _by_dlpack(device, exchange, source)
    interface = getattr(source, "__cuda_array_interface__", None) if exchange.cuda_interface else None
    return None if interface is None else _by_interface(device, exchange, source, interface)


def _by_dlpack(device: Device, exchange: MemoryExchange, source: Any) -> DeviceArray:
    device.check_open()
    with exchange.current():
        try:
            capsule = source.__dlpack__(stream=exchange.stream, max_version=VERSION)
        except TypeError:  # from before DLPack had versions
            capsule = source.__dlpack__(stream=exchange.stream)
    given = Received(capsule)
    exchange.take(None)
    return _array(device, given, given.address, given.dtype, given.shape, given.strides, given.is_read_only)


def _by_interface(device: Device, exchange: MemoryExchange, source: Any, interface: dict[str, Any]) -> DeviceArray:
    device.check_open()
    if interface.get("mask") is not None:
        raise KernelTypeError("a masked array has no place in a kernel", fix="pass its data")
    (address, is_read_only), shape = interface["data"], tuple(interface["shape"])
    element = np.dtype(interface["typestr"])
    if element.kind == "V":  # Only then the description says more; others have one too, of a single field.
        element = np.dtype(interface.get("descr", element))
    dtype = element_of(element)
    if 0 not in shape and (number := exchange.number_of(address)) != exchange.number:
        raise _elsewhere(device, source, f"{device.info.backend}:{number}")
    exchange.take(interface.get("stream"))
    strides = interface.get("strides") or contiguous_strides(shape, dtype.itemsize)
    return _array(device, source, address, dtype, shape, tuple(strides), is_read_only)


def _array(
    device: Device,
    owner: object,
    address: int,
    dtype: DType | StructType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    is_read_only: bool,
) -> DeviceArray:
    if 0 in shape:
        strides = contiguous_strides(shape, dtype.itemsize)
    elif any(stride % dtype.itemsize for stride, length in zip(strides, shape, strict=True) if length > 1):
        raise LaunchError(
            f"strides of {strides} bytes are no multiples of the {dtype.itemsize}-byte elements", fix="pass a copy"
        )
    elif address % dtype.alignment:
        raise LaunchError(
            f"the elements are at {address:#x}, not aligned to the {dtype.alignment} bytes of {dtype}",
            fix="pass a copy",
        )
    below, above = reach_of(shape, strides)
    memory = Memory(address - below, 0 if 0 in shape else below + above + dtype.itemsize)
    allocation = Allocation(device, memory, None, lent_by=owner, is_read_only=is_read_only)
    return DeviceArray(allocation, dtype, shape, strides, below)


def _elsewhere(device: Device, source: Any, place: str) -> LaunchError:
    return LaunchError(
        f"the {type(source).__name__} is on {place}, not on {device.name}",
        fix="copy it there with its own library, or to the host and from there",
    )
