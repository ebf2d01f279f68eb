"""An `over` launch whose blocks are one row, whatever its rank: where each thread finds its points.

Toolchains count at most 65 535 blocks along all axes but the fastest. So a launch over several axes numbers its blocks
through, and each thread works out the block's place along each axis, in 32 bits.
"""

from __future__ import annotations

from quernel.codegen.dialect import Dialect
from quernel.codegen.indices import EXTENT, START
from quernel.codegen.names import Names
from quernel.codegen.points import SeveralPoints
from quernel.codegen.scope import Scope
from quernel.codegen.text import Lines, primary
from quernel.codegen.types import Types
from quernel.dtypes import i64, u32
from quernel.ir.nodes import IndexKind, Kernel

__all__ = ["BlockRow"]


class BlockRow:
    """Writes the places of a thread's points, at the start of a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        dialect: Dialect,
        types: Types,
        scope: Scope,
        lines: Lines,
        several: SeveralPoints | None,
    ) -> None:
        self._kernel = kernel
        self._dialect = dialect
        self._scope = scope
        self._lines = lines
        self._points = 1 if several is None else several.points
        self._stride = 0 if several is None else several.stride
        self._signed, self._unsigned = types.value(i64), types.value(u32)
        self._suffix = dialect.suffixes[i64]
        self._last = kernel.ndim - 1
        self._positions: list[str] = []
        self._point = ""

    def place_thread(self) -> None:
        """Declares where the thread is; one beyond the extent ends. `START` is its first point from then on."""
        kernel = self._kernel
        blocks = self._block_numbers()
        for axis in range(kernel.ndim):
            letter = "xyz"[self._last - axis]
            local = self._dialect.indices[IndexKind.LOCAL_ID].format(axis=self._last - axis, letter=letter)
            size = kernel.block[axis] * (self._points if axis == self._last else 1)
            value = f"({self._signed}){blocks[axis]} * {size}{self._suffix} + ({self._signed}){local}"
            self._positions.append(self._declare(f"position{axis}", self._signed, value))
        beyond = " || ".join(
            f"{position} >= {self._scope.indices[EXTENT, axis]}" for axis, position in enumerate(self._positions)
        )
        self._lines.open(f"if ({beyond})", kernel.loc)
        self._lines.add("return;", kernel.loc)
        self._lines.close()
        for axis, position in enumerate(self._positions):
            if (START, axis) in self._scope.indices:
                value = f"{self._scope.indices[START, axis]} + {position}"
                self._scope.indices[START, axis] = primary(self._declare(f"global{axis}", self._signed, value))

    def _block_numbers(self) -> list[str]:
        """The place of the block along each axis."""
        rest = self._dialect.linear_block
        numbers: list[str] = []
        for axis in range(self._last, 0, -1):
            size = self._kernel.block[axis] * (self._points if axis == self._last else 1)
            extent = self._scope.indices[EXTENT, axis]
            count = f"({self._unsigned})(({extent} + {size - 1}{self._suffix}) / {size}{self._suffix})"
            count = self._declare(f"blocks{axis}", self._unsigned, count)
            numbers.append(self._declare(f"block{axis}", self._unsigned, f"{rest} % {count}"))
            rest = self._declare("row", self._unsigned, f"{rest} / {count}")
        return [rest, *reversed(numbers)]

    def _declare(self, wanted: str, c_type: str, value: str) -> str:
        name = self._scope.names.fresh(wanted)
        self._lines.add(f"const {c_type} {name} = {value};", self._kernel.loc)
        return name

    # --- several points -----------------------------------------------------------------------------------------------

    def open_whole(self) -> None:
        """Begins what a thread does that has all of its points."""
        self._lines.open(f"if ({self._left} > {(self._points - 1) * self._stride}{self._suffix})", self._kernel.loc)

    def open_rest(self) -> None:
        """Begins what the others do with each point."""
        self._lines.reopen("else", self._kernel.loc)
        self._open_points(self._left)

    def close_rest(self) -> None:
        """Ends what `open_rest` began."""
        self._lines.close()
        self._lines.close()

    def open_each(self) -> None:
        """Begins what a thread does with each of its points."""
        whole = f"{self._points * self._stride}{self._suffix}"
        self._open_points(whole, f" && {{point}} < {self._left}")

    def inner_scope(self, scope: Scope, dialect: Dialect) -> Scope:
        """A scope for locals inside the kernel's own."""
        names = Names(dialect.reserved, scope.names)
        return Scope(names, scalars=scope.scalars, arrays=scope.arrays, indices=dict(scope.indices))

    def point_scope(self, scope: Scope, dialect: Dialect) -> Scope:
        """The scope of one point, in a loop over a thread's points."""
        inner = self.inner_scope(scope, dialect)
        first = inner.indices.get((START, self._last))
        if first is not None:
            inner.indices[START, self._last] = primary(f"({first} + {self._point})")
        return inner

    @property
    def _left(self) -> str:
        """How many places there are from the thread's first point to the end of the extent."""
        return f"{self._scope.indices[EXTENT, self._last]} - {self._positions[self._last]}"

    def _open_points(self, end: str, also: str = "") -> None:
        point = self._point = self._scope.names.fresh("point")
        test = f"{point} < {end}{also.format(point=point)}"
        step = f"{point} += {self._stride}{self._suffix}"
        self._lines.open(f"for ({self._signed} {point} = 0; {test}; {step})", self._kernel.loc)
