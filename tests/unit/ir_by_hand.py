"""IR built by hand, for backends: its nodes in few words, modules of one kernel, and definitions of them."""

from __future__ import annotations

from typing import Any

from quernel.compiler.definition import KernelDefinition, Specialization
from quernel.dtypes import ArrayType, DType, ScalarType, ValueType, i64
from quernel.geometry import LaunchForm
from quernel.identity import KernelId
from quernel.ir.nodes import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    Expr,
    Function,
    IndexKind,
    Kernel,
    Load,
    Local,
    LocalVariable,
    Module,
    Parameter,
    Place,
    Root,
    RootKind,
    Stmt,
    Store,
    ThreadIndex,
)
from quernel.options import DEFAULT_OPTIONS, KernelOptions


def const(value: Any, dtype: DType = i64) -> Const:
    return Const(value=value, type=dtype)


def index(kind: IndexKind = IndexKind.GLOBAL_ID, axis: int = 0) -> ThreadIndex:
    return ThreadIndex(kind=kind, axis=axis)


def global_id(axis: int = 0) -> ThreadIndex:
    return index(axis=axis)


def local(name: str, type_: ValueType = i64) -> Local:
    return Local(name=name, type=type_)


def add(left: Expr, right: Expr) -> Binary:
    return Binary(op=BinaryOp.ADD, left=left, right=right)


def mul(left: Expr, right: Expr) -> Binary:
    return Binary(op=BinaryOp.MUL, left=left, right=right)


def less(left: Expr, right: Expr) -> Compare:
    return Compare(op=CompareOp.LT, left=left, right=right)


def equal(left: Expr, right: Expr) -> Compare:
    return Compare(op=CompareOp.EQ, left=left, right=right)


def place(name: str, type_: ValueType, *indices: Expr, kind: RootKind = RootKind.PARAM, view: Any = ()) -> Place:
    """The element at the indices, or at the thread's own point."""
    return Place(root=Root(kind, name), indices=indices or (index(),), type=type_, view=view)


def load(name: str, type_: ValueType, *indices: Expr, kind: RootKind = RootKind.PARAM, view: Any = ()) -> Load:
    return Load(place=place(name, type_, *indices, kind=kind, view=view))


def store(name: str, value: Expr, *indices: Expr, kind: RootKind = RootKind.PARAM, view: Any = ()) -> Store:
    return Store(place=place(name, value.type, *indices, kind=kind, view=view), value=value)


def array(name: str, element: ValueType, ndim: int = 1) -> Parameter:
    return Parameter(name=name, type=ArrayType(element, ndim))


def scalar(name: str, dtype: DType) -> Parameter:
    return Parameter(name=name, type=ScalarType(dtype))


def kernel(
    params: tuple[Parameter, ...],
    body: tuple[Stmt, ...],
    *,
    variables: dict[str, ValueType] | None = None,
    block: tuple[int, ...] = (256,),
    form: LaunchForm = LaunchForm.OVER,
    functions: tuple[Function, ...] = (),
    options: KernelOptions = DEFAULT_OPTIONS,
    name: str = "k",
) -> Module:
    """A module of one kernel and the device functions that it calls."""
    names = tuple(LocalVariable(name=name, type=type_) for name, type_ in (variables or {}).items())
    made = Kernel(name=name, form=form, block=block, params=params, locals=names, body=body, options=options)
    return Module(kernel=made, functions=functions)


def definition(module: Module) -> KernelDefinition:
    """The module's kernel as a compiler is handed it."""
    own = module.kernel
    parameters = tuple((param.name, param.type) for param in own.params)
    specialization = Specialization(parameters, (), own.form, own.block, own.options)
    return KernelDefinition(KernelId(own.name, "0" * 64), specialization, expand=lambda: (module, True))
