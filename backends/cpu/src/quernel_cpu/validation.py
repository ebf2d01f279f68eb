"""Whether a kernel can run on a cpu target; refusals name the construct, its place and the mend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from quernel.capabilities import TargetInfo
from quernel.dtypes import ArrayType, DType, ScalarType, ValueType
from quernel.errors import ValidationError
from quernel.geometry import LaunchForm
from quernel.ir.nodes import (
    Alloc,
    Atomic,
    Barrier,
    Function,
    IndexKind,
    Kernel,
    Module,
    Space,
    Subgroup,
    ThreadIndex,
)
from quernel.ir.validation import refusal, validate_block
from quernel.ir.walk import walk_expressions, walk_statements
from quernel.locations import Location, known_location
from quernel_cpu.emission.leaves import Leaf, leaf_alignment, part_at
from quernel_cpu.emission.values import scalar

if TYPE_CHECKING:
    from quernel_cpu.emission.cells import Scratch

__all__ = ["is_cooperative", "validate", "validate_scratch"]

_MAX_PRIVATE_BYTES = 256 * 1024
"""Private memory lies on the stack, of which a thread may have no more than 512 KiB."""
_MAX_SCRATCH_BYTES = 64 * 1024 * 1024
"""What the threads of a block share and keep across barriers, for each worker thread."""
_OF_SUBGROUPS = frozenset({IndexKind.SUBGROUP_ID, IndexKind.SUBGROUP_LANE, IndexKind.SUBGROUP_SIZE})
_OF_POINTS = frozenset({IndexKind.GLOBAL_ID, IndexKind.GLOBAL_DIM})


def validate(module: Module, target: TargetInfo) -> None:
    """Refuses a kernel that the target cannot run.

    Raises:
        ValidationError: naming the first construct that stands in the way.
    """
    kernel = module.kernel
    validate_block(kernel.block, target, kernel.loc)
    owners: tuple[Kernel | Function, ...] = (kernel, *module.functions)
    for owner in owners:
        for construct, where in _missing(owner, has_subgroups=target.capabilities.subgroups):
            raise refusal(construct, where, target)
        _validate_private_memory(owner, target)
        if kernel.form is LaunchForm.OVER:
            _validate_points(owner)


def validate_without_lanes(module: Module, target: TargetInfo) -> None:
    """Refuses a kernel with subgroups whose threads do not run as lanes.

    Raises:
        ValidationError: naming the operation.
    """
    bodies = (module.kernel.body, *(function.body for function in module.functions))
    for body in bodies:
        for stmt in walk_statements(body):
            if isinstance(stmt, Subgroup):
                raise ValidationError(
                    f"{target.backend}:{target.name} runs a kernel with subgroup.{stmt.op.value} as lanes of vectors, "
                    "and this one cannot run so",
                    where=known_location(stmt.loc),
                    fix="write it shorter, with its statements nested less deep",
                )


def _validate_private_memory(owner: Kernel | Function, target: TargetInfo) -> None:
    num_bytes = 0
    for stmt in walk_statements(owner.body):
        if isinstance(stmt, Alloc) and stmt.space is Space.PRIVATE:
            num_bytes += math.prod(stmt.shape) * stmt.element.itemsize
            if num_bytes > _MAX_PRIVATE_BYTES:
                raise ValidationError(
                    f"{owner.name} has {num_bytes} bytes of private memory; "
                    f"{target.backend}:{target.name} allows {_MAX_PRIVATE_BYTES}",
                    where=known_location(stmt.loc),
                    fix="use smaller private arrays, or a part of an array argument for each thread",
                )


def validate_scratch(kernel: Kernel, scratch: Scratch, target: TargetInfo) -> None:
    """Refuses more memory for a block than there is.

    Raises:
        ValidationError: the shared arrays are too large, or what the threads keep between barriers.
    """
    allowed = target.limits.max_shared_bytes
    if scratch.shared_bytes > allowed:
        raise ValidationError(
            f"a block of {kernel.name} has {scratch.shared_bytes} bytes of shared memory; "
            f"{target.backend}:{target.name} allows {allowed}",
            where=known_location(kernel.loc),
            fix="use smaller shared arrays",
        )
    if scratch.num_bytes > _MAX_SCRATCH_BYTES:
        raise ValidationError(
            f"the threads of a block of {kernel.name} keep {scratch.num_bytes} bytes across barriers; "
            f"{target.backend}:{target.name} allows {_MAX_SCRATCH_BYTES}",
            where=known_location(kernel.loc),
            fix="use smaller private arrays, or a smaller block",
        )


def is_cooperative(module: Module) -> bool:
    """Whether the threads of a block share memory or wait for each other."""
    everything = (module.kernel.body, *(function.body for function in module.functions))
    return any(
        isinstance(stmt, Barrier) or (isinstance(stmt, Alloc) and stmt.space is Space.SHARED)
        for body in everything
        for stmt in walk_statements(body)
    )


def _validate_points(owner: Kernel | Function) -> None:
    for stmt in walk_statements(owner.body):
        if isinstance(stmt, Barrier) or (isinstance(stmt, Alloc) and stmt.space is Space.SHARED):
            what = "barrier" if isinstance(stmt, Barrier) else "shared memory"
            raise ValidationError(
                f"a kernel launched with over(...) has no blocks, so no {what}",
                where=known_location(stmt.loc),
                fix="launch it as kernel[qn.cdiv(extent, block), block]",
            )
    for expr in walk_expressions(owner.body):
        if isinstance(expr, ThreadIndex) and expr.kind not in _OF_POINTS:
            raise ValidationError(
                f"a kernel launched with over(...) has no blocks, so no {expr.kind.value}",
                where=known_location(expr.loc),
                fix="launch it as kernel[qn.cdiv(extent, block), block]",
            )


def _missing(owner: Kernel | Function, *, has_subgroups: bool) -> Iterator[tuple[str, Location]]:
    """What `owner` uses and the target has not, with its place."""
    if isinstance(owner, Kernel):
        for param in owner.params:
            if isinstance(param.type, ScalarType) and not isinstance(param.type.dtype, DType):
                yield f"parameters of type {param.type}", param.loc
    arrays = _arrays(owner)
    for stmt in walk_statements(owner.body):
        if isinstance(stmt, Subgroup) and not has_subgroups:
            yield f"subgroup operations such as subgroup.{stmt.op.value}", stmt.loc
        elif isinstance(stmt, Atomic):
            yield from _missing_atomic(stmt, arrays)
    for expr in walk_expressions(owner.body):
        if isinstance(expr, ThreadIndex) and expr.kind in _OF_SUBGROUPS and not has_subgroups:
            yield f"subgroups, so no {expr.kind.value}", expr.loc


def _missing_atomic(stmt: Atomic, arrays: dict[str, ValueType]) -> Iterator[tuple[str, Location]]:
    dtype = scalar(stmt.place.type)
    if dtype.bits < 32:
        yield f"atomic operations on {dtype}", stmt.loc
        return
    element = arrays[stmt.place.root.name]
    offset = part_at(element, stmt.place.view).offset_bytes
    if leaf_alignment(element, Leaf(dtype, 0), offset) < dtype.itemsize:
        yield f"atomic operations on a {dtype} that is not aligned in {element}", stmt.loc


def _arrays(owner: Kernel | Function) -> dict[str, ValueType]:
    """The element types of all arrays by name."""
    found = {param.name: param.type.element for param in owner.params if isinstance(param.type, ArrayType)}
    found |= {stmt.name: stmt.element for stmt in walk_statements(owner.body) if isinstance(stmt, Alloc)}
    return {name: element for name, element in found.items() if element is not None}
