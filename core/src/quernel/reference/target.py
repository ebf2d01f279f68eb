"""The half that loads: Python trees to code objects of the user's file, linked to the interpreter's operations."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.halves import CompilationTarget, LaunchFacts
from quernel.errors import CompilationError
from quernel.identity import IrKey
from quernel.reference.compiler import ReferenceCompiler
from quernel.reference.lowering import KERNEL
from quernel.reference.primitives import OBJECT, SITE, is_primitive, primitive
from quernel.reference.types import Loaded, Lowered, LoweredFunction, ReferenceArtifact, Variant
from quernel.runtime.launch_sites import INTERPRETED

__all__ = ["ReferenceTarget"]


class ReferenceTarget(CompilationTarget[Variant, ReferenceArtifact, Loaded]):
    """Makes kernels runnable. Nothing outlives the process: a store holds no code that Python would run."""

    persists = False

    def __init__(self, compiler: ReferenceCompiler) -> None:
        self.compiler = compiler

    def variant(self, launch_facts: LaunchFacts) -> Variant:
        """The one variant."""
        return Variant()

    def stored(self, id: ArtifactId[Variant]) -> ReferenceArtifact | None:  # noqa: A002 — the contract's name
        """Nothing is kept."""
        return None

    def load(self, id: ArtifactId[Variant], artifact: ReferenceArtifact) -> Loaded:  # noqa: A002
        """The artifact's functions, compiled and linked.

        Raises:
            CompilationError: Python cannot compile them, as they are nested too deeply for it.
        """
        lowered = artifact.lowered
        linked: dict[str, Any] = {"__name__": INTERPRETED}
        for function in lowered.functions:
            linked[function.key] = _compiled(function, linked, lowered)
        kernel = lowered.functions[0]
        return Loaded(linked[KERNEL], kernel.waits, lowered.params, lowered.sites)

    def store(
        self,
        id: ArtifactId[Variant],  # noqa: A002
        artifact: ReferenceArtifact,
        source: str | None,
        ir_key: IrKey | None = None,
    ) -> bool:
        """Nothing is kept."""
        return False


def _compiled(function: LoweredFunction, linked: dict[str, Any], lowered: Lowered) -> FunctionType:
    """A function over the globals `linked`, to which the operations that it calls are added."""
    try:
        code = compile(function.tree, function.file, "exec", dont_inherit=True)
        made: dict[str, Any] = {}
        exec(code, linked, made)
    except (RecursionError, SyntaxError) as error:
        raise CompilationError(
            f"Python cannot compile {function.name} for the interpreter: {error}",
            fix="nest fewer blocks, or move some into a device function",
        ) from error
    result: FunctionType = made[function.name]
    for name in result.__code__.co_names:
        if is_primitive(name):
            linked.setdefault(name, primitive(name))
        elif name.startswith(SITE):
            linked.setdefault(name, lowered.sites[int(name.removeprefix(SITE))])
        elif name.startswith(OBJECT):
            linked.setdefault(name, lowered.objects[int(name.removeprefix(OBJECT))])
    return result
