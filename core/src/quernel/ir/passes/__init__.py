"""Passes: each takes a module and gives a module that means the same."""

from __future__ import annotations

from quernel.ir.nodes import Module
from quernel.ir.passes.branches import remove_dead_code
from quernel.ir.passes.contract import contract
from quernel.ir.passes.fold import fold
from quernel.ir.passes.guard import guard_edge

__all__ = ["contract", "fold", "guard_edge", "optimize", "remove_dead_code"]


def optimize(module: Module) -> Module:
    """`module` after the passes that every backend wants, in their fixed order.

    Products are fused last, so that a folded one is not, and before the digest is taken, so that what is compiled is
    what the digest names. Doing it twice changes nothing more.
    """
    return contract(remove_dead_code(fold(module)))
