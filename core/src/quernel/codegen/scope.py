"""What the names of one function stand for in the text."""

from __future__ import annotations

import attrs

from quernel.codegen.names import Names
from quernel.codegen.text import Code
from quernel.dtypes import ValueType
from quernel.ir.nodes import Root, RootKind

__all__ = ["ArrayCode", "Scope"]


@attrs.frozen
class ArrayCode:
    """An array as expressions.

    Attributes:
        element: type of its elements.
        kind: the memory that it lives in.
        pointer: element (0, …, 0).
        strides: of the axes whose stride is used, in elements; `None` stands for 1.
        shape: of the axes whose length is used.
    """

    element: ValueType
    kind: RootKind
    pointer: str
    strides: dict[int, Code | None]
    shape: dict[int, Code]


@attrs.frozen
class Scope:
    """One function.

    Attributes:
        names: gives further names.
        locals: the user's locals.
        scalars: scalar parameters.
        arrays: parameters and allocations.
        diagnostics: the launch's diagnostics buffer, where the function reports anything; the last of a list.
        indices: extents, starts and grid dimensions of the launch that the function receives, by kind and axis.
    """

    names: Names
    locals: dict[str, str] = attrs.field(factory=dict)
    scalars: dict[str, Code] = attrs.field(factory=dict)
    arrays: dict[Root, ArrayCode] = attrs.field(factory=dict)
    indices: dict[tuple[str, int], Code] = attrs.field(factory=dict)
    diagnostics: list[str] = attrs.field(factory=list)
