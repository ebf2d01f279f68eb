"""Makes IR by hand and runs it on the interpreter, without frontend, loader or launcher."""

from __future__ import annotations

import logging
import struct
from typing import Any

import numpy as np
from tests.unit.ir_by_hand import definition

from quernel.compiler.artifacts import ArtifactId, SlotKind
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import ArrayType, DType, ParameterType, ValueType, i64
from quernel.geometry import Geometry, LaunchForm, extent_geometry, grid_geometry
from quernel.identity import KernelId
from quernel.ir.nodes import (
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
from quernel.locations import NOWHERE, Location
from quernel.options import KernelOptions
from quernel.reference.device import ReferenceDevice
from quernel.reference.plugin import ReferenceBackend
from quernel.reference.types import Lowered, ReferenceArtifact, Variant


class Interpreter:
    """The three steps of the reference backend on a module."""

    def __init__(self) -> None:
        backend = ReferenceBackend()
        (info,) = backend.devices()
        self.device: ReferenceDevice = backend.open(info)
        self.compiler = backend.compiler(backend.target_info(""))

    def lower(self, module: Module) -> Lowered:
        made, log = definition(module), logging.getLogger(__name__)
        return self.compiler.lower(made, self.artifact_id(), CompilationRecording(), log)

    def artifact(self, module: Module) -> ReferenceArtifact:
        return self.compiler.finalize(self.artifact_id(), self.lower(module))

    @staticmethod
    def artifact_id() -> ArtifactId[Variant]:
        return ArtifactId(KernelId("k", "0" * 64), Variant())

    def run(self, module: Module, extent: Any, *arguments: Any) -> None:
        """Launches the module's kernel: over an extent, or with `extent` as its grid."""
        artifact = self.artifact(module)
        loaded = self.device.target.load(self.artifact_id(), artifact)
        self.device.launch(
            loaded, artifact.header, geometry_of(module.kernel, extent), packed(artifact, arguments), None
        )


def geometry_of(kernel: Kernel, extent: Any) -> Geometry:
    if kernel.form is LaunchForm.OVER:
        return extent_geometry(extent, kernel.block)
    return grid_geometry(extent, kernel.block)


def packed(artifact: ReferenceArtifact, arguments: tuple[Any, ...]) -> bytes:
    cells = bytearray()
    for slot in artifact.header.slots:
        argument = arguments[slot.param]
        match slot.kind:
            case SlotKind.POINTER:
                cells += struct.pack("<Q", argument.ctypes.data)
            case SlotKind.SHAPE:
                cells += struct.pack("<q", argument.shape[slot.axis])
            case SlotKind.STRIDE:
                cells += struct.pack("<q", argument.strides[slot.axis] // argument.itemsize)
            case SlotKind.SCALAR:
                cells += np.asarray(argument, slot.dtype.numpy).tobytes().ljust(8, b"\xee")
            case _:
                raise AssertionError(slot)
    return bytes(cells)


def kernel(
    params: dict[str, ParameterType],
    body: list[Stmt],
    *,
    locals: dict[str, ValueType] | None = None,  # noqa: A002
    form: LaunchForm = LaunchForm.OVER,
    block: tuple[int, ...] = (4,),
    functions: tuple[Function, ...] = (),
    options: KernelOptions = KernelOptions(contract=False),  # noqa: B008 — frozen
    loc: Location = NOWHERE,
) -> Module:
    return Module(
        kernel=Kernel(
            name="k",
            form=form,
            block=block,
            params=tuple(Parameter(name=name, type=type_) for name, type_ in params.items()),
            locals=tuple(LocalVariable(name=name, type=type_) for name, type_ in (locals or {}).items()),
            body=tuple(body),
            options=options,
            loc=loc,
        ),
        functions=functions,
    )


def array(element: DType, ndim: int = 1) -> ArrayType:
    return ArrayType(element, ndim)


GID = ThreadIndex(kind=IndexKind.GLOBAL_ID, axis=0)


def int_(value: int) -> Const:
    return Const(value=value, type=i64)


def place(
    name: str,
    *indices: Expr,
    type: DType = i64,  # noqa: A002
    kind: RootKind = RootKind.PARAM,
    loc: Location = NOWHERE,
) -> Place:
    return Place(root=Root(kind, name), indices=indices, type=type, loc=loc)


def load(name: str, *indices: Expr, type: DType = i64, **more: Any) -> Load:  # noqa: A002
    return Load(place=place(name, *indices, type=type, **more))


def store(name: str, *indices: Expr, value: Expr, **more: Any) -> Store:
    assert isinstance(value.type, DType)
    place_ = place(name, *indices, type=value.type, **more)
    return Store(place=place_, value=value, loc=place_.loc)


def local(name: str, type: DType = i64) -> Local:  # noqa: A002
    return Local(name=name, type=type)
