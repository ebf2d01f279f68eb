"""The half that stays with the device: which variant a launch needs, and binaries made launchable."""

from __future__ import annotations

import math

from quernel.compiler.aligned import AlignedVariant
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.halves import LaunchFacts
from quernel.compiler.persistent import PersistentTarget
from quernel.errors import ValidationError
from quernel_opencl import _driver
from quernel_opencl.compiler import OpenclCompiler
from quernel_opencl.targets import device_key
from quernel_opencl.types import Loaded, OpenclArtifact

__all__ = ["OpenclTarget"]


class OpenclTarget(PersistentTarget[AlignedVariant, OpenclArtifact, Loaded]):
    """Keeps program binaries in the store and hands them to the driver."""

    artifact_type = OpenclArtifact

    def __init__(self, compiler: OpenclCompiler) -> None:
        super().__init__(compiler)
        self._narrows_indices = compiler.narrows_indices
        self._device = device_key(compiler.target_info)

    def variant(self, launch_facts: LaunchFacts) -> AlignedVariant:
        """Whether all arrays are contiguous, and on GPUs whether indices fit 32 bits: what changes the text."""
        narrow = launch_facts.index32 and self._narrows_indices
        return AlignedVariant(contiguous=launch_facts.contiguous, index32=narrow)

    def load(self, id: ArtifactId[AlignedVariant], artifact: OpenclArtifact) -> Loaded:  # noqa: A002
        """The program, ready for kernel objects.

        Raises:
            CompilationError: the driver refuses the binary; the loader then has it built again.
            ValidationError: the driver gives this kernel fewer threads than its block has.
        """
        program = _driver.program(self._device, artifact.payload)
        loaded = Loaded(program, artifact.header.entry)
        limit = _driver.max_threads(self._device, loaded)
        threads = math.prod(artifact.header.block)
        if threads > limit:
            raise ValidationError(
                f"kernel {id.kernel.name} runs with at most {limit} threads a block here, its block "
                f"{artifact.header.block} has {threads}",
                fix=f"use a block of at most {limit} threads",
            )
        return loaded
