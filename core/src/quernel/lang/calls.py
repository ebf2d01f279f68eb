"""Calls: what is called decides, by identity, between casts, intrinsics, functions of values and device functions."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable
from typing import Final

import attrs

from quernel import intrinsics
from quernel.dtypes import DType, ScalarType, StructType, VectorType, bool_, dtype_of, u64
from quernel.errors import KernelTypeError
from quernel.geometry import LaunchForm
from quernel.intrinsics import DeviceFunction, Intrinsic
from quernel.ir import nodes
from quernel.ir.nodes import IndexKind, UnaryOp
from quernel.lang.atomics import ATOMICS, atomic
from quernel.lang.blocks import barrier, needs_blocks
from quernel.lang.collectives import COLLECTIVES, collective
from quernel.lang.compounds import make_struct, make_vector
from quernel.lang.constants import constant
from quernel.lang.conversions import cast
from quernel.lang.elements import length_along
from quernel.lang.functions_of_values import FUNCTIONS
from quernel.lang.instead import instead_of_call, instead_of_numpy, is_of_a_library, is_of_numpy
from quernel.lang.lowering import FunctionLowering
from quernel.lang.memory import SPACES
from quernel.lang.names import captured
from quernel.lang.prints import lower_print
from quernel.lang.subgroups import SUBGROUPS, subgroup
from quernel.lang.types import declared_type, is_type, type_that
from quernel.lang.values import ArrayValue, ObjectValue, Scalar, TupleValue, Value, VectorValue, describe, named
from quernel.structs import is_struct_class, vec
from quernel.wording import counted

__all__ = ["call"]

_INDEX_KINDS: Final = {
    intrinsics.global_id: IndexKind.GLOBAL_ID,
    intrinsics.local_id: IndexKind.LOCAL_ID,
    intrinsics.block_id: IndexKind.BLOCK_ID,
    intrinsics.global_dim: IndexKind.GLOBAL_DIM,
    intrinsics.block_dim: IndexKind.BLOCK_DIM,
    intrinsics.grid_dim: IndexKind.GRID_DIM,
}
_WITHOUT_BLOCKS: Final = frozenset({IndexKind.GLOBAL_ID, IndexKind.GLOBAL_DIM})
"""What an `over` launch has; the others need blocks."""

_ByName = Callable[[FunctionLowering, ast.Call, Intrinsic, list[Value]], Value | None]
"""Makes the value of a call of an intrinsic from its arguments."""

_OWN_MESSAGES: Final[dict[object, tuple[str, str]]] = {
    enumerate: ("`enumerate` stands only behind `in` of a `for`", "write `for k, v in enumerate(t):` over a tuple"),
    zip: ("`zip` stands only behind `in` of a `for`", "write `for a, b in zip(t, u):` over tuples"),
    sum: ("`sum` has no meaning in a kernel", "write the loop: `acc += …`"),
    sorted: ("`sorted` has no meaning in a kernel", "sort on the host"),
    range: ("`range` stands only behind `in` of a `for`", "write `for k in range(…):`"),
    intrinsics.unroll: ("`qn.unroll` stands only behind `in` of a `for`", "write `for k in qn.unroll(range(…)):`"),
}


def call(
    lowering: FunctionLowering,
    node: ast.Call,
    function: object,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> Value | None:
    """The value of a call of `function`; `None` of a device function that returns nothing.

    Raises:
        KernelSyntaxError: what is called is not part of the language.
        KernelTypeError: the arguments do not fit.
    """
    if _is_called_type(function):
        return _made(lowering, node, function, arguments, keywords)
    if isinstance(function, Intrinsic) and function in _INDEX_KINDS:
        return _index(lowering, node, function, arguments, keywords)
    if isinstance(function, Intrinsic) and function in _BY_NAME:
        if keywords:
            raise lowering.refuse.type(
                node, f"`qn.{function.name}` takes no argument by keyword", "give the arguments by position"
            )
        return _BY_NAME[function](lowering, node, function, arguments)
    if function is len:
        return _length(lowering, node, arguments)
    if function is intrinsics.bitcast:
        return _bitcast(lowering, node, arguments, keywords)
    if function is print:
        lower_print(lowering, node, arguments, keywords)
        return None
    if function is breakpoint:
        if arguments or keywords:
            raise lowering.refuse.syntax(node, "`breakpoint` takes no arguments in a kernel", "write `breakpoint()`")
        lowering.emit(nodes.Breakpoint(loc=lowering.where(node)))
        return None
    if isinstance(function, DeviceFunction):
        return _device_function(lowering, node, function, arguments, keywords)
    try:
        found = FUNCTIONS.get(function)
    except TypeError:
        found = None
    if found is None:
        raise _refusal(lowering, node, function)
    handler, least, most = found
    name = ast.unparse(node.func)
    if keywords:
        raise lowering.refuse.type(
            node, f"`{name}` takes no argument by keyword in a kernel", "give the arguments by position"
        )
    if not least <= len(arguments) <= most:
        expected = counted(least, "argument") if least == most else f"at least {counted(least, 'argument')}"
        if function is round:
            raise lowering.refuse.type(
                node, "`round` to a number of digits has no meaning in a kernel", "write `round(x * 100) / 100`"
            )
        raise lowering.refuse.type(
            node, f"`{name}` takes {expected} in a kernel, not {len(arguments)}", "check the arguments"
        )
    scalars = [_scalar(lowering, node, argument, name) for argument in arguments]
    return handler(lowering, node, scalars)


def _scalar(lowering: FunctionLowering, node: ast.Call, value: Value, name: str) -> Scalar:
    if isinstance(value, Scalar):
        return value
    fix = (
        "call it with each component" if isinstance(value, VectorValue) else "index an array to get one of its elements"
    )
    raise lowering.refuse.type(node, f"`{name}` takes numbers, not {describe(value)}", fix)


def _is_called_type(function: object) -> bool:
    """Whether a call of `function` makes a value of a type; Python's own conversions are functions of values."""
    return is_type(function) and not any(function is python for python in (bool, int, float))


