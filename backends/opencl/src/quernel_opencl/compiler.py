"""The half that compiles: IR to OpenCL C anywhere, and OpenCL C to the driver's binary where the device is.

OpenCL has no compiler apart from a device: `finalize` opens a context of its own in its process, when it is first
called. Everything before needs neither driver nor device.

**OpenCL C as a kernel** (`qn.source_kernel("opencl-c", text, entry=…, params=…, writes=…)`). `entry` names a `__kernel`
function that the text defines. It takes each parameter in order: a scalar as its OpenCL C type (bool as `uchar`, f16
and bf16 as their bits in a `ushort`); an array as a `__global` pointer and, where the device takes buffers (the
macro `QUERNEL_BUFFERS` is defined then), the offset of its element (0, …, 0) in bytes, a `long`; then the length of
each axis and the stride of each axis in elements, all `long`. An array of any rank is the pointer alone, which is to
its element (0, …, 0). The launch runs whole blocks: compare `get_global_id` with the length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from quernel.codegen.pointers import Pointers
from quernel.compiler.aligned import AlignedVariant
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.cfamily import CFamilyCompiler
from quernel.compiler.halves import Scaling, Signature
from quernel.errors import CompilationError
from quernel_opencl import _toolchain
from quernel_opencl.targets import device_key
from quernel_opencl.types import OpenclArtifact

if TYPE_CHECKING:
    from quernel.codegen.dialect import Dialect
    from quernel.compiler.lowered_text import LoweredText
    from quernel.ir.nodes import Module
    from quernel.options import KernelOptions

__all__ = ["LANGUAGE", "OpenclCompiler"]

LANGUAGE: Final = "opencl-c"
"""The language of ready-made sources."""

_FAST: Final = ("-cl-mad-enable", "-cl-denorms-are-zero")
"""What `fast_math` allows; never the options that take NaNs and infinities for absent."""


class OpenclCompiler(CFamilyCompiler[AlignedVariant, OpenclArtifact]):
    """Lowers kernels to OpenCL C and has the driver build them. Any thread, any process of the device's machine.

    Drivers build one program at a time: threads gain little, processes scale. On a GPU each process would take memory
    for a context of its own, so only those for processors have them by themselves.
    """

    artifact_format = 2  # Those of 1 may hold what Intel's compiler got wrong.
    language = LANGUAGE
    variant_type = AlignedVariant

    @property
    def is_reproducible(self) -> bool:  # type: ignore[override]  # a fact of the driver here
        """Intel's compiler for CPUs writes into each program which one of its process it is."""
        return not self._is_intel_cpu

    @property
    def scales_with(self) -> Scaling:  # type: ignore[override]  # a fact of the device here
        """Processes, unless each would take memory of the device."""
        return "processes" if self.target_info.detail("kind") == "cpu" else "threads"

    @property
    def toolchain(self) -> tuple[str, str]:
        """The platform, and its driver's version."""
        return self.target_info.detail("platform"), self.target_info.detail("driver")

    @property
    def narrows_indices(self) -> bool:
        """Whether indices of 32 bits are worth a variant: they are where 64 bits take two registers."""
        return self.target_info.detail("kind") == "gpu"

    @property
    def pointers(self) -> Pointers:
        """How arrays are passed."""
        return Pointers(self.target_info.detail("pointers"))

    def default_variant(self, signature: Signature) -> AlignedVariant:
        """The variant of whole arrays, which most launches have."""
        return AlignedVariant(contiguous=True, index32=self.narrows_indices)

    def dialect(self, module: Module, variant: AlignedVariant) -> Dialect:
        """OpenCL C, with what the kernel uses."""
        from quernel.ir.analysis import parameter_uses
        from quernel_opencl.lowering import opencl_dialect, types_of_one_memory, uses_subgroups

        return opencl_dialect(
            has_subgroups=uses_subgroups(module),
            has_barrier=parameter_uses(module).has_barrier,
            is_intel_cpu=self._is_intel_cpu,
            of_one_memory=types_of_one_memory(module),
        )

    @property
    def _is_intel_cpu(self) -> bool:
        return self.target_info.detail("platform").startswith("Intel") and self.target_info.detail("kind") == "cpu"

    def options(self, options: KernelOptions, *, is_foreign: bool) -> tuple[str, ...]:
        """What the driver builds the program with."""
        asked = _FAST if options.fast_math else tuple(self.target_info.detail("options").split())
        if is_foreign and self.pointers is Pointers.BUFFER:
            return (*asked, "-D QUERNEL_BUFFERS")
        return asked

    def validate(self, module: Module) -> None:
        """Refuses a block in which a subgroup would have to go on in the next row: drivers end one with its row.

        Raises:
            ValidationError: the last axis is no multiple of a subgroup.
        """
        from quernel_opencl.lowering import validate_rows

        validate_rows(module)

    def finalize(self, id: ArtifactId[AlignedVariant], lowered: LoweredText) -> OpenclArtifact:  # noqa: A002
        """The program's binary, built under the kernel's name in this process's context.

        Raises:
            CompilationError: the driver refuses the source; shown at the user's line, the log rides along whole.
            DeviceError: the device is not in this machine.
        """
        options = (*lowered.options, *(f"-D {name}={value}" for name, value in lowered.macros))
        try:
            binary, _ = _toolchain.build_binary(device_key(self.target_info), lowered.text, options)
        except CompilationError as error:
            raise self.located(error, id.kernel.name, lowered) from error
        statistics = (("code_bytes", len(binary)),)
        return OpenclArtifact(attrs.evolve(lowered.header, statistics=statistics), binary)
