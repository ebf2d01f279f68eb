"""A target that keeps its artifacts in the local store, so that a backend writes only `variant` and `load`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from quernel.compiler.artifacts import ArtifactHeader, ArtifactId
from quernel.compiler.halves import ArtifactCompiler, CompilationTarget
from quernel.identity import kernel_cache_key, source_digest
from quernel.identity.ids import encode_variant

if TYPE_CHECKING:
    from quernel.identity import IrKey, KernelCacheKey
    from quernel.store import ArtifactStore, Environment, StoredArtifact

__all__ = ["PersistentTarget"]

VariantT = TypeVar("VariantT")
ArtifactT = TypeVar("ArtifactT")
LoadedT = TypeVar("LoadedT")


_TARGET, _VARIANT, _BUILD = "kept for target", "kept for variant", "kept for build"
"""Names under which the store remembers beside a kernel's parts what it was compiled for."""


class PersistentTarget(CompilationTarget[VariantT, ArtifactT, LoadedT]):
    """Keeps artifacts under the namespace of its compiler: backend, artifact format, fingerprint.

    A backend names the class of its artifacts, which is made of a header and the payload, as `Artifact` is.
    """

    artifact_type: type[ArtifactT]

    def __init__(self, compiler: ArtifactCompiler[VariantT, Any, ArtifactT]) -> None:
        self.compiler = compiler
        self._store: ArtifactStore | None = None

    @property
    def persists(self) -> bool:  # type: ignore[override]  # a fact of the environment here
        """Whether the environment has a store that can be used."""
        return self._store is not None

    def open_store(self, environment: Environment | None) -> ArtifactStore | None:
        """The environment's store for this backend, format and fingerprint."""
        if environment is None:
            return None
        from quernel.store.compilation import opened_store

        info = self.compiler.target_info
        return opened_store(info.backend, info.fingerprint, self.compiler.artifact_format, environment)

    def use_environment(self, environment: Environment | None, store: ArtifactStore | None) -> None:
        """Looks and stores in that environment from now on."""
        self._store = store

    def stored(self, id: ArtifactId[VariantT]) -> ArtifactT | None:  # noqa: A002 — the design's name
        """The kept artifact of that id."""
        return None if self._store is None else self._decoded(self._store.get(self._key(id)))

    def stored_meanwhile(self, id: ArtifactId[VariantT]) -> ArtifactT | None:  # noqa: A002
        """What another process has kept under that id by now; read-only layers are not asked again."""
        return None if self._store is None else self._decoded(self._store.get_meanwhile(self._key(id)))

    def stored_for_ir(self, ir_key: IrKey) -> ArtifactT | None:
        """A kept artifact of equal IR."""
        return None if self._store is None else self._decoded(self._store.get_for_ir(ir_key))

    def stored_for_source(self, source: str) -> ArtifactT | None:
        """A kept artifact of an equal source."""
        return None if self._store is None else self._decoded(self._store.get_for_source(source_digest(source)))

    def store(
        self,
        id: ArtifactId[VariantT],  # noqa: A002
        artifact: ArtifactT,
        source: str | None,
        ir_key: IrKey | None = None,
    ) -> bool:
        """Keeps the artifact under its id, its source and its IR key."""
        if self._store is None:
            return False
        from quernel.store import StoredArtifact

        header = self.header(artifact)
        payload: bytes = artifact.payload  # type: ignore[attr-defined]  # what an artifact_type has
        self._store.put(
            self._key(id),
            StoredArtifact(header.to_bytes(), payload),
            ir_key=ir_key,
            source_digest=None if source is None else source_digest(source),
            entry=header.entry,
            kernel_name=id.kernel.name,
            parts=(*id.kernel.parts, *self._circumstances(id)),
            statistics=dict(header.statistics),
        )
        return True

    def lock_name(self, id: ArtifactId[VariantT]) -> str | None:  # noqa: A002
        """A digest of the name that the artifact is kept under."""
        from quernel.digests import sha256
        from quernel.store.names import StoreNames

        info = self.compiler.target_info
        names = StoreNames(info.backend, self.compiler.artifact_format, info.fingerprint)
        return sha256(names.kernel(self._key(id)).encode()).hexdigest()

    def drop(self, id: ArtifactId[VariantT]) -> None:  # noqa: A002
        """Forgets what is kept under the id."""
        if self._store is not None:
            self._store.drop(self._key(id))

    def why_missed(self, id: ArtifactId[VariantT]) -> tuple[str, ...]:  # noqa: A002
        """The parts in which the kernel differs from the closest of the last ones kept under its name.

        Where none differs, what it was kept for does: another target, variant or build. `("new",)`: nothing of that
        name was kept.
        """
        if self._store is None:
            return ()
        last = self._store.last_parts(id.kernel.name)
        if not last:
            return ("new",)
        differences = [tuple(name for name, digest in id.kernel.parts if parts.get(name) != digest) for parts in last]
        closest = min(differences, key=len)
        if closest:
            return closest
        equal = [parts for parts, differing in zip(last, differences, strict=True) if not differing]
        return (_other_circumstance(dict(self._circumstances(id)), equal),)

    def _circumstances(self, id: ArtifactId[VariantT]) -> tuple[tuple[str, str], ...]:  # noqa: A002
        """What a kernel is kept for besides its own parts."""
        from quernel.digests import sha256

        info = self.compiler.target_info
        build = f"{info.fingerprint} {self.compiler.artifact_format} {self.compiler.build_id.digest}"
        return (
            (_TARGET, f"{info.backend} {info.name}"),
            (_VARIANT, sha256(encode_variant(id.variant)).hexdigest()),
            (_BUILD, sha256(build.encode()).hexdigest()),
        )

    def _key(self, id: ArtifactId[VariantT]) -> KernelCacheKey:  # noqa: A002
        return kernel_cache_key(id.kernel, id.variant, self.compiler.build_id)

    def _decoded(self, stored: StoredArtifact | None) -> ArtifactT | None:
        """The artifact, or `None` where its header is of another version of the core."""
        if stored is None:
            return None
        try:
            header = ArtifactHeader.from_bytes(stored.header)
        except ValueError:
            return None
        return self.artifact_type(header, stored.payload)  # type: ignore[call-arg]  # made as Artifact is


def _other_circumstance(wanted: dict[str, str], kept: list[dict[str, str]]) -> str:
    """What differs between what a kernel is wanted for and what the same kernel was kept for."""
    here = [found for found in kept if found.get(_TARGET) == wanted[_TARGET]]
    if any(found.get(_BUILD) == wanted[_BUILD] for found in here):
        return "variant (how its arrays are laid out)"
    if here:
        return "build of Quernel, of its backend or of the toolchain"
    targets = dict.fromkeys(found[_TARGET] for found in kept if _TARGET in found)
    if targets:
        return f"target (kept for {' and '.join(targets)})"
    return "target, variant or build"
