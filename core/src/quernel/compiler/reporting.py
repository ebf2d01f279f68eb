"""Telling of artifacts as they are compiled."""

from __future__ import annotations

from typing import Any, Protocol

import attrs

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.recording import CompilationRecording

__all__ = ["CompiledArtifact", "Progress", "Reporter"]


@attrs.frozen(eq=False)
class CompiledArtifact:
    """An artifact that was just compiled and is not loaded yet.

    Attributes:
        id: what it was compiled for.
        artifact: the backend's own object, a header and payload bytes.
        source: the text that it was made from, where the backend has one.
        recording: stage times, warnings, toolchain and facts about the code.
        worker: process and thread that made it.
    """

    id: ArtifactId[Any]
    artifact: Any
    source: str | None
    recording: CompilationRecording
    worker: str

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.id.kernel.name


class Reporter(Protocol):
    """Is told of each artifact compiled for who gave it, once, before it is loaded; never of hits.

    Called on the thread that drives the batch, without any lock. It MUST NOT load, launch or wait for kernels: that is
    refused. What it raises is logged and costs no kernel.
    """

    def __call__(self, compiled: CompiledArtifact) -> object:
        """`compiled` is of a kernel that will be loaded next; the device may still refuse it."""
        ...


class Progress(Protocol):
    """Is told how far a batch is. Called on the thread that drives it, without any lock; as for a `Reporter`."""

    def __call__(self, num_done: int, num_kernels: int, name: str) -> object:
        """`name` is the kernel that was done last: found, compiled or failed."""
        ...
