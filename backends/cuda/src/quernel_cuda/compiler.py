"""The half that compiles: IR to CUDA C++, and CUDA C++ to a cubin. It needs neither a driver nor a device.

**CUDA C++ as a kernel** (`qn.source_kernel("cuda-c++", text, entry=…, params=…, writes=…)`). `entry` names a
`__global__` function that the text defines, or an instance of a template, as `saxpy<float>`. It takes each parameter
in order: a scalar as its C++ type (bool as `unsigned char`, f16 and bf16 as their bits in an `unsigned short`); an
array as a pointer to element (0, …, 0), then the length of each axis and the stride of each axis in elements, all
`long long`. The launch runs whole blocks, the last axis along x: compare the thread's index with the length.
`<cuda_fp16.h>` and the toolkit's other headers are found where NVRTC brings them.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

import attrs

from quernel.capabilities import TargetInfo
from quernel.compiler.artifacts import ArtifactHeader, ArtifactId, HeaderParameter, Slot, SlotKind
from quernel.compiler.halves import ArtifactCompiler, Signature
from quernel.dtypes import ArrayType, DType, i64, u64
from quernel.errors import CompilationError, ValidationError
from quernel.geometry import LaunchForm
from quernel.identity import build_id_hash
from quernel.locations import NOWHERE, Location
from quernel_cuda import _toolchain
from quernel_cuda.types import PTX, CudaArtifact, CudaLowered, CudaVariant

if TYPE_CHECKING:
    from quernel.compiler.definition import ForeignSource, KernelDefinition
    from quernel.compiler.recording import CompilationRecording

__all__ = ["DYNAMIC_SHARED", "LANGUAGE", "ROW", "CudaCompiler"]

LANGUAGE: Final = "cuda-c++"
"""The language of ready-made sources."""

ROW: Final = "row"
"""The feature of a header whose kernel numbers its blocks through: its launch is one row of blocks."""

DYNAMIC_SHARED: Final = "dynamic_shared"
"""The feature of a header whose shared memory is asked for at the launch."""

_COMMON: Final = ("--std=c++17", "--ptxas-options=-v", "--disable-warnings")
_EXACT: Final = ("--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""What is fused is decided before; nothing else is fused or approximated."""
_FAST: Final = ("--fmad=true", "--ftz=true", "--prec-div=false", "--prec-sqrt=false")
"""What `fast_math` allows. Not `--use_fast_math`, which also makes powers of negative numbers NaN."""
_OWN: Final = ("--minimal",)
"""The texts of this backend use nothing that it leaves out, and compile to the same code in a third less time."""

_PLACE: Final = re.compile(r"^(.*?)\((\d+)\): (?:catastrophic )?error: (.*)$")
_LINE_OF_PTXAS: Final = re.compile(r"^ptxas\b.*(?:error|fatal)\s*:\s*(.*)$")


