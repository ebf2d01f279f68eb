"""Thread indices and dimensions of the launch: builtins of the dialect, constants, or values that the launch passes.

The language counts axes in array order, toolchains from the fastest one: axis `ndim - 1` is their axis 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from quernel.codegen.dialect import Dialect
from quernel.codegen.helpers import Helpers
from quernel.codegen.literals import integer_literal
from quernel.codegen.text import Binding, Code, infix, primary, unary
from quernel.dtypes import i64
from quernel.geometry import LaunchForm
from quernel.ir.nodes import IndexKind, Kernel

__all__ = ["EXTENT", "GRID", "START", "Indices", "hidden_of"]

EXTENT, START, GRID = "extent", "start", "grid"
"""What a launch passes beside the parameters, by axis."""

_OF_SUBGROUP = frozenset({IndexKind.SUBGROUP_LANE, IndexKind.SUBGROUP_ID, IndexKind.SUBGROUP_SIZE})


def hidden_of(kind: IndexKind, form: LaunchForm) -> str | None:
    """Which value that a launch passes an index needs, if any."""
    if kind is IndexKind.GLOBAL_DIM:
        return EXTENT
    if kind is IndexKind.GRID_DIM:
        return GRID
    return START if kind is IndexKind.GLOBAL_ID and form is LaunchForm.OVER else None


class Indices:
    """The indices of one kernel; all are i64."""

    def __init__(self, dialect: Dialect, helpers: Helpers, kernel: Kernel) -> None:
        self._dialect = dialect
        self._helpers = helpers
        self._form = kernel.form
        self._block = kernel.block
        self.is_linear = bool(dialect.linear_block) and kernel.form is LaunchForm.OVER
        """Whether the blocks of the launch are one row: then `hidden` holds each thread's first point in place of the
        launch's."""

    def value(self, kind: IndexKind, axis: int, hidden: Mapping[tuple[str, int], Code]) -> Code:
        """An index or dimension; `hidden` holds what the launch passed to this function."""
        needed = hidden_of(kind, self._form)
        if kind is IndexKind.GLOBAL_ID:
            if needed is not None and self.is_linear:
                return hidden[needed, axis]
            position = self.position(axis)
            return position if needed is None else self._sum(position, hidden[needed, axis])
        if needed is not None:
            return hidden[needed, axis]
        if kind is IndexKind.BLOCK_DIM:
            return integer_literal(self._dialect, self._block[axis], i64)
        return self._builtin(kind, axis)

    @property
    def ndim(self) -> int:
        """Rank of the launch."""
        return len(self._block)

    def position(self, axis: int) -> Code:
        """The place of the thread among all threads of the launch, from 0."""
        if IndexKind.GLOBAL_ID in self._dialect.indices:
            return self._builtin(IndexKind.GLOBAL_ID, axis)
        block = self._builtin(IndexKind.BLOCK_ID, axis)
        size = integer_literal(self._dialect, self._block[axis], i64)
        first = Code(*_plain(infix(Binding.PRODUCT, "*", block, size)))
        return infix(Binding.SUM, "+", first, self._builtin(IndexKind.LOCAL_ID, axis))

    def _builtin(self, kind: IndexKind, axis: int) -> Code:
        if kind in _OF_SUBGROUP:
            self._helpers.features["subgroups"] = None
        number = len(self._block) - 1 - axis
        text = self._dialect.indices[kind].format(axis=number, letter="xyz"[number])
        return unary(f"({self._dialect.types[i64]})", primary(text))

    def _sum(self, left: Code, right: Code) -> Code:
        return infix(Binding.SUM, "+", left, right)


def _plain(code: Code) -> tuple[str, Binding, int]:
    return code.text, code.binding, code.depth
