"""Kernels from text for the tests of the frontend: expanded, refused at a marked place, and run."""

from __future__ import annotations

import inspect
import io
import itertools
import linecache
import math
import types
from typing import Any

import attrs
import numpy as np

from quernel import dtypes, intrinsics
from quernel.dtypes import ArrayType, ParameterType, ScalarType, dtype_of, f64, i64
from quernel.errors import QuernelError
from quernel.geometry import DEFAULT_BLOCKS, LaunchForm
from quernel.ir import nodes, semantics
from quernel.ir.nodes import Module
from quernel.lang import expand
from quernel.lang.module import KernelUnit
from quernel.options import DEFAULT_OPTIONS

_numbers = itertools.count()
INT = ScalarType(i64, weak=True)
FLOAT = ScalarType(f64, weak=True)


def namespace(text: str, **names: object) -> dict[str, Any]:
    """What executing `text` defines; its lines are known to `linecache`. The language's names are there already."""
    file = f"<kernel {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, io.StringIO(text).readlines(), file)
    scope: dict[str, Any] = {"__name__": "kernels", "qn": language(), "math": math, "np": np, **names}
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return scope


def language() -> types.SimpleNamespace | types.ModuleType:
    """A module with the names of the language, as the package will export them."""
    module = types.ModuleType("language")
    for source in (dtypes, intrinsics):
        vars(module).update({name: getattr(source, name) for name in source.__all__})
    vars(module)["bool"] = dtypes.bool_
    return module


def array(element: Any, ndim: int = 1) -> ArrayType:
    """The type of an array."""
    return ArrayType(dtype_of(element), ndim)


@attrs.define
class Expanded:
    """A kernel's IR before the passes, its locals' types, and whether it may be stored."""

    module: Module

    def type_of(self, local: str) -> str:
        """The type of a local, as text."""
        return next(str(variable.type) for variable in self.module.kernel.locals if variable.name == local)

    def parameter(self, name: str) -> nodes.Parameter:
        """A parameter."""
        return next(parameter for parameter in self.module.kernel.params if parameter.name == name)


def kernel_of(text: str, **names: object) -> types.FunctionType:
    """The last function that `text` defines."""
    scope = namespace(text, **names)
    functions = [value for value in scope.values() if isinstance(value, types.FunctionType)]
    file = scope_file(functions)
    own = [function for function in functions if function.__code__.co_filename == file]
    return own[-1]


def scope_file(functions: list[types.FunctionType]) -> str:
    """The file of the function defined last."""
    return functions[-1].__code__.co_filename


def lowered(
    function: types.FunctionType,
    *,
    form: LaunchForm = LaunchForm.OVER,
    ndim: int = 1,
    constants: dict[str, object] | None = None,
    **parameters: ParameterType,
) -> Expanded:
    """The kernel before any pass; parameters without a type are arrays of f32."""
    held = constants or {}
    given = {
        name: parameters.get(name, array("float32"))
        for name in inspect.signature(function).parameters
        if name not in held
    }
    unit = KernelUnit(form, DEFAULT_BLOCKS[ndim], DEFAULT_OPTIONS)
    return Expanded(unit.lower_kernel(function, function.__name__, given, held))


def refusal(
    text: str, *, form: LaunchForm = LaunchForm.OVER, ndim: int = 1, **parameters: ParameterType
) -> QuernelError:
    """The error that expanding the last function of `text` raises; parameters without a type are arrays of f32."""
    function = kernel_of(text)
    given = {name: parameters.get(name, array("float32")) for name in inspect.signature(function).parameters}
    try:
        expand(
            function,
            name=function.__name__,
            parameter_types=given,
            constants={},
            form=form,
            block=DEFAULT_BLOCKS[ndim],
        )
    except QuernelError as error:
        return error
    raise AssertionError("the kernel was not refused")


def run(function: types.FunctionType, extent: int | tuple[int, ...], *arguments: Any, **constants: object) -> None:
    """Runs a kernel over an extent, thread by thread, on NumPy arrays and scalars; Python's numbers are weak."""
    names = [name for name in inspect.signature(function).parameters if name not in constants]
    values = dict(zip(names, arguments, strict=True))
    shape = extent if isinstance(extent, tuple) else (extent,)
    module, _ = expand(
        function,
        name=function.__name__,
        parameter_types={name: type_of_argument(value) for name, value in values.items()},
        constants=constants,
        form=LaunchForm.OVER,
        block=DEFAULT_BLOCKS[len(shape)],
    )
    for point in itertools.product(*map(range, shape)):
        _Thread(module, point, shape).run(module.kernel, values)


def launch(
    function: types.FunctionType, grid: int | tuple[int, ...], block: int | tuple[int, ...], *arguments: Any
) -> None:
    """Launches a kernel over a grid on the reference interpreter."""
    import quernel

    quernel.kernel(function).options(device="reference")[grid, block](*arguments)


