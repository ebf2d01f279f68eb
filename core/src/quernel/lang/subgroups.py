"""Operations among the threads of a subgroup."""

from __future__ import annotations

import ast
from typing import Final

from quernel import intrinsics
from quernel.dtypes import DType, ScalarType, bool_, i32, i64, u64
from quernel.geometry import LaunchForm
from quernel.intrinsics import Intrinsic
from quernel.ir import nodes
from quernel.ir.nodes import IndexKind, SubgroupOp
from quernel.lang.blocks import needs_blocks
from quernel.lang.conversions import as_scalar, cast, truth
from quernel.lang.lowering import FunctionLowering
from quernel.lang.promotion import widened
from quernel.lang.values import Scalar, Value, named
from quernel.wording import counted

__all__ = ["SUBGROUPS", "subgroup"]

_INDICES: Final[dict[Intrinsic, IndexKind]] = {
    intrinsics.subgroup.lane: IndexKind.SUBGROUP_LANE,
    intrinsics.subgroup.id: IndexKind.SUBGROUP_ID,
    intrinsics.subgroup.size: IndexKind.SUBGROUP_SIZE,
}
_OPERATIONS: Final[dict[Intrinsic, SubgroupOp]] = {getattr(intrinsics.subgroup, op.value): op for op in SubgroupOp}
SUBGROUPS: Final = frozenset({*_INDICES, *_OPERATIONS})
_WITH_LANE: Final = {
    SubgroupOp.SHUFFLE: "lane",
    SubgroupOp.SHUFFLE_XOR: "mask",
    SubgroupOp.SHUFFLE_UP: "delta",
    SubgroupOp.SHUFFLE_DOWN: "delta",
    SubgroupOp.BROADCAST: "lane",
}
_OF_TRUTH: Final = frozenset({SubgroupOp.BALLOT, SubgroupOp.ANY, SubgroupOp.ALL})
_OF_SUMS: Final = frozenset({SubgroupOp.SUM, SubgroupOp.SCAN})


def subgroup(lowering: FunctionLowering, node: ast.Call, intrinsic: Intrinsic, arguments: list[Value]) -> Scalar:
    """An operation of `qn.subgroup`. Sums and scans compute as arithmetic does; a scan includes the thread itself.

    Raises:
        KernelSyntaxError: the launch has no blocks.
        KernelTypeError: the arguments do not fit.
    """
    if lowering.unit.form is LaunchForm.OVER:
        raise needs_blocks(lowering, node, intrinsic)
    loc = lowering.where(node)
    name = f"qn.{intrinsic.name}"
    if intrinsic in _INDICES:
        if arguments:
            raise lowering.refuse.type(node, f"`{name}` takes no arguments", f"write `{name}()`")
        return Scalar(ScalarType(i64), nodes.ThreadIndex(kind=_INDICES[intrinsic], axis=0, loc=loc))
    op = _OPERATIONS[intrinsic]
    form = f"{name}(x, {_WITH_LANE[op]})" if op in _WITH_LANE else f"{name}(x)"
    if len(arguments) != (2 if op in _WITH_LANE else 1):
        raise lowering.refuse.type(
            node, f"`{name}` cannot take {counted(len(arguments), 'argument')}", f"write `{form}`"
        )
    value = as_scalar(lowering, arguments[0], node.args[0])
    if op in _OF_TRUTH:
        value = truth(lowering, value, node)
    dtype = widened(value.dtype) if op in _OF_SUMS else value.dtype
    operands = [lowering.expr(cast(lowering, value, dtype, node), node)]
    if op in _WITH_LANE:
        operands.append(_lane(lowering, node, name, as_scalar(lowering, arguments[1], node.args[1])))
    result: DType = u64 if op is SubgroupOp.BALLOT else bool_ if op in _OF_TRUTH else dtype
    held = lowering.scope.temporary(result)
    lowering.emit(nodes.Subgroup(op=op, operands=tuple(operands), result=held, loc=loc))
    return Scalar(ScalarType(result), nodes.Local(name=held, type=result, loc=loc))


def _lane(lowering: FunctionLowering, node: ast.Call, name: str, lane: Scalar) -> nodes.Expr:
    if not lane.dtype.is_integer:
        raise lowering.refuse.type(
            node.args[1], f"the lane of `{name}` must be an integer, not {named(lane.type)}", "write `int(…)` around it"
        )
    return lowering.expr(cast(lowering, lane, i32, node), node)
