"""Violations and prints of threads that run together: each lane that is on is a thread of its own."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from quernel.dtypes import DType, i64
from quernel.ir.nodes import IndexKind
from quernel_cpu.emission.lane_memory import LaneMemory
from quernel_cpu.emission.lane_values import LaneArithmetic, Value
from quernel_cpu.emission.reports import FirstViolation, cell, emit_print, emit_violation
from quernel_cpu.emission.shapes import Lanes
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import register_type, wide

__all__ = ["LaneReports"]

Shown = tuple[tuple[Value, DType], ...]
"""Values to report, each with its type."""


class LaneReports:
    """Writes reports into the code of one function."""

    def __init__(
        self,
        unit: Unit,
        code: Code,
        lanes: LaneArithmetic,
        memory: LaneMemory,
        indices: Mapping[tuple[IndexKind, int], Value],
        buffer: str,
        first: FirstViolation | None,
    ) -> None:
        """`buffer`: the diagnostics buffer. `first`: where violations are kept, if they are not claimed at once."""
        self._unit = unit
        self._code = code
        self._lanes = lanes
        self._memory = memory
        axes = sorted(axis for kind, axis in indices if kind is IndexKind.GLOBAL_ID)
        self._ids: Shown = tuple((indices[IndexKind.GLOBAL_ID, axis], i64) for axis in axes)
        self._buffer = buffer
        self._first = first

    def violation(self, site: int, values: Shown, failing: Value | None) -> None:
        """The first lane of each row that fails reports; without a mask every lane fails."""
        code, lanes = self._code, self._lanes
        if failing is None:
            self._violated(site, values, 0, "0")
            return
        for row in lanes.rows_of(failing.layout):
            fails, done = code.label("fails"), code.label("holds")
            on = failing.part(row)
            code.branch_if(lanes.any_lane(on), fails, done)
            code.place(fails)
            self._violated(site, values, row, self._memory.first_lane(on))
            code.place(done)

    def _violated(self, site: int, values: Shown, row: int, lane: str) -> None:
        ids, cells = self._ids_of(row, lane), self._cells(values, row, lane)
        if self._first is None:
            emit_violation(self._unit, self._code, self._buffer, site, ids, cells)
            return
        number = lane if row == 0 else self._code.value(f"add i64 {lane}, {row * self._lanes.width}")
        self._first.keep(self._unit, number, site, ids, cells)

    def printed(self, site: int, values: Shown, on: Value | None) -> None:
        """One lane that is on after the other."""

        def one(row: int, lane: str) -> None:
            ids, cells = self._ids_of(row, lane), self._cells(values, row, lane)
            emit_print(self._unit, self._code, self._buffer, site, ids, cells)

        for row in range(self._lanes.rows):
            self._memory.each_lane(None if on is None else on.part(row), functools.partial(one, row))

    def _ids_of(self, row: int, lane: str) -> tuple[str, ...]:
        return tuple(self._element(value, dtype, row, lane) for value, dtype in self._ids)

    def _cells(self, values: Shown, row: int, lane: str) -> tuple[str, ...]:
        """One lane's values as a record keeps them."""
        return tuple(cell(self._code, dtype, self._element(value, dtype, row, lane)) for value, dtype in values)

    def _element(self, value: Value, dtype: DType, row: int, lane: str) -> str:
        if value.layout.lanes is Lanes.UNIFORM:
            return value.part(row)
        vector = wide(register_type(dtype), self._lanes.width)
        return self._code.value(f"extractelement {vector} {self._lanes.vectors(value, dtype).part(row)}, i64 {lane}")