def over(function: types.FunctionType, extent: int | tuple[int, ...], *arguments: Any, **settings: Any) -> None:
    """Launches a kernel over an extent on the reference interpreter."""
    import quernel

    quernel.kernel(function).options(device="reference", **settings).over(extent)(*arguments)


def type_of_argument(value: Any) -> ParameterType:
    """The type of a parameter that takes `value`."""
    if isinstance(value, np.ndarray):
        return ArrayType(dtype_of(value.dtype), value.ndim)
    if isinstance(value, np.generic):
        return ScalarType(dtype_of(value.dtype))
    return ScalarType(dtype_of(type(value)), weak=not isinstance(value, bool))


class _LeaveError(Exception):
    def __init__(self, how: type, values: tuple[Any, ...] = ()) -> None:
        self.how = how
        self.values = values


class _Thread:
    """One thread of a module, walked node by node with the operators of `quernel.ir.semantics`."""

    def __init__(self, module: Module, point: tuple[int, ...], extent: tuple[int, ...]) -> None:
        self.functions = {function.name: function for function in module.functions}
        self.indices = {nodes.IndexKind.GLOBAL_ID: point, nodes.IndexKind.GLOBAL_DIM: extent}

    def run(self, function: nodes.Kernel | nodes.Function, values: dict[str, Any]) -> tuple[Any, ...]:
        """The results of a function for its parameters' values."""
        frame = _Frame(self, values)
        try:
            frame.body(function.body)
        except _LeaveError as left:
            return left.values
        return ()


@attrs.define
class _Frame:
    thread: _Thread
    params: dict[str, Any]
    locals: dict[str, Any] = attrs.field(factory=dict)

    def body(self, statements: tuple[nodes.Stmt, ...]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: nodes.Stmt) -> None:
        match node:
            case nodes.Assign():
                self.locals[node.name] = self.value(node.value)
            case nodes.Store():
                self.params[node.place.root.name][self.where(node.place)] = self.value(node.value)
            case nodes.If():
                self.body(node.then if self.value(node.condition) else node.otherwise)
            case nodes.For():
                start, stop, step = self.value(node.start), self.value(node.stop), self.value(node.step)
                for value in range(start, stop, step):
                    self.locals[node.variable] = value
                    if self.leaves(node.body):
                        break
            case nodes.Loop():
                while not self.leaves(node.body):
                    pass
            case nodes.Break() | nodes.Continue():
                raise _LeaveError(type(node))
            case nodes.Return():
                raise _LeaveError(type(node), tuple(self.value(value) for value in node.values))
            case nodes.Call():
                callee = self.thread.functions[node.function]
                given = {
                    param.name: self.params[argument.root.name]
                    if isinstance(argument, nodes.ArrayRef)
                    else self.value(argument)
                    for param, argument in zip(callee.params, node.arguments, strict=True)
                }
                results = self.thread.run(callee, given)
                self.locals.update(zip(node.results, results, strict=True))
            case _:
                raise AssertionError(node)

    def leaves(self, body: tuple[nodes.Stmt, ...]) -> bool:
        try:
            self.body(body)
        except _LeaveError as left:
            if left.how is nodes.Return:
                raise
            return left.how is nodes.Break
        return False

    def where(self, place: nodes.Place) -> tuple[int, ...]:
        indices = tuple(self.value(index) for index in place.indices)
        shape = self.params[place.root.name].shape
        if not all(0 <= index < length for index, length in zip(indices, shape, strict=True)):
            raise IndexError(f"{indices} in {shape}")
        return indices

    def value(self, node: nodes.Expr) -> Any:
        match node:
            case nodes.Const():
                return node.value
            case nodes.Local():
                return self.locals[node.name]
            case nodes.Param():
                value = self.params[node.name]
                return value.item() if isinstance(value, np.generic) else value
            case nodes.Unary():
                return semantics.unary(node.op, self.value(node.operand), _dtype(node))
            case nodes.Binary():
                return semantics.binary(node.op, self.value(node.left), self.value(node.right), _dtype(node))
            case nodes.Compare():
                return semantics.compare(node.op, self.value(node.left), self.value(node.right))
            case nodes.Select():
                return self.value(node.then if self.value(node.condition) else node.otherwise)
            case nodes.Cast():
                return semantics.cast(self.value(node.operand), _dtype(node.operand), node.type)
            case nodes.Bitcast():
                return semantics.bitcast(self.value(node.operand), _dtype(node.operand), node.type)
            case nodes.Fma():
                return semantics.fma(self.value(node.a), self.value(node.b), self.value(node.c), _dtype(node))
            case nodes.Math():
                operands = tuple(self.value(operand) for operand in node.operands)
                return semantics.math_function(node.function, operands, _dtype(node.operands[0]))
            case nodes.ThreadIndex():
                return self.thread.indices[node.kind][node.axis]
            case nodes.Shape():
                return self.params[node.param].shape[node.axis]
            case nodes.Load():
                return self.params[node.place.root.name][self.where(node.place)].item()
            case _:
                raise AssertionError(node)


def _dtype(node: nodes.Expr) -> Any:
    return node.type
