"""What the user set through the environment: the only reader of `QUERNEL_*` variables.

Every function reads its variable when it is called, so that a test or a notebook can change it at any time.
An unset variable and an empty one mean the same. A value that is not understood raises `SettingError` with the
variable's name and what it may hold.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

from quernel.errors import SettingError

__all__ = [
    "VARIABLES",
    "CpuEmitter",
    "CpuMathematics",
    "RecordsLevel",
    "adopt",
    "checked",
    "compile_limit_s",
    "cpu_coarsening",
    "cpu_emitter",
    "cpu_mathematics",
    "cpu_streaming",
    "device",
    "environment_path",
    "interpret",
    "launch_variables",
    "lock_timeout_s",
    "native_launches",
    "no_cache",
    "num_threads",
    "records_level",
    "refusals",
    "several_points",
    "unknown_variables",
    "variables",
]

RecordsLevel = Literal["off", "basic", "full"]
"""How much a session's records hold: nothing, the measures, or IR and source too."""

CpuEmitter = Literal["spmd", "scalar"]
"""How the CPU backend writes a kernel: threads as lanes of vectors, or as a loop."""

CpuMathematics = Literal["own", "library"]
"""Whose functions of f32 vectors the CPU backend takes first: its own, or the C library's."""

VARIABLES = {
    "QUERNEL_CHECKED": "launches check indices and assertions where the kernel does not say: 1 or 0 (default)",
    "QUERNEL_COMPILE_LIMIT": "seconds that a worker process may take over one kernel, 600 by default; 0 for any time",
    "QUERNEL_CPU_COARSENING": "several vectors of threads run together on the CPU: 1 (default) or 0",
    "QUERNEL_CPU_EMITTER": "how CPU code is written: spmd (default) or scalar",
    "QUERNEL_CPU_MATHEMATICS": "whose functions of f32 vectors CPU code calls: own (default) or library",
    "QUERNEL_CPU_STREAMING": "stores of CPU code may go past the caches: 1 (default) or 0",
    "QUERNEL_DEVICE": "the device of launches whose arguments do not say, as a device string",
    "QUERNEL_ENVIRONMENT": "the folder that keeps compiled kernels and records",
    "QUERNEL_INTERPRET": "launches run in the reference interpreter where the kernel does not say: 1 or 0 (default)",
    "QUERNEL_LOCK_TIMEOUT": "seconds to wait for another process that compiles the same kernel, 60 by default",
    "QUERNEL_NATIVE_LAUNCHES": "native code may read the arguments of launches on the CPU: 1 (default) or 0",
    "QUERNEL_NO_CACHE": "nothing is kept in the store or read from it: 1 or 0 (default)",
    "QUERNEL_NUM_THREADS": "the number of CPU threads; by default one per available core",
    "QUERNEL_RECORDS": "what is recorded of compilations: off, basic (default) or full",
    "QUERNEL_SEVERAL_POINTS": "a GPU thread may handle several points of an extent: 1 (default) or 0",
}
"""Every variable, and what it sets."""

_ENVIRON = os.environ
_RAW: Any = getattr(os.environ, "_data", None)
"""The dictionary below `os.environ`, where this Python has it. Each launch asks for variables that are hardly ever set,
and an absent name costs 50 ns there, against 700 ns in `os.environ` itself."""
_encoded: dict[str, Any] = {}

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


def environment_path() -> str | None:
    """The folder named by `QUERNEL_ENVIRONMENT`, or `None` for the user's cache folder."""
    return _text("QUERNEL_ENVIRONMENT")


def device() -> str | None:
    """The device string in `QUERNEL_DEVICE`, or `None` where nothing is named."""
    return _text("QUERNEL_DEVICE")


def checked() -> bool:
    """Whether `QUERNEL_CHECKED` asks for launches that check every index."""
    return _flag("QUERNEL_CHECKED")


def interpret() -> bool:
    """Whether `QUERNEL_INTERPRET` asks for launches in the reference interpreter."""
    return _flag("QUERNEL_INTERPRET")


def lock_timeout_s() -> float:
    """Seconds in `QUERNEL_LOCK_TIMEOUT` (default 60) for which a launch waits for its kernel's compilation elsewhere.

    Then it compiles the kernel itself; with 0 it never waits.
    """
    name = "QUERNEL_LOCK_TIMEOUT"
    text = _text(name)
    if text is None:
        return 60.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise _refused(name, text, "a number of seconds, 0 or more")
    return seconds


def launch_variables() -> tuple[Mapping[Any, Any], Mapping[str, str], Any, Any, Any] | None:
    """Where a launch sees at once that the variables it depends on are as they were, or `None` where no place is known.

    The dictionary below `os.environ`, the `os.environ` of which it is, and the keys in it of `QUERNEL_CHECKED`,
    `QUERNEL_INTERPRET` and `QUERNEL_DEVICE`.
    """
    if _RAW is None:
        return None
    checked, interpret, device = map(_ENVIRON.encodekey, ("QUERNEL_CHECKED", "QUERNEL_INTERPRET", "QUERNEL_DEVICE"))
    return _RAW, _ENVIRON, checked, interpret, device


def native_launches() -> bool:
    """Whether `QUERNEL_NATIVE_LAUNCHES` (default on) lets native code read the arguments of launches on the CPU."""
    return _text("QUERNEL_NATIVE_LAUNCHES") is None or _flag("QUERNEL_NATIVE_LAUNCHES")


