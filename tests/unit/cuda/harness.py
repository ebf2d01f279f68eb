"""IR built by hand, lowered to CUDA C++ and compiled; nothing here needs a driver."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import ForeignSource, KernelDefinition, Specialization
from quernel.compiler.lowered_text import LoweredText
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import ArrayType, DType, ScalarType, ValueType, i64
from quernel.geometry import LaunchForm
from quernel.identity import KernelId
from quernel.ir.nodes import (
    Const,
    Expr,
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
from quernel_cuda.compiler import CudaCompiler
from quernel_cuda.targets import named_target
from quernel_cuda.types import CudaArtifact, CudaVariant

LOG = logging.getLogger(__name__)
WHOLE = CudaVariant(aligned16=True, contiguous=True, index32=True)
STRIDED = CudaVariant()


@cache
def compiler(architecture: str = "sm_90") -> CudaCompiler:
    return CudaCompiler(named_target(architecture))


def const(value: Any, dtype: DType = i64) -> Const:
    return Const(value=value, type=dtype)


def index(kind: IndexKind = IndexKind.GLOBAL_ID, axis: int = 0) -> ThreadIndex:
    return ThreadIndex(kind=kind, axis=axis)


def local(name: str, type_: ValueType = i64) -> Local:
    return Local(name=name, type=type_)


def place(name: str, type_: ValueType, *indices: Expr, kind: RootKind = RootKind.PARAM) -> Place:
    return Place(root=Root(kind, name), indices=indices or (index(),), type=type_)


def load(name: str, type_: ValueType, *indices: Expr, kind: RootKind = RootKind.PARAM) -> Load:
    return Load(place=place(name, type_, *indices, kind=kind))


def store(name: str, value: Expr, *indices: Expr, kind: RootKind = RootKind.PARAM) -> Store:
    return Store(place=place(name, value.type, *indices, kind=kind), value=value)


def array(name: str, element: ValueType, ndim: int = 1) -> Parameter:
    return Parameter(name=name, type=ArrayType(element, ndim))


def scalar(name: str, dtype: DType) -> Parameter:
    return Parameter(name=name, type=ScalarType(dtype))


def kernel(
    params: tuple[Parameter, ...],
    body: tuple[Stmt, ...],
    *,
    variables: dict[str, ValueType] | None = None,
    block: tuple[int, ...] = (64,),
    form: LaunchForm = LaunchForm.OVER,
    options: KernelOptions = DEFAULT_OPTIONS,
    name: str = "k",
) -> Module:
    names = tuple(LocalVariable(name=name, type=dtype) for name, dtype in (variables or {}).items())
    made = Kernel(name=name, form=form, block=block, params=params, locals=names, body=body, options=options)
    return Module(kernel=made)


def definition(module: Module) -> KernelDefinition:
    own = module.kernel
    parameters = tuple((param.name, param.type) for param in own.params)
    specialization = Specialization(parameters, (), own.form, own.block, own.options)
    return KernelDefinition(KernelId(own.name, "0" * 64), specialization, expand=lambda: (module, True))


def foreign(text: str, entry: str, parameters: dict[str, Any], writes: tuple[str, ...]) -> KernelDefinition:
    specialization = Specialization(tuple(parameters.items()), (), LaunchForm.GRID, (64,))
    source = ForeignSource("cuda-c++", text, entry, writes)
    return KernelDefinition(KernelId(entry, "1" * 64), specialization, foreign=source)


def lowered(with_compiler: CudaCompiler, made: KernelDefinition | Module, variant: CudaVariant = WHOLE) -> LoweredText:
    made = definition(made) if isinstance(made, Module) else made
    return with_compiler.lower(made, ArtifactId(made.id, variant), CompilationRecording(), LOG)


def compiled(
    with_compiler: CudaCompiler, made: KernelDefinition | Module, variant: CudaVariant = WHOLE
) -> CudaArtifact:
    made = definition(made) if isinstance(made, Module) else made
    return with_compiler.finalize(ArtifactId(made.id, variant), lowered(with_compiler, made, variant))
