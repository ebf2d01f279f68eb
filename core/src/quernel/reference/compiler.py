"""The half that lowers: a kernel's IR to Python trees under the user's lines."""

from __future__ import annotations

import ast
import logging
import math
import platform
from typing import TYPE_CHECKING

from quernel.capabilities import TargetInfo
from quernel.compiler.arguments import header_parameters
from quernel.compiler.artifacts import ArtifactHeader, ArtifactId, Slot, SlotKind
from quernel.compiler.halves import ArtifactCompiler, Signature
from quernel.dtypes import ArrayType, DType, u64
from quernel.errors import ValidationError
from quernel.identity import build_id_hash
from quernel.ir.nodes import Alloc, Call, Function, Kernel, Module, Space
from quernel.ir.passes import contract, fold
from quernel.ir.walk import walk_statements
from quernel.reference.lowering import lower_module
from quernel.reference.types import Lowered, ReferenceArtifact, Variant

if TYPE_CHECKING:
    from quernel.compiler.definition import KernelDefinition
    from quernel.compiler.recording import CompilationRecording

__all__ = ["ReferenceCompiler"]


class ReferenceCompiler(ArtifactCompiler[Variant, Lowered, ReferenceArtifact]):
    """Lowers kernels for the interpreter. Any thread; pickles."""

    shares_by_ir = False  # an artifact stands at the user's lines, which are outside the IR's content

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
            ValidationError: the kernel is a ready-made source, or its block is too large.
        """
        if kernel.foreign is not None:
            raise ValidationError(
                f"kernel {kernel.name} is {kernel.foreign.language}, which the interpreter does not run",
                fix="launch it on a backend for that language",
            )
        with recording.stage("emit"):
            # Folds and rounds as every backend does, and keeps each of the user's lines.
            module = contract(fold(kernel.expand()))
            self._validate(module.kernel)
            functions, constants = lower_module(module)
        params = tuple(parameter.type for parameter in module.kernel.params)
        lowered = Lowered(_header(module), functions, params, tuple(constants.sites), tuple(constants.objects))
        recording.toolchain("Python", platform.python_version())
        if recording.is_full:
            recording.source(lowered.text)
        log.debug("%s: %d functions as Python", kernel.name, len(functions))
        return lowered

    def finalize(self, id: ArtifactId[Variant], lowered: Lowered) -> ReferenceArtifact:  # noqa: A002
        """The artifact of the trees: they are all that it needs."""
        dumps = [
            f"{function.file}\n{ast.dump(function.tree, include_attributes=True)}\n" for function in lowered.functions
        ]
        return ReferenceArtifact(
            lowered.header, "".join([*dumps, f"{lowered.params}{lowered.objects}"]).encode(), lowered
        )

    def _validate(self, kernel: Kernel) -> None:
        threads = math.prod(kernel.block)
        limit = self.target_info.limits.max_block_threads
        if threads > limit:
            raise ValidationError(
                f"block {kernel.block} has {threads} threads, the interpreter allows {limit}",
                where=kernel.loc,
                fix=f"use a block of at most {limit} threads",
            )


def _header(module: Module) -> ArtifactHeader:
    """Every length and stride is a slot, used or not, as every access is checked."""
    slots: list[Slot] = []
    for number, parameter in enumerate(module.kernel.params):
        if isinstance(parameter.type, ArrayType):
            axes = range(parameter.type.ndim or 0)
            slots.append(Slot(SlotKind.POINTER, number, dtype=u64))
            slots.extend(Slot(SlotKind.SHAPE, number, axis) for axis in axes)
            slots.extend(Slot(SlotKind.STRIDE, number, axis) for axis in axes)
        else:
            assert isinstance(parameter.type.dtype, DType), "vectors and structs are passed part by part"
            slots.append(Slot(SlotKind.SCALAR, number, dtype=parameter.type.dtype))
    return ArtifactHeader(
        module.kernel.name,
        header_parameters(module),
        tuple(slots),
        module.kernel.block,
        shared_bytes=_shared_bytes(module),
    )


def _shared_bytes(module: Module) -> int:
    """What the shared arrays of a block take, each at a multiple of its alignment; each call has its own."""
    functions = {function.name: function for function in module.functions}
    known: dict[str, tuple[int, int]] = {}

    def needs(owner: Kernel | Function) -> tuple[int, int]:
        size, widest = 0, 1
        for stmt in walk_statements(owner.body):
            if isinstance(stmt, Alloc) and stmt.space is Space.SHARED:
                num_bytes, alignment = math.prod(stmt.shape) * stmt.element.itemsize, stmt.element.alignment
            elif isinstance(stmt, Call):
                if stmt.function not in known:
                    known[stmt.function] = needs(functions[stmt.function])
                num_bytes, alignment = known[stmt.function]
            else:
                continue
            size = -(-size // alignment) * alignment + num_bytes
            widest = max(widest, alignment)
        return size, widest

    return needs(module.kernel)[0]
