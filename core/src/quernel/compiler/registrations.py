"""How many kernels were registered with a loader, and what became of them."""

from __future__ import annotations

import attrs

__all__ = ["RegistrationCounts"]


@attrs.frozen
class RegistrationCounts:
    """Registrations of one loader since it was made, counted at one moment. Each is in exactly one of these.

    A registration is one request for a kernel that was not loaded, queued or in flight then; it settles once.

    Attributes:
        queued: nobody compiles them yet.
        building: some thread drives them.
        compiled: loaded, after they were compiled here.
        loaded: loaded from the store, or with the artifact of an equal kernel.
        failed: their kernel's own error was kept for whoever asks.
        abandoned: their driver was interrupted, or their environment closed.
    """

    queued: int
    building: int
    compiled: int
    loaded: int
    failed: int
    abandoned: int

    @property
    def registered(self) -> int:
        """All of them."""
        return sum(attrs.astuple(self))

    @property
    def settled(self) -> int:
        """Those that have ended."""
        return self.registered - self.queued - self.building
