"""Which kernels take about as long at every launch of one shape: no argument decides how often anything is repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quernel.ir.nodes import Module

__all__ = ["STEADY_FEATURE", "is_steady"]

STEADY_FEATURE = "steady"
"""The header's flag of such a kernel. What its last launches took says what the next one will."""


def is_steady(module: Module) -> bool:
    """Whether all loops run as often as the code says, of the kernel and of the functions that it reaches."""
    from quernel.ir.nodes import Const, For, Loop
    from quernel.ir.walk import walk_statements

    for body in (module.kernel.body, *(function.body for function in module.functions)):
        for stmt in walk_statements(body):
            if isinstance(stmt, Loop):
                return False
            if isinstance(stmt, For) and not all(isinstance(e, Const) for e in (stmt.start, stmt.stop, stmt.step)):
                return False
    return True
