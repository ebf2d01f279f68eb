"""The installed backends: found by name, imported one at a time, broken ones kept apart."""

from __future__ import annotations

import re
import sys
import threading
from importlib import import_module
from typing import NamedTuple, final

from quernel.errors import PluginError
from quernel.plugins.entries import BACKENDS, PluginEntry, installed_entries
from quernel.runtime.operations import PLUGIN_API, Backend
from quernel.values import frozen

__all__ = ["BackendCatalog", "BackendInfo", "load_plugin_module"]

_EXTRAS = ("cpu", "cuda", "opencl")
_NAME = r"[a-z][a-z0-9_-]*"  # device strings know no case, and put meaning into : and ,


@frozen
class BackendInfo:
    """One entry of a backend, whether it works or not.

    Attributes:
        name: the name by which device strings call it.
        distribution: where it came from.
        version: that distribution's version.
        ok: whether it can be used.
        reason: why not, or an empty string.
        fix: what to do about it, or an empty string.
    """

    name: str
    distribution: str
    version: str
    ok: bool
    reason: str = ""
    fix: str = ""


class _Claim(NamedTuple):
    """What became of one entry: its backend, or why it cannot be used."""

    entry: PluginEntry
    backend: Backend | None
    reason: str = ""
    fix: str = ""


@final
class BackendCatalog:
    """Loads backends on demand. Every method MAY be called from any thread.

    Where several distributions claim a name, the first by name of distribution that works has it (the core's own before
    all): a broken claim never hides a good one.
    """

    def __init__(self, path: list[str] | None = None) -> None:
        """`path` replaces `sys.path` as the place where distributions are looked for."""
        self._path = path
        self._lock = threading.RLock()
        self._entries: tuple[PluginEntry, ...] = ()
        self._scanned: tuple[str, ...] | None = None
        self._claims: dict[tuple[str, str], _Claim] = {}
        self._backends: dict[str, Backend] = {}

    def names(self) -> tuple[str, ...]:
        """The names that installed distributions claim, sorted. Imports none of them."""
        return tuple(dict.fromkeys(entry.name for entry in self._scan()))

    def load(self, name: str) -> Backend:
        """The backend of that name, importing no other.

        Raises:
            PluginError: none of that name is installed, or none that works.
        """
        backend = self._backends.get(name)
        if backend is not None:
            return backend
        with self._lock:
            claims = [self._claim(entry) for entry in self._entries_of(name)]
            for claim in claims:
                if claim.backend is not None:
                    return self._backends.setdefault(name, claim.backend)
        if not claims:
            raise self._missing(name)
        first = claims[0]
        raise PluginError(f"backend {name!r} of {first.entry.origin} cannot be used: {first.reason}", fix=first.fix)

    def infos(self) -> tuple[BackendInfo, ...]:
        """Every installed entry, the broken ones with their reason, sorted by name. Imports them all, isolated."""
        with self._lock:
            self._scan(anew=True)
            infos = []
            owners: dict[str, PluginEntry] = {}
            for entry in self._scan():
                claim = self._claim(entry)
                owner = owners.get(entry.name)
                reason, fix = claim.reason, claim.fix
                if claim.backend is not None and owner is not None:
                    reason = f"the name {entry.name!r} is taken by {owner.origin}"
                    fix = f"uninstall {owner.distribution} or {entry.distribution}"
                elif claim.backend is not None:
                    owners[entry.name] = entry
                infos.append(BackendInfo(entry.name, entry.distribution, entry.version, not reason, reason, fix))
            return tuple(infos)

    def renew_after_fork(self) -> None:
        """In the child of a fork: the lock may have been held by a thread that is not there."""
        self._lock = threading.RLock()

    def _scan(self, *, anew: bool = False) -> tuple[PluginEntry, ...]:
        places = tuple(sys.path if self._path is None else self._path)
        if anew or places != self._scanned:
            self._entries = installed_entries(BACKENDS, places, anew=anew)
            self._scanned = places
        return self._entries

    def _entries_of(self, name: str) -> list[PluginEntry]:
        found = [entry for entry in self._scan() if entry.name == name]
        if not found:  # perhaps installed since, by this very process or a notebook's `%pip`
            found = [entry for entry in self._scan(anew=True) if entry.name == name]
        return found

    def _claim(self, entry: PluginEntry) -> _Claim:
        key = (entry.distribution, entry.name)
        claim = self._claims.get(key)
        if claim is None or claim.backend is None:  # a failure is tried again: its cause may be mended
            claim = self._claims[key] = _try(entry)
        return claim

    def _missing(self, name: str) -> PluginError:
        names = ", ".join(self.names()) or "none"
        if name in _EXTRAS:
            from quernel.installing import install_backend

            return PluginError(f"the backend {name!r} is not installed", fix=install_backend(name))
        from difflib import get_close_matches

        meant = get_close_matches(name, {*self.names(), *_EXTRAS}, 1)
        fix = f"did you mean {meant[0]!r}? " if meant else ""
        return PluginError(
            f"no backend is named {name!r}; installed: {names}",
            fix=f"{fix}check the name, see qn.backends() or `quernel backends`",
        )


def load_plugin_module(entry: PluginEntry) -> object:
    """The module of an entry, once its API version is known to be ours.

    Raises:
        PluginError: it fails to import, or was built for another core.
    """
    try:
        module = import_module(entry.module)
    except (Exception, SystemExit) as error:
        reason = f"importing {entry.module} failed: {type(error).__name__}: {error}"
        raise PluginError(
            reason, fix=f"mend or reinstall {entry.distribution}: {_upgrade(entry.distribution)}"
        ) from error
    api = getattr(module, "QUERNEL_PLUGIN_API", None)
    if api is None:
        raise PluginError(f"{entry.module} does not say QUERNEL_PLUGIN_API", fix=_upgrade(entry.distribution))
    if type(api) is not int or api != PLUGIN_API:
        reason = f"it was built for plugin API {api!r}, this core has {PLUGIN_API}"
        newer = type(api) is int and api > PLUGIN_API
        raise PluginError(reason, fix=_upgrade("quernel" if newer else entry.distribution))
    return module


def _upgrade(distribution: str) -> str:
    from quernel.installing import upgrade

    return upgrade(distribution)


def _try(entry: PluginEntry) -> _Claim:
    if re.fullmatch(_NAME, entry.name) is None or entry.name == "auto":
        rule = "lower-case letters, digits, - and _, and not 'auto'"
        return _refused(entry, f"{entry.name!r} is no name for a backend", f"use {rule}")
    try:
        module = load_plugin_module(entry)
    except PluginError as error:
        return _refused(entry, error.what, error.fix or "")
    reinstall = f"report it to the authors of {entry.distribution}"
    try:
        backend = module.quernel_backend()  # type: ignore[attr-defined]  # a missing one is reported as any failure
    except (Exception, SystemExit) as error:
        return _refused(entry, f"quernel_backend() failed: {type(error).__name__}: {error}", reinstall)
    if not isinstance(backend, Backend):
        return _refused(entry, f"quernel_backend() gave a {type(backend).__name__}, not a Backend", reinstall)
    if backend.name != entry.name:
        return _refused(entry, f"its backend calls itself {backend.name!r}, its entry {entry.name!r}", reinstall)
    return _Claim(entry, backend)


def _refused(entry: PluginEntry, reason: str, fix: str) -> _Claim:
    import logging

    logging.getLogger(__name__).debug("backend %s of %s cannot be used: %s", entry.name, entry.origin, reason)
    return _Claim(entry, None, reason, fix)
