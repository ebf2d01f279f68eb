"""Device functions of all threads: a mask says which lanes call, and each argument is a scalar or a vector.

A function is written once for each combination of how its arguments lie, for one row of lanes. What callers agree on
stays scalar inside it, and so do results that depend on nothing else. Something is always on: a call that no lane of a
row takes is jumped over.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from quernel.dtypes import ArrayType, DType, bool_, i64
from quernel.ir.nodes import Assign, Atomic, Function, LocalVariable, Return, Root, RootKind, Stmt
from quernel.ir.walk import Body, map_statements, walk_statements
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.functions import DIAGNOSTICS, DeviceFunction, index_operand
from quernel_cpu.emission.lane_bodies import LaneBody
from quernel_cpu.emission.lane_scope import LaneScope
from quernel_cpu.emission.lane_values import LaneArithmetic, Value
from quernel_cpu.emission.shapes import UNIFORM, VECTOR, Axes, Lanes, Layout, Shapes, analyse_shapes
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import register_type, scalar, wide

__all__ = ["LaneFunctions"]


@attrs.frozen
class _Version:
    """A function for arguments that lie in a certain way.

    Attributes:
        function: the function with its results as locals.
        results: those locals.
        shapes: how its locals lie.
    """

    function: Function
    results: tuple[LocalVariable, ...]
    shapes: Shapes

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """How its results lie."""
        return tuple(self.shapes.locals.get(result.name, UNIFORM) for result in self.results)


_Key = tuple[str, tuple[Layout, ...], frozenset[object], frozenset[object]]


class LaneFunctions:
    """The device functions of one module, each written when it is first called."""

    def __init__(
        self,
        unit: Unit,
        functions: Mapping[str, DeviceFunction],
        width: int,
        *,
        fast_math: bool,
        attributes: str,
    ) -> None:
        """`attributes`: what LLVM must know of each function."""
        self._unit = unit
        self._functions = functions
        self._width = width
        self._fast_math = fast_math
        self._attributes = attributes
        self._with_results = {name: _with_results(one.function) for name, one in functions.items()}
        self.has_atomics = any(
            isinstance(stmt, Atomic) for one in functions.values() for stmt in walk_statements(one.function.body)
        )
        """Whether any of them changes arrays by atomics."""
        self._versions: dict[_Key, _Version] = {}
        self._symbols: dict[tuple[_Key, tuple[tuple[int, ...], ...], bool], str] = {}

    def device_function(self, name: str) -> DeviceFunction:
        """A function as scalar code knows it: what it uses of arrays and of the launch."""
        return self._functions[name]

    def results(self, name: str, arguments: tuple[Layout, ...], axes: Axes) -> tuple[Layout, ...]:
        """How the results lie across the lanes, where the value arguments lie so."""
        return self._version(name, arguments, axes)[1].layouts

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
        key, version = self._version(name, arguments, axes)
        near = tuple(tuple(axis for axis, stride in array.strides.items() if stride == "1") for array in arrays)
        if (key, near, is_masked) not in self._symbols:
            symbol = self._unit.fresh("q.lanes")
            self._symbols[key, near, is_masked] = symbol
            self._emit(symbol, name, version, near, is_masked=is_masked)
        return self._symbols[key, near, is_masked]

    # --- types --------------------------------------------------------------------------------------------------------

    def passed_type(self, dtype: DType, layout: Layout) -> str:
        """The LLVM type of a value on its way in or out; masks travel as bits."""
        if layout.lanes is not Lanes.VECTOR:
            return register_type(dtype)
        return f"i{self._width}" if dtype.is_bool else wide(register_type(dtype), self._width)

    def passed(self, code: Code, dtype: DType, layout: Layout, operand: str) -> str:
        """A value in the form in which it travels."""
        if layout.lanes is Lanes.VECTOR and dtype.is_bool:
            return code.value(f"bitcast <{self._width} x i1> {operand} to i{self._width}")
        return operand

    def received(self, code: Code, dtype: DType, layout: Layout, operand: str) -> str:
        """A value that has arrived."""
        if layout.lanes is Lanes.VECTOR and dtype.is_bool:
            return code.value(f"bitcast i{self._width} {operand} to <{self._width} x i1>")
        return operand

    def result_type(self, name: str, layouts: tuple[Layout, ...]) -> str:
        """The LLVM type of what a function returns: nothing, a value, or a structure of several."""
        results = self._with_results[name][1]
        types = [self.passed_type(scalar(result.type), layout) for result, layout in zip(results, layouts, strict=True)]
        return "void" if not types else types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"

    # --- versions -----------------------------------------------------------------------------------------------------

    def _version(self, name: str, arguments: tuple[Layout, ...], axes: Axes) -> tuple[_Key, _Version]:
        key = (name, arguments, frozenset[object](axes.lanes), frozenset[object](axes.vectors))
        if key not in self._versions:
            function, results = self._with_results[name]
            values = [param.name for param in function.params if not isinstance(param.type, ArrayType)]
            arrays = [param.name for param in function.params if isinstance(param.type, ArrayType)]
            own = Axes(
                lanes=axes.lanes,
                vectors=axes.vectors,
                atomics=frozenset(Root(RootKind.PARAM, array) for array in arrays if self.has_atomics or axes.atomics),
                params=dict(zip(values, arguments, strict=True)),
                calls=self.results,
            )
            shapes = analyse_shapes(function.body, own, {result.name: UNIFORM for result in results})
            self._versions[key] = _Version(function, results, shapes)
        return key, self._versions[key]

    def _emit(
        self, symbol: str, name: str, version: _Version, near: tuple[tuple[int, ...], ...], *, is_masked: bool
    ) -> None:
        """`near`: for each array, the axes along which neighbours lie side by side."""
        code, callee, width = Code(), self._functions[name], self._width
        function, axes = version.function, version.shapes.axes
        lanes = LaneArithmetic(self._unit, code, width, 1, fast_math=self._fast_math)
        operands: list[tuple[str, str]] = []
        mask = None
        if is_masked:
            operands.append((f"i{width}", "%mask"))
            mask = Value(VECTOR, (self.received(code, bool_, VECTOR, "%mask"),))
        scalars, arrays, near_axes = dict[str, Value](), {}, iter(near)
        for position, param in enumerate(function.params):
            if isinstance(param.type, ArrayType):
                assert param.type.element is not None
                own_array = callee.own_array(position, param.type.element, "")
                operands += callee.array_operands(param.name, own_array)
                strides = own_array.strides | dict.fromkeys(next(near_axes), "1")
                arrays[param.name] = attrs.evolve(own_array, strides=strides)
            else:
                dtype, layout = scalar(param.type.dtype), axes.params[param.name]
                own = f"%a{position}"
                operands.append((self.passed_type(dtype, layout), own))
                scalars[param.name] = Value(layout, (self.received(code, dtype, layout, own),))
        indices = {}
        for kind, axis in callee.indices:
            layout, own = axes.index(kind, axis), index_operand(kind, axis)
            operands.append((self.passed_type(i64, layout), own))
            indices[kind, axis] = Value(layout, (own,))
        if callee.reports:
            operands.append(("ptr", DIAGNOSTICS))
        scope = LaneScope(
            scalars=scalars,
            arrays=arrays,
            indices=indices,
            private={},
            leave=code.label("function.end"),
            diagnostics=DIAGNOSTICS if callee.reports else "null",
            functions=self,
        )
        variables = (*function.locals, *version.results)
        body = LaneBody(self._unit, code, scope, variables, version.shapes, lanes, mask, fills=True)
        body.start(function.body, {})
        body.emit(function.body)
        code.place(scope.leave)
        self._return(code, name, version, [body.local(result.name) for result in version.results])
        listed = ", ".join(f"{llvm} {operand}" for llvm, operand in operands)
        result = self.result_type(name, version.layouts)
        self._unit.add_function(
            code.function(f"internal {result} {symbol}({listed}) noinline nounwind alignstack(64){self._attributes}")
        )

    def _return(self, code: Code, name: str, version: _Version, values: list[Value]) -> None:
        typed = [
            (scalar(result.type), layout, value.part(0))
            for result, layout, value in zip(version.results, version.layouts, values, strict=True)
        ]
        types = [self.passed_type(dtype, layout) for dtype, layout, _ in typed]
        passed = [self.passed(code, *each) for each in typed]
        if not passed:
            code.end("ret void")
            return
        if len(passed) == 1:
            code.end(f"ret {types[0]} {passed[0]}")
            return
        whole, aggregate = self.result_type(name, version.layouts), "poison"
        for number, (llvm, operand) in enumerate(zip(types, passed, strict=True)):
            aggregate = code.value(f"insertvalue {whole} {aggregate}, {llvm} {operand}, {number}")
        code.end(f"ret {whole} {aggregate}")


def _with_results(function: Function) -> tuple[Function, tuple[LocalVariable, ...]]:
    """The function with what it returns in locals, and those."""
    taken = {*(local.name for local in function.locals), *(param.name for param in function.params)}
    results = []
    for number, value_type in enumerate(function.results):
        name = f"result_{number}"
        while name in taken:
            name += "_"
        results.append(LocalVariable(name=name, type=value_type))

    def rewrite(stmt: Stmt) -> Stmt | Body:
        if not isinstance(stmt, Return):
            return stmt
        given = (
            Assign(name=result.name, value=value, loc=stmt.loc)
            for result, value in zip(results, stmt.values, strict=True)
        )
        return (*given, Return(loc=stmt.loc))

    return attrs.evolve(function, body=map_statements(function.body, rewrite)), tuple(results)
