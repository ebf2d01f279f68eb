"""A device's kernels as users and libraries see them: a view over its loader that owns no kernel."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.halves import ANY_LAUNCH, ArtifactCompiler
from quernel.compiler.loader import KernelLoader, LoadedKernel
from quernel.wording import counted

__all__ = ["Kernels"]

VariantT = TypeVar("VariantT")
ArtifactT = TypeVar("ArtifactT")
LoadedT = TypeVar("LoadedT")


class Kernels(Generic[VariantT, ArtifactT, LoadedT]):
    """The kernels of one device; its length is the number of those loaded."""

    def __init__(self, loader: KernelLoader[VariantT, ArtifactT, LoadedT]) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __repr__(self) -> str:
        info = self.compiler.target_info
        return f"<{counted(len(self), 'kernel')} loaded on {info.backend} {info.name}>"

    @property
    def compiler(self) -> ArtifactCompiler[VariantT, Any, ArtifactT]:
        """The half that may be taken elsewhere to compile."""
        return self._loader.target.compiler

    def get(self, kernel: KernelDefinition, variant: VariantT | None = None) -> LoadedKernel[VariantT, LoadedT]:
        """The kernel loaded on this device, compiled if need be; by default in the variant that fits every launch.

        Raises:
            QuernelError: why it cannot be lowered, compiled or loaded.
        """
        if variant is None:
            variant = self._loader.target.variant(ANY_LAUNCH)
        return self._loader.load(kernel, ArtifactId(kernel.id, variant))
