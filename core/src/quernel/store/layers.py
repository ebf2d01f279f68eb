"""The seam for what lies below the local store: read-only layers, asked in order on a local miss."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from quernel.store.names import StoredArtifact

__all__ = ["ReadOnlyLayer"]


@runtime_checkable
class ReadOnlyLayer(Protocol):
    """Artifacts that were stored elsewhere, by the names of `StoreNames`. May be called on any thread."""

    @property
    def name(self) -> str:
        """What messages call the layer. MUST be constant."""
        ...

    def find(self, name: str) -> StoredArtifact | None:
        """The artifact under a map's name, or `None`. MUST check the payload's digest.

        Raises:
            StoreError: the layer cannot answer; nothing else MAY be raised.
        """
        ...

    def close(self) -> None:
        """Lets go of files and connections. MUST be idempotent."""
        ...
