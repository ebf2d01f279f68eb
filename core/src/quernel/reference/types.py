"""The interpreter's own types: its one variant, the Python trees of a kernel, and what a launch runs."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import attrs

from quernel.compiler.artifacts import Artifact, ArtifactHeader
from quernel.dtypes import ParameterType
from quernel.locations import Location

__all__ = ["Loaded", "Lowered", "LoweredFunction", "ReferenceArtifact", "Variant"]


@attrs.frozen
class Variant:
    """The interpreter has one variant: nothing of a launch's arguments changes what it runs."""


@attrs.frozen
class LoweredFunction:
    """One function of a module as a Python function definition whose nodes stand at the user's lines.

    Attributes:
        key: the name under which the lowered functions know it.
        name: the user's name of it, which tracebacks show.
        file: the user's file.
        tree: a module that holds the definition and nothing else.
        waits: whether a thread waits for others in it, so that calling it makes a generator.
    """

    key: str
    name: str
    file: str
    tree: ast.Module = attrs.field(eq=False, repr=False)
    waits: bool


@attrs.frozen
class Lowered:
    """A kernel as Python: its functions, the kernel first, and the places that they may complain about.

    Attributes:
        header: all that a launch needs.
        functions: the kernel, then its device functions.
        params: the types of the kernel's parameters.
        sites: locations of accesses, asserts and barriers, by number.
        objects: types and prints, by number.
    """

    header: ArtifactHeader
    functions: tuple[LoweredFunction, ...]
    params: tuple[ParameterType, ...]
    sites: tuple[Location, ...]
    objects: tuple[object, ...]

    @property
    def text(self) -> str:
        """The functions as Python text. Names that start with a dot are the interpreter's own."""
        return "\n\n".join(ast.unparse(function.tree) for function in self.functions) + "\n"


@attrs.frozen
class ReferenceArtifact(Artifact):
    """An artifact that lives as long as its process: code is made from `lowered`, never from the payload's bytes.

    The payload is the text of the trees with all their positions and of the objects that they name, so that only
    kernels of the same lines are equal.
    """

    lowered: Lowered = attrs.field(eq=False, repr=False)


@attrs.frozen(eq=False)
class Loaded:
    """A kernel ready to run.

    Attributes:
        kernel: called once per thread, with the thread's indices and then the arguments.
        waits: whether calling it makes a generator that yields wherever the thread waits for others.
        params: the types of its parameters.
        sites: locations by number.
    """

    kernel: Callable[..., Any]
    waits: bool
    params: tuple[ParameterType, ...]
    sites: tuple[Location, ...]
