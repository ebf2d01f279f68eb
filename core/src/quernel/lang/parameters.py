"""Parameters: as values of the function's body, and as they stand in the IR."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from quernel.dtypes import ArrayType, DType, ParameterType, ScalarType, StructType, ValueType, VectorType
from quernel.ir import nodes
from quernel.ir.nodes import Parameter, Root, RootKind
from quernel.lang.origins import NOWHERE, Origin
from quernel.lang.refusals import Refusals
from quernel.lang.values import ArrayValue, Scalar, StructValue, Value, VectorValue

__all__ = ["parameter", "parameter_value", "parameters_of", "struct_parameter"]


def parameters_of(refuse: Refusals) -> list[ast.arg]:
    """The parameters of a function, in order.

    Raises:
        KernelSyntaxError: one takes any number of arguments, or a type parameter is none that stands for a type.
    """
    for variable in getattr(refuse.source.definition, "type_params", ()):
        if type(variable).__name__ != "TypeVar":
            raise refuse.syntax(
                variable, f"the type parameter `{variable.name}` has no meaning in a kernel", "write `[T]`"
            )
    arguments = refuse.source.definition.args
    for extra, stars in ((arguments.vararg, "*"), (arguments.kwarg, "**")):
        if extra is not None:
            raise refuse.syntax(
                extra, f"a parameter `{stars}{extra.arg}` has no meaning in a kernel", "name each parameter"
            )
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def parameter_value(refuse: Refusals, argument: ast.arg, name: str, type_: ParameterType) -> Value:
    """The value of a parameter, or of the part called `name` of one, that is passed at run time."""
    if isinstance(type_, ArrayType):
        return ArrayValue(Root(RootKind.PARAM, name), type_)
    expr = nodes.Param(name=name, type=type_.dtype, loc=refuse.where(argument))
    if not isinstance(type_.dtype, DType):
        return _parts(refuse, argument, expr, type_.dtype)
    origins = frozenset([Origin(name)]) if type_.weak and type_.dtype.is_integer else NOWHERE
    return Scalar(type_, expr, origins=origins)


def _parts(refuse: Refusals, argument: ast.arg, whole: nodes.Expr, type_: ValueType) -> Value:
    """A vector or struct of the IR as its parts."""
    loc = refuse.where(argument)
    match type_:
        case DType():
            return Scalar(ScalarType(type_), whole)
        case VectorType(element=element, length=length):
            return VectorValue(
                type_,
                tuple(
                    Scalar(ScalarType(element), nodes.VecGet(operand=whole, index=index, type=element, loc=loc))
                    for index in range(length)
                ),
            )
        case StructType(name=name, fields=fields):
            parts = {
                field.name: nodes.Field(operand=whole, name=field.name, type=field.type, loc=loc) for field in fields
            }
            items = tuple(_parts(refuse, argument, part, part.type) for part in parts.values())
            return StructValue(name, tuple(parts), items)


def struct_parameter(name: str, parts: Mapping[str, Value]) -> StructValue | VectorValue:
    """The struct whose fields are the parameters called `name.field` among `parts`, nested ones too.

    Where the parts have numbers, it is a vector of them.
    """
    fields: dict[str, Value] = {}
    for path in parts:
        if path.startswith(f"{name}."):
            field = path[len(name) + 1 :].split(".", 1)[0]
            inner = f"{name}.{field}"
            fields.setdefault(field, parts[inner] if inner in parts else struct_parameter(inner, parts))
    components = tuple(value for field, value in fields.items() if field.isdigit() and isinstance(value, Scalar))
    if components:
        return VectorValue(VectorType(components[0].dtype, len(components)), components)
    return StructValue(name, tuple(fields), tuple(fields.values()))


def parameter(
    refuse: Refusals,
    argument: ast.arg,
    name: str,
    type_: ParameterType,
    all_bounds: Mapping[str, tuple[int, int]],
) -> Parameter:
    """The parameter called `name` of the IR, with the bounds of the types that it meets.

    Raises:
        KernelTypeError: no integer is within all of them.
    """
    bounds = all_bounds.get(name)
    if bounds is not None and bounds[0] > bounds[1]:
        raise refuse.type(argument, f"no integer fits every type that `{name}` meets", "cast it where it is used")
    return Parameter(name=name, type=type_, bounds=bounds, loc=refuse.where(argument))
