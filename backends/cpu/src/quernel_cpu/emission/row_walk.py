"""A range of points of a launch of several axes, counted in array order, walked as parts of rows and as whole rows."""

from __future__ import annotations

from typing import Protocol

from quernel_cpu.emission.text import Code, Unit

__all__ = ["RowCode", "walk_rows"]


class RowCode(Protocol):
    """Writes the code for a part of a row, or for several whole rows that follow each other."""

    def __call__(self, outer: tuple[str, ...], first: str, end: str, rows: int, /) -> None:
        """Writes it; `outer` are the points on the axes before the last, of the first row."""
        ...


def walk_rows(
    unit: Unit, code: Code, extent: tuple[str, ...], first: str, end: str, run: RowCode, *, rows: int = 1
) -> None:
    """Runs points `first` to `end`, exclusive: `rows` whole rows at once where as many follow in one plane, else one.

    `extent`: points along each of two or three axes. The first row and the last may be parts of theirs, so that no
    point needs a guard.
    """
    width = extent[-1]
    row = code.value(f"udiv i64 {first}, {width}")
    start = code.value(f"sub nsw i64 {first}, {code.value(f'mul i64 {row}, {width}')}")
    outer = [row]
    if len(extent) == 3:
        plane = code.value(f"udiv i64 {row}, {extent[1]}")
        outer = [plane, code.value(f"sub nsw i64 {row}, {code.value(f'mul i64 {plane}, {extent[1]}')}")]
    slots = [code.allocate("i64") for _ in outer]
    position_slot, column_slot = code.allocate("i64"), code.allocate("i64")
    for slot, value in zip([*slots, position_slot, column_slot], [*outer, first, start], strict=True):
        code.do(f"store i64 {value}, ptr {slot}")
    head, body, done = code.label("row"), code.label("row.body"), code.label("row.end")
    code.place(head)
    position = code.value(f"load i64, ptr {position_slot}")
    code.branch_if(code.value(f"icmp slt i64 {position}, {end}"), body, done)
    code.place(body)
    column = code.value(f"load i64, ptr {column_slot}")
    ids = tuple(code.value(f"load i64, ptr {slot}") for slot in slots)
    left = code.value(f"sub nsw i64 {end}, {position}")

    def finish(count: str, num_rows: int) -> None:
        code.do(f"store i64 {code.value(f'add nsw i64 {position}, {count}')}, ptr {position_slot}")
        code.do(f"store i64 0, ptr {column_slot}")
        following = code.value(f"add nsw i64 {ids[-1]}, {num_rows}")
        if len(ids) == 2:
            is_plane_done = code.value(f"icmp eq i64 {following}, {extent[1]}")
            following = code.value(f"select i1 {is_plane_done}, i64 0, i64 {following}")
            carry = code.value(f"zext i1 {is_plane_done} to i64")
            code.do(f"store i64 {code.value(f'add nsw i64 {ids[0]}, {carry}')}, ptr {slots[0]}")
        code.do(f"store i64 {following}, ptr {slots[-1]}")
        code.branch(head)

    if rows > 1:
        whole = code.value(f"mul i64 {width}, {rows}")
        fits = code.value(f"icmp sge i64 {left}, {whole}")
        fits = code.value(f"and i1 {fits}, {code.value(f'icmp eq i64 {column}, 0')}")
        if len(extent) == 3:
            last = code.value(f"add nsw i64 {ids[-1]}, {rows}")
            fits = code.value(f"and i1 {fits}, {code.value(f'icmp sle i64 {last}, {extent[1]}')}")
        together, single = code.label("rows"), code.label("single")
        code.branch_if(fits, together, single)
        code.place(together)
        run(ids, "0", width, rows)
        finish(whole, rows)
        code.place(single)
    to_edge = code.value(f"sub nsw i64 {width}, {column}")
    smaller = unit.declare("i64", "llvm.smin.i64", "i64", "i64")
    count = code.value(f"call i64 {smaller}(i64 {left}, i64 {to_edge})")
    run(ids, column, code.value(f"add nsw i64 {column}, {count}"), 1)
    finish(count, 1)
    code.place(done)
