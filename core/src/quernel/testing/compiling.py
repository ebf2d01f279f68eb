"""Kernels taken through a backend's compile half by hand, here and in other processes."""

from __future__ import annotations

import logging
from typing import Any

import attrs

import quernel as qn
from quernel.compiler import ArtifactId, CompilationRecording, KernelDefinition
from quernel.runtime.devices import Device

__all__ = ["artifact_of", "content_of", "definition_of", "digest_of", "finalized", "id_of", "lowered"]


def definition_of(device: qn.Device, kernel: Any, *types: Any, **named: Any) -> KernelDefinition:
    """A kernel with everything fixed."""
    definition: KernelDefinition = kernel.options(device=device).specialize(*types, **named).definition
    return definition


def id_of(device: Device, definition: KernelDefinition, variant: Any = None) -> ArtifactId[Any]:
    """Its id, in the likely variant if none is given."""
    compiler = device.operations.target.compiler
    chosen = compiler.default_variant(definition.specialization.signature) if variant is None else variant
    return ArtifactId(definition.id, chosen)


def lowered(compiler: Any, definition: KernelDefinition, id: ArtifactId[Any]) -> Any:  # noqa: A002
    """The definition lowered by a compiler."""
    return compiler.lower(definition, id, CompilationRecording(), logging.getLogger(__name__))


def finalized(compiler: Any, id: ArtifactId[Any], low: Any) -> Any:  # noqa: A002
    """The artifact of what was lowered."""
    return compiler.finalize(id, low)


def artifact_of(device: Device, definition: KernelDefinition, variant: Any = None) -> Any:
    """The artifact that the device's compiler makes, lowered and finalized here and now."""
    compiler = device.operations.target.compiler
    id = id_of(device, definition, variant)  # noqa: A001
    return finalized(compiler, id, lowered(compiler, definition, id))


def content_of(device: Device, artifact: Any) -> str:
    """What artifacts of equal kernels have in common: their digest; their header where no bytes can be held to more."""
    target = device.operations.target
    if target.compiler.is_reproducible:
        return digest_of(device, artifact)
    return attrs.evolve(target.header(artifact), statistics=()).to_bytes().decode()  # the size may differ by a digit


def digest_of(device: Device, artifact: Any) -> str:
    """The digest by which the device's target recognises equal artifacts."""
    digest: str = device.operations.target.digest(artifact)
    return digest
