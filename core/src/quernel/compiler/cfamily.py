"""The compiling half of a backend whose kernels are texts of the C family: all but its tables and its toolchain."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from quernel.codegen.pointers import Pointers
from quernel.compiler.aligned import AlignedVariant
from quernel.compiler.halves import ArtifactCompiler, Signature
from quernel.identity import build_id_hash

if TYPE_CHECKING:
    import logging

    from quernel.capabilities import TargetInfo
    from quernel.codegen.dialect import Dialect
    from quernel.compiler.artifacts import ArtifactId
    from quernel.compiler.definition import KernelDefinition
    from quernel.compiler.lowered_text import LoweredText
    from quernel.compiler.recording import CompilationRecording
    from quernel.errors import CompilationError
    from quernel.ir.nodes import Module
    from quernel.options import KernelOptions

__all__ = ["CFamilyCompiler"]

AlignedVariantT = TypeVar("AlignedVariantT", bound=AlignedVariant)
ArtifactT = TypeVar("ArtifactT")

_LOG_OF_CLANG: Final = (
    r"^(?=.*error)(?:(?:fatal )?error: )?(?P<file>.*?):(?P<line>\d+):\d+: (?:(?:fatal )?error: )?(?P<message>.*)$"
)
"""Compilers put the word before the place or behind it, as the drivers of OpenCL do that are made of Clang."""


class CFamilyCompiler(ArtifactCompiler[AlignedVariantT, "LoweredText", ArtifactT]):
    """Lowers kernels through a dialect of `quernel.codegen`, and takes ready-made sources in its language.

    A backend MUST name its language and the class of its variants, and write `dialect` and `finalize`; all else has a
    default. `finalize` hands text, options and `LoweredText.macros` to the toolchain, and raises what the toolchain
    complains of as `located` gives it. Every method is called on any thread, in any process.
    """

    language: ClassVar[str]
    """What ready-made sources are called, such as `opencl-c`."""
    variant_type: type[AlignedVariantT]
    entry_pattern: ClassVar[str] = r"[A-Za-z_]\w*"
    """What the entry point of a ready-made source may be called."""
    log_pattern: ClassVar[str] = _LOG_OF_CLANG
    """Finds an error in a line of the toolchain's log: groups `message`, and where it says so `file` and `line`."""

    def __init__(self, target_info: TargetInfo) -> None:
        self.target_info = target_info
        self.build_id = build_id_hash("quernel", type(self).__module__.partition(".")[0])

    # --- what a backend writes ----------------------------------------------------------------------------------------

    @abstractmethod
    def dialect(self, module: Module, variant: AlignedVariantT) -> Dialect:
        """The language as tables, for a module whose calls are inlined as far as they have to be."""

    @property
    def toolchain(self) -> tuple[str, str]:
        """Name and version of what compiles the text, for the record. The default says what the target is called."""
        return self.target_info.backend, self.target_info.name

    @property
    def pointers(self) -> Pointers:
        """How arrays are passed. The default passes addresses."""
        return Pointers.ADDRESS

    def options(self, options: KernelOptions, *, is_foreign: bool) -> tuple[str, ...]:
        """What the toolchain is asked for, besides macros. `is_foreign`: the text is a ready-made source."""
        return ()

    def features(self, module: Module) -> tuple[str, ...]:
        """Flags that the backend's launch reads in the header."""
        return ()

    def validate(self, module: Module) -> None:
        """Refuses what the target cannot run although its capabilities and limits say so.

        Raises:
            ValidationError: naming the construct, its place and the mend.
        """
        return None

    def points_per_thread(self, module: Module, variant: AlignedVariantT) -> int:
        """How many points of an `over` launch a thread handles; more than 1 only where the dialect has a row of blocks.

        `quernel.codegen.points.points_per_thread` says what gains on a GPU.
        """
        return 1

    # --- the compiling half -------------------------------------------------------------------------------------------

    def default_variant(self, signature: Signature) -> AlignedVariantT:
        """The variant of whole arrays of ordinary size, which most launches have."""
        return self.variant_type(aligned16=True, contiguous=True, index32=True)

    def lower(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[AlignedVariantT],  # noqa: A002 — the design's name
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> LoweredText:
        """The kernel as text.

        Raises:
            ValidationError: the target cannot run this kernel.
        """
        from quernel.compiler.text_lowering import lower_foreign, lower_ir

        with recording.stage("emit"):
            if kernel.foreign is not None:
                lowered = lower_foreign(self, kernel, kernel.foreign)
            else:
                lowered = lower_ir(self, kernel, id.variant)
        recording.toolchain(*self.toolchain)
        recording.source(lowered.text)
        log.debug("%s: %d lines of %s", kernel.name, lowered.text.count("\n"), self.language)
        return lowered

    def source(self, lowered: LoweredText) -> str:
        """Options, header and text: equal ones give equal artifacts, whatever their kernels are called."""
        import attrs

        header = attrs.evolve(lowered.header, entry="")
        return "\n".join([" ".join(lowered.options), header.to_bytes().decode(), lowered.text])

    def located(self, error: CompilationError, kernel: str, lowered: LoweredText) -> CompilationError:
        """A toolchain's complaint, at the user's line as far as its log, the error's `chain`, tells."""
        from quernel.compiler.toolchain_log import located

        return located(error, kernel, lowered.lines, self.log_pattern)