def _made(
    lowering: FunctionLowering,
    node: ast.Call,
    given: object,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> Value:
    """A cast, a vector or a struct."""
    if isinstance(given, type) and is_struct_class(given):
        return make_struct(lowering, node, given, arguments, keywords)
    type_ = declared_type(lowering, given, node)
    match type_:
        case VectorType():
            return make_vector(lowering, node, type_, arguments)
        case DType():
            if keywords or len(arguments) != 1:
                raise lowering.refuse.type(node, f"a cast to {type_} takes one value", f"write `qn.{type_}(x)`")
            return cast(lowering, _scalar(lowering, node, arguments[0], f"qn.{type_}"), type_, node)
        case StructType():
            raise lowering.refuse.type(
                node, f"{type_} has no class that could be called", "make structs by a frozen attrs class"
            )


def _index(
    lowering: FunctionLowering,
    node: ast.Call,
    intrinsic: Intrinsic,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> Value:
    kind = _INDEX_KINDS[intrinsic]
    if lowering.unit.form is LaunchForm.OVER and kind not in _WITHOUT_BLOCKS:
        raise needs_blocks(lowering, node, intrinsic)
    ndim = len(lowering.unit.block)
    extra = [name for name in keywords if name != "axis"]
    if extra or len(arguments) + len(keywords) > 1:
        raise lowering.refuse.type(node, f"`{intrinsic.name}` takes at most an axis", f"write `qn.{intrinsic.name}(0)`")
    given = arguments[0] if arguments else keywords.get("axis")
    loc = lowering.where(node)
    along = [
        Scalar(ScalarType(dtype_of(int)), nodes.ThreadIndex(kind=kind, axis=axis, loc=loc)) for axis in range(ndim)
    ]
    if given is None or (isinstance(given, ObjectValue) and given.value is None):
        return along[0] if ndim == 1 else TupleValue(tuple(along))
    if not isinstance(given, Scalar) or not isinstance(given.constant, int) or isinstance(given.constant, bool):
        raise lowering.refuse.type(
            node, f"the axis of `{intrinsic.name}` must be a constant integer", f"write `qn.{intrinsic.name}(0)`"
        )
    if not -ndim <= given.constant < ndim:
        raise lowering.refuse.type(
            node,
            f"axis {given.constant} of `{intrinsic.name}` in a launch of {counted(ndim, 'axis')}",
            f"use an axis from 0 to {ndim - 1}, or launch over more axes",
        )
    return along[given.constant]


def _length(lowering: FunctionLowering, node: ast.Call, arguments: list[Value]) -> Scalar:
    match arguments:
        case [ArrayValue() as array]:
            return length_along(lowering, array, 0, node)
        case [TupleValue(items=items) | VectorValue(items=items)]:
            return constant(len(items))
        case _:
            raise lowering.refuse.type(node, "`len` takes an array", "write `len(a)` or `a.shape[0]`")


def _bitcast(lowering: FunctionLowering, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> Scalar:
    match arguments:
        case [Scalar() as value, ObjectValue(value=DType() as dtype)] if not keywords:
            pass
        case _:
            raise lowering.refuse.type(node, "`bitcast` takes a value and a type", "write `qn.bitcast(x, qn.u32)`")
    if value.dtype.bits != dtype.bits or bool_ in (value.dtype, dtype):
        raise lowering.refuse.type(
            node,
            f"a bitcast of {named(value.type)} to {dtype}, which is not as wide",
            "cast to a type of the same width first",
        )
    operand = lowering.expr(value, node)
    if value.dtype is dtype:
        return Scalar(ScalarType(dtype), operand, has_load=value.has_load, depth=value.depth)
    expr = nodes.Bitcast(operand=operand, type=dtype, loc=lowering.where(node))
    return lowering.made(ScalarType(dtype), expr, node, value)


def _device_function(
    lowering: FunctionLowering,
    node: ast.Call,
    function: DeviceFunction,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> Value | None:
    plain = function.__quernel_function__
    signature = inspect.signature(plain)
    try:
        bound = signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise lowering.refuse.type(
            node, f"`{plain.__name__}{signature}` cannot take these arguments: {error}", "check the arguments"
        ) from None
    values: dict[str, Value] = {}
    for name, parameter in signature.parameters.items():
        if name in bound.arguments:
            values[name] = bound.arguments[name]
        else:
            values[name] = captured(lowering.refuse, node, f"{plain.__name__}({name})", parameter.default)
    return lowering.unit.call(lowering, node, function, values)


def _refusal(lowering: FunctionLowering, node: ast.Call, function: object) -> Exception:
    """Why `function` cannot be called."""
    name = ast.unparse(node.func)
    try:
        message = _OWN_MESSAGES.get(function)
    except TypeError:
        message = None
    if message is not None:
        return lowering.refuse.syntax(node, *message)
    if isinstance(function, Intrinsic):
        group = function.name.split(".")[0]
        if lowering.unit.form is LaunchForm.OVER and group in ("shared", "barrier", "subgroup", "block"):
            return needs_blocks(lowering, node, function)
        if function in SPACES:
            return lowering.refuse.syntax(
                node,
                f"`qn.{function.name}` stands only on the right of an assignment to a name",
                f"write `tile = {ast.unparse(node)}`",
            )
    if hasattr(function, "over") and hasattr(function, "options"):
        return lowering.refuse.type(
            node, f"`{name}` is a kernel, and a kernel is launched from the host", "make the shared part a @qn.func"
        )
    if is_of_numpy(function):
        return lowering.refuse.type(node, f"`{name}` works on whole NumPy arrays", instead_of_numpy(name, function))
    if isinstance(function, types.FunctionType) and not is_of_a_library(function):
        if function.__name__ == "<lambda>":
            return lowering.refuse.type(node, f"`{name}` is a lambda", "write it with def, under @qn.func")
        return lowering.refuse.type(
            node, f"`{name}` is an ordinary Python function", f"decorate it with @qn.func: `{function.__name__}`"
        )
    return lowering.refuse.type(node, f"`{name}` cannot be called in a kernel", instead_of_call(function))


# --- what is called by name -------------------------------------------------------------------------------------------


def _vector_type(
    lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic, arguments: list[Value]
) -> ObjectValue:
    """`qn.vec(qn.f32, 4)` in a kernel."""
    match arguments:
        case [ObjectValue() as element, Scalar(constant=int() as length)]:
            dtype = type_that(lowering, element, node.args[0], "the element of a vector")
            try:
                return ObjectValue(vec(dtype, length))
            except KernelTypeError as error:
                raise lowering.refuse.type(node, error.what, error.fix or "use 2 or 4 scalars") from None
        case _:
            raise lowering.refuse.type(
                node, "`qn.vec` takes a scalar type and a constant length", "write `qn.vec(qn.f32, 4)`"
            )


def _uniform(lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic, arguments: list[Value]) -> Scalar:
    """`qn.uniform(x)`: the same value, promised to be equal in all threads of the block."""
    if len(arguments) != 1:
        raise lowering.refuse.type(node, "`qn.uniform` takes one value", "write `qn.uniform(x)`")
    value = _scalar(lowering, node, arguments[0], "qn.uniform")
    if value.constant is not None:
        return value
    expr = nodes.Unary(op=UnaryOp.UNIFORM, operand=lowering.expr(value, node), loc=lowering.where(node))
    return attrs.evolve(lowering.made(value.type, expr, node, value), origins=value.origins)


def _philox(lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic, arguments: list[Value]) -> Value | None:
    """`qn.random.philox(seed, counter)`: four u64."""
    from quernel.lang.philox import philox4x64

    if len(arguments) != 2:
        raise lowering.refuse.type(
            node, "`qn.random.philox` takes a seed and a counter", "write `qn.random.philox(seed, qn.global_id())`"
        )
    words: dict[str, Value] = {}
    for name, value in zip(("seed", "counter"), arguments, strict=True):
        given = _scalar(lowering, node, value, "qn.random.philox")
        if not given.dtype.is_integer:
            raise lowering.refuse.type(
                node, f"the {name} of `qn.random.philox` must be an integer, not {named(given.type)}", "cast it"
            )
        words[name] = lowering.held(cast(lowering, given, u64, node), node)
    assert isinstance(philox4x64, DeviceFunction)  # as `func` makes it, whatever checkers see
    return lowering.unit.call(lowering, node, philox4x64, words)


_BY_NAME: Final[dict[Intrinsic, _ByName]] = {
    intrinsics.barrier: barrier,
    intrinsics.vec: _vector_type,
    intrinsics.uniform: _uniform,
    intrinsics.random.philox: _philox,
    **dict.fromkeys(ATOMICS, atomic),
    **dict.fromkeys(COLLECTIVES, collective),
    **dict.fromkeys(SUBGROUPS, subgroup),
}
