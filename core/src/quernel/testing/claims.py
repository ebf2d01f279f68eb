"""What a device declares that the kit's cases need: its capabilities, and three facts about its target."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, Final

import attrs

import quernel as qn

if TYPE_CHECKING:
    from quernel.compiler import ArtifactCompiler

__all__ = ["HOST_ACCESS", "IR_REUSE", "PERSISTENCE", "SOURCE_REUSE", "claims_of"]

HOST_ACCESS: Final = "host_access"
"""Kernels read and write the host's memory, so that NumPy arrays are arguments as they are."""
PERSISTENCE: Final = "persistence"
"""The target keeps artifacts that outlive the process."""
IR_REUSE: Final = "ir_reuse"
"""It keeps them, and equal IR may share one: the compiler's `shares_by_ir`."""
SOURCE_REUSE: Final = "source_reuse"
"""It keeps them, and the compiler's `source` gives a text by which one may be found."""

_known: weakref.WeakKeyDictionary[qn.Device, dict[str, Any]] = weakref.WeakKeyDictionary()


@qn.kernel
def _smallest(x: qn.Array[qn.i32]):  # type: ignore[no-untyped-def]  # kernels are untyped, as users write them
    x[qn.global_id()] = 1


def claims_of(device: qn.Device) -> dict[str, Any]:
    """What the device declares, by name: the fields of its `Capabilities`, and the names above."""
    known = _known.get(device)
    if known is None:
        persists = _persists(device)
        compiler: ArtifactCompiler[Any, Any, Any] = device.operations.target.compiler
        known = _known[device] = {
            **attrs.asdict(device.target_info.capabilities, recurse=False),
            HOST_ACCESS: device.is_host_accessible,
            PERSISTENCE: persists,
            IR_REUSE: persists and compiler.shares_by_ir,
            SOURCE_REUSE: persists and _has_source(device),
        }
    return known


def _persists(device: qn.Device) -> bool:
    from quernel.store import current_environment

    target = device.operations.target
    return bool(target.persists) or target.open_store(current_environment()) is not None


def _has_source(device: qn.Device) -> bool:
    """Whether lowering leaves a text; a backend that cannot even lower this is held to all of it."""
    from quernel.compiler import ArtifactId, CompilationRecording

    definition = _smallest.options(device=device).specialize().definition
    compiler = device.operations.target.compiler
    id = ArtifactId(definition.id, compiler.default_variant(definition.specialization.signature))  # noqa: A001
    try:
        lowered = compiler.lower(definition, id, CompilationRecording(), logging.getLogger(__name__))
        return compiler.source(lowered) is not None
    except Exception:
        return True
