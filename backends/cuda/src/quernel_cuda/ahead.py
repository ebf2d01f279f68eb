"""Python beside the driver: a thread starts it and opens contexts while this one imports what comes next.

Starting the driver and opening a context take 100 ms and more each, without Python's lock; the modules of a launch take
about as long, and those of a compilation longer. All imports stay with one thread, as two may wait for each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Final, Generic, TypeVar

from quernel.errors import DeviceError, QuernelError
from quernel.forks import FORKED_FIX

__all__ = ["Meanwhile"]

T = TypeVar("T")

_OF_LAUNCHES: Final = (
    "quernel_cuda.compiler",
    "quernel_cuda.targets",
    "quernel_cuda.device",
    "quernel.store.compilation",
    "quernel.compiler.loader",
    "quernel.compiler.batch",
    "quernel.runtime.launchers",
    "quernel.runtime.streams",
    "quernel.compiler.records",
    "quernel.store.record_log",
)
"""In the order in which opening a device and launching on it want them. Packages come with their first module."""

_OF_COMPILATIONS: Final = (
    "quernel.compiler.key_locks",
    "quernel.compiler.executors",
    "quernel.compiler.job",
    "quernel.lang",
    "quernel_cuda.lowering",
    "cuda.bindings.nvrtc",
    "quernel.store.byte_disk",
)
"""Likewise of compiling a kernel and of storing it."""


class Meanwhile(Generic[T]):
    """What `work` gives or raises, once a thread has done it. `work` MUST NOT import anything.

    `import_next` makes use of the time until then; `result` waits.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._given: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="quernel-cuda-start")
        try:
            self._thread.start()
        except RuntimeError:  # There are as many threads as there may be.
            self._run()

    def _run(self) -> None:
        try:
            self._given.append(self._work())
        except BaseException as error:  # It is raised where the result is asked for.
            self._error = error

    def import_next(self) -> None:
        """Imports what the next launch needs, for as long as the work goes on. Raises interrupts only."""
        for step in _steps():
            if not self._thread.is_alive():
                return
            with suppress(Exception):  # Whoever wants the module next is told.
                step()

    def result(self) -> T:
        """What the work gave. Who was interrupted here may ask again.

        Raises:
            BaseException: what the work raised.
            DeviceError: this process was forked meanwhile, and the work went on in its parent.
        """
        if self._thread.ident is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        if not self._given:
            raise DeviceError("this process was forked while CUDA's driver was starting", fix=FORKED_FIX)
        return self._given[0]


def _steps() -> Iterator[Callable[[], object]]:
    """What to do next, one import after the other; those for compiling only where no store can have the kernel."""
    for name in _OF_LAUNCHES:
        yield lambda name=name: import_module(name)  # type: ignore[misc]  # mypy knows no defaults of a lambda
    yield _find_out
    if _has_store():
        return
    for name in _OF_COMPILATIONS:
        yield lambda name=name: import_module(name)  # type: ignore[misc]  # as above
    yield _load_compiler


def _find_out() -> None:
    """What fingerprints of targets and build ids of compilers are made of; it is kept once it was asked for."""
    from quernel.identity import build_id_hash
    from quernel_cuda import _toolchain

    build_id_hash("quernel", "quernel_cuda")
    _toolchain.version()


def _load_compiler() -> None:
    """Tens of megabytes of NVRTC."""
    from quernel_cuda import _toolchain

    _toolchain.supported_architectures()


def _has_store() -> bool:
    """Whether kernels were kept here before, as far as can be told: what is wrong with a setting, its user is told."""
    from quernel import settings
    from quernel.store import current_environment

    try:
        return not settings.no_cache() and os.path.exists(os.path.join(current_environment().store_path, "cache.db"))
    except QuernelError:
        return True
