"""What is remembered of a compilation: plain values, fit for a line of JSON."""

from __future__ import annotations

import enum

from quernel.values import field, frozen

__all__ = ["CompilationBatchRecord", "CompilationOutcome", "CompilationRecord"]


class CompilationOutcome(enum.Enum):
    """How a kernel that was asked for came to be loaded."""

    COMPILED = "compiled"
    LOADED = "loaded"
    REKEYED = "rekeyed"


@frozen(kw_only=True)
class CompilationRecord:
    """One kernel that was compiled, loaded from the store or found by another key.

    `rekeyed_by` is `ir`, `source` or `equal artifact` where the outcome is `REKEYED`. `stages` holds each stage's
    name and time in nanoseconds; `started_ns` counts from the epoch. `registers` and `spills` are `None` where the
    toolchain does not tell, `ir` and `source` below the level `full`, and `ir` for what was loaded. `why_missed` names
    the parts in which the kernel differs from the last ones of its name; it is empty for what was loaded. `backend` and
    `target` say what it was compiled or loaded for, and are empty in records of before they were kept.
    """

    kernel: str
    key: str
    outcome: CompilationOutcome
    rekeyed_by: str | None = None
    started_ns: int = 0
    duration_ns: int = 0
    stages: tuple[tuple[str, int], ...] = ()
    ir: str | None = field(default=None, repr=False)
    source: str | None = field(default=None, repr=False)
    artifact_bytes: int = 0
    registers: int | None = None
    spills: int | None = None
    warnings: tuple[str, ...] = ()
    toolchain: str = ""
    worker: str = ""
    why_missed: tuple[str, ...] = ()
    backend: str = ""
    target: str = ""


@frozen(kw_only=True)
class CompilationBatchRecord:
    """One batch: how many kernels were asked for (failures included), on how many workers, in which wall time."""

    asked: int
    workers: int
    wall_ns: int
    started_ns: int = 0
