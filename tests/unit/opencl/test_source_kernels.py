"""Ready-made OpenCL C on every device, in both ways to pass arrays."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.opencl.harness import Built

from quernel.codegen.pointers import Pointers
from quernel.compiler.arguments import ArgumentPacker, ArrayArgument
from quernel.compiler.definition import ForeignSource, KernelDefinition, Specialization
from quernel.dtypes import ArrayType, ParameterType, ScalarType, f32, i64
from quernel.errors import LaunchError
from quernel.geometry import LaunchForm, grid_geometry
from quernel.identity import KernelId
from quernel_opencl.device import OpenclDevice

RANKED = """
__kernel void scale(const float a, __global float *x,
#ifdef QUERNEL_BUFFERS
                    const long offset,
#endif
                    const long length, const long stride) {
#ifdef QUERNEL_BUFFERS
    x = (__global float *)((__global char *)x + offset);
#endif
    const long i = get_global_id(0);
    if (i < length) x[i * stride] *= a;
}
"""
READY_MADE = """
__kernel void saxpy(const float a, __global const float *x, __global float *y, const long n) {
    const long i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


def source(text: str, entry: str, parameters: dict[str, ParameterType], *writes: str) -> KernelDefinition:
    return KernelDefinition(
        KernelId(entry, "3" * 64),
        Specialization(tuple(parameters.items()), (), LaunchForm.GRID, (8,)),
        foreign=ForeignSource("opencl-c", text, entry, writes),
    )


def saxpy() -> KernelDefinition:
    arrays = {"x": ArrayType(f32), "y": ArrayType(f32)}
    return source(READY_MADE, "saxpy", {"a": ScalarType(f32), **arrays, "n": ScalarType(i64)}, "y")


def test_an_array_with_a_rank_is_passed_with_lengths_and_strides(device: OpenclDevice) -> None:
    built = Built(device, source(RANKED, "scale", {"a": ScalarType(f32), "x": ArrayType(f32, 1)}, "x"))
    x = np.arange(20, dtype=np.float32)
    built.grid(3, 2.0, x)
    assert np.array_equal(x, 2 * np.arange(20))


def test_a_ready_made_source_takes_arrays_without_rank_as_pointers_alone(device: OpenclDevice) -> None:
    built = Built(device, saxpy())
    x, y = np.arange(20, dtype=np.float32).reshape(4, 5), np.ones((4, 5), np.float32)
    built.grid(3, 2.0, x, y, 20)
    assert np.array_equal(y, 2 * x + 1)


def test_a_pointer_alone_may_point_into_an_array_where_buffers_may_start(device: OpenclDevice) -> None:
    built, size = Built(device, saxpy()), 4096 + 64
    memory = device.allocate(2 * size)
    device.fill(memory, 0, np.float32(1).tobytes(), 2 * size // 4, None)

    def launch(first: int, second: int) -> None:
        given = [ArrayArgument(memory.address + start, (16,), (1,)) for start in (first, second)]
        geometry = grid_geometry(2, (8,))
        built.run(geometry, ArgumentPacker(built.header)([2.0, *given, 16], geometry), None)

    launch(0, 4096)
    launch(0, 4096)
    if device.target.compiler.target_info.detail("pointers") == Pointers.BUFFER.value:
        with pytest.raises(LaunchError, match="starts 4 bytes into a buffer") as caught:
            launch(4, 4096)
        assert caught.value.fix == "pass a copy, array.copy()"
    else:
        launch(4, 4096)
    found = np.empty(2 * size, np.uint8)
    device.copy_to_host(found, memory, 0, None)
    values = found.view(np.float32)
    wanted = np.ones_like(values)
    wanted[1024:1040] = 5 if device.target.compiler.target_info.detail("pointers") == Pointers.BUFFER.value else 7
    assert np.array_equal(values, wanted)
    device.free(memory)
