"""What the entry point receives: only the addresses, lengths, strides and values that the code uses."""

from __future__ import annotations

from quernel.compiler.artifacts import HeaderParameter, Slot, SlotKind
from quernel.dtypes import ArrayType, u64
from quernel.ir.analysis import ArrayUse, ParameterUses
from quernel.ir.nodes import Parameter
from quernel_cpu.emission.values import scalar
from quernel_cpu.types import CpuVariant

__all__ = ["all_uses", "argument_slots", "header_parameters"]


def argument_slots(
    params: tuple[Parameter, ...], uses: ParameterUses, variant: CpuVariant, *, reports: bool = False
) -> tuple[Slot, ...]:
    """The slots for these parameters, in their order. The last stride of a contiguous array is known to be 1.

    `reports`: the address of the diagnostics buffer is the last.
    """
    slots: list[Slot] = []
    for number, param in enumerate(params):
        if isinstance(param.type, ArrayType):
            use = uses.array(param.name)
            last = (param.type.ndim or 0) - 1
            if use.is_accessed:
                slots.append(Slot(SlotKind.POINTER, number, dtype=u64))
            slots += [Slot(SlotKind.SHAPE, number, axis) for axis in use.shape_axes]
            slots += [
                Slot(SlotKind.STRIDE, number, axis)
                for axis in use.stride_axes
                if not (variant.contiguous and axis == last)
            ]
        elif param.name in uses.scalars:
            slots.append(Slot(SlotKind.SCALAR, number, dtype=scalar(param.type.dtype)))
    if reports:
        slots.append(Slot(SlotKind.DIAGNOSTICS, dtype=u64))
    return tuple(slots)


def header_parameters(params: tuple[Parameter, ...], uses: ParameterUses) -> tuple[HeaderParameter, ...]:
    """The parameters as a launch sees them."""
    found = []
    for param in params:
        if isinstance(param.type, ArrayType):
            use = uses.array(param.name)
            found.append(
                HeaderParameter.of_array(param.name, param.type, is_read=use.is_read, is_written=use.is_written)
            )
        else:
            found.append(HeaderParameter(param.name, str(param.type.dtype), weak=param.type.weak, bounds=param.bounds))
    return tuple(found)


def all_uses(params: tuple[Parameter, ...], writes: tuple[str, ...]) -> ParameterUses:
    """The uses of a function of which only its types and the arrays that it writes are known."""
    arrays = []
    for param in params:
        if isinstance(param.type, ArrayType):
            axes = tuple(range(param.type.ndim or 0))
            arrays.append(ArrayUse(param.name, True, param.name in writes, shape_axes=axes, stride_axes=axes))
    return ParameterUses(
        arrays=tuple(arrays),
        scalars=tuple(param.name for param in params if not isinstance(param.type, ArrayType)),
        indices=(),
        has_barrier=False,
        has_subgroup=False,
    )
