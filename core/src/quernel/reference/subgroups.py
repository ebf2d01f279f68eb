"""Operations among the threads of a subgroup, on the values that all of them bring.

A lane that the subgroup does not have gives the thread its own value; `scan` is the inclusive sum.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never

from quernel.dtypes import DType
from quernel.ir.nodes import BinaryOp, SubgroupOp
from quernel.ir.semantics import Value, binary

__all__ = ["Meeting", "answers"]

_FOLDED: Final = {SubgroupOp.SUM: BinaryOp.ADD, SubgroupOp.MIN: BinaryOp.MIN, SubgroupOp.MAX: BinaryOp.MAX}


class Meeting(NamedTuple):
    """What a thread waits with for the others of its subgroup: where, for what, and with which values."""

    site: int
    op: SubgroupOp
    dtype: DType
    operands: tuple[Value, ...]


def answers(meetings: Sequence[Meeting]) -> list[Value]:
    """What each thread of a subgroup gets, by its lane."""
    op, dtype = meetings[0].op, meetings[0].dtype
    values = [meeting.operands[0] for meeting in meetings]
    lanes = range(len(values))
    match op:
        case SubgroupOp.SHUFFLE | SubgroupOp.BROADCAST:
            return _from(values, [int(meeting.operands[1]) for meeting in meetings])
        case SubgroupOp.SHUFFLE_XOR:
            return _from(values, [lane ^ int(meetings[lane].operands[1]) for lane in lanes])
        case SubgroupOp.SHUFFLE_UP:
            return _from(values, [lane - int(meetings[lane].operands[1]) for lane in lanes])
        case SubgroupOp.SHUFFLE_DOWN:
            return _from(values, [lane + int(meetings[lane].operands[1]) for lane in lanes])
        case SubgroupOp.BALLOT:
            return [sum(1 << lane for lane in lanes if values[lane])] * len(values)
        case SubgroupOp.ANY:
            return [any(values)] * len(values)
        case SubgroupOp.ALL:
            return [all(values)] * len(values)
        case SubgroupOp.SUM | SubgroupOp.MIN | SubgroupOp.MAX:
            folded = functools.reduce(lambda left, right: binary(_FOLDED[op], left, right, dtype), values)
            return [folded] * len(values)
        case SubgroupOp.SCAN:
            return list(itertools.accumulate(values, lambda left, right: binary(BinaryOp.ADD, left, right, dtype)))
        case _:
            assert_never(op)


def _from(values: list[Value], lanes: list[int]) -> list[Value]:
    return [values[lane] if 0 <= lane < len(values) else values[own] for own, lane in enumerate(lanes)]
