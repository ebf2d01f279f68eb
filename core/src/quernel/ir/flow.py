"""Where control can go: whether the end of a body is reached."""

from __future__ import annotations

from quernel.ir.nodes import Break, Continue, For, If, Loop, Return, Stmt
from quernel.ir.walk import Body

__all__ = ["completes", "has_one_trip", "leaves_loop"]


def completes(body: Body) -> bool:
    """Whether control may reach the end of `body`; conditions count as unknown."""
    return all(_completes(stmt) for stmt in body)


def has_one_trip(loop: Loop) -> bool:
    """Whether the loop surely ends with its first trip: its last statement leaves it, and nothing goes back."""
    if not loop.body or not isinstance(loop.body[-1], Break | Return):
        return False
    pending = list(loop.body)
    while pending:
        match pending.pop():
            case Continue():
                return False
            case If(then=then, otherwise=otherwise):
                pending.extend(then)
                pending.extend(otherwise)
            case _:
                pass
    return True


def leaves_loop(body: Body) -> bool:
    """Whether a loop with this body has a `Break` of its own."""
    pending = list(body)
    while pending:
        match pending.pop():
            case Break():
                return True
            case If(then=then, otherwise=otherwise):
                pending.extend(then)
                pending.extend(otherwise)
            case _:
                pass
    return False


def _completes(stmt: Stmt) -> bool:
    while True:
        match stmt:
            case Return() | Break() | Continue():
                return False
            case Loop():
                return leaves_loop(stmt.body)
            case For():
                return True
            case If():
                if completes(stmt.then):
                    return True
                if len(stmt.otherwise) != 1:
                    return completes(stmt.otherwise)
                stmt = stmt.otherwise[0]
            case _:
                return True
