"""What the annotations of a device function declare, and its arguments in those types."""

from __future__ import annotations

import ast
from typing import Any, TypeVar

import numpy as np

from quernel.dtypes import ArrayType, DType, ParameterType, ScalarType, StructType, ValueType, VectorType
from quernel.errors import KernelTypeError
from quernel.lang.conversions import meeting
from quernel.lang.lowering import FunctionLowering
from quernel.lang.promotion import arithmetic, kind_of
from quernel.lang.values import ArrayValue, Scalar, StructValue, Value, VectorValue, describe
from quernel.structs import fields_of, is_struct_class, value_type_of

__all__ = ["TypeVariables", "as_declared", "kernel_variables"]

TypeVariables = dict[TypeVar, ValueType]


def kernel_variables(declared: dict[str, Any], types: dict[str, ParameterType]) -> TypeVariables:
    """What the type variables in the annotations of a kernel stand for, given its parameters' types."""
    found: TypeVariables = {}
    for name, annotation in declared.items():
        type_ = types.get(name)
        if isinstance(annotation, TypeVar) and isinstance(type_, ScalarType) and not type_.weak:
            found.setdefault(annotation, type_.dtype)
        match annotation, type_:
            case ArrayType(element=TypeVar() as variable), ArrayType(element=element) if element is not None:
                found[variable] = element
    for name, annotation in declared.items():
        type_ = types.get(name)
        if isinstance(annotation, TypeVar) and isinstance(type_, ScalarType):
            found.setdefault(annotation, type_.dtype)
    return found


def as_declared(
    lowering: FunctionLowering, node: ast.Call, of: str, declared: dict[str, Any], arguments: dict[str, Value]
) -> TypeVariables:
    """Brings `arguments` to the types that the annotations declare, and says what the type variables stand for.

    Raises:
        KernelTypeError: an argument does not fit its declaration.
    """
    variables, are_weak = _bound(lowering, node, of, declared, arguments)
    for name, annotation in declared.items():
        if name in arguments and annotation not in are_weak:
            arguments[name] = _converted(lowering, node, of, name, annotation, arguments[name], variables)
    return variables


# --- type variables ---------------------------------------------------------------------------------------------------


def _bound(
    lowering: FunctionLowering, node: ast.Call, of: str, declared: dict[str, Any], arguments: dict[str, Value]
) -> tuple[TypeVariables, set[TypeVar]]:
    """Each type variable by the typed arguments, which must agree; and those that only weak arguments give a type."""
    found: TypeVariables = {}
    by: dict[TypeVar, str] = {}
    weak: dict[TypeVar, ScalarType] = {}
    for name, annotation in declared.items():
        variable, type_ = _given(annotation, arguments.get(name))
        if variable is None or type_ is None:
            continue
        if isinstance(type_, ScalarType):
            weak[variable] = arithmetic(weak.get(variable, type_), type_) or type_
            continue
        if found.setdefault(variable, type_) != type_:
            raise lowering.refuse.type(
                node,
                f"`{variable.__name__}` of `{of}` is {found[variable]} by `{by[variable]}` and {type_} by `{name}`",
                "cast one of the arguments to the type of the other",
            )
        by.setdefault(variable, name)
    are_weak = weak.keys() - found.keys()
    found |= {variable: weak[variable].dtype for variable in are_weak}
    for variable, bound in found.items():
        if not _allows(variable, bound):
            raise lowering.refuse.type(
                node, f"`{variable.__name__}` of `{of}` cannot be {bound}", f"pass {_allowed(variable)}"
            )
    return found, are_weak


def _given(annotation: Any, value: Value | None) -> tuple[TypeVar | None, ValueType | ScalarType | None]:
    """The type variable of an annotation, and the type that an argument gives it; a `ScalarType` if it is weak."""
    match annotation, value:
        case TypeVar(), Scalar(type=type_):
            return annotation, type_ if type_.weak else type_.dtype
        case TypeVar(), VectorValue(type=vector):
            return annotation, vector
        case ArrayType(element=TypeVar() as variable), ArrayValue(type=array):
            return variable, array.element
        case _:
            return None, None


def _allows(variable: TypeVar, type_: ValueType) -> bool:
    if variable.__constraints__:
        return any(_matches(constraint, type_) for constraint in variable.__constraints__)
    return variable.__bound__ is None or _matches(variable.__bound__, type_)


def _matches(wanted: Any, type_: ValueType) -> bool:
    """Whether a type is `wanted`: that very type, or of its kind: `int`, `float` or a class such as `np.floating`."""
    if wanted is object:
        return True
    dtype = type_.element if isinstance(type_, VectorType) and not isinstance(wanted, VectorType) else type_
    if isinstance(dtype, DType) and (wanted is int or wanted is float):
        return dtype.is_integer if wanted is int else dtype.is_float
    if isinstance(wanted, type) and issubclass(wanted, np.generic) and isinstance(dtype, DType):
        if dtype.name == "bf16":
            return issubclass(np.floating, wanted)
        return issubclass(dtype.numpy.type, wanted)
    try:
        return value_type_of(wanted) == type_
    except KernelTypeError:
        return False


def _allowed(variable: TypeVar) -> str:
    wanted = variable.__constraints__ or (variable.__bound__,)
    return " or ".join(getattr(one, "__name__", None) or str(one) for one in wanted)


# --- arguments --------------------------------------------------------------------------------------------------------


def _converted(
    lowering: FunctionLowering,
    node: ast.Call,
    of: str,
    name: str,
    annotation: Any,
    value: Value,
    variables: TypeVariables,
) -> Value:
    declared = variables.get(annotation, annotation) if isinstance(annotation, TypeVar) else annotation
    match declared, value:
        case DType(), Scalar():
            if _keeps_kind(value.dtype, declared):
                return meeting(lowering, value, declared, node)
        case VectorType(element=element, length=length), VectorValue(items=items) if len(items) == length:
            if all(_keeps_kind(item.dtype, element) for item in items):
                return VectorValue(declared, tuple(meeting(lowering, item, element, node) for item in items))
        case ArrayType(), ArrayValue(type=type_):
            wanted: Any = declared.element
            wanted = variables.get(wanted) if isinstance(wanted, TypeVar) else wanted
            if wanted in (None, type_.element) and declared.ndim in (None, type_.ndim):
                return value
        case StructType(), StructValue() if tuple(field.name for field in declared.fields) == value.fields:
            return value
        case type(), StructValue() if tuple(field for field, _ in fields_of(declared)) == value.fields:
            return value
    shown = getattr(declared, "__name__", declared) if is_struct_class(declared) else declared
    raise lowering.refuse.type(
        node,
        f"`{name}` of `{of}` is declared {shown}, and the argument is {describe(value)}",
        "cast the argument, or leave the annotation out",
    )


def _keeps_kind(given: DType, declared: DType) -> bool:
    """Whether a value keeps its kind, or goes from an integer to a float."""
    return kind_of(given) == kind_of(declared) or (given.is_integer and declared.is_float)