def no_cache() -> bool:
    """Whether `QUERNEL_NO_CACHE` keeps compiled kernels out of the store."""
    return _flag("QUERNEL_NO_CACHE")


def num_threads() -> int | None:
    """The number of CPU threads in `QUERNEL_NUM_THREADS`, or `None` for one per available core."""
    name = "QUERNEL_NUM_THREADS"
    text = _text(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= _MOST_THREADS):
        raise _refused(name, text, f"a whole number from 1 to {_MOST_THREADS}")
    return int(text)


_MOST_THREADS = 4096
"""More than any machine has cores: who asks for more would get as many as the system starts, in half a minute."""


def cpu_emitter() -> CpuEmitter:
    """How `QUERNEL_CPU_EMITTER` has the CPU backend write kernels: `spmd` (default) or `scalar`."""
    name = "QUERNEL_CPU_EMITTER"
    text = _text(name)
    if text is None:
        return "spmd"
    if text.lower() not in get_args(CpuEmitter):
        raise _refused(name, text, "spmd or scalar")
    return cast(CpuEmitter, text.lower())


def cpu_coarsening() -> bool:
    """Whether `QUERNEL_CPU_COARSENING` (default on) lets the CPU backend run several vectors of threads together."""
    return _text("QUERNEL_CPU_COARSENING") is None or _flag("QUERNEL_CPU_COARSENING")


def cpu_mathematics() -> CpuMathematics:
    """Whose f32 functions `QUERNEL_CPU_MATHEMATICS` lets the CPU backend use: its `own` (default) or a `library`'s."""
    name = "QUERNEL_CPU_MATHEMATICS"
    text = _text(name)
    if text is None:
        return "own"
    if text.lower() not in get_args(CpuMathematics):
        raise _refused(name, text, "own or library")
    return cast(CpuMathematics, text.lower())


def cpu_streaming() -> bool:
    """Whether `QUERNEL_CPU_STREAMING` (default on) lets stores of the CPU backend go past the caches."""
    return _text("QUERNEL_CPU_STREAMING") is None or _flag("QUERNEL_CPU_STREAMING")


def records_level() -> RecordsLevel:
    """The level of records in `QUERNEL_RECORDS`: `off`, `basic` (default) or `full`."""
    name = "QUERNEL_RECORDS"
    text = _text(name)
    if text is None:
        return "basic"
    if text.lower() not in get_args(RecordsLevel):
        raise _refused(name, text, "off, basic or full")
    return cast(RecordsLevel, text.lower())


def several_points() -> bool:
    """Whether a thread may handle several points of an `over` launch; `QUERNEL_SEVERAL_POINTS=0` says no."""
    return _text("QUERNEL_SEVERAL_POINTS") is None or _flag("QUERNEL_SEVERAL_POINTS")


def compile_limit_s() -> float | None:
    """Seconds that a worker process may take over one kernel: `QUERNEL_COMPILE_LIMIT`, 600 by default.

    `None` where it is 0: any time.
    """
    name = "QUERNEL_COMPILE_LIMIT"
    text = _text(name)
    if text is None:
        return _COMPILE_LIMIT_S
    try:
        limit_s = float(text)
    except ValueError:
        limit_s = -1.0
    if not 0 <= limit_s <= _LONGEST_S:
        raise _refused(name, text, "a number of seconds, or 0 for any time")
    return limit_s or None


_COMPILE_LIMIT_S = 600.0
_LONGEST_S = 1e6


def variables() -> dict[str, str]:
    """All variables of ours that are set, for a process that is to see the same."""
    return {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}


def adopt(given: Mapping[str, str]) -> None:
    """Sets the variables that another process gave, and no others of ours."""
    for name in [name for name in os.environ if name.startswith(_PREFIX) and name not in given]:
        del os.environ[name]
    for name, value in given.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


_PREFIX = "QUERNEL_"


def refusals() -> tuple[SettingError, ...]:
    """What is wrong with the variables that are set: one error for each value that is not understood."""
    found = []
    for read in (
        environment_path, device, checked, interpret, no_cache, num_threads, cpu_emitter, cpu_coarsening,
        cpu_mathematics, cpu_streaming, native_launches, records_level, several_points, compile_limit_s,
        lock_timeout_s,
    ):  # fmt: skip
        try:
            read()
        except SettingError as error:
            found.append(error)
    return tuple(found)


def unknown_variables() -> tuple[str, ...]:
    """The variables that are set and begin as Quernel's do, but set nothing: misspelt, or of another version."""
    return tuple(sorted(name for name in os.environ if name.startswith("QUERNEL_") and name not in VARIABLES))


def _text(name: str) -> str | None:
    if _RAW is not None and os.environ is _ENVIRON:
        key = _encoded.get(name)
        if key is None:
            key = _encoded[name] = os.environ.encodekey(name)
        if key not in _RAW:
            return None
    return os.environ.get(name, "").strip() or None


def _flag(name: str) -> bool:
    text = _text(name)
    if text is None or text.lower() in _NO:
        return False
    if text.lower() in _YES:
        return True
    raise _refused(name, text, "1, true, yes or on; 0, false, no or off")


def _refused(name: str, text: str, allowed: str) -> SettingError:
    return SettingError(f"{name}={text!r} is not understood; it may be {allowed}", fix=f"set {name} to one of these")
