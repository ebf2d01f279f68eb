"""What processes on one machine keep for each other beside kernels: LLVM's description of it, the workers' code.

It lies in the environment's store, in the map of what was made of a source, in a namespace of this processor and this
LLVM; so the store's rules of trust hold for it.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from quernel.digests import sha256
from quernel.errors import StoreError

if TYPE_CHECKING:
    from quernel.store import Environment
    from quernel.store.local_layer import LocalLayer

__all__ = ["keep", "kept"]

_BACKEND = "cpu"
_FORMAT = "quernel_cpu host 1"
_FACTS_OF_PROCESSORS = frozenset(
    {
        *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
        *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
    }
)


def kept(source: str, environment: Environment | None) -> bytes | None:
    """What was kept as made of that text, or `None`. On the path of a warm start."""
    try:
        layer = _layer(environment)
        found = None if layer is None else layer.find(_name(source))
    except StoreError as error:
        _log_debug("nothing is known of this machine: %s", error)
        return None
    return None if found is None else found.payload


def keep(source: str, content: bytes, environment: Environment | None) -> None:
    """Keeps it for other processes, where there is a store to keep it in."""
    from quernel.store.rows import MapRow, today

    try:
        layer = _layer(environment)
        if layer is not None:
            row = MapRow(
                name=_name(source),
                payload_digest=sha256(content).hexdigest(),
                payload_bytes=len(content),
                entry="",
                kernel_name="",
                backend=_BACKEND,
                statistics=b"{}",
                header=b"",
                day=today(),
            )
            layer.put(content, [row])
    except StoreError as error:
        _log_debug("nothing is kept of this machine: %s", error)


def _layer(environment: Environment | None) -> LocalLayer | None:
    """The environment's own store, without the layers below it, as none ships such things."""
    if environment is None or environment.unusable is not None or not _machine():
        return None
    from quernel.store.local_layer import LocalLayer

    def opened() -> LocalLayer:
        layer = LocalLayer(environment)
        layer.open()
        return layer

    held: LocalLayer = environment.hold(_FORMAT, opened)
    return held


def _name(source: str) -> str:
    """The row of what was made of a text here."""
    from quernel.identity import source_digest
    from quernel.store import StoreNames

    return StoreNames(_BACKEND, _FORMAT, _machine()).source(source_digest(source))


@cache
def _machine() -> str:
    """Names this processor, as the system describes it, and the installed LLVM; empty where either cannot be told."""
    from importlib.util import find_spec

    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(1 << 14).partition(b"\n\n")[0].decode("utf-8", "replace")
        spec = find_spec("llvmlite")
        if spec is None or spec.origin is None:
            return ""
        library = os.path.join(os.path.dirname(spec.origin), "binding", "libllvmlite.so")
        status = os.stat(library)
    except (OSError, ImportError, ValueError):
        return ""
    facts = [line for line in first.splitlines() if line.partition(":")[0].strip() in _FACTS_OF_PROCESSORS]
    if not facts:
        return ""
    content = "\0".join([os.uname().machine, library, str(status.st_size), str(status.st_mtime_ns), *facts])
    return sha256(content.encode()).hexdigest()


def _log_debug(message: str, error: StoreError) -> None:
    # Importing logging costs 2 ms, and a warm start says nothing.
    import logging

    logging.getLogger(__name__).debug(message, error)
