"""The two calls by which a target keeps artifacts without ever failing a launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from quernel import settings
from quernel.errors import StoreError
from quernel.store.artifact_store import ArtifactStore
from quernel.store.environments import Environment, current_environment
from quernel.store.names import StoreNames

if TYPE_CHECKING:
    from quernel.store.layers import ReadOnlyLayer

__all__ = ["compilation_store", "layers_from", "opened_store", "store_compiled"]

P = ParamSpec("P")

_layers_of: Callable[[Environment], Sequence[ReadOnlyLayer]] | None = None


def layers_from(source: Callable[[Environment], Sequence[ReadOnlyLayer]] | None) -> None:
    """Puts the layers that `source(environment)` gives below each store that is opened from now on."""
    global _layers_of
    _layers_of = source


def compilation_store(
    backend: str,
    fingerprint: str,
    *,
    artifact_format: int | str = 1,
    environment: Environment | None = None,
) -> ArtifactStore | None:
    """The store for a backend's artifacts in an environment (default: the current one), open until that closes.

    `None` when `QUERNEL_NO_CACHE` is set, or when the folder cannot be used: that is warned about once, and tried again
    at the next call. Calls plugins, so a caller SHOULD hold no lock.
    """
    where = current_environment() if environment is None else environment
    try:
        return opened_store(backend, fingerprint, artifact_format, where)
    except StoreError as error:
        where.say_unusable(error)
        return None


def opened_store(
    backend: str, fingerprint: str, artifact_format: int | str, environment: Environment
) -> ArtifactStore | None:
    """The same for callers who say themselves what went wrong.

    Raises:
        StoreError: the folder cannot be used, now or ever.
    """
    if settings.no_cache():
        return None
    names = StoreNames(backend, artifact_format, fingerprint)

    def opened() -> ArtifactStore:
        store = ArtifactStore(environment, names, layers=() if _layers_of is None else _layers_of(environment))
        store.open()
        return store

    if environment.unusable is not None:
        raise environment.unusable
    store: ArtifactStore = environment.hold(names, opened)
    return store


def _logging(
    put: Callable[Concatenate[ArtifactStore, P], None],
) -> Callable[Concatenate[ArtifactStore | None, P], bool]:
    @functools.wraps(put, assigned=())
    def store_compiled(store: ArtifactStore | None, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Stores an artifact as `ArtifactStore.put` does, and says whether the store took it; a failure is logged."""
        if store is None:
            return False
        try:
            put(store, *args, **kwargs)
        except StoreError as error:
            store.environment.say_unusable(error)
            return False
        return True

    return store_compiled


store_compiled = _logging(ArtifactStore.put)
