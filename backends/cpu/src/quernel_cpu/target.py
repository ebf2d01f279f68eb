"""The half that stays with the device: which variant a launch needs, and object code made callable."""

from __future__ import annotations

import ctypes

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.halves import LaunchFacts
from quernel.compiler.persistent import PersistentTarget
from quernel_cpu import _toolchain
from quernel_cpu.scratch import scratch_bytes
from quernel_cpu.types import CpuArtifact, CpuVariant, Loaded
from quernel_cpu.vectormath import VECTOR_LIBRARY_FEATURE, VECTOR_LIBRARY_FILE

__all__ = ["CpuTarget"]

_ENTRY_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)


class CpuTarget(PersistentTarget[CpuVariant, CpuArtifact, Loaded]):
    """Keeps object code in the store and loads it into this process."""

    artifact_type = CpuArtifact

    def variant(self, launch_facts: LaunchFacts) -> CpuVariant:
        """Whether all arrays are contiguous: the only fact that changes this backend's code, so the only one kept.

        Unaligned vector accesses cost nothing on the processors of today, and addresses are 64 bits wide anyway.
        """
        return CpuVariant(contiguous=launch_facts.contiguous)

    def load(self, id: ArtifactId[CpuVariant], artifact: CpuArtifact) -> Loaded:  # noqa: A002 — the contract's name
        """The entry point in memory.

        Raises:
            DeviceError: the object does not link here.
        """
        needs_vector_library = VECTOR_LIBRARY_FEATURE in artifact.header.features
        library = _toolchain.load_object(
            artifact.payload, artifact.header.entry, VECTOR_LIBRARY_FILE if needs_vector_library else None
        )
        return Loaded(_ENTRY_TYPE(library.address), library, library.address, scratch_bytes(artifact.header.features))
