"""Which kernels run as lanes, and the form that they take for it: every call inlined, in segments."""

from __future__ import annotations

import attrs

from quernel.ir.nodes import Call, Function, Kernel, Module, Stmt
from quernel.ir.passes.inline import inline
from quernel.ir.segments import SegmentedKernel, segment
from quernel.ir.walk import Body, bodies, walk_statements, with_bodies

__all__ = ["spmd_form"]

_MOST_STATEMENTS = 4000
"""Beyond this much after inlining, calls cost less than copies."""
_MOST_DEPTH = 60
"""Deeper nests of statements are left to the scalar emitter, which walks chains of `elif` as loops."""


def spmd_form(module: Module) -> SegmentedKernel | None:
    """The kernel in segments, or `None` if it runs better, or only, as scalar code.

    That is a kernel whose inlined body is too long or nested too deep.
    """
    owners = (module.kernel, *module.functions)
    if max(_depth(owner.body) for owner in owners) > _MOST_DEPTH or _inlined_size(module) > _MOST_STATEMENTS:
        return None
    module = inline(module, frozenset(function.name for function in module.functions))
    if _depth(module.kernel.body) > _MOST_DEPTH:
        return None
    kernel = attrs.evolve(module.kernel, body=_unshared(module.kernel.body))
    return segment(attrs.evolve(module, kernel=kernel))


def _inlined_size(module: Module) -> int:
    """Statements of the kernel with every call inlined."""
    functions = {function.name: function for function in module.functions}
    known: dict[str, int] = {}

    def size(owner: Kernel | Function) -> int:
        total = 0
        for stmt in walk_statements(owner.body):
            total += 1
            if isinstance(stmt, Call):
                if stmt.function not in known:
                    known[stmt.function] = size(functions[stmt.function])
                total += known[stmt.function]
        return total

    return size(module.kernel)


def _depth(body: Body) -> int:
    """How deep statements are nested; every branch of a chain of `elif` counts."""
    deepest = 0
    pending = [(body, 1)]
    while pending:
        part, depth = pending.pop()
        deepest = max(deepest, depth)
        pending += [(inner, depth + 1) for stmt in part for inner in bodies(stmt) if inner]
    return deepest


def _unshared(body: Body) -> Body:
    """The same statements, each an object of its own: what is known of one is kept by its `id`."""
    fresh: list[Stmt] = []
    for stmt in body:
        copied = attrs.evolve(stmt)
        inner = tuple(_unshared(part) for part in bodies(copied))
        fresh.append(with_bodies(copied, inner))
    return tuple(fresh)
