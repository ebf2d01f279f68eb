"""The two halves of a backend, and the loader that makes kernels of what they do.

Names are imported when they are first used, so that a warm start loads only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quernel.compiler.ahead import compile_ahead
    from quernel.compiler.aligned import AlignedVariant
    from quernel.compiler.arguments import ArgumentPacker, argument_slots, header_parameters
    from quernel.compiler.artifacts import Artifact, ArtifactHeader, ArtifactId, HeaderParameter, Slot, SlotKind
    from quernel.compiler.cfamily import CFamilyCompiler
    from quernel.compiler.definition import ForeignSource, KernelDefinition, Specialization
    from quernel.compiler.halves import (
        ArtifactCompiler,
        ArtifactOf,
        CompilationTarget,
        Compiler,
        LaunchFacts,
        Signature,
        VariantOf,
    )
    from quernel.compiler.job import run_job
    from quernel.compiler.kernels import Kernels
    from quernel.compiler.keyed import KeyedKernels
    from quernel.compiler.loader import KernelLoader, LoadedKernel
    from quernel.compiler.lowered_text import LoweredText
    from quernel.compiler.pending import Pending, PendingState
    from quernel.compiler.persistent import PersistentTarget
    from quernel.compiler.processes import CompilationProcesses
    from quernel.compiler.recording import CompilationRecording
    from quernel.compiler.reentrancy import no_compiling
    from quernel.compiler.registrations import RegistrationCounts
    from quernel.compiler.reporting import CompiledArtifact, Progress, Reporter
    from quernel.compiler.results import JobResult
    from quernel.errors import CompilationError
    from quernel.identity import BuildId, KernelCacheKey, build_id_hash
    from quernel.store import (
        ArtifactStore,
        CompilationBatchRecord,
        CompilationOutcome,
        CompilationRecord,
        StoreNames,
        compilation_store,
        store_compiled,
    )

__all__ = [
    "AlignedVariant",
    "ArgumentPacker",
    "Artifact",
    "ArtifactCompiler",
    "ArtifactHeader",
    "ArtifactId",
    "ArtifactOf",
    "ArtifactStore",
    "BuildId",
    "CFamilyCompiler",
    "CompilationBatchRecord",
    "CompilationError",
    "CompilationOutcome",
    "CompilationProcesses",
    "CompilationRecord",
    "CompilationRecording",
    "CompilationTarget",
    "CompiledArtifact",
    "Compiler",
    "ForeignSource",
    "HeaderParameter",
    "JobResult",
    "KernelCacheKey",
    "KernelDefinition",
    "KernelLoader",
    "Kernels",
    "KeyedKernels",
    "LaunchFacts",
    "LoadedKernel",
    "LoweredText",
    "Pending",
    "PendingState",
    "PersistentTarget",
    "Progress",
    "RegistrationCounts",
    "Reporter",
    "Signature",
    "Slot",
    "SlotKind",
    "Specialization",
    "StoreNames",
    "VariantOf",
    "argument_slots",
    "build_id_hash",
    "compilation_store",
    "compile_ahead",
    "header_parameters",
    "no_compiling",
    "run_job",
    "store_compiled",
]

_NAMES = {
    "quernel.compiler.aligned": ("AlignedVariant",),
    "quernel.compiler.ahead": ("compile_ahead",),
    "quernel.compiler.arguments": ("ArgumentPacker", "argument_slots", "header_parameters"),
    "quernel.compiler.artifacts": ("Artifact", "ArtifactHeader", "ArtifactId", "HeaderParameter", "Slot", "SlotKind"),
    "quernel.compiler.cfamily": ("CFamilyCompiler",),
    "quernel.compiler.definition": ("ForeignSource", "KernelDefinition", "Specialization"),
    "quernel.compiler.halves": (
        "ArtifactCompiler",
        "ArtifactOf",
        "CompilationTarget",
        "Compiler",
        "LaunchFacts",
        "Signature",
        "VariantOf",
    ),
    "quernel.compiler.job": ("run_job",),
    "quernel.compiler.keyed": ("KeyedKernels",),
    "quernel.compiler.kernels": ("Kernels",),
    "quernel.compiler.loader": ("KernelLoader", "LoadedKernel"),
    "quernel.compiler.lowered_text": ("LoweredText",),
    "quernel.compiler.pending": ("Pending", "PendingState"),
    "quernel.compiler.persistent": ("PersistentTarget",),
    "quernel.compiler.processes": ("CompilationProcesses",),
    "quernel.compiler.recording": ("CompilationRecording",),
    "quernel.compiler.reentrancy": ("no_compiling",),
    "quernel.compiler.registrations": ("RegistrationCounts",),
    "quernel.compiler.reporting": ("CompiledArtifact", "Progress", "Reporter"),
    "quernel.compiler.results": ("JobResult",),
    "quernel.errors": ("CompilationError",),
    "quernel.identity": ("BuildId", "KernelCacheKey", "build_id_hash"),
    "quernel.store": (
        "ArtifactStore",
        "CompilationBatchRecord",
        "CompilationOutcome",
        "CompilationRecord",
        "StoreNames",
        "compilation_store",
        "store_compiled",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
