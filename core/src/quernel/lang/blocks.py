"""What needs blocks: refused where a launch with `over` has none; and the barrier."""

from __future__ import annotations

import ast

from quernel.errors import KernelSyntaxError
from quernel.geometry import LaunchForm
from quernel.intrinsics import Intrinsic
from quernel.ir import nodes
from quernel.lang.lowering import FunctionLowering
from quernel.lang.values import Value

__all__ = ["NeedsBlocksError", "barrier", "needs_blocks"]


class NeedsBlocksError(KernelSyntaxError):
    """A kernel that has a block concept, lowered for a launch that has no blocks: it is launched on a grid."""


def needs_blocks(lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic) -> KernelSyntaxError:
    """The refusal of what needs blocks."""
    refusal = lowering.refuse.syntax(
        node,
        f"`{intrinsic.name}` needs blocks, and a launch with `over` has none",
        "launch with a grid: `kernel[qn.cdiv(extent, block), block]`",
    )
    return NeedsBlocksError(
        refusal.what, where=refusal.where, fix=refusal.fix, source_line=refusal.source_line, chain=refusal.chain
    )


def barrier(lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic, arguments: list[Value]) -> None:
    """`qn.barrier()`.

    Raises:
        KernelSyntaxError: the launch has no blocks.
        KernelTypeError: it is given arguments.
    """
    if lowering.unit.form is LaunchForm.OVER:
        raise needs_blocks(lowering, node, intrinsic)
    if arguments:
        raise lowering.refuse.type(node, "`qn.barrier` takes no arguments", "write `qn.barrier()`")
    lowering.emit(nodes.Barrier(loc=lowering.where(node)))
    lowering.num_calls += 1
