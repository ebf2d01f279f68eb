"""The edge of an `over` launch: whole blocks run, and threads beyond the extent do nothing.

For backends that launch blocks. Those that enumerate the points of the extent themselves need no guard.
"""

from __future__ import annotations

import functools

import attrs

from quernel.dtypes import i64
from quernel.geometry import LaunchForm
from quernel.ir.nodes import (
    Alloc,
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    Expr,
    If,
    IndexKind,
    Module,
    ThreadIndex,
)
from quernel.locations import Location

__all__ = ["guard_edge"]


def guard_edge(module: Module) -> Module:
    """`module` whose kernel, launched over an extent by whole blocks, does nothing beyond it.

    The position of a thread is `block_id * block_dim + local_id` along each axis; `global_id` would not do, because it
    starts where the extent's range starts.
    """
    kernel = module.kernel
    if kernel.form is not LaunchForm.OVER:
        return module
    allocations = tuple(stmt for stmt in kernel.body if isinstance(stmt, Alloc))
    rest = tuple(stmt for stmt in kernel.body if not isinstance(stmt, Alloc))
    if not rest:
        return module
    conditions = [_is_inside(axis, size, kernel.loc) for axis, size in enumerate(kernel.block)]
    condition = functools.reduce(
        lambda left, right: Binary(op=BinaryOp.AND, left=left, right=right, loc=kernel.loc), conditions
    )
    guarded = If(condition=condition, then=rest, loc=kernel.loc)
    return attrs.evolve(module, kernel=attrs.evolve(kernel, body=(*allocations, guarded)))


def _is_inside(axis: int, block_size: int, loc: Location) -> Expr:
    def index(kind: IndexKind) -> Expr:
        return ThreadIndex(kind=kind, axis=axis, loc=loc)

    size = Const(value=block_size, type=i64, loc=loc)
    first = Binary(op=BinaryOp.MUL, left=index(IndexKind.BLOCK_ID), right=size, loc=loc)
    position: Expr = Binary(op=BinaryOp.ADD, left=first, right=index(IndexKind.LOCAL_ID), loc=loc)
    if block_size == 1:
        position = index(IndexKind.BLOCK_ID)
    return Compare(op=CompareOp.LT, left=position, right=index(IndexKind.GLOBAL_DIM), loc=loc)
