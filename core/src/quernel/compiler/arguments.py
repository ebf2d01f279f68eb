"""What an entry point receives: the slots that a module needs, and the packing of a launch's values into them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never, cast

from quernel.compiler.artifacts import ArtifactHeader, HeaderParameter, Slot, SlotKind
from quernel.dtypes import ArrayType, DType, ScalarType, bf16, u64
from quernel.errors import LaunchError, ValidationError
from quernel.geometry import LaunchForm

if TYPE_CHECKING:
    from quernel.geometry import Geometry
    from quernel.ir.analysis import ParameterUses
    from quernel.ir.nodes import Module

__all__ = ["ArgumentPacker", "ArrayArgument", "argument_slots", "bf16_bits", "header_parameters"]

_FORMATS = {
    "bool": "?7x",
    "i8": "b7x",
    "i16": "h6x",
    "i32": "i4x",
    "i64": "q",
    "u8": "B7x",
    "u16": "H6x",
    "u32": "I4x",
    "u64": "Q",
    "f16": "e6x",
    "bf16": "H6x",
    "f32": "f4x",
    "f64": "d",
}
"""The cell of a value: little-endian in the low bytes, the rest zero."""


class ArrayArgument(NamedTuple):
    """An array as a launch passes it: address of element (0, …, 0), lengths, and strides in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def argument_slots(
    module: Module, *, extents: Iterable[int] = (), starts: Iterable[int] = (), grids: Iterable[int] = ()
) -> tuple[Slot, ...]:
    """What the kernel's entry point has to receive, from what its IR uses.

    Parameter by parameter in the user's order: the pointer of an array whose elements are accessed, then the lengths
    and strides in use, by axis; the value of a scalar in use. Then of the launch, by axis: extents for `global_dim`,
    starts for the `global_id` of an `over` launch, grids for `grid_dim`. `extents starts grids` name axes that the
    backend's own code needs besides. Last the address of the diagnostics buffer, where anything is asserted or printed.

    Raises:
        ValidationError: a scalar parameter is a vector or a struct.
    """
    from quernel.ir.analysis import parameter_uses
    from quernel.ir.nodes import IndexKind
    from quernel.ir.sites import has_diagnostics

    kernel = module.kernel
    uses = parameter_uses(module)
    slots: list[Slot] = []
    for index, parameter in enumerate(kernel.params):
        match parameter.type:
            case ArrayType():
                slots += _array_slots(index, parameter.name, uses)
            case ScalarType(dtype=dtype):
                if not isinstance(dtype, DType):
                    raise ValidationError(
                        f"parameter {parameter.name!r} is a {dtype}, which cannot be passed by value",
                        where=parameter.loc,
                        fix="pass its components as scalars, or an array of one element",
                    )
                if parameter.name in uses.scalars:
                    slots.append(Slot(SlotKind.SCALAR, index, 0, dtype))
            case _:
                assert_never(parameter.type)
    used = {kind: {axis for other, axis in uses.indices if other is kind} for kind in IndexKind}
    first_points = used[IndexKind.GLOBAL_ID] if kernel.form is LaunchForm.OVER else set()
    for kind, axes in (
        (SlotKind.EXTENT, used[IndexKind.GLOBAL_DIM].union(extents)),
        (SlotKind.START, first_points.union(starts)),
        (SlotKind.GRID, used[IndexKind.GRID_DIM].union(grids)),
    ):
        slots += [Slot(kind, -1, axis) for axis in sorted(axes)]
    if has_diagnostics(module):
        slots.append(Slot(SlotKind.DIAGNOSTICS, dtype=u64))
    return tuple(slots)


def _array_slots(index: int, name: str, uses: ParameterUses) -> list[Slot]:
    use = uses.array(name)
    slots = [Slot(SlotKind.POINTER, index, 0, u64)] if use.is_accessed else []
    slots += [Slot(SlotKind.SHAPE, index, axis) for axis in use.shape_axes]
    slots += [Slot(SlotKind.STRIDE, index, axis) for axis in use.stride_axes]
    return slots


def header_parameters(module: Module) -> tuple[HeaderParameter, ...]:
    """The kernel's parameters as a launch has to see them, in the user's order."""
    from quernel.ir.analysis import parameter_uses

    uses = parameter_uses(module)
    parameters = []
    for parameter in module.kernel.params:
        match parameter.type:
            case ArrayType() as array:
                use = uses.array(parameter.name)
                described = HeaderParameter.of_array(
                    parameter.name, array, is_read=use.is_read, is_written=use.is_written
                )
            case ScalarType(dtype=dtype, weak=weak):
                described = HeaderParameter(parameter.name, str(dtype), weak=weak, bounds=parameter.bounds)
            case _:
                assert_never(parameter.type)
        parameters.append(described)
    return tuple(parameters)


