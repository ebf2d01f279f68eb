"""Observers and store layers: loaded isolated at the first compile or store opening, called one by one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, final

from quernel.errors import PluginError
from quernel.plugins.backends import BackendInfo, load_plugin_module
from quernel.plugins.entries import PLUGINS, PluginEntry, installed_entries

if TYPE_CHECKING:
    from quernel.plugins.hooks import ObserverManager

__all__ = ["Observers"]


@final
class Observers:
    """The plugins of the group `quernel.plugins`. Every method MAY be called from any thread, never under a lock.

    Nothing is looked for before the first call, and pluggy is not imported where no such plugin is installed. A plugin
    that raises is logged once and switched off; the others go on.
    """

    def __init__(self, path: list[str] | None = None) -> None:
        """`path` replaces `sys.path` as the place where distributions are looked for."""
        self._path = path
        self._lock = threading.Lock()
        self._loaded = False
        self._manager: ObserverManager | None = None
        self._infos: list[BackendInfo] = []

    def compiled(self, record: object) -> None:
        """Tells every observer of one compilation."""
        self._call("quernel_compiled", {"record": record})

    def batch_closed(self, record: object) -> None:
        """Tells every observer of one batch."""
        self._call("quernel_batch_closed", {"record": record})

    def store_layers(self, environment: object) -> tuple[Any, ...]:
        """The layers that plugins put below the local store, in the order of the plugins' names."""
        layers: list[Any] = []
        for given in self._call("quernel_store_layers", {"environment": environment}):
            layers.extend(given if isinstance(given, list | tuple) else [given])
        return tuple(layers)

    def infos(self) -> tuple[BackendInfo, ...]:
        """Every installed observer, the broken and switched-off ones with their reason, sorted by name."""
        self._load()
        return tuple(self._infos)

    def renew_after_fork(self) -> None:
        """In the child of a fork: the lock may have been held by a thread that is not there."""
        self._lock = threading.Lock()

    def _call(self, hook: str, arguments: dict[str, object]) -> list[Any]:
        manager = self._load()
        if manager is None:
            return []
        results = []
        implementations = sorted(manager.hook.__dict__[hook].get_hookimpls(), key=lambda found: found.plugin_name)
        for implementation in implementations:
            try:
                result = implementation.function(*[arguments[name] for name in implementation.argnames])
            except (Exception, SystemExit) as error:
                self._switch_off(manager, implementation.plugin_name, hook, error)
                continue
            if result is not None:
                results.append(result)
        return results

    def _load(self) -> ObserverManager | None:
        if self._loaded:
            return self._manager
        with self._lock:
            if not self._loaded:
                entries = installed_entries(PLUGINS, self._path)
                if entries:
                    self._manager, self._infos = self._registered(entries)
                self._loaded = True
        return self._manager

    def _registered(self, entries: tuple[PluginEntry, ...]) -> tuple[ObserverManager, list[BackendInfo]]:
        from quernel.plugins.hooks import ObserverManager

        manager, infos = ObserverManager(), []
        for entry in entries:
            reason = fix = ""
            try:
                if manager.has_plugin(entry.name):
                    raise PluginError(
                        f"the name {entry.name!r} is taken by another plugin", fix=f"uninstall {entry.distribution}"
                    )
                manager.register(load_plugin_module(entry), entry.name)
            except (Exception, SystemExit) as error:
                reason = error.what if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"
                fix = (isinstance(error, PluginError) and error.fix) or f"mend or uninstall {entry.distribution}"
                if not isinstance(error, PluginError) and manager.has_plugin(entry.name):
                    manager.unregister(name=entry.name)
                _warn("plugin %s of %s is not used: %s", entry.name, entry.origin, reason)
            infos.append(BackendInfo(entry.name, entry.distribution, entry.version, not reason, reason, fix))
        return manager, infos

    def _switch_off(self, manager: ObserverManager, name: str, hook: str, error: BaseException) -> None:
        with self._lock:
            if not manager.has_plugin(name):  # another thread was faster
                return
            manager.unregister(name=name)
        _warn("plugin %s is switched off: %s raised %s: %s", name, hook, type(error).__name__, error)
        reason = f"switched off: {hook} raised {type(error).__name__}: {error}"
        for index, info in enumerate(self._infos):
            if info.name == name and info.ok:
                fixed = f"mend or uninstall {info.distribution}"
                self._infos[index] = BackendInfo(name, info.distribution, info.version, False, reason, fixed)


def _warn(message: str, *arguments: object) -> None:
    import logging

    logging.getLogger(__name__).warning(message, *arguments)
