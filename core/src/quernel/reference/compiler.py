"""The half that lowers: a kernel's IR to Python trees under the user's lines."""

from __future__ import annotations

import ast
import logging
import math
from typing import TYPE_CHECKING

from quernel.capabilities import TargetInfo
from quernel.compiler.artifacts import ArtifactHeader, ArtifactId, HeaderParameter, Slot, SlotKind
from quernel.compiler.halves import ArtifactCompiler, Signature
from quernel.dtypes import ArrayType, DType, ValueType, i64, u64
from quernel.errors import ValidationError
from quernel.identity import build_id_hash
from quernel.ir.analysis import ParameterUses, parameter_uses
from quernel.ir.nodes import Kernel, Parameter
from quernel.ir.passes import contract, fold
from quernel.reference.lowering import lower_module
from quernel.reference.types import Lowered, ReferenceArtifact, Variant

if TYPE_CHECKING:
    from quernel.compiler.definition import KernelDefinition
    from quernel.compiler.recording import CompilationRecording

__all__ = ["ReferenceCompiler"]


class ReferenceCompiler(ArtifactCompiler[Variant, Lowered, ReferenceArtifact]):
    """Lowers kernels for the interpreter. Any thread; pickles."""

    def __init__(self, target_info: TargetInfo) -> None:
        self.target_info = target_info
        self.build_id = build_id_hash("quernel", "quernel.reference")

    def default_variant(self, signature: Signature) -> Variant:
        """The one variant."""
        return Variant()

    def lower(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[Variant],  # noqa: A002 — the contract's name
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> Lowered:
        """The kernel as Python trees.

        Raises:
            ValidationError: the kernel is a ready-made source, its block is too large, or it uses what the interpreter
                does not have.
        """
        if kernel.foreign is not None:
            raise ValidationError(
                f"kernel {kernel.name} is {kernel.foreign.language}, which the interpreter does not run",
                fix="launch it on a backend for that language",
            )
        module = contract(fold(kernel.expand()))  # rounds as every backend does, and keeps each of the user's lines
        self._validate(module.kernel)
        functions, sites = lower_module(module)
        return Lowered(_header(module.kernel, parameter_uses(module)), functions, sites)

    def finalize(self, id: ArtifactId[Variant], lowered: Lowered) -> ReferenceArtifact:  # noqa: A002
        """The artifact of the trees: they are all that it needs."""
        dumps = [
            f"{function.file}\n{ast.dump(function.tree, include_attributes=True)}\n" for function in lowered.functions
        ]
        return ReferenceArtifact(lowered.header, "".join(dumps).encode(), lowered)

    def _validate(self, kernel: Kernel) -> None:
        threads = math.prod(kernel.block)
        limit = self.target_info.limits.max_block_threads
        if threads > limit:
            raise ValidationError(
                f"block {kernel.block} has {threads} threads, the interpreter allows {limit}",
                where=kernel.loc,
                fix=f"use a block of at most {limit} threads",
            )


def _header(kernel: Kernel, uses: ParameterUses) -> ArtifactHeader:
    slots: list[Slot] = []
    for number, parameter in enumerate(kernel.params):
        if isinstance(parameter.type, ArrayType):
            axes = range(parameter.type.ndim or 0)
            slots.append(Slot(SlotKind.POINTER, number, dtype=u64))
            slots.extend(Slot(SlotKind.SHAPE, number, axis, i64) for axis in axes)
            slots.extend(Slot(SlotKind.STRIDE, number, axis, i64) for axis in axes)
        else:
            slots.append(Slot(SlotKind.SCALAR, number, dtype=_scalar(parameter.type.dtype)))
    return ArtifactHeader(
        entry=kernel.name,
        params=tuple(_header_parameter(parameter, uses) for parameter in kernel.params),
        slots=tuple(slots),
        block=kernel.block,
    )


def _header_parameter(parameter: Parameter, uses: ParameterUses) -> HeaderParameter:
    type_ = parameter.type
    if isinstance(type_, ArrayType):
        use = uses.array(parameter.name)
        return HeaderParameter(
            parameter.name,
            str(type_.element),
            ndim=type_.ndim or 0,
            is_read=use.is_read,
            is_written=use.is_written,
        )
    return HeaderParameter(parameter.name, str(type_.dtype), weak=type_.weak, bounds=parameter.bounds)


def _scalar(type_: ValueType) -> DType:
    assert isinstance(type_, DType)  # the lowering refused the others
    return type_
