"""IR built by hand, lowered to CUDA C++ and compiled; nothing here needs a driver."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from tests.unit.ir_by_hand import definition

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import ForeignSource, KernelDefinition, Specialization
from quernel.compiler.lowered_text import LoweredText
from quernel.compiler.recording import CompilationRecording
from quernel.geometry import LaunchForm
from quernel.identity import KernelId
from quernel.ir.nodes import Module
from quernel_cuda.compiler import CudaCompiler
from quernel_cuda.targets import named_target
from quernel_cuda.types import CudaArtifact, CudaVariant

LOG = logging.getLogger(__name__)
WHOLE = CudaVariant(aligned16=True, contiguous=True, index32=True)
STRIDED = CudaVariant()


@cache
def compiler(architecture: str = "sm_90") -> CudaCompiler:
    return CudaCompiler(named_target(architecture))


def foreign(text: str, entry: str, parameters: dict[str, Any], writes: tuple[str, ...]) -> KernelDefinition:
    specialization = Specialization(tuple(parameters.items()), (), LaunchForm.GRID, (64,))
    source = ForeignSource("cuda-c++", text, entry, writes)
    return KernelDefinition(KernelId(entry, "1" * 64), specialization, foreign=source)


def lowered(with_compiler: CudaCompiler, made: KernelDefinition | Module, variant: CudaVariant = WHOLE) -> LoweredText:
    made = definition(made) if isinstance(made, Module) else made
    return with_compiler.lower(made, ArtifactId(made.id, variant), CompilationRecording(), LOG)


def compiled(
    with_compiler: CudaCompiler, made: KernelDefinition | Module, variant: CudaVariant = WHOLE
) -> CudaArtifact:
    made = definition(made) if isinstance(made, Module) else made
    return with_compiler.finalize(ArtifactId(made.id, variant), lowered(with_compiler, made, variant))
