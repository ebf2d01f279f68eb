"""The system's C compiler: finding it, naming what its code depends on, and running it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import attrs

from quernel.capabilities import details_digest
from quernel.errors import CompilationError
from quernel.runtime.operations import Unavailable

__all__ = ["Toolchain", "compile_library", "find_toolchain"]

_COMPILERS: Final = ("cc", "gcc", "clang")
_FLAGS: Final = ("-std=gnu11", "-O2", "-w", "-fno-math-errno", "-fno-strict-aliasing")
_PROBE: Final = "#include <math.h>\n"


@attrs.frozen
class Toolchain:
    """A compiler that works.

    Attributes:
        path: of the program.
        name: `gcc` or `clang`.
        version: as it says itself.
        flags: what every kernel is compiled with.
        fingerprint: what the bytes depend on: compiler, processor and C library.
    """

    path: str
    name: str
    version: str
    flags: tuple[str, ...]
    fingerprint: str


def find_toolchain() -> Toolchain | Unavailable:
    """The first compiler on the path, or why there is none. Any thread."""
    path = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if path is None:
        install = "install one, for example gcc: `apt install gcc`, `dnf install gcc`, `xcode-select --install`"
        return Unavailable(f"there is no C compiler: none of {', '.join(_COMPILERS)} is on the path", install)
    try:
        return _probed(path)
    except CompilationError as error:
        return Unavailable(f"{path} cannot compile: {' '.join(error.chain)}", "mend it, or install its C library")


@cache
def _probed(path: str) -> Toolchain:
    """What the compiler says of itself. The macros that it defines tell its version, the processor and the library."""
    flags: tuple[str, ...] = (*_FLAGS, "-march=native")
    try:
        macros = _macros(path, flags)
    except CompilationError:  # it does not know this processor
        flags = _FLAGS
        macros = _macros(path, flags)
    name = "clang" if "__clang__" in macros else "gcc"
    return Toolchain(path, name, macros.get("__VERSION__", "").strip('"'), flags, details_digest(macros, *flags))


def _macros(path: str, flags: tuple[str, ...]) -> dict[str, str]:
    said = _run([path, *flags, "-dM", "-E", "-x", "c", "-"], given=_PROBE)
    words = (line.split(maxsplit=2) for line in said.splitlines())
    return {macro[1]: " ".join(macro[2:]) for macro in words if len(macro) > 1}


def compile_library(toolchain: Toolchain, text: str, options: tuple[str, ...]) -> bytes:
    """The bytes of a shared object made of a text. Any thread, several at once.

    Raises:
        CompilationError: the compiler refuses it; what it said is the error's chain.
    """
    with tempfile.TemporaryDirectory(prefix="quernel-c-") as folder:
        Path(folder, "kernel.c").write_text(text, encoding="utf-8")
        flags = [*toolchain.flags, *options, "-shared", "-fPIC"]
        _run([toolchain.path, *flags, "-o", "kernel.so", "kernel.c", "-lm"], folder=folder)
        return Path(folder, "kernel.so").read_bytes()


def _run(command: list[str], *, given: str = "", folder: str | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C"}  # complaints are read, so they are to be in English
    try:
        done = subprocess.run(
            command, input=given, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace"
        )
    except OSError as error:
        raise CompilationError(
            f"{command[0]} cannot be run", chain=(str(error),), fix="see `quernel doctor`"
        ) from error
    if done.returncode:
        raise CompilationError("the C compiler refuses the text", chain=tuple(done.stderr.splitlines()))
    return done.stdout
