"""Names for what passes and lowerings add to a kernel."""

from __future__ import annotations

from quernel.ir.nodes import Alloc, Function, Kernel

__all__ = ["FreshNames"]


class FreshNames:
    """Names that nothing in the kernel, or device function, has yet, nor any that was given before."""

    def __init__(self, owner: Kernel | Function) -> None:
        self._taken = {local.name for local in owner.locals} | {parameter.name for parameter in owner.params}
        self._taken |= {stmt.name for stmt in owner.body if isinstance(stmt, Alloc)}
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """The name that is wanted, with a number behind it where it is taken; from now on it is."""
        number = self._next.get(wanted, 0)
        while (name := f"{wanted}_{number}" if number else wanted) in self._taken:
            number += 1
        self._next[wanted] = number + 1
        self._taken.add(name)
        return name
