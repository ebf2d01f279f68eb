"""A bar on the terminal while kernels compile."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from quernel.compiler import Progress

__all__ = ["shown"]

_PATIENCE_S = 0.25
"""What is over sooner shows no bar, and does not import the package that draws it."""


@contextlib.contextmanager
def shown(progress: bool | Progress | None, title: str) -> Iterator[Progress | None]:
    """What to tell how far a batch is: the caller's own, a bar where standard error is a terminal, or nobody."""
    if callable(progress):
        yield progress
    elif progress is False or sys.stderr is None or not sys.stderr.isatty():
        yield None
    else:
        bar = _Bar(title)
        try:
            yield bar
        finally:
            bar.close()


@final
class _Bar:
    def __init__(self, title: str) -> None:
        self._title = title
        self._start_s = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, num_done: int, num_kernels: int, name: str) -> None:
        if self._bar is None:
            if num_kernels < 2 or time.monotonic() - self._start_s < _PATIENCE_S:
                return
            self._open(num_kernels)
        self._bar.update(self._task, completed=num_done, total=num_kernels, name=name)

    def _open(self, num_kernels: int) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn(escape(self._title)),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[name]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=num_kernels, name="")
        self._bar.start()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
