"""The backend's own types: what a launch decides, a lowered kernel, an artifact, and what a launch dispatches."""

from __future__ import annotations

from typing import Any

import attrs

from quernel.compiler.artifacts import Artifact, ArtifactHeader
from quernel.locations import Location
from quernel.runtime.operations import PreparedLaunch

__all__ = ["Loaded", "OpenclArtifact", "OpenclLowered", "OpenclVariant"]


@attrs.frozen
class OpenclVariant:
    """What the launch decides that the kernel's id does not.

    Attributes:
        aligned16: every array starts at a multiple of 16 bytes.
        contiguous: every array is C-contiguous, so that neighbours along the last axis lie side by side.
        index32: every extent, shape and reachable element offset is below 2**31.
    """

    aligned16: bool = False
    contiguous: bool = False
    index32: bool = False


@attrs.frozen
class OpenclLowered:
    """A kernel as OpenCL C.

    Attributes:
        header: all that a launch needs.
        text: the source, whose entry point is a macro.
        options: what it is built with, besides that macro.
        lines: for each line of the text, the place in the user's source that it stands for.
    """

    header: ArtifactHeader
    text: str
    options: tuple[str, ...]
    lines: tuple[Location, ...] = ()


@attrs.frozen
class OpenclArtifact(Artifact):
    """The header, and the driver's program binary as payload."""


@attrs.define(eq=False)
class Loaded:
    """A built program, from which each launching thread makes a kernel object of its own.

    Attributes:
        program: the driver's.
        entry: the kernel's name in it.
        spare: kernel objects that no thread has taken yet: making one is slow with some drivers.
        prepared: what `DeviceOperations.launch` keeps between launches.
    """

    program: Any
    entry: str
    spare: list[Any] = attrs.field(factory=list)
    prepared: PreparedLaunch | None = None
