"""Which kernels run as lanes, and the form that they take for it: every call inlined."""

from __future__ import annotations

import math

import attrs

from quernel.dtypes import ArrayType, DType
from quernel.ir.nodes import Alloc, Call, Function, Kernel, Module, Space, Stmt
from quernel.ir.passes.inline import inline
from quernel.ir.walk import Body, bodies, walk_expressions, walk_statements, with_bodies

__all__ = ["MOST_PRIVATE_BYTES", "private_bytes", "spmd_form"]

MOST_PRIVATE_BYTES = 64 << 10
"""The private arrays of all threads that run together stand in the frame, which has to fit a small stack."""
_MOST_LANES = 16

_MOST_STATEMENTS = 4000
"""Beyond this much after inlining, calls cost less than copies."""
_MOST_DEPTH = 60
"""Deeper nests of statements are left to the scalar emitter, which walks chains of `elif` as loops."""


def spmd_form(module: Module) -> Module | None:
    """The module in the form that runs as lanes, or `None` if it runs better, or only, as scalar code.

    That is a kernel whose inlined body is too long or nested too deep, one with vectors or structs, and one with large private arrays.
    """
    owners: tuple[Kernel | Function, ...] = (module.kernel, *module.functions)
    if not all(_is_taken(owner) for owner in owners) or _inlined_size(module) > _MOST_STATEMENTS:
        return None
    module = inline(module, frozenset(function.name for function in module.functions))
    body = module.kernel.body
    if _depth(body) > _MOST_DEPTH or private_bytes(body) * _MOST_LANES > MOST_PRIVATE_BYTES:
        return None
    return attrs.evolve(module, kernel=attrs.evolve(module.kernel, body=_unshared(module.kernel.body)))


def _is_taken(owner: Kernel | Function) -> bool:
    """Whether all values are scalars, and all statements ones that lanes run."""
    types: list[object] = [local.type for local in owner.locals]
    types += [p.type.element if isinstance(p.type, ArrayType) else p.type.dtype for p in owner.params]
    if _depth(owner.body) > _MOST_DEPTH:
        return False
    for stmt in walk_statements(owner.body):
        if isinstance(stmt, Alloc):
            types.append(stmt.element)
    types += [expr.type for expr in walk_expressions(owner.body)]
    return all(isinstance(value_type, DType) for value_type in types)


def private_bytes(body: Body) -> int:
    """The size of a thread's own arrays."""
    return sum(
        math.prod(stmt.shape) * stmt.element.itemsize
        for stmt in body
        if isinstance(stmt, Alloc) and stmt.space is Space.PRIVATE
    )


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
