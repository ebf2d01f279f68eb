"""The backend's own types: what a launch decides, an artifact, and what a launch dispatches."""

from __future__ import annotations

from typing import Any, final

from quernel.compiler.aligned import AlignedVariant
from quernel.compiler.artifacts import Artifact
from quernel.runtime.operations import PreparedLaunch
from quernel.values import frozen

__all__ = ["PTX", "CudaArtifact", "CudaVariant", "Loaded"]

PTX = "ptx"
"""The feature of a header whose payload is PTX, which the driver compiles when it loads it."""


@frozen
class CudaVariant(AlignedVariant):
    """What the launch decides that the kernel's id does not.

    Attributes:
        several_points: threads of an `over` launch may handle several points each.
    """

    several_points: bool = True


@frozen
class CudaArtifact(Artifact):
    """The header, and a cubin as payload; or PTX, where the header has that feature."""


@final
class Loaded:
    """A kernel in a device's context.

    Attributes:
        module: the driver's, which keeps the function alive, and may hold other kernels too.
        function: what is launched.
        name: of the kernel, for errors.
        prepared: what `DeviceOperations.launch` keeps between launches.
        spare_cells: memory for arguments that no launch uses now.
    """

    __slots__ = ("function", "module", "name", "prepared", "spare_cells")

    def __init__(self, module: Any, function: Any, name: str) -> None:
        self.module = module
        self.function = function
        self.name = name
        self.prepared: PreparedLaunch | None = None
        self.spare_cells: list[Any] = []
