"""The compiling side of cuda-python: NVRTC, which needs neither a driver nor a device.

It is loaded when a function here is first called. Any number of threads may compile at once; NVRTC releases the GIL.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from quernel.errors import CompilationError
from quernel.forks import Passage
from quernel.plugins.entries import installed_version
from quernel.values import frozen
from quernel_cuda.cubins import resources

__all__ = [
    "Compiled",
    "compile_text",
    "compile_unit",
    "disassembly",
    "header_folder",
    "nvrtc",
    "supported_architectures",
    "version",
]

_log = logging.getLogger(__name__)

_FILE: Final = "kernel.cu"
_TOOLKIT: Final = Path("/usr/local/cuda")
_VERSION: Final = re.compile(r"\d+\.\d+")
_FUNCTION: Final = re.compile(r"Function properties for (\S+)")
_SPILLS: Final = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@frozen
class Compiled:
    """What NVRTC made of a text.

    Attributes:
        payload: a cubin, or PTX.
        entry: the entry point's name in it.
        statistics: what the entry point takes, by name; empty for PTX.
    """

    payload: bytes
    entry: str
    statistics: dict[str, int]


@cache
def nvrtc() -> Any:
    """The module of NVRTC's bindings, with its library loaded.

    Raises:
        CompilationError: cuda-python or NVRTC is missing or broken.
    """
    try:
        from cuda.bindings import nvrtc as bindings

        status, *_ = bindings.nvrtcVersion()
    except ImportError as error:
        raise CompilationError(
            f"cuda-python cannot be imported: {error}", fix="pip install --force-reinstall cuda-python"
        ) from error
    except Exception as error:  # the loader's own classes differ between versions of cuda-python
        raise CompilationError(
            f"NVRTC cannot be loaded: {error}", fix="pip install --force-reinstall nvidia-cuda-nvrtc"
        ) from error
    if int(status):
        raise CompilationError(f"NVRTC does not start: {status.name}", fix="pip install --upgrade nvidia-cuda-nvrtc")
    return bindings


@cache
def version() -> str:
    """NVRTC's version, such as `13.0`. What pip installed says so itself, so that a warm start loads no compiler.

    Raises:
        CompilationError: there is no NVRTC.
    """
    found = _VERSION.match(installed_version("nvidia-cuda-nvrtc") or "")
    if found is not None:
        return found[0]
    status, major, minor = nvrtc().nvrtcVersion()
    _check(status)
    return f"{major}.{minor}"


@cache
def supported_architectures() -> tuple[int, ...]:
    """The compute capabilities that this NVRTC makes code for, times ten, ascending.

    Raises:
        CompilationError: there is no NVRTC.
    """
    status, architectures = nvrtc().nvrtcGetSupportedArchs()
    _check(status)
    return tuple(sorted(architectures))


def compile_text(text: str, options: tuple[str, ...], entry: str, *, is_ptx: bool = False) -> Compiled:
    """The text compiled; `entry` may be an expression that names a template's instance.

    Raises:
        CompilationError: the compiler refuses it; `chain` is its log.
    """
    with _compiled(text, options, entry) as (api, program, log):
        lowered = _lowered_name(api, program, entry)
        if is_ptx:
            payload = _read(api.nvrtcGetPTXSize, api.nvrtcGetPTX, program)
        else:
            payload = _read(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, program)
    return Compiled(payload, lowered, {} if is_ptx else _statistics(payload, log, lowered))


def compile_unit(text: str, options: tuple[str, ...], entries: Sequence[str]) -> tuple[Compiled, ...]:
    """A text of several kernels with C linkage as one cubin, which is every kernel's payload.

    The assembler takes them side by side, on as many threads as there are cores.

    Raises:
        CompilationError: the compiler refuses one of them, or does not know an option.
    """
    with _compiled(text, (*options, "--split-compile=0"), None) as (api, program, log):
        payload = _read(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, program)
    return tuple(Compiled(payload, entry, _statistics(payload, log, entry)) for entry in entries)


@contextmanager
def _compiled(text: str, options: tuple[str, ...], expression: str | None) -> Iterator[tuple[Any, Any, str]]:
    """NVRTC's functions, a compiled program and its log; the program ends with the context."""
    api = nvrtc()
    with _inside, _program(api, text) as program:
        if expression is not None:
            status, *_ = api.nvrtcAddNameExpression(program, expression.encode())
            _check(status)
        given = [option.encode() for option in options]
        status, *_ = api.nvrtcCompileProgram(program, len(given), given)
        log = _read(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, program).rstrip(b"\0").decode(errors="replace")
        if int(status):
            raise CompilationError(f"NVRTC reports {status.name}", chain=tuple(log.strip().splitlines()))
        yield api, program, log


