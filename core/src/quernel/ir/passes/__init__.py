"""Passes: each takes a module and gives a module that means the same."""

from __future__ import annotations

from quernel.ir.nodes import Module
from quernel.ir.passes.branches import remove_dead_code
from quernel.ir.passes.checks import insert_checks
from quernel.ir.passes.composites import split_composites
from quernel.ir.passes.contract import contract
from quernel.ir.passes.fold import fold
from quernel.ir.passes.guard import guard_edge
from quernel.ir.passes.inline import inline
from quernel.ir.passes.limits import keep_limits_apart
from quernel.ir.passes.narrow import narrow_indices
from quernel.ir.sites import number_sites

__all__ = [
    "contract",
    "fold",
    "guard_edge",
    "inline",
    "insert_checks",
    "keep_limits_apart",
    "narrow_indices",
    "optimize",
    "remove_dead_code",
    "split_composites",
]


def optimize(module: Module) -> Module:
    """`module` after the passes that every backend wants, in their fixed order.

    Checks come first, so that no access is gone before it has its check. Products are fused late, so that a folded one
    is not, and before the digest is taken, so that what is compiled is what the digest names. Sites are numbered when
    all of them stand where they stay. Doing it twice changes nothing more.
    """
    return number_sites(keep_limits_apart(contract(remove_dead_code(fold(insert_checks(module))))))
