"""The half that stays with the device: which variant a launch needs, and code made callable."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.halves import LaunchFacts
from quernel.compiler.persistent import PersistentTarget
from quernel_cpu import _toolchain
from quernel_cpu.caches import streaming_bytes
from quernel_cpu.code_image import MappedCode, is_image, map_image
from quernel_cpu.host import keep_host
from quernel_cpu.scratch import scratch_bytes
from quernel_cpu.steadiness import STEADY_FEATURE
from quernel_cpu.types import CpuArtifact, CpuVariant, Loaded
from quernel_cpu.vectormath import VECTOR_LIBRARY_FEATURE, VECTOR_LIBRARY_FILE

if TYPE_CHECKING:
    from quernel.identity import IrKey

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
            DeviceError: the code cannot be used here.
        """
        header = artifact.header
        library = VECTOR_LIBRARY_FILE if VECTOR_LIBRARY_FEATURE in header.features else None
        code: MappedCode | _toolchain.Library
        if is_image(artifact.payload):
            code = map_image(artifact.payload, library)
            address = code.address_of(header.entry)
        else:
            code = _toolchain.load_object(artifact.payload, header.entry, library)
            address = code.address
        features = header.features
        return Loaded(
            entry=_ENTRY_TYPE(address),
            keep_alive=code,
            address=address,
            scratch_bytes=scratch_bytes(features),
            streaming_bytes=streaming_bytes(features),
            is_steady=STEADY_FEATURE in features,
        )

    def store(
        self,
        id: ArtifactId[CpuVariant],  # noqa: A002
        artifact: CpuArtifact,
        source: str | None,
        ir_key: IrKey | None = None,
    ) -> bool:
        """Keeps the artifact, and once in each environment what LLVM says of this machine."""
        stored = super().store(id, artifact, source, ir_key)
        if stored:
            self._keep_host()
        return stored

    def stored(self, id: ArtifactId[CpuVariant]) -> CpuArtifact | None:  # noqa: A002
        """The kept artifact; what LLVM says of this machine is kept then too.

        The system may describe a processor anew, after an upgrade of it, and all kernels be there already.
        """
        found = super().stored(id)
        if found is not None:
            self._keep_host()
        return found

    def _keep_host(self) -> None:
        if self._store is not None:
            keep_host(self._store.environment)
