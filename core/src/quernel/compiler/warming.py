"""What a compile worker does before its first kernel: a small one, so that all that compiling imports is there."""

from __future__ import annotations

from typing import Any, Final

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition, Specialization
from quernel.compiler.halves import ArtifactCompiler
from quernel.compiler.job import run_job
from quernel.compiler.results import JobStage, WorkerLostError

__all__ = ["warm_up"]

_KERNEL: Final = """\
kernel warm_up(a: f32, x: array<f32, 1>, y: array<f32, 1>) over (256):
    local i: i64
    i = global_id(0)
    if i > 0:
        y[i] = sin(x[i]) + a
"""


def warm_up(compiler: ArtifactCompiler[Any, Any, Any], build: str) -> None:
    """Compiles a kernel for nothing. What keeps it from compiling keeps others too, and is theirs to tell.

    Raises:
        WorkerLostError: this process has other sources than the one that `build` is the build id of.
    """
    if compiler.build_id.digest != build:
        raise WorkerLostError("has other sources, which were changed since this process started")
    from quernel.identity import KernelId
    from quernel.ir.parser import parse_module

    module = parse_module(_KERNEL)
    kernel = module.kernel
    types = tuple((param.name, param.type) for param in kernel.params)
    specialization = Specialization(types, (), kernel.form, kernel.block)
    definition = KernelDefinition(KernelId(kernel.name, "0" * 64), specialization, expand=lambda: (module, True))
    variant = compiler.default_variant(specialization.signature)
    run_job(compiler, definition, ArtifactId(definition.id, variant), JobStage.COMPILE)
