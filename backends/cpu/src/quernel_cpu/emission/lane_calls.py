"""Calls of device functions by all threads that run together: one for each row of which a lane is on."""

from __future__ import annotations

import attrs

from quernel.dtypes import DType, i64
from quernel.ir.nodes import ArrayRef, Call
from quernel_cpu.emission.functions import DeviceFunction
from quernel_cpu.emission.lane_scope import LaneCallees, LaneScope
from quernel_cpu.emission.lane_values import LaneArithmetic, Value
from quernel_cpu.emission.shapes import Axes, Lanes, Layout
from quernel_cpu.emission.text import Code
from quernel_cpu.emission.values import scalar

__all__ = ["LaneCalls"]

_Operand = tuple[str, str]
"""LLVM type and text."""


class LaneCalls:
    """Writes calls; a mask, where there is one, is passed on as the function's first operand."""

    def __init__(self, code: Code, lanes: LaneArithmetic, scope: LaneScope, axes: Axes) -> None:
        self._code = code
        self._lanes = lanes
        self._scope = scope
        self._axes = axes

    def emit(
        self,
        call: Call,
        values: tuple[Value | None, ...],
        layouts: tuple[Layout, ...],
        types: tuple[DType, ...],
        mask: Value | None,
    ) -> tuple[Value, ...]:
        """The results, of these types. `values`: the arguments, `None` for arrays; `layouts`: how the others lie."""
        functions = self._scope.functions
        assert functions is not None
        results = functions.results(call.function, layouts, self._axes)
        arrays = tuple(
            self._scope.arrays[argument.root.name] for argument in call.arguments if isinstance(argument, ArrayRef)
        )
        symbol = functions.symbol(call.function, layouts, arrays, self._axes, is_masked=mask is not None)
        returned = functions.result_type(call.function, results)
        parts: list[list[str]] = [[] for _ in results]
        for row in range(self._lanes.rows):
            operands = self._operands(functions, call, values, layouts, row)
            if mask is None:
                found = self._returned(returned, symbol, operands, len(results))
            else:
                on = mask.part(row)
                operands.insert(0, (f"i{self._lanes.width}", self._lanes.bits(on)))
                passed = list(map(functions.passed_type, types, results))
                found = self._where_any(on, returned, symbol, operands, passed)
            for kept, dtype, layout, operand in zip(parts, types, results, found, strict=True):
                kept.append(functions.received(self._code, dtype, layout, operand))
        has_rows = self._lanes.rows > 1
        return tuple(
            Value(Layout(layout.lanes, 0, has_rows), tuple(of_rows))
            for layout, of_rows in zip(results, parts, strict=True)
        )

    def _operands(
        self,
        functions: LaneCallees,
        call: Call,
        values: tuple[Value | None, ...],
        layouts: tuple[Layout, ...],
        row: int,
    ) -> list[_Operand]:
        """What a row's call passes, but for the mask."""
        callee: DeviceFunction = functions.device_function(call.function)
        operands: list[_Operand] = []
        given = iter(layouts)
        for param, argument, value in zip(callee.function.params, call.arguments, values, strict=True):
            if isinstance(argument, ArrayRef):
                operands += callee.array_operands(param.name, self._scope.arrays[argument.root.name])
                continue
            assert value is not None
            operands.append(self._passed(functions, value, scalar(argument.type), next(given), row))
        for index in callee.indices:
            layout = attrs.evolve(self._axes.index(*index), rows=False)
            operands.append(self._passed(functions, self._scope.indices[index], i64, layout, row))
        if callee.reports:
            operands.append(("ptr", self._scope.diagnostics))
        return operands

    def _passed(self, functions: LaneCallees, value: Value, dtype: DType, layout: Layout, row: int) -> _Operand:
        """One row's value, lying as the function expects it."""
        if layout.lanes is Lanes.VECTOR:
            value = self._lanes.vectors(value, dtype)
        operand = functions.passed(self._code, dtype, layout, value.part(row))
        return functions.passed_type(dtype, layout), operand

    def _returned(self, returned: str, symbol: str, operands: list[_Operand], num_results: int) -> list[str]:
        """The call, and its results one by one."""
        listed = ", ".join(f"{llvm} {operand}" for llvm, operand in operands)
        invocation = f"call {returned} {symbol}({listed})"
        if not num_results:
            self._code.do(invocation)
            return []
        whole = self._code.value(invocation)
        if num_results == 1:
            return [whole]
        return [self._code.value(f"extractvalue {returned} {whole}, {number}") for number in range(num_results)]

    def _where_any(self, on: str, returned: str, symbol: str, operands: list[_Operand], passed: list[str]) -> list[str]:
        """The call if a lane of its row is on; with one row there is one, or the branch would not be run."""
        code = self._code
        if self._lanes.rows == 1:
            return self._returned(returned, symbol, operands, len(passed))
        slots = [(llvm, code.allocate(llvm)) for llvm in passed]
        inside, done = code.label("calls"), code.label("calls.end")
        code.branch_if(self._lanes.any_lane(on), inside, done)
        code.place(inside)
        for (llvm, slot), operand in zip(slots, self._returned(returned, symbol, operands, len(passed)), strict=True):
            code.do(f"store {llvm} {operand}, ptr {slot}")
        code.place(done)
        return [code.value(f"load {llvm}, ptr {slot}") for llvm, slot in slots]
