"""Imports beside the driver: what a launch needs is imported by a thread while the driver starts, which takes longer.

`cuInit` keeps one core busy for about 100 ms without Python's lock, and all modules that follow it take half of that.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Final

__all__ = ["importing"]

_MODULES: Final = (
    "quernel_cuda.compiler",
    "quernel_cuda.targets",
    "quernel_cuda.device",
    "quernel.store.compilation",
    "quernel.compiler.loader",
    "quernel.compiler.batch",
)
"""In the order in which opening a device and launching on it want them. Packages come with their first module."""


@contextmanager
def importing() -> Iterator[None]:
    """Imports by a thread until the context ends. The caller imports nothing within it: two may wait for each other."""
    if _MODULES[-1] in sys.modules:
        yield
        return
    is_over = threading.Event()
    thread = threading.Thread(target=_import, args=(is_over,), name="quernel-cuda-imports")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _import(is_over: threading.Event) -> None:
    with suppress(Exception):  # Whoever wants the module next is told.
        for name in _MODULES:
            if is_over.is_set():
                return
            import_module(name)
        _find_out()


def _find_out() -> None:
    """What fingerprints of targets and build ids of compilers are made of; it is kept once it was asked for."""
    from quernel.identity import build_id_hash
    from quernel_cuda import _toolchain

    build_id_hash("quernel", "quernel_cuda")
    _toolchain.version()
