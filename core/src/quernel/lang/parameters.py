"""Parameters: as values of the function's body, and as they stand in the IR."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from quernel.dtypes import ArrayType, DType, ParameterType
from quernel.ir import nodes
from quernel.ir.nodes import Parameter, Root, RootKind
from quernel.lang.refusals import Refusals
from quernel.lang.values import ArrayValue, Scalar, Value

__all__ = ["parameter", "parameter_value", "parameters_of"]


def parameters_of(refuse: Refusals) -> list[ast.arg]:
    """The parameters of a function, in order.

    Raises:
        KernelSyntaxError: one takes any number of arguments.
    """
    for variable in getattr(refuse.source.definition, "type_params", ()):
        raise refuse.later(variable, f"the type variable `{variable.name}`: generics by name are", "leave it out")
    arguments = refuse.source.definition.args
    for extra, stars in ((arguments.vararg, "*"), (arguments.kwarg, "**")):
        if extra is not None:
            raise refuse.syntax(
                extra, f"a parameter `{stars}{extra.arg}` has no meaning in a kernel", "name each parameter"
            )
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def parameter_value(refuse: Refusals, argument: ast.arg, type_: ParameterType) -> Value:
    """The value of a parameter that is passed at run time.

    Raises:
        KernelSyntaxError: its type is one that the language does not have yet.
    """
    name = argument.arg
    if isinstance(type_, ArrayType):
        _require_supported(refuse, argument, type_.element)
        return ArrayValue(Root(RootKind.PARAM, name), type_)
    _require_supported(refuse, argument, type_.dtype)
    expr = nodes.Param(name=name, type=type_.dtype, loc=refuse.where(argument))
    assert isinstance(type_.dtype, DType)
    origins = frozenset([name]) if type_.weak and type_.dtype.is_integer else frozenset()
    return Scalar(type_, expr, origins=origins)


def _require_supported(refuse: Refusals, argument: ast.arg, type_: object) -> None:
    if not isinstance(type_, DType):
        raise refuse.later(argument, f"parameters of {type_} are", "pass one array or value per component")


def parameter(
    refuse: Refusals, argument: ast.arg, type_: ParameterType, all_bounds: Mapping[str, tuple[int, int]]
) -> Parameter:
    """A parameter of the IR, with the bounds of the types that it meets.

    Raises:
        KernelTypeError: no integer is within all of them.
    """
    bounds = all_bounds.get(argument.arg)
    if bounds is not None and bounds[0] > bounds[1]:
        raise refuse.type(
            argument, f"no integer fits every type that `{argument.arg}` meets", "cast it where it is used"
        )
    return Parameter(name=argument.arg, type=type_, bounds=bounds, loc=refuse.where(argument))
