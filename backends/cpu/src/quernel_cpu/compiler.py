"""The half that lowers: IR, or ready-made LLVM IR, to object code of the target.

**LLVM IR as a kernel** (`qn.source_kernel("llvm-ir", text, entry=…, params=…, writes=…)`). `entry` names a function
that the text defines, returns `void`, and is called once for each thread with

* the thread's `global_id` along each axis of the launch, each an `i64`,
* then each parameter in order: a scalar as its LLVM type (`i1` for bool, `iN` for integers, `float` for f32, f16 and
  bf16, `double` for f64); an array as a `ptr` to element (0, …, 0), then the length of each axis, then the stride of
  each axis in elements, all `i64`; an array of any rank as the `ptr` alone.

For parameters `a` (f32) and `x` (an f32 array of rank 1), launched in one dimension, that is
`void (i64, float, ptr, i64, i64)`. LLVM inlines the call and vectorises the loop over the threads where the code
allows. Other functions that the text defines become internal; declared ones are looked for in the process, the C
library's mathematics among them. A triple or data layout in the text gives way to the target's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from quernel.capabilities import TargetInfo
from quernel.compiler.artifacts import ArtifactHeader, ArtifactId
from quernel.compiler.halves import ArtifactCompiler, Signature
from quernel.errors import CompilationError, ValidationError
from quernel.identity import build_id_hash
from quernel.values import evolve
from quernel_cpu import _toolchain
from quernel_cpu.caches import streaming_feature
from quernel_cpu.scratch import scratch_feature
from quernel_cpu.types import CpuArtifact, CpuLowered, CpuVariant
from quernel_cpu.vectormath import VECTOR_LIBRARY_FEATURE

if TYPE_CHECKING:
    import logging

    from quernel.compiler.artifacts import Slot
    from quernel.compiler.definition import ForeignSource, KernelDefinition
    from quernel.compiler.recording import CompilationRecording
    from quernel.ir.analysis import ParameterUses
    from quernel.ir.nodes import Parameter
    from quernel_cpu.emission.cells import Scratch

__all__ = ["LANGUAGE", "CpuCompiler"]

LANGUAGE = "llvm-ir"
"""The language of ready-made sources."""

_SYMBOL = re.compile(r"[A-Za-z$._-][A-Za-z0-9$._-]*")


class CpuCompiler(ArtifactCompiler[CpuVariant, CpuLowered, CpuArtifact]):
    """Lowers kernels to object code. Any thread, process or machine; pickles.

    Several threads gain little, as llvmlite has one lock round LLVM; several processes scale.
    """

    artifact_format = 2
    scales_with = "processes"

    def __init__(self, target_info: TargetInfo) -> None:
        self.target_info = target_info
        self.build_id = build_id_hash("quernel", "quernel_cpu")

    def local_fingerprint(self) -> str:
        """The target's fingerprint with this process's LLVM."""
        from quernel_cpu.targets import fingerprint

        return fingerprint(self.target_info.name, self.target_info.details, _toolchain.version())

    def default_variant(self, signature: Signature) -> CpuVariant:
        """The variant of whole NumPy arrays, which most launches have; others need another."""
        return CpuVariant(contiguous=True)

    def lower(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[CpuVariant],  # noqa: A002 — the contract's name
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> CpuLowered:
        """The kernel as object code.

        Raises:
            ValidationError: the target cannot run this kernel.
            CompilationError: LLVM refused it.
        """
        with recording.stage("emit"):
            if kernel.foreign is not None:
                text, header = self._foreign(kernel, kernel.foreign, id.variant)
                is_vector_code = False
            else:
                text, header, is_vector_code = self._own(kernel, id.variant)
        recording.toolchain("LLVM", _toolchain.version())
        recording.source(text)
        with recording.stage("llvm"):
            object_code = _toolchain.compile_ir(text, *self._machine, is_vector_code=is_vector_code)
        recording.statistics(code_bytes=len(object_code))
        log.debug("%s: %d lines of LLVM IR, %d bytes", kernel.name, text.count("\n"), len(object_code))
        uses_vector_library = b"_ZGV" in object_code
        return CpuLowered(
            header=ArtifactHeader(
                entry=header.entry,
                params=header.params,
                slots=header.slots,
                block=header.block,
                shared_bytes=header.shared_bytes,
                features=(*header.features, *((VECTOR_LIBRARY_FEATURE,) if uses_vector_library else ())),
                num_sites=header.num_sites,
                statistics=(("code_bytes", len(object_code)),),
            ),
            object_code=object_code,
            ir=text,
            is_vector_code=is_vector_code,
        )

    def finalize(self, id: ArtifactId[CpuVariant], lowered: CpuLowered) -> CpuArtifact:  # noqa: A002
        """The object code, as an image where it needs no linker."""
        from quernel_cpu.linking import linked_image

        image = linked_image(lowered.object_code, lowered.header.entry)
        return CpuArtifact(lowered.header, image or lowered.object_code)

    def assembly(self, lowered: CpuLowered) -> str:
        """The target's assembly of a lowered kernel, worked out again from its IR."""
        return _toolchain.assembly(lowered.ir, *self._machine, is_vector_code=lowered.is_vector_code)

    def optimized_ir(self, lowered: CpuLowered) -> str:
        """What LLVM made of a lowered kernel's IR, worked out again."""
        return _toolchain.optimized_ir(lowered.ir, *self._machine, is_vector_code=lowered.is_vector_code)

    @property
    def _machine(self) -> tuple[str, str, str]:
        return (
            self.target_info.detail("triple"),
            self.target_info.detail("cpu"),
            self.target_info.detail("features"),
        )

    def _own(self, kernel: KernelDefinition, variant: CpuVariant) -> tuple[str, ArtifactHeader, bool]:
        """The LLVM IR, the header, and whether lanes are vectors in the IR already."""
        from quernel.ir.analysis import parameter_uses
        from quernel.ir.passes import optimize
        from quernel.ir.segments import segment
        from quernel.ir.sites import num_sites
        from quernel_cpu.emission.cells import scratch_of
        from quernel_cpu.emission.coarsening import chosen_step
        from quernel_cpu.emission.forms import spmd_form
        from quernel_cpu.emission.recompute import recomputed
        from quernel_cpu.emission.streaming import bytes_per_thread, has_streaming_stores, streamed_array
        from quernel_cpu.lowering import lower_module
        from quernel_cpu.steadiness import STEADY_FEATURE, is_steady
        from quernel_cpu.validation import is_cooperative, validate, validate_scratch, validate_without_lanes

        module = optimize(kernel.expand())
        validate(module, self.target_info)
        sites = num_sites(module)
        uses = parameter_uses(module)
        lanes = spmd_form(module) if self.target_info.detail("emitter") == "spmd" else None
        is_vector_code = lanes is not None
        if not is_vector_code:
            validate_without_lanes(module, self.target_info)
        module = lanes or module
        segmented = recomputed(segment(module)) if is_cooperative(module) else None
        owner = (module if segmented is None else segmented.module).kernel
        step = chosen_step(owner, segmented, self.target_info) if is_vector_code else None
        scratch = scratch_of(owner, segmented, step.width * step.rows if step is not None else 0)
        validate_scratch(owner, scratch, self.target_info)
        header = _header(module.kernel.params, uses, module.kernel.block, variant, num_sites=sites, scratch=scratch)
        if is_steady(module):
            header = evolve(header, features=(*header.features, STEADY_FEATURE))
        streamed = streamed_array(module, uses, self.target_info.detail("triple")) if is_vector_code else None
        text = lower_module(
            module,
            self.target_info,
            variant,
            header.slots,
            segmented,
            scratch=scratch,
            step=step,
            streamed=streamed,
        )
        if streamed is not None and has_streaming_stores(text):
            feature = streaming_feature(bytes_per_thread(module, uses))
            header = evolve(header, features=(*header.features, feature))
        return text, header, is_vector_code

    def _foreign(
        self, kernel: KernelDefinition, foreign: ForeignSource, variant: CpuVariant
    ) -> tuple[str, ArtifactHeader]:
        from quernel.ir.validation import validate_block
        from quernel_cpu.foreign import foreign_call, foreign_parameters
        from quernel_cpu.lowering import lower_call
        from quernel_cpu.slots import all_uses

        if foreign.language != LANGUAGE:
            raise ValidationError(
                f"kernel {kernel.name} is written in {foreign.language!r}, which cpu targets do not compile",
                fix=f"use {LANGUAGE!r}, or a device that takes {foreign.language!r}",
            )
        if not _SYMBOL.fullmatch(foreign.entry):
            raise CompilationError(f"{foreign.entry!r} is no name of a function in LLVM IR")
        specialization = kernel.specialization
        validate_block(specialization.block, self.target_info)
        params = foreign_parameters(specialization)
        header = _header(params, all_uses(params, foreign.writes), specialization.block, variant)
        caller, callee = foreign_call(foreign, specialization, params)
        main = lower_call(caller, callee, self.target_info, variant, header.slots)
        return _toolchain.merged_ir(foreign.text, foreign.entry, callee.type_text(), main), header


def _header(
    params: tuple[Parameter, ...],
    uses: ParameterUses,
    block: tuple[int, ...],
    variant: CpuVariant,
    *,
    num_sites: int = 0,
    scratch: Scratch | None = None,
) -> ArtifactHeader:
    from quernel_cpu.lowering import ENTRY
    from quernel_cpu.slots import argument_slots, header_parameters

    slots: tuple[Slot, ...] = argument_slots(params, uses, variant, reports=num_sites > 0)
    return ArtifactHeader(
        entry=ENTRY,
        params=header_parameters(params, uses),
        slots=slots,
        block=block,
        shared_bytes=scratch.shared_bytes if scratch is not None else 0,
        features=(scratch_feature(scratch.num_bytes),) if scratch is not None and scratch.num_bytes else (),
        num_sites=num_sites,
    )
