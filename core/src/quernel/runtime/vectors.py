"""Arrays of vectors as arguments: an array of scalars whose last axis holds the components of each vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quernel.compiler.arguments import ArrayArgument
from quernel.errors import KernelTypeError, LaunchError
from quernel.runtime.argument_types import element_type
from quernel.runtime.arrays import DeviceArray
from quernel.runtime.layouts import ALIGNED16, strided_layout
from quernel.runtime.scalars import shown

if TYPE_CHECKING:
    from quernel.runtime.devices import Device
    from quernel.runtime.parameters import Spec

__all__ = ["read_vectors"]

_WIDEST: Final = 16
"""No device reads more at once, so vectors need not be aligned to more."""

ReadVectors = tuple[int, bool, "Device | None", object, ArrayArgument, bool]


def read_vectors(spec: Spec, value: Any) -> ReadVectors:
    """What a launch must know of an array of vectors. On the launch path of kernels that take some.

    Returns:
        The facts that hold, whether elements share memory, the array's device (`None`: the host), what a look-up's key
        says, the argument, and whether it must not be written.

    Raises:
        KernelTypeError: it is no array of the components' type whose last axis has one place per component.
        LaunchError: the components do not lie side by side, or no kernel takes such strides.
    """
    vector = spec.vector
    assert vector is not None
    if not isinstance(value, np.ndarray | DeviceArray):
        raise KernelTypeError(
            f"parameter {spec.name!r} is an array of {vector} and got {shown(value)}",
            fix="pass a NumPy array or a device array",
        )
    element = element_type(spec.name, value)
    shape, strides = value.shape, value.strides
    if element is not vector.element or shape[-1] != vector.length or len(shape) < 2:
        raise KernelTypeError(
            f"parameter {spec.name!r} is an array of {vector} and got one of {element} with shape {shape}",
            fix=f"pass an array of {vector.element} of shape (…, {vector.length})",
        )
    device: Device | None = None
    kind: object = (value.dtype, len(shape), type(value))
    if isinstance(value, DeviceArray):
        address, is_fixed, device = value.address, value.launch_kind.is_read_only, value.device
    else:
        address, is_fixed = value.__array_interface__["data"]
    facts, repeats, is_whole, steps = strided_layout(shape[:-1], strides[:-1], vector.itemsize)
    is_apart = value.size and (strides[-1] != element.itemsize or not is_whole)
    if is_apart or (value.size and address % min(vector.itemsize, _WIDEST)):
        raise LaunchError(
            f"parameter {spec.name!r} got strides {strides} at {address:#x}: vectors of {vector.itemsize} bytes lie "
            "whole, at multiples of their size",
            fix="pass a copy, array.copy()",
        )
    if address % _WIDEST:
        facts &= ~ALIGNED16
    return facts, repeats, device, kind, ArrayArgument(address, shape[:-1], steps), is_fixed
