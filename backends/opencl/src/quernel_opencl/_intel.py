"""Intel's runtime for CPUs: before its compiler starts, with a process's first context, it is told what to leave alone.

On processors with AVX-512 that compiler (2026.22) does arithmetic on numbers that are alike in all threads in vector
registers, where a least or greatest one is taken; and there it writes a complement to a register of another kind, and
goes on with one that nothing was written to. `~max(a, b)` is wrong then, and `min(a, b - c - 1)`, of whose subtractions
it makes a complement itself. No text keeps it from that. An option of its code generator does, which it takes from an
environment variable, once.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from quernel.errors import DeviceError

__all__ = ["LIBRARY", "installed_library", "open_context"]

LIBRARY: Final = "libintelocl.so"
"""The runtime's library, with a version behind it or without."""

_OPTIONS: Final = "CL_CONFIG_LLVM_OPTIONS"
_SCALAR_ARITHMETIC: Final = "-disable-x86-scalar-to-vector"
_STARTED: Final = "libocl_svml_"
"""How the library is called that the compiler loads when it starts, up to the kind of processor."""

_PROBE: Final = "__kernel void probe(__global int *y, int a, int b) { y[get_global_id(0)] = ~max(a, b); }"
_PROBE_THREADS: Final = 64

_is_trusted = False
"""Whether this process's compiler was told when it started, or tried and found right."""


def installed_library() -> Path | None:
    """The runtime's library, where pip installed it into this environment."""
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        path = Path(prefix, "lib", LIBRARY)
        if path.exists():
            return path
    return None


def open_context(cl: Any, device: Any) -> Any:
    """A context of a device of this runtime, whose programs compute what their text says. One thread at a time.

    Where other code may have made a context first, the compiler has the options that it had then, and is tried. `cl` is
    pyopencl.

    Raises:
        DeviceError: it was tried and got a complement wrong.
    """
    global _is_trusted
    if _is_trusted:
        return cl.Context([device])
    library, is_new = _loaded()
    is_known = library is not None and _has_option(library)
    with _options(_SCALAR_ARITHMETIC if is_known else ""):
        context = cl.Context([device])
    if not (is_known and is_new) and not _is_right(cl, context, device):
        raise DeviceError(
            f"the compiler of {device.platform.name} {device.driver_version} gets `~max(a, b)` wrong on {device.name}",
            fix=f"open Quernel's device before other code makes an OpenCL context, or start Python with "
            f"{_OPTIONS}={_SCALAR_ARITHMETIC}; if neither helps, pip install --upgrade intel-opencl-rt",
        )
    _is_trusted = True
    return context


def _loaded() -> tuple[Path | None, bool]:
    """The runtime's library, and whether its compiler has surely not started, by what the system lists as loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
            paths = {Path(line.rstrip("\n").split(maxsplit=5)[-1]) for line in lines if ".so" in line}
    except OSError:
        return installed_library(), False
    library = next((path for path in paths if path.name.startswith(LIBRARY)), None)
    return library, not any(path.name.startswith(_STARTED) for path in paths)


def _has_option(library: Path) -> bool:
    """Whether the library's compiler has the option: one that it does not know makes it end the process."""
    word = _SCALAR_ARITHMETIC.lstrip("-").encode() + b"\0"
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(word) >= 0
    except (OSError, ValueError):
        return False


@contextmanager
def _options(added: str) -> Iterator[None]:
    """The compiler's options are the user's and this one, within."""
    theirs = os.environ.get(_OPTIONS)
    if not added or added in (theirs or "").split():  # Twice the same option ends the process too.
        yield
        return
    os.environ[_OPTIONS] = f"{theirs} {added}" if theirs else added
    try:
        yield
    finally:
        if theirs is None:
            del os.environ[_OPTIONS]
        else:
            os.environ[_OPTIONS] = theirs


def _is_right(cl: Any, context: Any, device: Any) -> bool:
    """Whether the compiler gets a complement right that is the same in all threads."""
    import numpy as np

    # Not by pyopencl's class of programs: it would take a binary from its cache, of a compiler with other options.
    program = cl._cl._Program(context, _PROBE)
    program._build(b"", [device])
    probe = cl.Kernel(program, "probe")
    queue, found = cl.CommandQueue(context, device), np.zeros(_PROBE_THREADS, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, found.nbytes)
    for a, b in ((3, 5), (-7, -2), (1 << 20, 0)):
        probe(queue, found.shape, None, buffer, np.int32(a), np.int32(b))
        cl.enqueue_copy(queue, found, buffer)
        if (found != ~max(a, b)).any():
            return False
    return True
