"""What LLVM says of this machine, asked once and then kept: a warm start needs no LLVM for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from quernel.values import field_names, frozen
from quernel_cpu import _toolchain
from quernel_cpu.host_store import keep, kept

if TYPE_CHECKING:
    from quernel.store import Environment

__all__ = ["Host", "host", "keep_host", "recall_host"]

_KEPT_AS = "host"


@frozen
class Host:
    """The process's triple, LLVM's name for the processor, its features as LLVM takes them, and LLVM's version."""

    triple: str
    cpu: str
    features: str
    llvm: str


_host: Host | None = None
_known_to: object = None
"""The environment that keeps it, as far as this process has seen."""


def host() -> Host:
    """This machine; asks LLVM, unless that or `recall_host` has happened in this process."""
    global _host
    if _host is None:
        _host = Host(*_toolchain.host(), _toolchain.version())
    return _host


def recall_host(environment: Environment | None) -> None:
    """Takes what an environment keeps of this machine, instead of asking LLVM. On the path of a warm start."""
    global _host, _known_to
    if _host is None:
        _host = _decoded(kept(_KEPT_AS, environment))
        _known_to = environment if _host is not None else None


def keep_host(environment: Environment | None) -> None:
    """Keeps it in an environment that has a store, unless it does so already. Cheap once that is known."""
    global _known_to
    if environment is _known_to:
        return
    _known_to = environment
    if _decoded(kept(_KEPT_AS, environment)) is None:
        found = {name: getattr(host(), name) for name in field_names(Host)}
        keep(_KEPT_AS, json.dumps(found, sort_keys=True).encode(), environment)


def _decoded(content: bytes | None) -> Host | None:
    if content is None:
        return None
    try:
        tree = json.loads(content)
        found = Host(**tree)
    except (ValueError, TypeError):
        return None
    return found if all(isinstance(value, str) and value for value in tree.values()) else None
