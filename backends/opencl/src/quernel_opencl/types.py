"""The backend's own types: an artifact, and what a launch dispatches."""

from __future__ import annotations

from typing import Any, final

from quernel.compiler.artifacts import Artifact
from quernel.runtime.operations import PreparedLaunch
from quernel.values import frozen

__all__ = ["Loaded", "OpenclArtifact"]


@frozen
class OpenclArtifact(Artifact):
    """The header, and the driver's program binary as payload."""


@final
class Loaded:
    """A built program, from which each launching thread makes a kernel object of its own.

    Attributes:
        program: the driver's.
        entry: the kernel's name in it.
        spare: kernel objects that no thread has taken yet: making one is slow with some drivers.
        prepared: what `DeviceOperations.launch` keeps between launches.
    """

    __slots__ = ("entry", "prepared", "program", "spare")

    def __init__(self, program: Any, entry: str) -> None:
        self.program = program
        self.entry = entry
        self.spare: list[Any] = []
        self.prepared: PreparedLaunch | None = None
