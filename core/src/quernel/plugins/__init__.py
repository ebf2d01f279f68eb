"""Finding plugins, keeping broken ones from harming others, and calling those that observe."""

from __future__ import annotations

from quernel.plugins.backends import BackendCatalog, BackendInfo
from quernel.plugins.entries import BACKENDS, PLUGINS, PluginEntry, installed_entries, installed_version
from quernel.plugins.observers import Observers

__all__ = [
    "BACKENDS",
    "PLUGINS",
    "BackendCatalog",
    "BackendInfo",
    "Observers",
    "PluginEntry",
    "installed_entries",
    "installed_version",
]
