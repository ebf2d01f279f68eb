"""IR built by hand, compiled for every OpenCL device in both of its ways to pass arrays, and launched."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import attrs
import numpy as np

from quernel.codegen.pointers import Pointers
from quernel.compiler.aligned import AlignedVariant
from quernel.compiler.arguments import ArgumentPacker, ArrayArgument
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition, Specialization
from quernel.compiler.lowered_text import LoweredText
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import ArrayType, DType, ScalarType, ValueType, i64
from quernel.geometry import Geometry, LaunchForm, extent_geometry, grid_geometry
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
from quernel.runtime.operations import Unavailable
from quernel_opencl._toolchain import find_devices
from quernel_opencl.compiler import OpenclCompiler
from quernel_opencl.device import OpenclDevice
from quernel_opencl.plugin import OpenclBackend
from quernel_opencl.targets import target_of

LOG = logging.getLogger(__name__)
STRIDED = AlignedVariant()
NARROW = AlignedVariant(index32=True)
CONTIGUOUS = AlignedVariant(contiguous=True)


@cache
def infos() -> tuple[Any, ...]:
    found = OpenclBackend().devices()
    return () if isinstance(found, Unavailable) else found


@cache
def opened(index: int, pointers: Pointers) -> OpenclDevice:
    target = target_of(find_devices()[0][index], pointers)
    return OpenclDevice(infos()[index], OpenclCompiler(target))


# --- IR ---------------------------------------------------------------------------------------------------------------


def const(value: Any, dtype: DType = i64) -> Const:
    return Const(value=value, type=dtype)


def index(kind: IndexKind = IndexKind.GLOBAL_ID, axis: int = 0) -> ThreadIndex:
    return ThreadIndex(kind=kind, axis=axis)


def local(name: str, type_: ValueType = i64) -> Local:
    return Local(name=name, type=type_)


def place(name: str, type_: ValueType, *indices: Expr, kind: RootKind = RootKind.PARAM, view: Any = ()) -> Place:
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
    block: tuple[int, ...] = (64,),
    form: LaunchForm = LaunchForm.OVER,
    functions: tuple[Any, ...] = (),
    options: KernelOptions = DEFAULT_OPTIONS,
    name: str = "k",
) -> Module:
    names = tuple(LocalVariable(name=name, type=dtype) for name, dtype in (variables or {}).items())
    made = Kernel(name=name, form=form, block=block, params=params, locals=names, body=body, options=options)
    return Module(kernel=made, functions=functions)


# --- compiling and launching ------------------------------------------------------------------------------------------


def definition(module: Module) -> KernelDefinition:
    own = module.kernel
    parameters = tuple((param.name, param.type) for param in own.params)
    specialization = Specialization(parameters, (), own.form, own.block, own.options)
    return KernelDefinition(KernelId(own.name, "0" * 64), specialization, expand=lambda: (module, True))


def lowered(
    compiler: OpenclCompiler, made: KernelDefinition | Module, variant: AlignedVariant = STRIDED
) -> LoweredText:
    made = definition(made) if isinstance(made, Module) else made
    return compiler.lower(made, ArtifactId(made.id, variant), CompilationRecording(), LOG)


@attrs.frozen
class DeviceArray:
    """NumPy's elements in memory of the device."""

    memory: Any
    array: np.ndarray[Any, Any]

    def argument(self) -> ArrayArgument:
        itemsize = self.array.itemsize
        strides = tuple(stride // itemsize for stride in self.array.strides)
        return ArrayArgument(self.memory.address, self.array.shape, strides)


class Built:
    """A kernel loaded on a device."""

    def __init__(
        self, device: OpenclDevice, made: KernelDefinition | Module, variant: AlignedVariant = STRIDED
    ) -> None:
        made = definition(made) if isinstance(made, Module) else made
        compiler = device.target.compiler
        assert isinstance(compiler, OpenclCompiler)
        artifact_id = ArtifactId(made.id, variant)
        self.device = device
        self.artifact = compiler.finalize(artifact_id, lowered(compiler, made, variant))
        self.header = self.artifact.header
        self.loaded = device.target.load(artifact_id, self.artifact)
        self.run = device.prepare(self.loaded, self.header)

    def launch(self, geometry: Geometry, *arguments: Any) -> None:
        """Copies the arrays in, launches, and copies them back."""
        device = self.device
        moved = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                memory = device.allocate(argument.nbytes)
                device.copy_from_host(memory, 0, argument.reshape(-1).view(np.uint8), None)
                moved.append(DeviceArray(memory, argument))
            else:
                moved.append(argument)
        given = [item.argument() if isinstance(item, DeviceArray) else item for item in moved]
        self.run(geometry, ArgumentPacker(self.header)(given, geometry), None)
        for item in moved:
            if isinstance(item, DeviceArray):
                device.copy_to_host(item.array.reshape(-1).view(np.uint8), item.memory, 0, None)
                device.free(item.memory)

    def over(self, extent: Any, *arguments: Any) -> None:
        self.launch(extent_geometry(extent, self.header.block), *arguments)

    def grid(self, blocks: Any, *arguments: Any) -> None:
        self.launch(grid_geometry(blocks, self.header.block), *arguments)
