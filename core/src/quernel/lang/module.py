"""Modules: the kernel, and the device functions that it reaches, each once per kind of call."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from quernel.dtypes import ArrayType, DType, ParameterType, ScalarType, i64
from quernel.errors import KernelTypeError
from quernel.geometry import LaunchForm
from quernel.intrinsics import DeviceFunction
from quernel.ir import nodes
from quernel.ir.nodes import ArrayRef, Call, Expr, Function, Kernel, Module, Root, RootKind
from quernel.ir.walk import walk_statements
from quernel.lang.bodies import lower_function
from quernel.lang.conversions import meeting
from quernel.lang.lowering import FunctionLowering
from quernel.lang.names import captured
from quernel.lang.parameters import parameter, parameter_value, parameters_of
from quernel.lang.promotion import kind_of
from quernel.lang.refusals import Refusals
from quernel.lang.source import Source, read_source
from quernel.lang.values import ArrayValue, ObjectValue, Scalar, TupleValue, Value, describe
from quernel.options import KernelOptions

__all__ = ["KernelUnit"]


@attrs.frozen(eq=False)
class _Specialized:
    """A device function for the types and constants of one kind of call."""

    function: Function
    results: tuple[ScalarType, ...]


class KernelUnit:
    """One kernel on its way into a module."""

    def __init__(self, form: LaunchForm, block: tuple[int, ...], options: KernelOptions) -> None:
        self.form = form
        self.ndim = len(block)
        self.storable = True
        self._block = block
        self._options = options
        self._specialized: dict[object, _Specialized] = {}
        self._refused: dict[object, KernelTypeError] = {}
        self._names: set[str] = set()
        self._kept: list[object] = []
        self._in_progress: list[types.FunctionType] = []

    def lower_kernel(
        self,
        function: types.FunctionType,
        name: str,
        parameter_types: Mapping[str, ParameterType],
        constants: Mapping[str, object],
    ) -> Module:
        """The module of a kernel whose every parameter has a type or a constant."""
        source = self._read(function)
        refuse = Refusals(source)
        self._names.add(name)
        values: dict[str, Value] = {}
        params = []
        for argument in parameters_of(refuse):
            if argument.arg in constants:
                values[argument.arg] = captured(refuse, argument, argument.arg, constants[argument.arg])
                continue
            type_ = parameter_types[argument.arg]
            values[argument.arg] = parameter_value(refuse, argument, type_)
            params.append((argument, type_))
        try:
            with self._entered(function):
                lowered = lower_function(self, function, refuse, values, is_kernel=True)
        except RecursionError:
            raise refuse.syntax(
                source.definition, f"the calls in `{name}` nest too deep", "let functions call fewer functions in turn"
            ) from None
        kernel = Kernel(
            name=name,
            form=self.form,
            block=self._block,
            params=tuple(parameter(refuse, argument, type_, lowered.bounds) for argument, type_ in params),
            locals=lowered.locals,
            body=lowered.statements,
            options=self._options,
            loc=refuse.where(source.definition),
        )
        return Module(kernel=kernel, functions=self._reached(kernel))

    # --- device functions ---

    def call(
        self, lowering: FunctionLowering, node: ast.Call, function: DeviceFunction, arguments: dict[str, Value]
    ) -> Value | None:
        """Emits a call of `function`, specialized to its arguments."""
        plain = function.__quernel_function__
        for name, value in arguments.items():
            arguments[name] = self._as_declared(lowering, node, function, name, value)
        if any(active is plain for active in self._in_progress):
            first = next(index for index, active in enumerate(self._in_progress) if active is plain)
            cycle = " → ".join([*(active.__name__ for active in self._in_progress[first:]), plain.__name__])
            raise lowering.refuse.syntax(node, f"recursion has no meaning in a kernel: {cycle}", "write it as a loop")
        key = (id(plain), tuple(_key(value) for value in arguments.values()))
        specialized = self._specialized.get(key)
        if specialized is None:
            self._kept.append((plain, dict(arguments)))
            specialized = self._specialize_once(lowering, node, plain, arguments, key)
            self._specialized[key] = specialized
        return self._emit_call(lowering, node, specialized, arguments)

    def _as_declared(
        self, lowering: FunctionLowering, node: ast.Call, function: DeviceFunction, name: str, value: Value
    ) -> Value:
        """An argument in the type that the parameter's annotation declares, if it declares one."""
        declared = function.declared.get(name)
        match declared, value:
            case None, _:
                return value
            case DType(), Scalar():
                lowering.supported(declared, node, "parameters")
                if _keeps_kind(value.dtype, declared):
                    return meeting(lowering, value, declared, node)
            case ArrayType(), ArrayValue(type=type_):
                has_element = declared.element is None or declared.element == type_.element
                if has_element and declared.ndim in (None, type_.ndim):
                    return value
        of = function.__quernel_function__.__name__
        raise lowering.refuse.type(
            node,
            f"`{name}` of `{of}` is declared {declared}, and the argument is {describe(value)}",
            "cast the argument, or leave the annotation out",
        )

    def _specialize_once(
        self,
        lowering: FunctionLowering,
        node: ast.Call,
        function: types.FunctionType,
        arguments: dict[str, Value],
        key: object,
    ) -> _Specialized:
        """The specialization, or the same refusal again: a caller that is lowered anew meets it each time."""
        call = (key, lowering.where(node), lowering.refuse.chain)
        known = self._refused.get(call)
        if known is not None:
            raise known
        try:
            return self._specialize(lowering, node, function, arguments)
        except KernelTypeError as error:
            self._refused[call] = error
            raise

    def _specialize(
        self,
        lowering: FunctionLowering,
        node: ast.Call,
        function: types.FunctionType,
        arguments: dict[str, Value],
    ) -> _Specialized:
        shown = ", ".join(f"{name}: {describe(value)}" for name, value in arguments.items())
        called = f"in {function.__name__}({shown}), called at {lowering.where(node)}"
        refuse = Refusals(self._read(function), (called, *lowering.refuse.chain))
        values: dict[str, Value] = {}
        params: list[tuple[ast.arg, ParameterType]] = []
        for argument in parameters_of(refuse):
            value = arguments[argument.arg]
            match value:
                case Scalar(constant=None, type=type_):
                    values[argument.arg] = parameter_value(refuse, argument, type_)
                    params.append((argument, type_))
                case ArrayValue(type=type_, shape=shape, space=space):
                    root = Root(RootKind.PARAM, argument.arg)
                    values[argument.arg] = ArrayValue(root, type_, shape, space)
                    params.append((argument, type_))
                case Scalar():
                    values[argument.arg] = Scalar(value.type, constant=value.constant)
                case _:
                    values[argument.arg] = value
        name = self._unique_name(function.__name__)
        with self._entered(function):
            lowered = lower_function(self, function, refuse, values, is_kernel=False)
        made = Function(
            name=name,
            params=tuple(parameter(refuse, argument, type_, lowered.bounds) for argument, type_ in params),
            results=tuple(entry.type.dtype for entry in lowered.results),
            locals=lowered.locals,
            body=lowered.statements,
            loc=refuse.where(refuse.source.definition),
        )
        return _Specialized(made, tuple(entry.type for entry in lowered.results))

    def _emit_call(
        self, lowering: FunctionLowering, node: ast.Call, specialized: _Specialized, arguments: dict[str, Value]
    ) -> Value | None:
        loc = lowering.where(node)
        handed: list[Expr | ArrayRef] = []
        for param in specialized.function.params:
            value = arguments[param.name]
            if isinstance(value, ArrayValue):
                handed.append(ArrayRef(root=value.root, type=value.type, loc=loc))
                continue
            assert isinstance(value, Scalar)
            handed.append(lowering.expr(value, node))
            for origin in value.origins if param.bounds is not None else ():
                assert param.bounds is not None
                low, high = lowering.bounds.get(origin, (i64.min, i64.max))
                lowering.bounds[origin] = max(low, param.bounds[0]), min(high, param.bounds[1])
        results = [lowering.scope.temporary(type_.dtype) for type_ in specialized.results]
        lowering.emit(
            Call(results=tuple(results), function=specialized.function.name, arguments=tuple(handed), loc=loc)
        )
        lowering.num_calls += 1
        values = tuple(
            Scalar(type_, nodes.Local(name=result, type=type_.dtype, loc=loc))
            for result, type_ in zip(results, specialized.results, strict=True)
        )
        if not values:
            return None
        return values[0] if len(values) == 1 else TupleValue(values)

    def _unique_name(self, stem: str) -> str:
        name, number = stem, 1
        while name in self._names:
            number += 1
            name = f"{stem}_{number}"
        self._names.add(name)
        return name

    def _reached(self, kernel: Kernel) -> tuple[Function, ...]:
        """The functions that the kernel calls, directly or not, in the order of their first call."""
        by_name = {specialized.function.name: specialized.function for specialized in self._specialized.values()}
        reached: dict[str, Function] = {}
        pending = _called(kernel.body)
        while pending:
            name = pending.pop(0)
            if name not in reached:
                reached[name] = by_name[name]
                pending = [*_called(by_name[name].body), *pending]
        return tuple(reached.values())

    # --- bodies ---

    @contextmanager
    def _entered(self, function: types.FunctionType) -> Iterator[None]:
        self._in_progress.append(function)
        try:
            yield
        finally:
            self._in_progress.pop()

    def _read(self, function: types.FunctionType) -> Source:
        source = read_source(function)
        self.storable = self.storable and source.storable
        return source


def _keeps_kind(given: DType, declared: DType) -> bool:
    """Whether a value keeps its kind, or goes from an integer to a float."""
    return kind_of(given) == kind_of(declared) or (given.is_integer and declared.is_float)


def _called(body: tuple[nodes.Stmt, ...]) -> list[str]:
    return [statement.function for statement in walk_statements(body) if isinstance(statement, Call)]


def _key(value: Value) -> object:
    """What distinguishes one specialization from another, for one argument."""
    match value:
        case Scalar(constant=None):
            return ("scalar", value.type)
        case Scalar(constant=known):
            assert known is not None
            return ("constant", value.type, float(known).hex() if isinstance(known, float) else known)
        case ArrayValue():
            return ("array", value.type, value.shape, value.space)
        case TupleValue(items):
            return ("tuple", tuple(_key(item) for item in items))
        case ObjectValue(value=held):
            return ("object", id(held))
