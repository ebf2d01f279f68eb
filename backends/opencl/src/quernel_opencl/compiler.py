"""The half that compiles: IR to OpenCL C anywhere, and OpenCL C to the driver's binary where the device is.

OpenCL has no compiler apart from a device: `finalize` opens a context of its own in its process, when it is first
called. Everything before needs neither driver nor device.

**OpenCL C as a kernel** (`qn.source_kernel("opencl-c", text, entry=…, params=…, writes=…)`). `entry` names a `__kernel`
function that the text defines. It takes each parameter in order: a scalar as its OpenCL C type (bool as `uchar`, f16
and bf16 as their bits in a `ushort`); an array as a `__global` pointer and, where the device takes buffers (the
macro `QUERNEL_BUFFERS` is defined then), the offset of its element (0, …, 0) in bytes, a `long`; then the length of
each axis and the stride of each axis in elements, all `long`. The launch runs whole blocks: compare `get_global_id`
with the length.
"""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING

import attrs

from quernel.capabilities import TargetInfo
from quernel.codegen.pointers import Pointers
from quernel.compiler.artifacts import ArtifactHeader, ArtifactId, HeaderParameter, Slot, SlotKind
from quernel.compiler.halves import ArtifactCompiler, Signature
from quernel.dtypes import ArrayType, DType, i64, u64
from quernel.errors import CompilationError, ValidationError
from quernel.geometry import LaunchForm
from quernel.identity import build_id_hash
from quernel.locations import NOWHERE, Location
from quernel_opencl import _toolchain
from quernel_opencl.targets import device_key
from quernel_opencl.types import OpenclArtifact, OpenclLowered, OpenclVariant

if TYPE_CHECKING:
    from quernel.compiler.definition import ForeignSource, KernelDefinition
    from quernel.compiler.recording import CompilationRecording

__all__ = ["LANGUAGE", "OpenclCompiler"]

LANGUAGE = "opencl-c"
"""The language of ready-made sources."""

