"""How many threads run together: lanes of a vector, vectors side by side, rows of threads."""

from __future__ import annotations

import attrs

from quernel.capabilities import TargetInfo
from quernel.geometry import LaunchForm
from quernel.ir.segments import SegmentedKernel

__all__ = ["Step", "chosen_step"]


@attrs.frozen
class Step:
    """The threads that run together.

    Attributes:
        width: along the last axis, a power of two.
        rows: along the axis before.
    """

    width: int
    rows: int = 1


def chosen_step(form: SegmentedKernel, target: TargetInfo) -> Step:
    """How many threads of a kernel run together on a target."""
    native = int(target.detail("vector_bytes")) // 4
    kernel = form.module.kernel
    if kernel.form is LaunchForm.GRID:
        along = next((size for size in reversed(kernel.block) if size > 1), 1)
        while native // 2 >= along and native > 1:
            native //= 2
    return Step(native, 1)
