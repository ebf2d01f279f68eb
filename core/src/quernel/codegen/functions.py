"""Device functions: what each receives, and one C function for each combination of memory that arrays come from."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from quernel.codegen.dialect import Dialect
from quernel.codegen.indices import hidden_of
from quernel.codegen.names import Names
from quernel.codegen.reports import reporting_functions
from quernel.codegen.scope import ArrayCode, Scope
from quernel.codegen.statements import Argument
from quernel.codegen.text import Code, call, primary
from quernel.codegen.types import Types
from quernel.dtypes import ArrayType, DType, i64, u64
from quernel.geometry import LaunchForm
from quernel.ir.analysis import function_uses
from quernel.ir.nodes import Function, IndexKind, Module, Root, RootKind

__all__ = ["FunctionTable", "Instance"]


@attrs.frozen
class Instance:
    """One C function: a device function for arrays in certain kinds of memory.

    Attributes:
        name: in the text.
        function: its IR.
        kinds: the memory of each array parameter, in order.
    """

    name: str
    function: Function
    kinds: tuple[RootKind, ...]


class FunctionTable:
    """The device functions of a module, as far as they are called; the first call of an instance has it written."""

    def __init__(
        self, module: Module, dialect: Dialect, types: Types, names: Names, write: Callable[[Instance], None]
    ) -> None:
        self._dialect = dialect
        self._types = types
        self._names = names
        self._form: LaunchForm = module.kernel.form
        self._functions = {function.name: function for function in module.functions}
        self._ndim = module.kernel.ndim
        self._uses = function_uses(module)
        self._reporting = reporting_functions(module)
        self._instances: dict[tuple[str, tuple[RootKind, ...]], Instance] = {}
        self._results: dict[str, str] = {}
        self.definitions: list[str] = []
        """Types of several results."""
        self._write = write

    def function(self, name: str) -> Function:
        """A device function of the module."""
        return self._functions[name]

    def results_type(self, function: Function) -> str:
        """The type of several results together."""
        if function.name not in self._results:
            name = self._names.fresh(f"{function.name}_results")
            self._results[function.name] = name
            fields = [f"    {self._types.value(type_)} r{n};" for n, type_ in enumerate(function.results)]
            self.definitions.append("\n".join(["typedef struct {", *fields, f"}} {name};", ""]))
        return self._results[function.name]

    def invocation(self, name: str, arguments: tuple[Argument, ...], scope: Scope) -> str:
        """The call of a device function."""
        function, uses = self._functions[name], self._uses[name]
        kinds = tuple(argument.kind for argument in arguments if isinstance(argument, ArrayCode))
        instance = self._instance(function, kinds)
        given: list[Code] = []
        for param, argument in zip(function.params, arguments, strict=True):
            if isinstance(argument, ArrayCode):
                use = uses.array(param.name)
                if use.is_accessed:
                    given.append(primary(argument.pointer))
                given += [argument.shape[axis] for axis in use.shape_axes]
                for axis in use.stride_axes:
                    given.append(argument.strides[axis] or primary("1"))
            else:
                given.append(argument)
        given += [scope.indices[key] for key in self._hidden(function)]
        given += [primary(buffer) for buffer in scope.diagnostics[-1:] if name in self._reporting]
        listed = ", ".join(f"{{{number}}}" for number in range(len(given)))
        return call(f"{instance.name}({listed})", *given).text

    def _instance(self, function: Function, kinds: tuple[RootKind, ...]) -> Instance:
        key = (function.name, () if self._dialect.has_one_address_space else kinds)
        if key not in self._instances:
            instance = Instance(self._names.fresh(function.name), function, kinds)
            self._instances[key] = instance
            self._write(instance)
        return self._instances[key]

    def _hidden(self, function: Function) -> list[tuple[str, int]]:
        indices = list(self._uses[function.name].indices)
        if function.name in self._reporting:  # Records say which thread it was.
            indices += [(IndexKind.GLOBAL_ID, axis) for axis in range(self._ndim)]
        wanted = ((hidden_of(kind, self._form), axis) for kind, axis in indices)
        return list(dict.fromkeys((kind, axis) for kind, axis in wanted if kind is not None))

    def signature(self, instance: Instance, scope: Scope) -> str:
        """The head of an instance; fills `scope` with what its parameters stand for."""
        function, uses = instance.function, self._uses[instance.function.name]
        listed: list[str] = []
        kinds = iter(instance.kinds)

        def integer_parameter(wanted: str, dtype: DType = i64) -> Code:
            name = scope.names.fresh(wanted)
            listed.append(f"{self._types.value(dtype)} {name}")
            return primary(name)

        for param in function.params:
            if not isinstance(param.type, ArrayType):
                name = scope.names.fresh(param.name)
                listed.append(f"{self._types.value(param.type.dtype)} {name}")
                scope.scalars[param.name] = primary(name)
                continue
            use, kind = uses.array(param.name), next(kinds)
            assert param.type.element is not None
            pointer = scope.names.fresh(param.name)
            if use.is_accessed:
                listed.append(f"{self._types.pointer(param.type.element, kind, is_written=use.is_written)}{pointer}")
            shape = {axis: integer_parameter(f"{pointer}_shape{axis}") for axis in use.shape_axes}
            strides: dict[int, Code | None] = {
                axis: integer_parameter(f"{pointer}_stride{axis}", self._types.offset) for axis in use.stride_axes
            }
            array = ArrayCode(param.type.element, kind, pointer, strides, shape)
            scope.arrays[Root(RootKind.PARAM, param.name)] = array
        for kind_of, axis in self._hidden(function):
            scope.indices[kind_of, axis] = integer_parameter(f"{kind_of}{axis}")
        if function.name in self._reporting:
            scope.diagnostics.append(scope.names.fresh("diagnostics"))
            listed.append(f"{self._types.pointer(u64, RootKind.PARAM, is_written=True)}{scope.diagnostics[-1]}")
        result = "void" if not function.results else self._types.value(function.results[0])
        if len(function.results) > 1:
            result = self.results_type(function)
        return f"{self._dialect.function} {result} {instance.name}({', '.join(listed) or 'void'})"
