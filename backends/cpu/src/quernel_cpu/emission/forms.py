"""Which kernels run as lanes, and the form that they take for it: few calls, each statement once."""

from __future__ import annotations

import math

import attrs

from quernel.geometry import LaunchForm
from quernel.ir.nodes import Alloc, Expr, Function, Kernel, Module, Space, Stmt, Unary, UnaryOp
from quernel.ir.passes.composites import split_composites
from quernel.ir.walk import Body, bodies, map_expressions, walk_statements, with_bodies
from quernel_cpu.emission.calls import with_few_calls

__all__ = ["MOST_PRIVATE_BYTES", "private_bytes", "spmd_form"]

MOST_PRIVATE_BYTES = 64 << 10
"""Private arrays of threads that run together; where they take more, fewer threads do, as caches are small."""

_MOST_STATEMENTS = 4000
"""Longer kernels are left to the scalar emitter, which compiles faster."""
_MOST_DEPTH = 60
"""Deeper nests of statements are left to the scalar emitter, which walks chains of `elif` as loops."""


def spmd_form(module: Module) -> Module | None:
    """The module in the form that runs as lanes, or `None` if it runs better, or only, as scalar code.

    That is a kernel that is too long or nested too deep.
    """
    if max(_depth(owner.body) for owner in _owners(module)) > _MOST_DEPTH:
        return None
    module = split_composites(with_few_calls(module))
    owners = _owners(module)
    if sum(1 for owner in owners for _ in walk_statements(owner.body)) > _MOST_STATEMENTS:
        return None
    body = module.kernel.body
    if any(_depth(owner.body) > _MOST_DEPTH for owner in owners):
        return None
    if module.kernel.options.checked and module.kernel.form is LaunchForm.OVER:
        body = map_expressions(body, _without_promise)
    return attrs.evolve(
        module,
        kernel=attrs.evolve(module.kernel, body=_unshared(body)),
        functions=tuple(attrs.evolve(function, body=_unshared(function.body)) for function in module.functions),
    )


def _owners(module: Module) -> tuple[Kernel | Function, ...]:
    return (module.kernel, *module.functions)


def _without_promise(expr: Expr) -> Expr:
    """What was promised to be uniform, as it is: where nothing compares it, a checked launch does not rely on it."""
    return expr.operand if isinstance(expr, Unary) and expr.op is UnaryOp.UNIFORM else expr


def private_bytes(body: Body) -> int:
    """The size of a thread's own arrays."""
    return sum(
        math.prod(stmt.shape) * stmt.element.itemsize
        for stmt in body
        if isinstance(stmt, Alloc) and stmt.space is Space.PRIVATE
    )


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
