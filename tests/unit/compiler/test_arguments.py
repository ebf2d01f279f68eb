from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.ir_by_hand import const, index, load, store

from quernel.compiler.arguments import ArgumentPacker, ArrayArgument, argument_slots, bf16_bits, header_parameters
from quernel.compiler.artifacts import ArtifactHeader, HeaderParameter, Slot, SlotKind
from quernel.dtypes import (
    ArrayType,
    DType,
    ScalarType,
    VectorType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from quernel.errors import LaunchError, ValidationError
from quernel.geometry import Geometry, LaunchForm, extent_geometry, grid_geometry
from quernel.ir.nodes import (
    Assign,
    IndexKind,
    Kernel,
    LocalVariable,
    Module,
    Param,
    Parameter,
    Shape,
)


def kernel_module(body: tuple[object, ...], *, form: LaunchForm = LaunchForm.OVER) -> Module:
    params = (
        Parameter(name="a", type=ScalarType(f32)),
        Parameter(name="x", type=ArrayType(f32, 2)),
        Parameter(name="unused", type=ArrayType(f32, 1)),
        Parameter(name="n", type=ScalarType(i64, weak=True), bounds=(-128, 127)),
        Parameter(name="y", type=ArrayType(f32, 1)),
    )
    locals_ = (LocalVariable(name="m", type=i64),)
    kernel = Kernel(name="k", form=form, block=(8, 32), params=params, locals=locals_, body=body)  # type: ignore[arg-type]
    return Module(kernel=kernel)


def slot_texts(slots: tuple[Slot, ...]) -> list[str]:
    return [f"{slot.kind.value} {slot.param} {slot.axis} {slot.dtype}" for slot in slots]


def test_slots_are_what_the_ir_uses_by_parameter_then_of_the_launch() -> None:
    zero = const(0)
    module = kernel_module(
        (
            Assign(name="m", value=Shape(param="x", axis=1)),
            store("y", load("x", f32, index(axis=0), zero), index(axis=1)),
            store("y", Param(name="a", type=f32), index(IndexKind.GLOBAL_DIM)),
            store("y", Param(name="a", type=f32), index(IndexKind.GRID_DIM, 1)),
        )
    )
    assert slot_texts(argument_slots(module)) == [
        "scalar 0 0 f32",
        "pointer 1 0 u64",
        "shape 1 1 i64",
        "stride 1 0 i64",
        "pointer 4 0 u64",
        "stride 4 0 i64",
        "extent -1 0 i64",
        "start -1 0 i64",
        "start -1 1 i64",
        "grid -1 1 i64",
    ]


def test_grid_launch_has_no_starts_and_a_backend_may_ask_for_more() -> None:
    module = kernel_module((store("y", const(0.0, f32)),), form=LaunchForm.GRID)
    assert slot_texts(argument_slots(module)) == ["pointer 4 0 u64", "stride 4 0 i64"]
    more = argument_slots(module, extents=(1, 0), starts=(1,), grids=(0,))
    assert slot_texts(more)[2:] == ["extent -1 0 i64", "extent -1 1 i64", "start -1 1 i64", "grid -1 0 i64"]


def test_vector_parameter_is_refused() -> None:
    kernel = Kernel(
        name="k",
        form=LaunchForm.OVER,
        block=(256,),
        params=(Parameter(name="v", type=ScalarType(VectorType(f32, 4))),),
        locals=(),
        body=(),
    )
    with pytest.raises(ValidationError, match="parameter 'v' is a vec<f32, 4>, which cannot be passed by value"):
        argument_slots(Module(kernel=kernel))


def test_header_parameters_say_what_a_launch_checks() -> None:
    module = kernel_module((store("y", load("x", f32, index(), index())),))
    assert header_parameters(module) == (
        HeaderParameter("a", "f32"),
        HeaderParameter("x", "f32", 2, is_read=True),
        HeaderParameter("unused", "f32", 1),
        HeaderParameter("n", "i64", weak=True, bounds=(-128, 127)),
        HeaderParameter("y", "f32", 1, is_written=True),
    )


def packer_for(*dtypes: DType) -> ArgumentPacker:
    params = tuple(HeaderParameter(f"p{number}", dtype.name) for number, dtype in enumerate(dtypes))
    slots = tuple(Slot(SlotKind.SCALAR, number, 0, dtype) for number, dtype in enumerate(dtypes))
    return ArgumentPacker(ArtifactHeader("k", params, slots, (256,)))


GEOMETRY = extent_geometry(10, None)


def test_packer_fills_a_cell_per_slot_from_arrays_scalars_and_geometry() -> None:
    params = (HeaderParameter("x", "f32", 2), HeaderParameter("a", "f32"))
    slots = (
        Slot(SlotKind.POINTER, 0, 0, u64),
        Slot(SlotKind.SHAPE, 0, 1),
        Slot(SlotKind.STRIDE, 0, 0),
        Slot(SlotKind.SCALAR, 1, 0, f32),
        Slot(SlotKind.EXTENT, -1, 1),
        Slot(SlotKind.START, -1, 0),
        Slot(SlotKind.GRID, -1, 1),
    )
    packer = ArgumentPacker(ArtifactHeader("k", params, slots, (8, 32)))
    geometry = extent_geometry((range(-2, 5), 40), None)
    packed = packer([ArrayArgument(2**64 - 8, (3, 4), (-4, 1)), 1.5], geometry)
    assert packed == struct.pack("<QqqfIqqq", 2**64 - 8, 4, -4, 1.5, 0, 40, -2, 2)


def test_packer_of_a_kernel_without_arguments_gives_no_bytes() -> None:
    assert packer_for()([], grid_geometry(1, None)) == b""


@pytest.mark.parametrize("dtype", [i8, i16, i32, i64, u8, u16, u32, u64])
def test_integers_fill_the_low_bytes_and_leave_the_rest_zero(dtype: DType) -> None:
    for value in (dtype.min, dtype.max, 1):
        cell = packer_for(dtype)([value], GEOMETRY)
        assert len(cell) == 8
        assert np.frombuffer(cell, dtype.numpy)[0] == value
        assert cell[dtype.itemsize :] == bytes(8 - dtype.itemsize)
        assert packer_for(dtype)([dtype(value)], GEOMETRY) == cell


@pytest.mark.parametrize("dtype", [f16, f32, f64])
def test_floats_round_to_their_type_and_overflow_to_infinity(dtype: DType) -> None:
    for value in (1 / 3, -0.0, math.inf, math.nan, 1e300, -1e300, 3):
        cell = packer_for(dtype)([value], GEOMETRY)
        with np.errstate(over="ignore"):
            expected = dtype.numpy.type(value).tobytes()
        assert cell == expected.ljust(8, b"\0")


def test_bool_is_one_byte() -> None:
    assert packer_for(bool_, bool_)([True, np.bool_(False)], GEOMETRY) == bytes([1] + [0] * 15)


def test_value_that_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(LaunchError, match="scalar 'p1': 128 does not fit i8"):
        packer_for(i64, i8)([1, 128], GEOMETRY)
    with pytest.raises(LaunchError, match=r"scalar 'p0': 1\.5 does not fit i32"):
        packer_for(i32)([1.5], GEOMETRY)
    with pytest.raises(LaunchError, match="scalar 'p0': 'text' does not fit f32"):
        packer_for(f32)(["text"], GEOMETRY)


def test_crafted_slot_numbers_never_reach_the_interpreter() -> None:
    slot = Slot(SlotKind.SCALAR, "0].__class__, [0", 0, f32)  # type: ignore[arg-type]  # what damaged bytes may hold
    with pytest.raises(ValueError, match="Unknown format code 'd'"):
        ArgumentPacker(ArtifactHeader("k", (HeaderParameter("a", "f32"),), (slot,), (1,)))


def test_bf16_packs_its_bits() -> None:
    assert packer_for(bf16)([1.0], GEOMETRY) == bytes([0x80, 0x3F, 0, 0, 0, 0, 0, 0])


def bf16_value(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


@settings(max_examples=200)
@given(st.floats(allow_nan=False, width=64))
def test_bf16_bits_are_the_nearest_with_ties_to_even(value: float) -> None:
    bits = bf16_bits(value)
    found = bf16_value(bits)
    assert math.copysign(1, found) == math.copysign(1, value)
    if math.isinf(found):
        assert abs(value) >= bf16_value(0x7F7F) + 2.0**119 or math.isinf(value)
        return
    error = abs(found - value)
    for neighbour in (bits - 1, bits + 1):
        if 0 <= (neighbour & 0x7FFF) < 0x7F80 and (neighbour ^ bits) < 0x8000:
            other = abs(bf16_value(neighbour) - value)
            assert error < other or (error == other and bits % 2 == 0)


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1 + 2.0**-8, 0x3F80),  # a tie: to even
        (1 + 2.0**-8 + 2.0**-40, 0x3F81),  # just above it, which f32 alone would round to the tie
        (1 + 2.0**-8 - 2.0**-40, 0x3F80),
        (math.nan, 0x7FC0),
        (-1e39, 0xFF80),
        (1e-45, 0x0000),
    ],
)
def test_bf16_bits_round_once(value: float, bits: int) -> None:
    assert bf16_bits(value) == bits


def test_geometry_is_read_by_axis() -> None:
    header = ArtifactHeader("k", (), tuple(Slot(SlotKind.EXTENT, -1, axis) for axis in (2, 0)), (2, 4, 32))
    geometry: Geometry = extent_geometry((5, 6, 7), None)
    assert ArgumentPacker(header)([], geometry) == struct.pack("<qq", 7, 5)
