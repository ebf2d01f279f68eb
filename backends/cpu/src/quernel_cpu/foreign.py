"""Ready-made LLVM IR as a kernel: a kernel of ours whose body calls the user's function once per thread."""

from __future__ import annotations

from quernel.compiler.definition import ForeignSource, Specialization
from quernel.dtypes import ArrayType, DType, ScalarType, i64
from quernel.errors import ValidationError
from quernel.ir.nodes import (
    ArrayRef,
    Call,
    Expr,
    Function,
    IndexKind,
    Kernel,
    Param,
    Parameter,
    Root,
    RootKind,
    ThreadIndex,
)
from quernel_cpu.emission.functions import DeviceFunction
from quernel_cpu.slots import all_uses

__all__ = ["foreign_call", "foreign_parameters"]


def foreign_parameters(specialization: Specialization) -> tuple[Parameter, ...]:
    """The parameters of the kernel.

    Raises:
        ValidationError: one is of a type that LLVM IR kernels do not take.
    """
    params = []
    for name, declared in specialization.parameters:
        value_type = declared.element if isinstance(declared, ArrayType) else declared.dtype
        if not isinstance(value_type, DType):
            raise ValidationError(
                f"parameter {name!r} of an LLVM IR kernel is of type {declared}",
                fix="use scalars and arrays of scalars",
            )
        params.append(Parameter(name=name, type=declared))
    return tuple(params)


def foreign_call(
    foreign: ForeignSource, specialization: Specialization, params: tuple[Parameter, ...]
) -> tuple[Kernel, DeviceFunction]:
    """The calling kernel, and the user's function as its callers see it."""
    ndim = len(specialization.block)
    ids = tuple(Parameter(name=f"global_id {axis}", type=ScalarType(i64)) for axis in range(ndim))
    indices: list[Expr | ArrayRef] = [ThreadIndex(kind=IndexKind.GLOBAL_ID, axis=axis) for axis in range(ndim)]
    callee = DeviceFunction(
        foreign.entry,
        Function(name=foreign.entry, params=(*ids, *params), results=(), locals=(), body=()),
        all_uses(params, foreign.writes),
    )
    call = Call(results=(), function=foreign.entry, arguments=(*indices, *(_argument(param) for param in params)))
    caller = Kernel(
        name=foreign.entry,
        form=specialization.form,
        block=specialization.block,
        params=params,
        locals=(),
        body=(call,),
        options=specialization.options,
    )
    return caller, callee


def _argument(param: Parameter) -> Expr | ArrayRef:
    if isinstance(param.type, ArrayType):
        return ArrayRef(root=Root(RootKind.PARAM, param.name), type=param.type)
    return Param(name=param.name, type=param.type.dtype)