_inside = Passage()
"""NVRTC has locks of its own, which a forked child would find held for ever."""


@contextmanager
def _program(api: Any, text: str) -> Iterator[Any]:
    status, program = api.nvrtcCreateProgram(text.encode(), _FILE.encode(), 0, None, None)
    _check(status)
    try:
        yield program
    finally:
        api.nvrtcDestroyProgram(program)


def _read(size_of: Any, read: Any, program: Any) -> bytes:
    status, size = size_of(program)
    _check(status)
    data = bytearray(size)
    status, *_ = read(program, data)
    _check(status)
    return bytes(data)


def _check(status: Any) -> None:
    """Raises what NVRTC reports, where that is no success and there is no log that says more."""
    if int(status):
        raise CompilationError(f"NVRTC reports {status.name}", fix="pip install --upgrade nvidia-cuda-nvrtc")


def _lowered_name(api: Any, program: Any, entry: str) -> str:
    status, name = api.nvrtcGetLoweredName(program, entry.encode())
    if int(status):
        raise CompilationError(
            f"the source has no kernel {entry!r}: NVRTC reports {status.name}", fix="name a __global__ function of it"
        )
    found: str = name.decode()
    return found


def _statistics(cubin: bytes, log: str, entry: str) -> dict[str, int]:
    """Registers of one function, and bytes of its stack, of what is spilled to it, and of static shared memory.

    Spills are in the assembler's remarks alone, which NVRTC leaves out where its own cache had the code; a function
    without a stack has none. A cubin of a form that is not known yet runs all the same.
    """
    try:
        found = resources(cubin, entry)
    except ValueError as error:
        _log.warning("NVRTC %s made code that says nothing of its registers: %s", version(), error)
        return {}
    if not found["stack_bytes"]:
        found["spills"] = 0
    current = None
    for line in log.splitlines():
        named = _FUNCTION.search(line)
        if named is not None:
            current = named[1]
        elif current == entry and (spilled := _SPILLS.search(line)):
            found["spills"] = int(spilled[1]) + int(spilled[2])
    return found


@cache
def header_folder() -> str | None:
    """Where `cuda_fp16.h` and the like are: in the toolkit, or in a folder that NVRTC fills with those it brings.

    `None`: it brings none and there is no toolkit, so that a source which needs them says so when it is compiled.
    """
    if (_TOOLKIT / "include" / "cuda_fp16.h").exists():
        return str(_TOOLKIT / "include")
    import tempfile

    install = getattr(nvrtc(), "nvrtcInstallBundledHeaders", None)
    if install is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="quernel-cuda-headers-"))
    atexit.register(_remove, folder, os.getpid())
    status, *_ = install(str(folder).encode(), 0)
    return None if int(status) else str(folder)


def _remove(folder: Path, owner: int) -> None:
    """Removes the folder at the end of the process that made it; a forked child ends before its parent."""
    import shutil

    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def disassembly(cubin: bytes) -> str | None:
    """The machine code of a cubin as text, where the toolkit's disassembler is installed."""
    import shutil
    import subprocess
    import tempfile

    tool = shutil.which("nvdisasm") or shutil.which("nvdisasm", path=str(_TOOLKIT / "bin"))
    if tool is None:
        return None
    with tempfile.TemporaryDirectory(prefix="quernel-cuda-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        try:
            ran = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return None
    return ran.stdout
