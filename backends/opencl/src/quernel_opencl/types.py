"""The backend's own types: an artifact, and what a launch dispatches."""

from __future__ import annotations

from typing import Any

import attrs

from quernel.compiler.artifacts import Artifact
from quernel.runtime.operations import PreparedLaunch

__all__ = ["Loaded", "OpenclArtifact"]


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
