"""Runs the blocks of a page of wrong kernels: what a block raises, as its reader would see it."""

from __future__ import annotations

import itertools
import linecache
import math
from typing import Any, Final

import attrs
import numpy as np

import quernel as qn
from quernel.testing.launching import run_text

__all__ = ["FILE", "arrays", "message_of", "run"]

FILE: Final = "kernel.py"
"""The file that messages name."""
_numbers = itertools.count()


def arrays() -> dict[str, Any]:
    """What every block finds defined, besides `qn`, `math`, `np` and `attrs`."""
    return {
        "x": np.arange(8, dtype=np.float32),
        "out": np.zeros(8, np.float32),
        "n": np.array([1, 2, 1, 0, 3, 1, 2, 0], np.int32),
        "u": np.arange(8, dtype=np.uint8),
        "v": np.arange(8, dtype=np.uint64),
        "p": np.array([True, False] * 4),
        "z": np.zeros((8, 8), np.float32),
        "points": np.zeros((8, 2), np.float32),
        "count": 3,
        "scale": 2,
    }


def run(text: str, device: Any) -> None:
    """Executes a block under a device.

    Raises:
        QuernelError: what the block shows.
    """
    file = f"<wrong {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"qn": qn, "math": math, "np": np, "attrs": attrs, "__name__": "example", **arrays()}
    run_text(text, file, device, names)


def message_of(text: str, device: Any) -> str:
    """The whole message that a block raises, its file called `kernel.py`; an empty string if it raises none."""
    try:
        run(text, device)
    except qn.errors.QuernelError as error:
        file = error.where.file if error.where is not None else FILE
        return str(error).replace(file, FILE) + "\n"
    return ""
