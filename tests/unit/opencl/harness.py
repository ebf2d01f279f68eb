"""IR built by hand, compiled for every OpenCL device in both of its ways to pass arrays, and launched."""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import Any

import attrs
import numpy as np
from tests.unit import ir_by_hand
from tests.unit.ir_by_hand import definition

from quernel.codegen.pointers import Pointers
from quernel.compiler.aligned import AlignedVariant
from quernel.compiler.arguments import ArgumentPacker, ArrayArgument
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.lowered_text import LoweredText
from quernel.compiler.recording import CompilationRecording
from quernel.geometry import Geometry, extent_geometry, grid_geometry
from quernel.ir.nodes import Module
from quernel.runtime.operations import Unavailable
from quernel_opencl._toolchain import find_devices
from quernel_opencl.compiler import OpenclCompiler
from quernel_opencl.device import OpenclDevice
from quernel_opencl.plugin import OpenclBackend
from quernel_opencl.targets import target_of

LOG = logging.getLogger(__name__)
STRIDED = AlignedVariant()
NARROW = AlignedVariant(index32=True)
CONTIGUOUS = AlignedVariant(contiguous=True)

kernel = partial(ir_by_hand.kernel, block=(64,))
"""A module of one kernel, for the blocks with which tests launch it here."""


@cache
def infos() -> tuple[Any, ...]:
    found = OpenclBackend().devices()
    return () if isinstance(found, Unavailable) else found


@cache
def opened(index: int, pointers: Pointers) -> OpenclDevice:
    target = target_of(find_devices()[0][index], pointers)
    return OpenclDevice(infos()[index], OpenclCompiler(target))


# --- compiling and launching ------------------------------------------------------------------------------------------


def lowered(
    compiler: OpenclCompiler, made: KernelDefinition | Module, variant: AlignedVariant = STRIDED
) -> LoweredText:
    made = definition(made) if isinstance(made, Module) else made
    return compiler.lower(made, ArtifactId(made.id, variant), CompilationRecording(), LOG)


@attrs.frozen
class DeviceArray:
    """NumPy's elements in memory of the device."""

    memory: Any
    array: np.ndarray[Any, Any]

    def argument(self) -> ArrayArgument:
        itemsize = self.array.itemsize
        strides = tuple(stride // itemsize for stride in self.array.strides)
        return ArrayArgument(self.memory.address, self.array.shape, strides)


class Built:
    """A kernel loaded on a device."""

    def __init__(
        self, device: OpenclDevice, made: KernelDefinition | Module, variant: AlignedVariant = STRIDED
    ) -> None:
        made = definition(made) if isinstance(made, Module) else made
        compiler = device.target.compiler
        assert isinstance(compiler, OpenclCompiler)
        artifact_id = ArtifactId(made.id, variant)
        self.device = device
        self.artifact = compiler.finalize(artifact_id, lowered(compiler, made, variant))
        self.header = self.artifact.header
        self.loaded = device.target.load(artifact_id, self.artifact)
        self.run = device.prepare(self.loaded, self.header)

    def launch(self, geometry: Geometry, *arguments: Any) -> None:
        """Copies the arrays in, launches, and copies them back."""
        device = self.device
        moved = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                memory = device.allocate(argument.nbytes)
                device.copy_from_host(memory, 0, argument.reshape(-1).view(np.uint8), None)
                moved.append(DeviceArray(memory, argument))
            else:
                moved.append(argument)
        given = [item.argument() if isinstance(item, DeviceArray) else item for item in moved]
        self.run(geometry, ArgumentPacker(self.header)(given, geometry), None)
        for item in moved:
            if isinstance(item, DeviceArray):
                device.copy_to_host(item.array.reshape(-1).view(np.uint8), item.memory, 0, None)
                device.free(item.memory)

    def over(self, extent: Any, *arguments: Any) -> None:
        self.launch(extent_geometry(extent, self.header.block), *arguments)

    def grid(self, blocks: Any, *arguments: Any) -> None:
        self.launch(grid_geometry(blocks, self.header.block), *arguments)
