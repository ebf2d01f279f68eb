"""The backend's own types: what a launch decides, a lowered kernel, an artifact, and what a launch dispatches."""

from __future__ import annotations

from typing import Any

import attrs

from quernel.compiler.artifacts import Artifact, ArtifactHeader
from quernel.locations import Location
from quernel.runtime.operations import PreparedLaunch

__all__ = ["PTX", "CudaArtifact", "CudaLowered", "CudaVariant", "Loaded"]

PTX = "ptx"
"""The feature of a header whose payload is PTX, which the driver compiles when it loads it."""


@attrs.frozen
class CudaVariant:
    """What the launch decides that the kernel's id does not.

    Attributes:
        aligned16: every array starts at a multiple of 16 bytes.
        contiguous: every array is C-contiguous, so that neighbours along the last axis lie side by side.
        index32: every extent, shape and reachable element offset is below 2**31.
        several_points: threads of an `over` launch may handle several points each.
    """

    aligned16: bool = False
    contiguous: bool = False
    index32: bool = False
    several_points: bool = True


@attrs.frozen
class CudaLowered:
    """A kernel as CUDA C++.

    Attributes:
        header: all that a launch needs.
        text: the source, whose entry point is a macro.
        options: what NVRTC compiles it with, besides that macro.
        lines: for each line of the text, the place in the user's source that it stands for.
    """

    header: ArtifactHeader
    text: str
    options: tuple[str, ...]
    lines: tuple[Location, ...] = ()


@attrs.frozen
class CudaArtifact(Artifact):
    """The header, and a cubin as payload; or PTX, where the header has that feature."""


@attrs.define(eq=False)
class Loaded:
    """A kernel in a device's context.

    Attributes:
        module: the driver's, which keeps the function alive.
        function: what is launched.
        name: of the kernel, for errors.
        prepared: what `DeviceOperations.launch` keeps between launches.
    """

    module: Any
    function: Any
    name: str
    prepared: PreparedLaunch | None = None