_FAST = ("-cl-mad-enable", "-cl-denorms-are-zero")
"""What `fast_math` allows; never the options that take NaNs and infinities for absent."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r":(\d+):\d+: (?:(?:fatal )?error: )?(.*)")
"""Line and message in a line of a log that speaks of an error; drivers put that word before the place or behind it."""


class OpenclCompiler(ArtifactCompiler[OpenclVariant, OpenclLowered, OpenclArtifact]):
    """Lowers kernels to OpenCL C and has the driver build them. Any thread, any process of the device's machine.

    Drivers build one program at a time: threads gain little, processes scale.
    """

    artifact_format = 1

    def __init__(self, target_info: TargetInfo) -> None:
        self.target_info = target_info
        self.build_id = build_id_hash("quernel", "quernel_opencl")

    def default_variant(self, signature: Signature) -> OpenclVariant:
        """The variant of whole NumPy arrays, which most launches have."""
        return OpenclVariant(contiguous=True, index32=self.narrows_indices)

    def lower(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[OpenclVariant],  # noqa: A002 — the contract's name
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> OpenclLowered:
        """The kernel as OpenCL C.

        Raises:
            ValidationError: the target cannot run this kernel.
        """
        with recording.stage("emit"):
            if kernel.foreign is not None:
                lowered = self._foreign(kernel, kernel.foreign)
            else:
                lowered = self._own(kernel, id.variant)
        recording.toolchain(self.target_info.detail("platform"), self.target_info.detail("driver"))
        recording.source(lowered.text)
        log.debug("%s: %d lines of OpenCL C", kernel.name, len(lowered.lines))
        return lowered

    def source(self, lowered: OpenclLowered) -> str:
        """Options, header and text: equal ones give equal artifacts, whatever their kernels are called."""
        header = attrs.evolve(lowered.header, entry="")
        return "\n".join([" ".join(lowered.options), header.to_bytes().decode(), lowered.text])

    def finalize(self, id: ArtifactId[OpenclVariant], lowered: OpenclLowered) -> OpenclArtifact:  # noqa: A002
        """The program's binary, built under the kernel's name in this process's context.

        Raises:
            CompilationError: the driver refuses the source; shown at the user's line, the log rides along whole.
            DeviceError: the device is not in this machine.
        """
        from quernel.codegen.generate import ENTRY_MACRO

        options = (*lowered.options, f"-D {ENTRY_MACRO}={lowered.header.entry}")
        try:
            binary, _ = _toolchain.build_binary(device_key(self.target_info), lowered.text, options)
        except CompilationError as error:
            raise _located(error, id.kernel.name, lowered.lines) from error
        statistics = (("code_bytes", len(binary)),)
        return OpenclArtifact(attrs.evolve(lowered.header, statistics=statistics), binary)

    @property
    def narrows_indices(self) -> bool:
        """Whether indices of 32 bits are worth a variant: they are where 64 bits take two registers."""
        return self.target_info.detail("kind") == "gpu"

    @property
    def pointers(self) -> Pointers:
        """How arrays are passed."""
        return Pointers(self.target_info.detail("pointers"))

    def _own(self, kernel: KernelDefinition, variant: OpenclVariant) -> OpenclLowered:
        from quernel.codegen.validation import shared_bytes, validate_kernel
        from quernel.compiler.arguments import argument_slots, header_parameters
        from quernel.ir.passes import inline, narrow_indices, optimize
        from quernel.ir.sites import has_diagnostics, num_sites
        from quernel.ir.uniformity import check_uniformity
        from quernel_opencl.lowering import OPENCL_C, lower_module, uses_subgroups

        module = optimize(kernel.expand())
        check_uniformity(module)
        module = inline(module)
        if variant.index32:
            module = narrow_indices(module)
        validate_kernel(module, OPENCL_C, self.target_info)
        own = module.kernel
        if uses_subgroups(module):
            _validate_rows(own.block, own.loc)
        edges = range(own.ndim) if own.form is LaunchForm.OVER else ()
        starts = edges if has_diagnostics(module) else ()  # Records say which thread it was.
        slots = argument_slots(module, extents=edges, starts=starts)
        if variant.contiguous:
            slots = tuple(slot for slot in slots if not _is_last_stride(slot, own.params[slot.param].type))
        generated = lower_module(module, variant, slots, pointers=self.pointers)
        header = ArtifactHeader(
            entry=_entry_name(kernel.name),
            params=header_parameters(module),
            slots=slots,
            block=own.block,
            shared_bytes=shared_bytes(module),
            num_sites=num_sites(module),
        )
        return OpenclLowered(header, generated.text, self._options(fast=own.options.fast_math), generated.lines)

    def _foreign(self, kernel: KernelDefinition, foreign: ForeignSource) -> OpenclLowered:
        from quernel.codegen.validation import validate_block

        if foreign.language != LANGUAGE:
            raise ValidationError(
                f"kernel {kernel.name} is written in {foreign.language!r}, which opencl targets do not compile",
                fix=f"use {LANGUAGE!r}, or a device that takes {foreign.language!r}",
            )
        if not _IDENTIFIER.fullmatch(foreign.entry):
            raise CompilationError(f"{foreign.entry!r} is no name of a function in OpenCL C")
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
                    f"parameter {name!r} of an OpenCL C kernel is of type {declared}",
                    fix="use scalars and arrays of scalars",
                )
        header = ArtifactHeader(
            entry=foreign.entry, params=tuple(params), slots=tuple(slots), block=specialization.block
        )
        options = self._options(fast=specialization.options.fast_math)
        if self.pointers is Pointers.BUFFER:
            options = (*options, "-D QUERNEL_BUFFERS")
        return OpenclLowered(header, foreign.text, options)

    def _options(self, *, fast: bool) -> tuple[str, ...]:
        if fast:
            return _FAST
        return tuple(self.target_info.detail("options").split())


def _validate_rows(block: tuple[int, ...], where: Location) -> None:
    """Refuses a block in which a subgroup would have to go on in the next row: drivers end one with its row.

    Raises:
        ValidationError: the last axis is no multiple of a subgroup.
    """
    from quernel_opencl.lowering import SUBGROUP_SIZE

    if math.prod(block[:-1]) > 1 and block[-1] % SUBGROUP_SIZE:
        raise ValidationError(
            f"subgroups of {SUBGROUP_SIZE} threads do not fill the rows of block {block}",
            where=None if where == NOWHERE else where,
            fix=f"use a block whose last axis is a multiple of {SUBGROUP_SIZE}, or one axis",
        )


def _is_last_stride(slot: Slot, declared: object) -> bool:
    return slot.kind is SlotKind.STRIDE and isinstance(declared, ArrayType) and slot.axis == (declared.ndim or 0) - 1


def _entry_name(kernel: str) -> str:
    """The kernel's name as OpenCL C allows it."""
    from quernel.codegen.names import Names
    from quernel_opencl.lowering import OPENCL_C

    return Names(OPENCL_C.reserved).fresh(kernel.rpartition(".")[2])


def _located(error: CompilationError, kernel: str, lines: tuple[Location, ...]) -> CompilationError:
    """The error at the user's line of the first complaint, as far as the log tells."""
    for line in error.chain:
        found = _PLACE.search(line)
        if found is None or "error" not in line:
            continue
        number = int(found[1])
        where = lines[number - 1] if 0 < number <= len(lines) else NOWHERE
        return CompilationError(
            f"kernel {kernel}: {error.what}: {found[2]}",
            where=None if where == NOWHERE else where,
            fix="report it with the log: the text should compile" if lines else "mend the source",
            chain=error.chain,
        )
    return CompilationError(f"kernel {kernel}: {error.what}", fix=error.fix, chain=error.chain)
