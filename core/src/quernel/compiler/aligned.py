"""The variant of backends whose code gains from arrays that are aligned, contiguous and short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quernel.values import frozen

if TYPE_CHECKING:
    from typing import Self

    from quernel.compiler.halves import LaunchFacts

__all__ = ["AlignedVariant"]


@frozen
class AlignedVariant:
    """What the launch decides that the kernel's id does not. A backend with more to decide subclasses it.

    Attributes:
        aligned16: every array starts at a multiple of 16 bytes.
        contiguous: every array is C-contiguous, so that neighbours along the last axis lie side by side.
        index32: every extent, shape and reachable element offset is below 2**31.
    """

    aligned16: bool = False
    contiguous: bool = False
    index32: bool = False

    @classmethod
    def of(cls, facts: LaunchFacts) -> Self:
        """The variant that makes use of all that is known of a launch."""
        return cls(aligned16=facts.aligned16, contiguous=facts.contiguous, index32=facts.index32)
