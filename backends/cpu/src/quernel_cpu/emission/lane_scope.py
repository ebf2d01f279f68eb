"""What the names of one kernel, or of one device function, stand for where threads are lanes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs

from quernel.dtypes import DType
from quernel.ir.nodes import IndexKind
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.functions import DeviceFunction
from quernel_cpu.emission.lane_memory import PrivateArray
from quernel_cpu.emission.lane_values import Value
from quernel_cpu.emission.reports import FirstViolation
from quernel_cpu.emission.shapes import Axes, Layout
from quernel_cpu.emission.text import Code

__all__ = ["LaneCallees", "LaneScope"]


class LaneCallees(Protocol):
    """The device functions that a body may call."""

    def device_function(self, name: str) -> DeviceFunction:
        """A function as scalar code knows it: what it uses of arrays and of the launch."""
        ...

    def results(self, name: str, arguments: tuple[Layout, ...], axes: Axes) -> tuple[Layout, ...]:
        """How the results lie across the lanes, where the value arguments lie so."""
        ...

    def symbol(
        self,
        name: str,
        arguments: tuple[Layout, ...],
        arrays: tuple[ArrayOperands, ...],
        axes: Axes,
        *,
        is_masked: bool,
    ) -> str:
        """The symbol of the function for such arguments; `is_masked`: its first parameter is the mask."""
        ...

    def result_type(self, name: str, layouts: tuple[Layout, ...]) -> str:
        """The LLVM type of what a function returns."""
        ...

    def passed_type(self, dtype: DType, layout: Layout) -> str:
        """The LLVM type of a value on its way in or out."""
        ...

    def passed(self, code: Code, dtype: DType, layout: Layout, operand: str) -> str:
        """A value in the form in which it travels."""
        ...

    def received(self, code: Code, dtype: DType, layout: Layout, operand: str) -> str:
        """A value that has arrived."""
        ...


@attrs.frozen
class LaneScope:
    """What the names of one kernel stand for.

    Attributes:
        scalars: scalar parameters.
        arrays: array parameters, and the block's arrays.
        indices: thread indices and dimensions, as they lie.
        private: each thread's arrays.
        diagnostics: the address of the diagnostics buffer.
        leave: the label at which the threads end.
        first: where the first violation is kept; `None` if each claims the launch's record at once.
        functions: the device functions that may be called.
    """

    scalars: Mapping[str, Value]
    arrays: Mapping[str, ArrayOperands]
    indices: Mapping[tuple[IndexKind, int], Value]
    private: Mapping[str, PrivateArray]
    leave: str
    diagnostics: str
    first: FirstViolation | None = None
    functions: LaneCallees | None = None
