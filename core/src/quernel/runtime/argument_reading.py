"""Reading the arguments of a launch: their kinds, by which a kernel is looked up, and their values for packing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from quernel.compiler.arguments import ArrayArgument
from quernel.errors import LaunchError
from quernel.runtime.argument_types import alignment_of, constant_key, element_type
from quernel.runtime.arrays import DeviceArray
from quernel.runtime.layouts import ALIGNED16, MANY, strided_layout

if TYPE_CHECKING:
    from quernel.runtime.devices import Device
    from quernel.runtime.parameters import Spec

__all__ = ["read_arguments"]

_UNALIGNED = ~ALIGNED16
_STEP_OF_ONE: tuple[int, ...] = (1,)

Read = tuple[list[Any], list[Any], int, int, int, bool, "Device | None"]


def read_arguments(specs: Sequence[Spec], args: Sequence[Any], facts: int) -> Read:
    """What a launch must know of its arguments. On the launch path, so it is one loop; structs are read part by part.

    Returns:
        kinds: what a look-up's key says of each argument.
        values: per parameter that is no constant, a number or an `ArrayArgument`.
        facts: those of `facts` that also hold for every array.
        read_only: a bit per value, set for arrays that must not be written.
        repeating: a bit per value, set for arrays of which several elements share memory.
        on_host: whether there are NumPy arrays.
        arrays_on: the device of the device arrays, or `None`.

    Raises:
        LaunchError: arrays of two devices, or an array whose layout no kernel takes.
    """
    arrays_on: Device | None = None
    on_host = False
    read_only = repeating = 0
    kinds: list[Any] = []
    values: list[Any] = []
    for spec, value in zip(specs, args, strict=True):
        cls = value.__class__
        if spec.is_special:
            if spec.is_const:
                kinds.append(constant_key(value))
                continue
            from quernel.runtime.vectors import read_vectors

            known, repeats, on_device, kind, argument, is_fixed = read_vectors(spec, value)
            facts &= known
            repeating |= repeats << len(values)
            read_only |= is_fixed << len(values)
            on_host |= on_device is None
            if on_device is not None:
                if arrays_on is not None and on_device is not arrays_on:
                    _refuse_two_devices(spec.name, arrays_on, on_device)
                arrays_on = on_device
            kinds.append(kind)
            values.append(argument)
        elif cls is float or cls is int:
            kinds.append(cls)
            values.append(value)
        elif cls is np.ndarray or isinstance(value, np.ndarray):
            interface = value.__array_interface__
            address, is_fixed = interface["data"]
            if address & 15:
                facts &= _UNALIGNED
                if value.size and address % alignment_of(value.dtype):
                    _refuse_alignment(spec.name, value)
            if is_fixed:
                read_only |= 1 << len(values)
            shape = value.shape
            if interface["strides"] is None and len(shape) == 1 and 0 < shape[0] < MANY:
                strides = _STEP_OF_ONE
            else:
                known, repeats, is_whole, strides = strided_layout(shape, value.strides, value.itemsize or 1)
                facts &= known
                if repeats:
                    repeating |= 1 << len(values)
                if not is_whole:
                    _refuse_strides(spec.name, value)
            on_host = True
            kinds.append(value.dtype)
            kinds.append(len(shape) if cls is np.ndarray else (cls, len(shape)))
            values.append(ArrayArgument(address, shape, strides))
        elif cls is DeviceArray:
            known_kind = value.launch_kind
            facts &= known_kind.facts
            if known_kind.repeats:
                repeating |= 1 << len(values)
            if known_kind.is_read_only:
                read_only |= 1 << len(values)
            if value.device is not arrays_on:
                if arrays_on is not None:
                    _refuse_two_devices(spec.name, arrays_on, value.device)
                arrays_on = value.device
            kinds.append(known_kind.key)
            values.append(ArrayArgument(value.address, value.shape, value.steps))
        elif spec.is_compound or cls is np.void or "__attrs_attrs__" in cls.__dict__:
            from quernel.runtime.compounds import flattened

            flat_specs, flat_args, structs = flattened(specs, args)
            read = read_arguments(flat_specs, flat_args, facts)
            return ([*structs, *read[0]], *read[1:])
        else:
            kinds.append(cls)
            values.append(value)
    return kinds, values, facts, read_only, repeating, on_host, arrays_on


def _refuse_two_devices(name: str, one: Device, other: Device) -> NoReturn:
    raise LaunchError(
        f"the arrays are on two devices, {one.name} and {other.name}",
        fix=f"move one of them, for example {name}.to({one.name!r})",
    )


def _refuse_strides(name: str, array: np.ndarray[Any, Any]) -> None:
    element_type(name, array)
    raise LaunchError(
        f"parameter {name!r} got strides {array.strides}, which are no multiples of its {array.itemsize}-byte elements",
        fix="pass a copy, array.copy()",
    )


def _refuse_alignment(name: str, array: np.ndarray[Any, Any]) -> None:
    element = element_type(name, array)
    raise LaunchError(
        f"parameter {name!r} got elements that are not aligned to the {element.alignment} bytes of {element}",
        fix="pass a copy, array.copy()",
    )
