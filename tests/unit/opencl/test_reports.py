"""Violations and prints, as the core decodes them from the buffer of a launch."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.unit.ir_by_hand import const, index
from tests.unit.opencl.harness import Built, kernel

from quernel import diagnostics
from quernel.compiler.arguments import ArgumentPacker
from quernel.dtypes import DType, ScalarType, bf16, bool_, f16, f32, f64, i8, i64, u16, u64
from quernel.geometry import Geometry, LaunchForm, extent_geometry, grid_geometry
from quernel.ir.nodes import (
    Assert,
    Call,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Function,
    IndexKind,
    Module,
    Param,
    Parameter,
    Print,
)
from quernel.options import KernelOptions
from quernel_opencl.device import OpenclDevice

CHECKED = KernelOptions(checked=True)


def launched(
    device: OpenclDevice, module: Module, geometry: Geometry, print_cells: int = 400
) -> diagnostics.Diagnostics:
    """What a launch without arguments reports."""
    built = Built(device, module)
    data = np.frombuffer(diagnostics.empty_buffer(print_cells), np.uint8).copy()
    memory = device.allocate(data.nbytes)
    device.copy_from_host(memory, 0, data, None)
    built.run(geometry, ArgumentPacker(built.header)([], geometry, memory.address), None)
    device.copy_to_host(data, memory, 0, None)
    device.free(memory)
    return diagnostics.decode(data.tobytes(), geometry.ndim)


def less(left: Expr, right: int) -> Compare:
    return Compare(op=CompareOp.LT, left=left, right=const(right))


def test_one_violation_is_recorded_with_its_thread_and_values(device: OpenclDevice) -> None:
    body = (Assert(condition=less(index(), 37), site=0, values=(index(), const(-5), const(1.5, f32))),)
    found = launched(device, kernel((), body, options=CHECKED), extent_geometry(range(20, 38), (64,)))
    assert found.violation is not None
    assert found.violation.site == 0
    assert found.violation.global_id == (37,)
    assert [
        diagnostics.value_of(cell, dtype) for cell, dtype in zip(found.violation.values, (i64, i64, f32), strict=True)
    ] == [37, -5, 1.5]


def test_many_violations_leave_one_whole_record(device: OpenclDevice) -> None:
    body = (Assert(condition=less(index(axis=1), 0), site=0, values=(index(axis=0), index(axis=1))),)
    found = launched(device, kernel((), body, block=(4, 16), options=CHECKED), extent_geometry((50, 60), (4, 16)))
    assert found.violation is not None
    assert found.violation.values == found.violation.global_id


def test_a_launch_without_violations_reports_nothing(device: OpenclDevice) -> None:
    body = (Assert(condition=less(index(), 100), site=0),)
    found = launched(device, kernel((), body, options=CHECKED), extent_geometry(100, (64,)))
    assert found == diagnostics.Diagnostics(None, (), 0)


SHOWN = [
    (bool_, True),
    (i8, -7),
    (u16, 65535),
    (i64, i64.min),
    (u64, u64.max),
    (f32, -0.0),
    (f32, 1e-45),
    (f32, 1.1754942106924411e-38),
    (f32, 3.4028234663852886e38),
    (f32, float("-inf")),
    (f16, 65504.0),
    (bf16, 2.0**-133),
    (f64, 0.1),
]


@pytest.mark.parametrize(("dtype", "value"), SHOWN, ids=str)
def test_printed_values_keep_their_value(device: OpenclDevice, dtype: DType, value: object) -> None:
    if dtype is f32 and value == 1e-45:
        value = struct.unpack("<f", struct.pack("<f", 1e-45))[0]
    body = (Print(values=(Const(value=value, type=dtype),), site=0),)  # type: ignore[arg-type]
    found = launched(device, kernel((), body), extent_geometry(1, (64,)))
    (record,) = found.prints
    shown = diagnostics.value_of(record.values[0], dtype)
    assert struct.pack("<d", float(shown)) == struct.pack("<d", float(value))  # type: ignore[arg-type]
    if dtype.is_integer:
        assert shown == value


def test_threads_print_each_its_own_record(device: OpenclDevice) -> None:
    body = (Print(values=(index(), Cast(operand=index(), type=f32)), site=0),)
    found = launched(device, kernel((), body), extent_geometry(50, (64,)), 50 * 6)
    assert found.lost == 0
    assert sorted(record.global_id for record in found.prints) == [(n,) for n in range(50)]
    assert all(record.values[0] == record.global_id[0] for record in found.prints)


def test_prints_beyond_the_buffer_are_counted(device: OpenclDevice) -> None:
    body = (Print(values=(index(),), site=0),)
    found = launched(device, kernel((), body, options=CHECKED), extent_geometry(1000, (64,)), 10 * 5)
    assert len(found.prints) == 10
    assert found.lost == 990


def test_device_functions_report_for_the_thread_that_calls_them(device: OpenclDevice) -> None:
    inner = Function(
        name="inner",
        params=(Parameter(name="x", type=ScalarType(i64)),),
        results=(),
        locals=(),
        body=(Print(values=(Param(name="x", type=i64),), site=0),),
    )
    outer = Function(
        name="outer",
        params=(),
        results=(),
        locals=(),
        body=(Call(results=(), function="inner", arguments=(index(IndexKind.LOCAL_ID),)),),
    )
    body = (Call(results=(), function="outer", arguments=()),)
    made = kernel((), body, block=(4,), form=LaunchForm.GRID, functions=(inner, outer))
    found = launched(device, made, grid_geometry(2, (4,)))
    assert sorted((record.global_id[0], record.values[0]) for record in found.prints) == [(n, n % 4) for n in range(8)]