class CudaCompiler(ArtifactCompiler[CudaVariant, CudaLowered, CudaArtifact]):
    """Lowers kernels to CUDA C++ and compiles them. Any thread, process or machine; pickles.

    Threads scale to about three cores, processes beyond.
    """

    artifact_format = 1

    def __init__(self, target_info: TargetInfo) -> None:
        self.target_info = target_info
        self.build_id = build_id_hash("quernel", "quernel_cuda")

    def default_variant(self, signature: Signature) -> CudaVariant:
        """The variant of whole arrays of ordinary size, which most launches have."""
        return CudaVariant(aligned16=True, contiguous=True, index32=True)

    def lower(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[CudaVariant],  # noqa: A002 — the contract's name
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> CudaLowered:
        """The kernel as CUDA C++.

        Raises:
            ValidationError: the target cannot run this kernel.
        """
        with recording.stage("emit"):
            if kernel.foreign is not None:
                lowered = self._foreign(kernel, kernel.foreign)
            else:
                lowered = self._own(kernel, id.variant)
        recording.toolchain("NVRTC", self.target_info.detail("nvrtc"))
        recording.source(lowered.text)
        log.debug("%s: %d lines of CUDA C++", kernel.name, lowered.text.count("\n"))
        return lowered

    def source(self, lowered: CudaLowered) -> str:
        """Options, header and text: equal ones give equal artifacts, whatever their kernels are called."""
        header = attrs.evolve(lowered.header, entry="")
        return "\n".join([" ".join(lowered.options), header.to_bytes().decode(), lowered.text])

    def finalize(self, id: ArtifactId[CudaVariant], lowered: CudaLowered) -> CudaArtifact:  # noqa: A002
        """The cubin, or PTX where the target is newer than NVRTC.

        Raises:
            CompilationError: NVRTC refuses the source; shown at the user's line, the log rides along whole.
        """
        is_ptx = self.target_info.detail("code") == "ptx"
        compiled = self._compiled(lowered, self._architecture, id.kernel.name, is_ptx=is_ptx)
        statistics = compiled.statistics | {"code_bytes": len(compiled.payload)}
        features = (*lowered.header.features, PTX) if is_ptx else lowered.header.features
        header = attrs.evolve(
            lowered.header,
            entry=compiled.entry,
            features=tuple(sorted(features)),
            statistics=tuple(sorted(statistics.items())),
        )
        return CudaArtifact(header, compiled.payload)

    def ptx(self, lowered: CudaLowered) -> str:
        """The PTX of a lowered kernel, for people to read.

        Raises:
            CompilationError: NVRTC refuses the source.
        """
        virtual = self._architecture.replace("sm_", "compute_")
        payload = self._compiled(lowered, virtual, lowered.header.entry, is_ptx=True).payload
        return payload.rstrip(b"\0").decode()

    def assembly(self, lowered: CudaLowered) -> str:
        """The machine code of a lowered kernel where the toolkit's `nvdisasm` is installed, else its PTX."""
        if self.target_info.detail("code") == "cubin":
            compiled = self._compiled(lowered, self._architecture, lowered.header.entry, is_ptx=False)
            shown = _toolchain.disassembly(compiled.payload)
            if shown is not None:
                return shown
        return self.ptx(lowered)

    @property
    def _architecture(self) -> str:
        return self.target_info.detail("architecture")

    def _compiled(self, lowered: CudaLowered, architecture: str, kernel: str, *, is_ptx: bool) -> _toolchain.Compiled:
        from quernel.codegen.generate import ENTRY_MACRO

        entry = lowered.header.entry
        options = (f"--gpu-architecture={architecture}", *lowered.options)
        if lowered.lines:
            options = (*options, f"--define-macro={ENTRY_MACRO}={entry}")
        else:
            options = (*options, *_headers(lowered.text))
        try:
            return _toolchain.compile_text(lowered.text, options, entry, is_ptx=is_ptx)
        except CompilationError as error:
            raise _located(error, kernel, lowered.lines) from error

    # --- lowering -----------------------------------------------------------------------------------------------------

    def _own(self, kernel: KernelDefinition, variant: CudaVariant) -> CudaLowered:
        from quernel.codegen.points import points_per_thread, several_points
        from quernel.codegen.validation import shared_bytes, validate_kernel
        from quernel.compiler.arguments import argument_slots, header_parameters
        from quernel.ir.passes import inline, narrow_indices, optimize
        from quernel.ir.sites import has_diagnostics, num_sites
        from quernel.ir.uniformity import check_uniformity
        from quernel_cuda.lowering import CUDA_CPP, MAX_STATIC_SHARED_BYTES, lower_module

        module = optimize(kernel.expand())
        check_uniformity(module)
        module = inline(module)
        validate_kernel(module, CUDA_CPP, self.target_info)
        points = points_per_thread(module) if variant.several_points else 1
        several = several_points(module.kernel, points) if points > 1 else None
        if variant.index32:
            if several is not None:
                whole = narrow_indices(attrs.evolve(module, kernel=several.kernel))
                several = attrs.evolve(several, kernel=whole.kernel)
            module = narrow_indices(module)
        own = module.kernel
        is_over = own.form is LaunchForm.OVER
        edges = range(own.ndim) if is_over else ()
        starts = edges if has_diagnostics(module) else ()  # Records say which thread it was.
        slots = argument_slots(module, extents=edges, starts=starts)
        if variant.contiguous:
            slots = tuple(slot for slot in slots if not _is_last_stride(slot, own.params))
        taken = shared_bytes(module)
        is_dynamic = taken > MAX_STATIC_SHARED_BYTES
        generated = lower_module(module, variant, slots, is_dynamic=is_dynamic, several=several)
        features = [name for name, is_on in ((DYNAMIC_SHARED, is_dynamic), (ROW, is_over)) if is_on]
        header = ArtifactHeader(
            entry=_entry_name(kernel.name),
            params=header_parameters(module),
            slots=slots,
            block=own.block,
            points_per_thread=points,
            shared_bytes=taken,
            features=tuple(features),
            num_sites=num_sites(module),
        )
        options: tuple[str, ...] = (*_COMMON, *(_FAST if own.options.fast_math else _EXACT), *_OWN)
        if own.options.debug:
            options = (*options, "--generate-line-info")
        return CudaLowered(header, generated.text, options, generated.lines)

    def _foreign(self, kernel: KernelDefinition, foreign: ForeignSource) -> CudaLowered:
        from quernel.codegen.validation import validate_block

        if foreign.language != LANGUAGE:
            raise ValidationError(
                f"kernel {kernel.name} is written in {foreign.language!r}, which cuda targets do not compile",
                fix=f"use {LANGUAGE!r}, or a device that takes {foreign.language!r}",
            )
        specialization = kernel.specialization
        validate_block(specialization.block, self.target_info)
        params: list[HeaderParameter] = []
        slots: list[Slot] = []
        for number, (name, declared) in enumerate(specialization.parameters):
            if isinstance(declared, ArrayType):
                axes = range(declared.ndim or 0)
                slots.append(Slot(SlotKind.POINTER, number, 0, u64))
                slots += [Slot(SlotKind.SHAPE, number, axis, i64) for axis in axes]
                slots += [Slot(SlotKind.STRIDE, number, axis, i64) for axis in axes]
                params.append(
                    HeaderParameter(name, str(declared.element), len(axes), False, None, True, name in foreign.writes)
                )
            elif isinstance(declared.dtype, DType):
                slots.append(Slot(SlotKind.SCALAR, number, 0, declared.dtype))
                params.append(HeaderParameter(name, declared.dtype.name, weak=declared.weak))
            else:
                raise ValidationError(
                    f"parameter {name!r} of a CUDA C++ kernel is of type {declared}",
                    fix="use scalars and arrays of scalars",
                )
        header = ArtifactHeader(
            entry=foreign.entry, params=tuple(params), slots=tuple(slots), block=specialization.block
        )
        fast = specialization.options.fast_math
        options = (*_COMMON, *(_FAST if fast else _EXACT))
        return CudaLowered(header, foreign.text, options)


def _is_last_stride(slot: Slot, params: object) -> bool:
    if slot.kind is not SlotKind.STRIDE:
        return False
    declared = params[slot.param].type  # type: ignore[index]  # the kernel's parameters
    return isinstance(declared, ArrayType) and slot.axis == (declared.ndim or 0) - 1


def _entry_name(kernel: str) -> str:
    """The kernel's name as CUDA C++ allows it."""
    from quernel.codegen.names import Names
    from quernel_cuda.lowering import CUDA_CPP

    return Names(CUDA_CPP.reserved).fresh(kernel.rpartition(".")[2])


def _headers(text: str) -> tuple[str, ...]:
    """Where a source that includes anything finds the toolkit's headers."""
    if "#include" not in text:
        return ()
    folder = _toolchain.header_folder()
    return () if folder is None else (f"--include-path={folder}",)


def _located(error: CompilationError, kernel: str, lines: tuple[Location, ...]) -> CompilationError:
    """The error at the user's line of the first complaint, as far as the log tells."""
    for line in error.chain:
        found = _PLACE.match(line)
        if found is None:
            assembler = _LINE_OF_PTXAS.match(line)
            if assembler is not None:
                return CompilationError(f"kernel {kernel}: {error.what}: {assembler[1]}", chain=error.chain)
            continue
        number = int(found[2])
        where = _place(found[1], number, lines)
        return CompilationError(
            f"kernel {kernel}: {error.what}: {found[3]}",
            where=None if where == NOWHERE else where,
            fix="report it with the log: the text should compile" if lines else "mend the source",
            chain=error.chain,
        )
    return CompilationError(f"kernel {kernel}: {error.what}", fix=error.fix, chain=error.chain)


def _place(file: str, number: int, lines: tuple[Location, ...]) -> Location:
    """The user's place of a line of the text; with `debug`, the log names it already."""
    for known in lines:
        if known.file.replace("\\", "/") == file and known.line == number:
            return known
    return lines[number - 1] if 0 < number <= len(lines) else NOWHERE
