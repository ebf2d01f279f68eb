"""The system's loader of shared objects."""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quernel.errors import CompilationError, DeviceError

__all__ = ["function_of", "load_library"]


def load_library(code: bytes) -> ctypes.CDLL:
    """A shared object in this process, where it stays until the process ends.

    It is loaded from a file that nobody else can write and that is gone on return. The loader knows files by name, so
    the name is made of the content: what has another content has another name.

    Raises:
        DeviceError: the system refuses it.
    """
    with tempfile.TemporaryDirectory(prefix="quernel-c-") as folder:
        path = Path(folder, f"{hashlib.sha256(code).hexdigest()}.so")
        path.write_bytes(code)
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            raise DeviceError(
                f"the system does not load a compiled kernel: {error}",
                fix="set TMPDIR to a folder from which programs may be run",
            ) from error


def function_of(library: ctypes.CDLL, entry: str) -> Callable[..., Any]:
    """The function that launches the kernel: it takes the cells of the arguments and the numbers of blocks.

    Raises:
        CompilationError: there is none of that name.
    """
    try:
        function = library[entry]
    except AttributeError:
        raise CompilationError(f"the source exports no function {entry!r}", fix="define it, and not static") from None
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64)), None
    return function