class ArgumentPacker:
    """Packs the arguments of launches of one kernel into the cells that its entry point reads. Any thread.

    `packer(arguments, geometry)` takes one value per parameter of the header, in order: an `ArrayArgument` (or anything
    with its attributes) for an array, a number for a scalar. A float beyond its type becomes infinite. A kernel with a
    `DIAGNOSTICS` slot also takes the address of its buffer.
    """

    __slots__ = ("_collect", "_header", "_pack", "_pack_into")

    def __init__(self, header: ArtifactHeader) -> None:
        self._header = header
        formats = [_FORMATS[slot.dtype.name] for slot in header.slots]
        cells = struct.Struct("<" + "".join(formats))
        self._pack: Callable[..., bytes] = cells.pack
        self._pack_into: Callable[..., None] = cells.pack_into
        self._collect = _collector(header.slots)

    def __call__(self, arguments: Sequence[Any], geometry: Geometry, diagnostics: int = 0) -> bytes:
        """The cells of one launch. On the launch path.

        Raises:
            LaunchError: an integer does not fit its parameter, or a value is no number.
        """
        values = self._collect(arguments, geometry, diagnostics)
        try:
            return self._pack(*values)
        except (struct.error, OverflowError):
            return self._pack(*map(self._converted, self._header.slots, values))

    @property
    def pack(self) -> Callable[..., bytes]:
        """`pack(*values)`: the cells of one value per slot.

        It raises `struct.error` or `OverflowError` for what does not fit, floats beyond their type among it.
        """
        return self._pack

    @property
    def pack_into(self) -> Callable[..., None]:
        """`pack_into(buffer, offset, *values)`: the same into memory that is there."""
        return self._pack_into

    def scalar_cell(self, slot: Slot, value: Any) -> bytes:
        """The cell of one scalar.

        Raises:
            LaunchError: the value does not fit.
        """
        if slot.dtype is bf16:
            value = bf16_bits(value)
        return struct.pack("<" + _FORMATS[slot.dtype.name], self._converted(slot, value))

    def _converted(self, slot: Slot, value: Any) -> Any:
        """The value as it packs: a float rounded to its type; what cannot be packed is refused by name."""
        try:
            if slot.dtype.is_float and slot.dtype is not bf16:
                value = slot.dtype(value)
            struct.pack("<" + _FORMATS[slot.dtype.name], value)
        except (struct.error, OverflowError, TypeError, ValueError):
            name = self._header.params[slot.param].name if slot.param >= 0 else f"{slot.kind.value} {slot.axis}"
            raise LaunchError(
                f"{slot.kind.value} {name!r}: {value!r} does not fit {slot.dtype}",
                fix=f"pass a value of type {slot.dtype}",
            ) from None
        return value


def _collector(slots: tuple[Slot, ...]) -> Callable[[Sequence[Any], Geometry, int], tuple[Any, ...]]:
    """A function that lists the slots' values: one expression, as a loop would cost more than the packing itself."""
    values = "".join(f"{_value(slot)}, " for slot in slots)
    function = eval(f"lambda arguments, geometry, diagnostics: ({values})", {"bf16_bits": bf16_bits})
    return cast("Callable[[Sequence[Any], Geometry, int], tuple[Any, ...]]", function)


def _value(slot: Slot) -> str:
    """The expression for a slot's value; the numbers of a header from outside are formatted as numbers or refused."""
    param, axis = f"{slot.param:d}", f"{slot.axis:d}"
    match slot.kind:
        case SlotKind.POINTER:
            return f"arguments[{param}].address"
        case SlotKind.SHAPE:
            return f"arguments[{param}].shape[{axis}]"
        case SlotKind.STRIDE:
            return f"arguments[{param}].strides[{axis}]"
        case SlotKind.SCALAR:
            return f"bf16_bits(arguments[{param}])" if slot.dtype is bf16 else f"arguments[{param}]"
        case SlotKind.EXTENT:
            return f"geometry.extent[{axis}]"
        case SlotKind.START:
            return f"geometry.start[{axis}]"
        case SlotKind.GRID:
            return f"geometry.grid[{axis}]"
        case SlotKind.DIAGNOSTICS:
            return "diagnostics"
        case _:
            assert_never(slot.kind)


def bf16_bits(value: float) -> int:
    """The bits of `value` as bf16, rounded once, ties to even."""
    value = float(value)
    if value != value:
        return 0x7FC0
    try:
        bits = int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        return 0x7F80 if value > 0 else 0xFF80
    # To f32 by truncation with a sticky last bit, so that the rounding below is the only one.
    nearest: float = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
    if abs(nearest) > abs(value):
        bits -= 1
    if nearest != value:
        bits |= 1
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
