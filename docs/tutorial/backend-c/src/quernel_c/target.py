"""The half that stays with the device: which variant a launch needs, and shared objects made callable."""

from __future__ import annotations

from quernel.compiler import AlignedVariant, ArtifactId, LaunchFacts, PersistentTarget
from quernel_c import _driver
from quernel_c.artifacts import CArtifact, Loaded

__all__ = ["CTarget"]


class CTarget(PersistentTarget[AlignedVariant, CArtifact, Loaded]):
    """Keeps shared objects in the store and loads them into this process."""

    artifact_type = CArtifact

    def variant(self, launch_facts: LaunchFacts) -> AlignedVariant:
        """Whether all arrays are contiguous and indices fit 32 bits; the C text makes nothing of alignment."""
        return AlignedVariant(contiguous=launch_facts.contiguous, index32=launch_facts.index32)

    def load(self, id: ArtifactId[AlignedVariant], artifact: CArtifact) -> Loaded:  # noqa: A002
        """The kernel's function.

        Raises:
            CompilationError, DeviceError: the bytes are no shared object that has it, or the system does not load it.
        """
        library = _driver.load_library(artifact.payload)
        return Loaded(library, _driver.function_of(library, artifact.header.entry))
