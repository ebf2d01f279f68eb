"""Counting loops: over threads, over blocks, and the `For` of the IR."""

from __future__ import annotations

from typing import Protocol

from quernel_cpu.emission.text import Code

__all__ = ["LoopBody", "LoopLabels", "count_up", "emit_for"]

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


def count_up(code: Code, first: str, end: str, body: LoopBody, metadata: str = "") -> None:
    """A loop from `first` up to `end`, exclusive."""
    slot = code.allocate("i64")
    head, inside, done = code.label("each"), code.label("each.body"), code.label("each.end")
    code.do(f"store i64 {first}, ptr {slot}")
    code.place(head)
    index = code.value(f"load i64, ptr {slot}")
    code.branch_if(code.value(f"icmp slt i64 {index}, {end}"), inside, done)
    code.place(inside)
    body(index)
    code.do(f"store i64 {code.value(f'add nsw i64 {index}, 1')}, ptr {slot}")
    code.branch(head, metadata)
    code.place(done)


def emit_for(code: Code, start: str, stop: str, step: str, body: ForBody) -> None:
    """Counts upwards by one where the step is 1; otherwise the number of trips is worked out first."""
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
        trips = _num_trips(code, start, stop, step)
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


def _num_trips(code: Code, start: str, stop: str, step: str) -> str:
    """How often the loop runs, as an unsigned number; distances of up to 2**64 - 1 stay exact."""
    is_down = code.value(f"icmp slt i64 {step}, 0")
    low = code.value(f"select i1 {is_down}, i64 {stop}, i64 {start}")
    high = code.value(f"select i1 {is_down}, i64 {start}, i64 {stop}")
    negated = code.value(f"sub i64 0, {step}")
    size = code.value(f"select i1 {is_down}, i64 {negated}, i64 {step}")
    is_still = code.value(f"icmp eq i64 {size}, 0")
    divisor = code.value(f"select i1 {is_still}, i64 1, i64 {size}")
    last = code.value(f"sub i64 {code.value(f'sub i64 {high}, {low}')}, 1")
    trips = code.value(f"add i64 {code.value(f'udiv i64 {last}, {divisor}')}, 1")
    is_ahead = code.value(f"icmp slt i64 {low}, {high}")
    runs = code.value(f"select i1 {is_still}, i1 false, i1 {is_ahead}")
    return code.value(f"select i1 {runs}, i64 {trips}, i64 0")
