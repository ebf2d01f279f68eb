"""Modules: the kernel, and the device functions that it reaches, each once per kind of call."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from quernel.dtypes import ParameterType, ScalarType
from quernel.errors import KernelTypeError
from quernel.geometry import LaunchForm
from quernel.intrinsics import DeviceFunction, declared_by
from quernel.ir import nodes
from quernel.ir.nodes import ArrayRef, Call, Expr, Function, Kernel, Module, Root, RootKind
from quernel.ir.walk import walk_statements
from quernel.lang.bodies import lower_function
from quernel.lang.declarations import TypeVariables, as_declared, kernel_variables
from quernel.lang.lowering import FunctionLowering
from quernel.lang.names import captured
from quernel.lang.parameters import parameter, parameter_value, parameters_of, struct_parameter
from quernel.lang.refusals import Refusals
from quernel.lang.source import Source, read_source
from quernel.lang.trees import Leaf, leaves, map_leaves
from quernel.lang.values import (
    ArrayValue,
    ObjectValue,
    Scalar,
    StructValue,
    TupleValue,
    Value,
    VectorValue,
    describe,
)
from quernel.options import KernelOptions

__all__ = ["KernelUnit"]


@attrs.frozen(eq=False)
class _Specialized:
    """A device function for the types and constants of one kind of call."""

    function: Function
    results: tuple[ScalarType, ...]
    returned: Value | None


class KernelUnit:
    """One kernel on its way into a module."""

    def __init__(self, form: LaunchForm, block: tuple[int, ...], options: KernelOptions) -> None:
        self.form = form
        self.block = block
        self.options = options
        self.storable = True
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
        params: list[tuple[ast.arg, str, ParameterType]] = []
        for argument in parameters_of(refuse):
            self._receive(refuse, argument, parameter_types, constants, values, params)
        variables = kernel_variables(declared_by(function), dict(parameter_types))
        try:
            with self._entered(function):
                lowered = lower_function(self, function, refuse, values, variables, is_kernel=True)
        except RecursionError:
            raise refuse.syntax(
                source.definition, f"the calls in `{name}` nest too deep", "let functions call fewer functions in turn"
            ) from None
        kernel = Kernel(
            name=name,
            form=self.form,
            block=self.block,
            params=tuple(parameter(refuse, argument, path, type_, lowered.bounds) for argument, path, type_ in params),
            locals=lowered.locals,
            body=lowered.statements,
            options=self.options,
            loc=refuse.where(source.definition),
        )
        return Module(kernel=kernel, functions=self._reached(kernel))

    def _receive(
        self,
        refuse: Refusals,
        argument: ast.arg,
        parameter_types: Mapping[str, ParameterType],
        constants: Mapping[str, object],
        values: dict[str, Value],
        params: list[tuple[ast.arg, str, ParameterType]],
    ) -> None:
        """Takes a parameter of the kernel, or those of its fields if it is a struct, into `values` and `params`."""
        name = argument.arg
        if name in constants:
            values[name] = captured(refuse, argument, name, constants[name])
            return
        if name in parameter_types:
            values[name] = parameter_value(refuse, argument, name, parameter_types[name])
            params.append((argument, name, parameter_types[name]))
            return
        parts: dict[str, Value] = {}
        for path in [*parameter_types, *constants]:
            if not path.startswith(f"{name}."):
                continue
            if path in constants:
                parts[path] = captured(refuse, argument, path, constants[path])
                continue
            parts[path] = parameter_value(refuse, argument, path, parameter_types[path])
            params.append((argument, path, parameter_types[path]))
        values[name] = struct_parameter(name, parts)

    # --- device functions ---

    def call(
        self, lowering: FunctionLowering, node: ast.Call, function: DeviceFunction, arguments: dict[str, Value]
    ) -> Value | None:
        """Emits a call of `function`, specialized to its arguments."""
        plain = function.__quernel_function__
        variables = as_declared(lowering, node, plain.__name__, function.declared, arguments)
        if any(active is plain for active in self._in_progress):
            first = next(index for index, active in enumerate(self._in_progress) if active is plain)
            cycle = " → ".join([*(active.__name__ for active in self._in_progress[first:]), plain.__name__])
            raise lowering.refuse.syntax(node, f"recursion has no meaning in a kernel: {cycle}", "write it as a loop")
        key = (id(plain), tuple(_key(value) for value in arguments.values()))
        specialized = self._specialized.get(key)
        if specialized is None:
            self._kept.append((plain, dict(arguments)))
            specialized = self._specialize_once(lowering, node, plain, arguments, variables, key)
            self._specialized[key] = specialized
        return self._emit_call(lowering, node, specialized, arguments)

    def _specialize_once(
        self,
        lowering: FunctionLowering,
        node: ast.Call,
        function: types.FunctionType,
        arguments: dict[str, Value],
        variables: TypeVariables,
        key: object,
    ) -> _Specialized:
        """The specialization, or the same refusal again: a caller that is lowered anew meets it each time."""
        call = (key, lowering.where(node), lowering.refuse.chain)
        known = self._refused.get(call)
        if known is not None:
            raise known
        try:
            return self._specialize(lowering, node, function, arguments, variables)
        except KernelTypeError as error:
            self._refused[call] = error
            raise

    def _specialize(
        self,
        lowering: FunctionLowering,
        node: ast.Call,
        function: types.FunctionType,
        arguments: dict[str, Value],
        variables: TypeVariables,
    ) -> _Specialized:
        shown = ", ".join(f"{name}: {describe(value)}" for name, value in arguments.items())
        called = f"in {function.__name__}({shown}), called at {lowering.where(node)}"
        refuse = Refusals(self._read(function), (called, *lowering.refuse.chain))
        params: list[tuple[ast.arg, str, ParameterType]] = []

        def received(argument: ast.arg, path: str, leaf: Leaf) -> Value:
            """A part of an argument as the function sees it: constants and objects as they are, the rest passed."""
            match leaf:
                case Scalar(constant=None, type=type_):
                    params.append((argument, path, type_))
                    return parameter_value(refuse, argument, path, type_)
                case Scalar():
                    return Scalar(leaf.type, constant=leaf.constant)
                case ArrayValue(type=type_, shape=shape, space=space):
                    params.append((argument, path, type_))
                    return ArrayValue(Root(RootKind.PARAM, path), type_, shape, space)
                case ObjectValue():
                    return leaf

        values = {
            argument.arg: map_leaves(arguments[argument.arg], functools.partial(received, argument), argument.arg)
            for argument in parameters_of(refuse)
        }
        name = self._unique_name(function.__name__)
        with self._entered(function):
            lowered = lower_function(self, function, refuse, values, variables, is_kernel=False)
        made = Function(
            name=name,
            params=tuple(parameter(refuse, argument, path, type_, lowered.bounds) for argument, path, type_ in params),
            results=tuple(entry.type.dtype for entry in lowered.results),
            locals=lowered.locals,
            body=lowered.statements,
            loc=refuse.where(refuse.source.definition),
        )
        return _Specialized(made, tuple(entry.type for entry in lowered.results), lowered.returned)

    def _emit_call(
        self, lowering: FunctionLowering, node: ast.Call, specialized: _Specialized, arguments: dict[str, Value]
    ) -> Value | None:
        loc = lowering.where(node)
        handed: list[Expr | ArrayRef] = []
        given = {path: leaf for name, value in arguments.items() for path, leaf in leaves(value, name)}
        for param in specialized.function.params:
            value = given[param.name]
            if isinstance(value, ArrayValue):
                handed.append(ArrayRef(root=value.root, type=value.type, loc=loc))
                continue
            assert isinstance(value, Scalar)
            handed.append(lowering.expr(value, node))
            if param.bounds is not None:
                lowering.restrict(value, *param.bounds, node)
        results = [lowering.scope.temporary(type_.dtype) for type_ in specialized.results]
        lowering.emit(
            Call(results=tuple(results), function=specialized.function.name, arguments=tuple(handed), loc=loc)
        )
        lowering.num_calls += 1
        if specialized.returned is None:
            return None
        values = iter(
            Scalar(type_, nodes.Local(name=result, type=type_.dtype, loc=loc))
            for result, type_ in zip(results, specialized.results, strict=True)
        )
        return map_leaves(specialized.returned, lambda _path, _leaf: next(values))

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
        case VectorValue(items=items):
            return ("vector", tuple(_key(item) for item in items))
        case StructValue(name=name, fields=fields, items=items):
            return ("struct", name, fields, tuple(_key(item) for item in items))
        case ObjectValue(value=held):
            return ("object", id(held))
