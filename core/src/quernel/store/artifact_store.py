"""Compiled kernels by key, by IR and by source: the local layer under the names of one backend and fingerprint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from quernel.digests import sha256
from quernel.errors import StoreError
from quernel.store.local_layer import SIZE_LIMIT_BYTES, LocalLayer
from quernel.store.names import StoredArtifact, StoreNames
from quernel.store.rows import MapRow, today

if TYPE_CHECKING:
    from quernel.identity import IrKey, KernelCacheKey, SourceDigest
    from quernel.store.environments import Environment
    from quernel.store.layers import ReadOnlyLayer
    from quernel.store.upkeep import StoreInfo, VerifyReport

__all__ = ["ArtifactStore"]

Parts = Mapping[str, str] | Iterable[tuple[str, str]]

_KEPT_PARTS = 8
_LAYER_FAILURES = 3


class ArtifactStore:
    """Finds and stores the artifacts that share a backend, a format and a fingerprint. Any thread may call.

    Look-ups ask the local layer, then each read-only layer below it; stores go to the local layer only.
    """

    def __init__(
        self,
        environment: Environment,
        names: StoreNames,
        *,
        layers: Sequence[ReadOnlyLayer] = (),
        size_limit_bytes: int = SIZE_LIMIT_BYTES,
    ) -> None:
        self.environment = environment
        self.names = names
        self.local = LocalLayer(environment, size_limit_bytes=size_limit_bytes)
        self._layers = list(layers)
        self._layer_failures: dict[int, int] = {}
        self._dropped: set[str] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"<store of {self.names.backend} in {self.local.folder}>"

    def open(self) -> None:
        """Makes sure that there is a store to read, or that one can be made.

        Raises:
            StoreError: neither; the error says why and what to do.
        """
        self.local.open()

    def get(self, key: KernelCacheKey) -> StoredArtifact | None:
        """The artifact that was stored for the kernel, or `None`. On the path of a warm start.

        Raises:
            StoreError: the store cannot be read.
        """
        return self._find(self.names.kernel(key))

    def get_meanwhile(self, key: KernelCacheKey) -> StoredArtifact | None:
        """The same, for who has just missed it: only what other processes may have stored since is looked at.

        Raises:
            StoreError: the store cannot be read.
        """
        self._require_open()
        name = self.names.kernel(key)
        return None if name in self._dropped else self.local.find(name)

    def get_for_ir(self, key: IrKey) -> StoredArtifact | None:
        """The artifact that was stored for equal IR, or `None`.

        Raises:
            StoreError: the store cannot be read.
        """
        return self._find(self.names.ir(key))

    def get_for_source(self, digest: SourceDigest) -> StoredArtifact | None:
        """The artifact that was stored for an equal source text, or `None`.

        Raises:
            StoreError: the store cannot be read.
        """
        return self._find(self.names.source(digest))

    def put(
        self,
        key: KernelCacheKey,
        stored: StoredArtifact,
        *,
        ir_key: IrKey | None = None,
        source_digest: SourceDigest | None = None,
        entry: str = "",
        kernel_name: str = "",
        parts: Parts = (),
        statistics: Mapping[str, int | float | str | None] | None = None,
        pinned: bool = False,
    ) -> None:
        """Keeps the artifact under each key given, all in one transaction, and the kernel's parts with it.

        A pinned artifact is never collected to make room.

        Raises:
            StoreError: nothing was stored.
        """
        self._require_open()
        import json

        names = [self.names.kernel(key)]
        if ir_key is not None:
            names.append(self.names.ir(ir_key))
        if source_digest is not None:
            names.append(self.names.source(source_digest))
        digest, day = sha256(stored.payload).hexdigest(), today()
        encoded = json.dumps(dict(statistics or {}), sort_keys=True, separators=(",", ":")).encode()
        rows = [
            MapRow(
                name=name,
                payload_digest=digest,
                payload_bytes=len(stored.payload),
                entry=entry,
                kernel_name=kernel_name,
                backend=self.names.backend,
                statistics=encoded,
                header=stored.header,
                day=day,
                pinned=pinned,
            )
            for name in names
        ]
        self.local.put(stored.payload, rows, self._parts_rows(kernel_name, dict(parts)))
        self._dropped.difference_update(names)

    def drop(self, key: KernelCacheKey) -> None:
        """Forgets an artifact that a device refused; its payload goes when no other kernel has the same.

        From here on this object does not find it in any layer either, until it is stored anew.

        Raises:
            StoreError: the local layer still holds it.
        """
        self._require_open()
        name = self.names.kernel(key)
        self._dropped.add(name)
        self.local.drop(name)

    def last_parts(self, kernel_name: str) -> list[dict[str, str]]:
        """The different sets of parts of the last kernels stored under this name, newest first, at most 8.

        Raises:
            StoreError: the store cannot be read.
        """
        self._require_open()
        return _decoded_parts(kernel_name, self.local.value(self.names.parts(kernel_name)))

    def info(self) -> StoreInfo:
        """Sizes and counts of the whole local layer, all backends together."""
        return self.local.info()

    def verify(self, *, repair: bool = False) -> VerifyReport:
        """Checks every row and payload of the local layer; with `repair`, deletes what fails."""
        return self.local.verify(repair=repair)

    def clear(self) -> int:
        """Empties the local layer, all backends together; how many rows it had."""
        return self.local.clear()

    def close(self) -> None:
        """Writes what waits and closes every layer; idempotent. Later calls raise `StoreError`."""
        if not self._closed:
            self._closed = True
            self.local.close()
            for layer in self._layers:
                layer.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self!r} is closed", fix="open it again with compilation_store")

    def _find(self, name: str) -> StoredArtifact | None:
        self._require_open()
        if name in self._dropped:
            return None
        stored = self.local.find(name)
        if stored is not None or not self._layers:
            return stored
        return self._find_below(name)

    def _find_below(self, name: str) -> StoredArtifact | None:
        for layer in tuple(self._layers):
            try:
                stored = layer.find(name)
                if stored is not None and not isinstance(stored, StoredArtifact):
                    raise StoreError(f"it gave a {type(stored).__name__}, not a StoredArtifact")
            except Exception as error:  # somebody else's code: it must not end a launch
                self._note_failure(layer, error)
                continue
            if stored is not None:
                return stored
        return None

    def _note_failure(self, layer: ReadOnlyLayer, error: Exception) -> None:
        import logging

        failures = self._layer_failures[id(layer)] = self._layer_failures.get(id(layer), 0) + 1
        log = logging.getLogger(__name__)
        name = getattr(layer, "name", type(layer).__name__)
        if failures < _LAYER_FAILURES:
            log.debug("the layer %s cannot answer: %s", name, error)
        elif layer in self._layers:
            log.warning("the layer %s is not asked any more: %s", name, error)
            self._layers.remove(layer)

    def _parts_rows(self, kernel_name: str, parts: dict[str, str]) -> list[tuple[str, bytes]]:
        """The row of the kernel's last parts with these in front, unless they are there already."""
        if not parts:
            return []
        import json

        name = self.names.parts(kernel_name)
        kept = _decoded_parts(kernel_name, self.local.value(name))
        if kept[:1] == [parts]:
            return []
        kept = [parts, *(others for others in kept if others != parts)][:_KEPT_PARTS]
        return [(name, json.dumps({"kernel": kernel_name, "parts": kept}, separators=(",", ":")).encode())]


def _decoded_parts(kernel_name: str, value: bytes | None) -> list[dict[str, str]]:
    """What a row of parts holds; nothing where it is missing or was not written by this store."""
    if value is None:
        return []
    import json

    try:
        content = json.loads(value)
    except ValueError:
        return []
    if not isinstance(content, dict) or content.get("kernel") != kernel_name:
        return []
    sets = content.get("parts")
    if not isinstance(sets, list):
        return []
    return [{str(part): str(digest) for part, digest in parts.items()} for parts in sets if isinstance(parts, dict)]
