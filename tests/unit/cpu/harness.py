"""IR built by hand, compiled by the cpu's own compiler, and launched on its device."""

from __future__ import annotations

import logging
import struct
from functools import cache
from typing import Any

import attrs
import numpy as np
from tests.unit.ir_by_hand import definition

from quernel.compiler.artifacts import ArtifactHeader, ArtifactId, Slot, SlotKind
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import DType, bf16, u16
from quernel.geometry import Geometry, extent_geometry, grid_geometry
from quernel.ir.nodes import Module
from quernel.ir.semantics import Value, bitcast
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.device import CpuDevice
from quernel_cpu.plugin import CpuBackend
from quernel_cpu.targets import named_target
from quernel_cpu.types import CpuArtifact, CpuLowered, CpuVariant, Loaded

LOG = logging.getLogger(__name__)
CONTIGUOUS = CpuVariant(contiguous=True)
STRIDED = CpuVariant()


@cache
def device() -> CpuDevice:
    backend = CpuBackend()
    return backend.open(backend.devices()[0])


def compiler() -> CpuCompiler:
    return device().target.compiler  # type: ignore[return-value]


def compiler_for(emitter: str, coarsening: str = "on", level: str = "") -> CpuCompiler:
    """A compiler with other settings than the environment's; `level` names another target than the host."""
    base = named_target(level)
    details = dict(base.details) | {"emitter": emitter, "coarsening": coarsening}
    capabilities = attrs.evolve(base.capabilities, subgroups=emitter == "spmd")
    return CpuCompiler(attrs.evolve(base, details=tuple(sorted(details.items())), capabilities=capabilities))


# --- compiling and launching ------------------------------------------------------------------------------------------


def lowered(
    made: KernelDefinition | Module, variant: CpuVariant = STRIDED, using: CpuCompiler | None = None
) -> CpuLowered:
    made = definition(made) if isinstance(made, Module) else made
    return (using or compiler()).lower(made, ArtifactId(made.id, variant), CompilationRecording(), LOG)


def emitted(made: Module, using: CpuCompiler) -> str:
    """The IR of a kernel over whole arrays, which LLVM has not seen."""
    return using._own(definition(made), CpuVariant(contiguous=True))[0]


class Built:
    """A kernel loaded on the device."""

    def __init__(
        self, made: KernelDefinition | Module, variant: CpuVariant = STRIDED, using: CpuCompiler | None = None
    ) -> None:
        made = definition(made) if isinstance(made, Module) else made
        artifact_id = ArtifactId(made.id, variant)
        self.artifact: CpuArtifact = compiler().finalize(artifact_id, lowered(made, variant, using))
        self.header: ArtifactHeader = self.artifact.header
        self.loaded: Loaded = device().target.load(artifact_id, self.artifact)

    def pack(self, geometry: Geometry, *arguments: Any) -> bytes:
        """The cells of a launch; the bytes of a diagnostics buffer follow the parameters' arguments."""
        return b"".join(_cell(slot, arguments[slot.param]) for slot in self.header.slots)

    def launch(self, geometry: Geometry, *arguments: Any) -> None:
        device().launch(self.loaded, self.header, geometry, self.pack(geometry, *arguments), None)

    def over(self, extent: Any, *arguments: Any) -> None:
        self.launch(extent_geometry(extent, self.header.block), *arguments)

    def grid(self, blocks: Any, *arguments: Any) -> None:
        self.launch(grid_geometry(blocks, self.header.block), *arguments)


def _cell(slot: Slot, argument: Any) -> bytes:
    match slot.kind:
        case SlotKind.POINTER | SlotKind.DIAGNOSTICS:
            return struct.pack("<Q", argument.ctypes.data)
        case SlotKind.SHAPE:
            return struct.pack("<q", argument.shape[slot.axis])
        case SlotKind.STRIDE:
            return struct.pack("<q", argument.strides[slot.axis] // argument.itemsize)
        case _:
            return encoded([argument], slot.dtype).tobytes().ljust(8, b"\0")


# --- values -----------------------------------------------------------------------------------------------------------


def numpy_type(dtype: DType) -> Any:
    return np.dtype(np.uint16) if dtype is bf16 else dtype.numpy


def encoded(values: list[Value], dtype: DType) -> np.ndarray[Any, Any]:
    """An array of the values; bf16 as its bits."""
    if dtype is bf16:
        values = [bitcast(value, bf16, u16) for value in values]
    with np.errstate(over="ignore"):
        return np.array(values, dtype=numpy_type(dtype))


def decoded(array: np.ndarray[Any, Any], dtype: DType) -> list[Value]:
    """The values of an array that `encoded` made."""
    values = array.tolist()
    return [bitcast(value, u16, bf16) for value in values] if dtype is bf16 else values
