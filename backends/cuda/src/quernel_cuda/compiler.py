"""The half that compiles: IR to CUDA C++, and CUDA C++ to a cubin. It needs neither a driver nor a device.

**CUDA C++ as a kernel** (`qn.source_kernel("cuda-c++", text, entry=…, params=…, writes=…)`). `entry` names a
`__global__` function that the text defines, or an instance of a template, as `saxpy<float>`. It takes each parameter
in order: a scalar as its C++ type (bool as `unsigned char`, f16 and bf16 as their bits in an `unsigned short`); an
array as a pointer to element (0, …, 0), then the length of each axis and the stride of each axis in elements, all
`long long`; an array of any rank as the pointer alone. The launch runs whole blocks, the last axis along x: compare
the thread's index with the length. `<cuda_fp16.h>` and the toolkit's other headers are found where NVRTC brings them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.cfamily import CFamilyCompiler
from quernel.errors import CompilationError
from quernel.geometry import LaunchForm
from quernel.values import evolve
from quernel_cuda import _toolchain
from quernel_cuda.types import PTX, CudaArtifact, CudaVariant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quernel.codegen.dialect import Dialect
    from quernel.compiler.lowered_text import LoweredText
    from quernel.ir.nodes import Module
    from quernel.options import KernelOptions

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
_LINES: Final = "--generate-line-info"
_OWN: Final = ("--minimal",)
"""The texts of this backend use nothing that it leaves out, and compile to the same code in a third less time."""


class CudaCompiler(CFamilyCompiler[CudaVariant, CudaArtifact]):
    """Lowers kernels to CUDA C++ and compiles them. Any thread, process or machine; pickles.

    Threads scale to about three cores; several kernels in one text take less time than one by one on any number.
    """

    artifact_format = 1
    group_size = 8
    language = LANGUAGE
    variant_type = CudaVariant
    entry_pattern = r"\S(.*\S)?"  # also an instance of a template
    log_pattern = (
        r"^(?:(?P<file>.*?)\((?P<line>\d+)\): (?:catastrophic )?error: "
        r"|ptxas\b.*(?:error|fatal)\s*:\s*)(?P<message>.*)$"
    )

    @property
    def toolchain(self) -> tuple[str, str]:
        """NVRTC and its version."""
        return "NVRTC", self.target_info.detail("nvrtc")

    def local_fingerprint(self) -> str:
        """The target's fingerprint with this process's NVRTC."""
        from quernel_cuda.targets import fingerprint

        return fingerprint(self.target_info.name, dict(self.target_info.details))

    def dialect(self, module: Module, variant: CudaVariant) -> Dialect:
        """CUDA C++ for the kernel's block, alignment and shared memory."""
        from quernel_cuda.lowering import cuda_dialect, has_dynamic_shared

        block, is_dynamic = module.kernel.block, has_dynamic_shared(module)
        return cuda_dialect(is_aligned=variant.aligned16, block=block, is_dynamic=is_dynamic)

    def options(self, options: KernelOptions, *, is_foreign: bool) -> tuple[str, ...]:
        """What NVRTC is asked for, besides the architecture."""
        asked = (*_COMMON, *(_FAST if options.fast_math else _EXACT))
        if is_foreign:
            return asked
        return (*asked, *_OWN, *((_LINES,) if options.debug else ()))

    def features(self, module: Module) -> tuple[str, ...]:
        """How the kernel is launched: on a row of blocks, with shared memory that is asked for."""
        from quernel_cuda.lowering import has_dynamic_shared

        named = ((DYNAMIC_SHARED, has_dynamic_shared(module)), (ROW, module.kernel.form is LaunchForm.OVER))
        return tuple(name for name, is_on in named if is_on)

    def points_per_thread(self, module: Module, variant: CudaVariant) -> int:
        """As many as keep the memory busy, unless the user wants one."""
        from quernel.codegen.points import points_per_thread

        return points_per_thread(module) if variant.several_points else 1

    def finalize(self, id: ArtifactId[CudaVariant], lowered: LoweredText) -> CudaArtifact:  # noqa: A002
        """The cubin, or PTX where the target is newer than NVRTC.

        Raises:
            CompilationError: NVRTC refuses the source; shown at the user's line, the log rides along whole.
        """
        compiled = self._compiled(lowered, self._architecture, id.kernel.name, is_ptx=self._is_ptx)
        return self._artifact(lowered, compiled, {"code_bytes": len(compiled.payload)})

    def group_key(self, lowered: LoweredText) -> tuple[str, ...] | None:
        """The options: own texts of equal ones are one text together. Not with line information, and no PTX."""
        is_alone = lowered.is_foreign or self._is_ptx or _LINES in lowered.options or "#include" in lowered.text
        return None if is_alone else lowered.options

    def finalize_group(
        self, ids: Sequence[ArtifactId[CudaVariant]], lowered: Sequence[LoweredText]
    ) -> list[CudaArtifact | Exception]:
        """The artifacts, whose payload is one cubin with all the kernels; each alone where NVRTC refuses any.

        An entry point is named after its text, as the cubin may be anyone's who has one of its kernels.
        """
        from quernel_cuda.units import unit_of

        unit = unit_of(lowered)
        options = (f"--gpu-architecture={self._architecture}", *lowered[0].options)
        try:
            compiled = _toolchain.compile_unit(unit.text, options, unit.entries)
        except CompilationError:
            return super().finalize_group(ids, lowered)
        return [
            self._artifact(one, made, {"code_bytes": len(made.payload), "kernels_of_code": len(lowered)})
            for one, made in zip(lowered, compiled, strict=True)
        ]

    def _artifact(self, lowered: LoweredText, compiled: _toolchain.Compiled, sizes: dict[str, int]) -> CudaArtifact:
        features = (*lowered.header.features, PTX) if self._is_ptx else lowered.header.features
        header = evolve(
            lowered.header,
            entry=compiled.entry,
            features=tuple(sorted(features)),
            statistics=tuple(sorted((compiled.statistics | sizes).items())),
        )
        return CudaArtifact(header, compiled.payload)

    def ptx(self, lowered: LoweredText) -> str:
        """The PTX of a lowered kernel, for people to read.

        Raises:
            CompilationError: NVRTC refuses the source.
        """
        virtual = self._architecture.replace("sm_", "compute_")
        payload = self._compiled(lowered, virtual, lowered.header.entry, is_ptx=True).payload
        return payload.rstrip(b"\0").decode()

    def assembly(self, lowered: LoweredText) -> str:
        """The machine code of a lowered kernel where the toolkit's `nvdisasm` is installed, else its PTX."""
        if self.target_info.detail("code") == "cubin":
            compiled = self._compiled(lowered, self._architecture, lowered.header.entry, is_ptx=False)
            shown = _toolchain.disassembly(compiled.payload)
            if shown is not None:
                return shown
        return self.ptx(lowered)

    @property
    def _is_ptx(self) -> bool:
        return self.target_info.detail("code") == "ptx"

    @property
    def _architecture(self) -> str:
        return self.target_info.detail("architecture")

    def _compiled(self, lowered: LoweredText, architecture: str, kernel: str, *, is_ptx: bool) -> _toolchain.Compiled:
        macros = (f"--define-macro={name}={value}" for name, value in lowered.macros)
        options = (f"--gpu-architecture={architecture}", *lowered.options, *macros, *_headers(lowered.text))
        try:
            return _toolchain.compile_text(lowered.text, options, lowered.header.entry, is_ptx=is_ptx)
        except CompilationError as error:
            raise self.located(error, kernel, lowered) from error


def _headers(text: str) -> tuple[str, ...]:
    """Where a source that includes anything finds the toolkit's headers."""
    if "#include" not in text:
        return ()
    folder = _toolchain.header_folder()
    return () if folder is None else (f"--include-path={folder}",)
