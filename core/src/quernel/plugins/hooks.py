"""The hooks of observers and store layers. Imports pluggy: only where some distribution has such a plugin."""

from __future__ import annotations

from typing import Any

import pluggy

__all__ = ["HookSpecifications", "ObserverManager"]

_PROJECT = "quernel"
_PREFIX = "quernel_"
_spec = pluggy.HookspecMarker(_PROJECT)


class HookSpecifications:
    """What a plugin's module MAY define. An implementation may take any subset of the arguments, by name."""

    @_spec
    def quernel_compiled(self, record: Any) -> None:
        """One compilation is over: compiled, loaded from the store or rekeyed. Called after the batch, on no lock."""

    @_spec
    def quernel_batch_closed(self, record: Any) -> None:
        """A batch of compilations is over."""

    @_spec
    def quernel_store_layers(self, environment: Any) -> Any:
        """Read-only store layers to ask below the local store of an environment, the first asked first."""


class ObserverManager(pluggy.PluginManager):
    """A plugin manager in which any function named as a hook counts, so that authors need no marker."""

    def __init__(self) -> None:
        super().__init__(_PROJECT)
        self.add_hookspecs(HookSpecifications)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        """The options of a hook's implementation; the plain ones where the author marked nothing."""
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and name.startswith(_PREFIX) and hasattr(HookSpecifications, name):
            options = {
                "wrapper": False,
                "hookwrapper": False,
                "optionalhook": False,
                "tryfirst": False,
                "trylast": False,
                "specname": None,
            }
        return options
