"""The backend's own types: what a launch decides, a lowered kernel, an artifact, and what a launch dispatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from quernel.compiler.artifacts import Artifact, ArtifactHeader
from quernel.values import frozen

__all__ = ["CpuArtifact", "CpuLowered", "CpuVariant", "Loaded"]


@frozen
class CpuVariant:
    """What the launch decides that the kernel's id does not.

    Attributes:
        contiguous: every array is C-contiguous, so that neighbours along the last axis lie side by side.
    """

    contiguous: bool = False


@frozen
class CpuLowered:
    """A kernel as optimised object code, of which `finalize` makes the payload.

    Attributes:
        header: all that a launch needs.
        object_code: a relocatable object file of the target.
        ir: the LLVM IR that it was made from, before optimisation.
        is_vector_code: whether lanes are vectors in that IR already.
    """

    header: ArtifactHeader
    object_code: bytes
    ir: str
    is_vector_code: bool = False


@frozen
class CpuArtifact(Artifact):
    """The header, and as payload an image (see `code_image`), or an object file where the code needs a linker."""


@final
class Loaded:
    """An entry point in memory.

    Attributes:
        entry: `entry(cells, geometry, first, end)`; releases the GIL while it runs.
        keep_alive: what holds the code in memory.
        address: of the entry point.
        scratch_bytes: memory that each thread which runs it needs; its address follows the geometry.
        streaming_bytes: what a thread of the kernel touches, if its stores may go past the caches, else 0.
        is_steady: whether every launch of one shape takes about as long.
        ns_per_item: measured time of one point or block on one core, or 0 before the first launch.
    """

    __slots__ = (
        "address",
        "entry",
        "is_steady",
        "keep_alive",
        "ns_per_item",
        "scratch_bytes",
        "streaming_bytes",
    )

    def __init__(
        self,
        entry: Callable[[bytes, bytes, int, int], None],
        keep_alive: Any,
        address: int = 0,
        scratch_bytes: int = 0,
        streaming_bytes: int = 0,
        *,
        is_steady: bool = False,
    ) -> None:
        self.entry = entry
        self.keep_alive = keep_alive
        self.address = address
        self.scratch_bytes = scratch_bytes
        self.streaming_bytes = streaming_bytes
        self.is_steady = is_steady
        self.ns_per_item = 0.0
