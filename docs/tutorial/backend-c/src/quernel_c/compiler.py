"""The half that compiles: IR to C anywhere, and C to a shared object wherever there is a C compiler.

**C as a kernel** (`qn.source_kernel("c", text, entry=…, params=…, writes=…)`). `entry` names a function
`void entry(const unsigned char *cells, const int64_t *grid)`. `cells` holds 8 bytes for each argument, the value in the
first of them: a scalar as itself; an array as the address of its element (0, …, 0), then the length of each axis and
the stride of each axis in elements, all `int64_t`. `grid` holds the blocks along each axis, the fastest first.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

import attrs

from quernel.capabilities import Capabilities, TargetInfo
from quernel.compiler import AlignedVariant, ArtifactId, CFamilyCompiler, CompilationError, LoweredText, Signature
from quernel.runtime.operations import Unavailable
from quernel_c._toolchain import Toolchain, compile_library, find_toolchain
from quernel_c.artifacts import CArtifact

if TYPE_CHECKING:
    from quernel.codegen.dialect import Dialect
    from quernel.ir.nodes import Module
    from quernel.options import KernelOptions

__all__ = ["CAPABILITIES", "CCompiler", "target_of"]

CAPABILITIES: Final = Capabilities(
    exact_f32=True,
    exact_f64=True,
    f64=True,
    f16=True,
    bf16=True,
    int64_atomics=True,
    f64_atomics=True,
    checked=True,
    source_languages=("c",),
)
"""No barriers and no subgroups: the loop runs one thread after the other."""


def target_of(toolchain: Toolchain) -> TargetInfo:
    """This machine, as that compiler sees it."""
    return TargetInfo("c", platform.machine(), toolchain.fingerprint, CAPABILITIES)


class CCompiler(CFamilyCompiler[AlignedVariant, CArtifact]):
    """Lowers kernels to C and has the system's compiler make shared objects of them. Any thread, any process."""

    language = "c"
    variant_type = AlignedVariant

    @property
    def toolchain(self) -> tuple[str, str]:
        """The compiler and its version, for records."""
        toolchain = find_toolchain()
        return super().toolchain if isinstance(toolchain, Unavailable) else (toolchain.name, toolchain.version)

    def local_fingerprint(self) -> str:
        """What this process's compiler makes; of no target where there is none."""
        toolchain = find_toolchain()
        return "" if isinstance(toolchain, Unavailable) else toolchain.fingerprint

    def default_variant(self, signature: Signature) -> AlignedVariant:
        """The variant of whole arrays of ordinary size. It is one that `CTarget.variant` gives, so launches find it."""
        return AlignedVariant(contiguous=True, index32=True)

    def dialect(self, module: Module, variant: AlignedVariant) -> Dialect:
        """C, the same for every kernel."""
        from quernel_c.lowering import DIALECT

        return DIALECT

    def options(self, options: KernelOptions, *, is_foreign: bool) -> tuple[str, ...]:
        """Exact products and sums unless the kernel is asked to be fast; line tables where it is to be debugged."""
        fused = "fast" if options.fast_math else "off"
        return (f"-ffp-contract={fused}", *(("-g",) if options.debug else ()))

    def finalize(self, id: ArtifactId[AlignedVariant], lowered: LoweredText) -> CArtifact:  # noqa: A002
        """The shared object of a kernel.

        Raises:
            CompilationError: the compiler is not there, or refuses the text; shown at the user's line.
        """
        toolchain = find_toolchain()
        if isinstance(toolchain, Unavailable):
            raise CompilationError(f"kernel {id.kernel.name}: {toolchain.reason}", fix=toolchain.fix)
        macros = tuple(f"-D{name}={value}" for name, value in lowered.macros)
        try:
            library = compile_library(toolchain, lowered.text, (*lowered.options, *macros))
        except CompilationError as error:
            raise self.located(error, id.kernel.name, lowered) from error
        statistics = (("code_bytes", len(library)),)
        return CArtifact(attrs.evolve(lowered.header, statistics=statistics), library)
