"""Connects the plugins to the layers that must not know of them. Nothing is looked for before it is needed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from quernel.forks import renewed

if TYPE_CHECKING:
    from quernel.plugins import BackendCatalog, Observers
    from quernel.runtime.operations import Backend

__all__ = ["catalog", "connect", "observers"]


@cache
def catalog() -> BackendCatalog:
    """The installed backends."""
    from quernel.plugins.backends import BackendCatalog

    return renewed(BackendCatalog())


@cache
def observers() -> Observers:
    """The installed observers and store layers."""
    from quernel.plugins.observers import Observers

    return renewed(Observers())


class _InstalledBackends:
    def names(self) -> tuple[str, ...]:
        return catalog().names()

    def load(self, name: str) -> Backend:
        return catalog().load(name)


@cache
def connect() -> None:
    """Makes the process's directory look at installed backends, and stores and compilations at installed observers."""
    from quernel.runtime.directory import directory
    from quernel.runtime.loading import observe_compilations
    from quernel.store.compilation import layers_from

    directory.use_source(_InstalledBackends())
    observe_compilations(observers)
    layers_from(lambda environment: observers().store_layers(environment))
