"""Counting loops: over threads, over blocks, and the `For` of the IR."""

from __future__ import annotations

from typing import Protocol

from quernel.dtypes import i64
from quernel.ir.nodes import BinaryOp, CompareOp
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.text import Code

__all__ = ["LoopBody", "LoopLabels", "count_up", "emit_for", "num_trips"]

LoopLabels = tuple[str, str]
"""Where `continue` and `break` go."""


class LoopBody(Protocol):
    """Writes the body of a loop, given its counter."""

    def __call__(self, index: str, /) -> None:
        """Writes the code."""
        ...


class ForBody(Protocol):
    """Writes the body of a `For`, given its variable's value."""

    def __call__(self, index: str, labels: LoopLabels, /) -> None:
        """Writes the code."""
        ...


def count_up(code: Code, first: str, end: str, body: LoopBody, metadata: str = "", *, step: int = 1) -> None:
    """A loop from `first` up to `end`, exclusive, in steps."""
    slot = code.allocate("i64")
    head, inside, done = code.label("each"), code.label("each.body"), code.label("each.end")
    code.do(f"store i64 {first}, ptr {slot}")
    code.place(head)
    index = code.value(f"load i64, ptr {slot}")
    code.branch_if(code.value(f"icmp slt i64 {index}, {end}"), inside, done)
    code.place(inside)
    body(index)
    code.do(f"store i64 {code.value(f'add nsw i64 {index}, {step}')}, ptr {slot}")
    code.branch(head, metadata)
    code.place(done)


def emit_for(arithmetic: Arithmetic, start: str, stop: str, step: str, body: ForBody) -> None:
    """Counts upwards by one where the step is 1; otherwise the number of trips is worked out first."""
    code = arithmetic.code
    counter = code.allocate("i64")
    head, inside, latch, end = (code.label(hint) for hint in ("for.head", "for.body", "for.next", "for.end"))
    if step == "1":
        code.do(f"store i64 {start}, ptr {counter}")
        code.place(head)
        current = code.value(f"load i64, ptr {counter}")
        code.branch_if(code.value(f"icmp slt i64 {current}, {stop}"), inside, end)
        code.place(inside)
        index = current
    else:
        trips = num_trips(arithmetic, start, stop, step)
        code.do(f"store i64 0, ptr {counter}")
        code.place(head)
        current = code.value(f"load i64, ptr {counter}")
        code.branch_if(code.value(f"icmp ult i64 {current}, {trips}"), inside, end)
        code.place(inside)
        index = code.value(f"add i64 {start}, {code.value(f'mul i64 {current}, {step}')}")
    body(index, (latch, end))
    code.place(latch)
    no_wrap = "nsw" if step == "1" else "nuw"
    code.do(f"store i64 {code.value(f'add {no_wrap} i64 {current}, 1')}, ptr {counter}")
    code.branch(head)
    code.place(end)


def num_trips(arithmetic: Arithmetic, start: str, stop: str, step: str) -> str:
    """How often the loop runs, as an unsigned number; distances of up to 2**64 - 1 stay exact."""
    code, llvm = arithmetic.code, arithmetic.type(i64)
    zero, one = arithmetic.number(i64, 0), arithmetic.number(i64, 1)
    is_down = arithmetic.compare(CompareOp.LT, i64, step, zero)
    low = arithmetic.select(is_down, llvm, stop, start)
    high = arithmetic.select(is_down, llvm, start, stop)
    size = arithmetic.select(is_down, llvm, arithmetic.binary(BinaryOp.SUB, i64, zero, step), step)
    is_still = arithmetic.compare(CompareOp.EQ, i64, size, zero)
    divisor = arithmetic.select(is_still, llvm, one, size)
    last = arithmetic.binary(BinaryOp.SUB, i64, arithmetic.binary(BinaryOp.SUB, i64, high, low), one)
    trips = arithmetic.binary(BinaryOp.ADD, i64, code.value(f"udiv {llvm} {last}, {divisor}"), one)
    is_ahead = arithmetic.compare(CompareOp.LT, i64, low, high)
    runs = arithmetic.select(is_still, arithmetic.bool, arithmetic.no, is_ahead)
    return arithmetic.select(runs, llvm, trips, zero)
