"""Which array a kernel's threads write, each once and as its last access, so that writing it disturbs no read.

Arrays may alias. But where every thread reads first and then stores once, a store can only meet a read of another
thread, which is undefined in the language, or an earlier read of its own, whose value it depends on. So LLVM may be
told that those reads and that store do not alias: it then keeps what neighbouring threads read in registers (each row
of a 3 by 3 filter is loaded once, not three times) and takes reads that all threads share out of the loop.
"""

from __future__ import annotations

from quernel.ir.nodes import ArrayRef, Atomic, Call, For, If, Load, Loop, RootKind, Stmt, Store
from quernel.ir.walk import expressions_of, walk_expressions, walk_statements
from quernel_cpu.emission.functions import DeviceFunction
from quernel_cpu.emission.part_groups import is_other_part

__all__ = ["array_stored_last"]


def array_stored_last(body: tuple[Stmt, ...], functions: dict[str, DeviceFunction]) -> str | None:
    """The one array parameter that is stored to, at most once in each thread and after all reads, or `None`."""
    stores = [
        stmt.place.root.name
        for stmt in walk_statements(body)
        if isinstance(stmt, Store) and stmt.place.root.kind is RootKind.PARAM
    ]
    if len(set(stores)) != 1 or _accesses_after_store(body, functions, False) is None:
        return None
    return stores[0]


def _accesses_after_store(
    body: tuple[Stmt, ...], functions: dict[str, DeviceFunction], has_stored: bool
) -> bool | None:
    """Whether the thread may have stored when `body` ends; `None` if it reads or stores again afterwards."""
    last: Stmt | None = None
    for stmt in body:
        if has_stored and _reads(stmt, functions):
            return None
        match stmt:
            case Store() if stmt.place.root.kind is RootKind.PARAM:
                # The parts of one element, one behind the other, are one store.
                if has_stored and not (isinstance(last, Store) and is_other_part(last, stmt)):
                    return None
                has_stored = True
            case Atomic():
                return None
            case Call() if _writes(stmt, functions):
                return None
            case If():
                end = _accesses_in_branches(stmt, functions, has_stored)
                if end is None:
                    return None
                has_stored = end
            case For() | Loop():
                before = _accesses_after_store(stmt.body, functions, has_stored)
                if before is None or before != has_stored:
                    return None
            case _:
                pass
        last = stmt
    return has_stored


def _accesses_in_branches(stmt: If, functions: dict[str, DeviceFunction], has_stored: bool) -> bool | None:
    """The same for an `If`; a chain of `elif` is walked, not recursed into."""
    ends: list[bool | None] = []
    while True:
        ends.append(_accesses_after_store(stmt.then, functions, has_stored))
        match stmt.otherwise:
            case (If() as following,):
                if has_stored and _reads(following, functions):
                    return None
                stmt = following
            case _:
                ends.append(_accesses_after_store(stmt.otherwise, functions, has_stored))
                return None if None in ends else any(ends)


def _reads(stmt: Stmt, functions: dict[str, DeviceFunction]) -> bool:
    """Whether the statement itself, without its bodies, reads an array parameter."""
    if isinstance(stmt, Call) and any(use.is_read for use in functions[stmt.function].uses.arrays):
        return True
    return any(
        isinstance(expr, Load) and expr.place.root.kind is RootKind.PARAM
        for outermost in expressions_of(stmt)
        for expr in walk_expressions(outermost)
    )


def _writes(call: Call, functions: dict[str, DeviceFunction]) -> bool:
    callee = functions[call.function]
    return any(
        isinstance(argument, ArrayRef)
        and argument.root.kind is RootKind.PARAM
        and callee.uses.array(param.name).is_written
        for param, argument in zip(callee.function.params, call.arguments, strict=True)
    )
