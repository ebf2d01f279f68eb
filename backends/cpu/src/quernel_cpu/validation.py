"""Whether a kernel can run on a cpu target; refusals name the construct, its place and the mend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

from quernel.capabilities import TargetInfo
from quernel.dtypes import ArrayType, DType, ValueType
from quernel.errors import ValidationError
from quernel.geometry import LaunchForm
from quernel.ir.nodes import (
    Alloc,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Break,
    Call,
    Continue,
    Expr,
    Field,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Load,
    Loop,
    Module,
    Print,
    Return,
    Space,
    Stmt,
    Store,
    StructMake,
    Subgroup,
    ThreadIndex,
    VecGet,
    VecMake,
)
from quernel.ir.walk import walk_expressions, walk_statements
from quernel.locations import NOWHERE, Location

__all__ = ["validate", "validate_block"]

_MAX_PRIVATE_BYTES = 256 * 1024
"""Private memory lies on the stack, of which a thread may have no more than 512 KiB."""
_OF_SUBGROUPS = frozenset({IndexKind.SUBGROUP_ID, IndexKind.SUBGROUP_LANE, IndexKind.SUBGROUP_SIZE})
_OF_POINTS = frozenset({IndexKind.GLOBAL_ID, IndexKind.GLOBAL_DIM})


def validate(module: Module, target: TargetInfo) -> None:
    """Refuses a kernel that the target cannot run.

    Raises:
        ValidationError: naming the first construct that stands in the way.
    """
    kernel = module.kernel
    validate_block(kernel.block, target, kernel.loc)
    if kernel.options.checked:
        raise _refusal("checked launches", kernel.loc, target, "launch without checked=True")
    owners: tuple[Kernel | Function, ...] = (kernel, *module.functions)
    for owner in owners:
        for construct, where in _missing(owner):
            raise _refusal(construct, where, target, "write the kernel without it")
        _validate_private_memory(owner, target)
        if kernel.form is LaunchForm.OVER:
            _validate_points(owner)


def validate_block(block: tuple[int, ...], target: TargetInfo, where: Location = NOWHERE) -> None:
    """Refuses a block that the target cannot run.

    Raises:
        ValidationError: it has too many threads, in all or along an axis.
    """
    limits = target.limits
    num_threads = math.prod(block)
    allowed = limits.max_block[-len(block) :]
    if num_threads > limits.max_block_threads or any(size > most for size, most in zip(block, allowed, strict=True)):
        example = (*(1,) * (len(block) - 1), min(limits.max_block_threads, allowed[-1]))
        raise ValidationError(
            f"block {block} has {num_threads} threads; {target.backend}:{target.name} allows "
            f"{limits.max_block_threads} in all and {allowed} along the axes",
            where=_known(where),
            fix=f"use a block of at most {limits.max_block_threads} threads, e.g. {example}",
        )


def _refusal(construct: str, where: Location, target: TargetInfo, fix: str) -> ValidationError:
    return ValidationError(
        f"the target {target.backend}:{target.name} has no {construct}", where=_known(where), fix=fix
    )


def _known(where: Location) -> Location | None:
    return None if where == NOWHERE else where


def _validate_private_memory(owner: Kernel | Function, target: TargetInfo) -> None:
    num_bytes = 0
    for stmt in walk_statements(owner.body):
        if isinstance(stmt, Alloc):
            num_bytes += math.prod(stmt.shape) * stmt.element.itemsize
            if num_bytes > _MAX_PRIVATE_BYTES:
                raise ValidationError(
                    f"{owner.name} has {num_bytes} bytes of private memory; "
                    f"{target.backend}:{target.name} allows {_MAX_PRIVATE_BYTES}",
                    where=_known(stmt.loc),
                    fix="use smaller private arrays, or a part of an array argument for each thread",
                )


def _validate_points(owner: Kernel | Function) -> None:
    for expr in walk_expressions(owner.body):
        if isinstance(expr, ThreadIndex) and expr.kind not in _OF_POINTS:
            raise ValidationError(
                f"a kernel launched with over(...) has no blocks, so no {expr.kind.value}",
                where=_known(expr.loc),
                fix="launch it as kernel[qn.cdiv(extent, block), block]",
            )


def _missing(owner: Kernel | Function) -> Iterator[tuple[str, Location]]:
    """What `owner` uses and the target has not, with its place."""
    for param in owner.params:
        declared = param.type.element if isinstance(param.type, ArrayType) else param.type.dtype
        yield from _missing_type(declared, param.loc)
    for variable in owner.locals:
        yield from _missing_type(variable.type, owner.loc)
    for stmt in walk_statements(owner.body):
        yield from _missing_statement(stmt)
    for expr in walk_expressions(owner.body):
        yield from _missing_expression(expr)


def _missing_type(value_type: ValueType | None, where: Location) -> Iterator[tuple[str, Location]]:
    if not isinstance(value_type, DType):
        yield f"values of type {value_type}", where


def _missing_statement(stmt: Stmt) -> Iterator[tuple[str, Location]]:
    match stmt:
        case Barrier():
            yield "barriers", stmt.loc
        case Atomic():
            yield f"atomic operations such as atomic.{stmt.op.value}", stmt.loc
        case Subgroup():
            yield f"subgroup operations such as subgroup.{stmt.op.value}", stmt.loc
        case Assert():
            yield "assertions", stmt.loc
        case Print():
            yield "print", stmt.loc
        case Alloc() if stmt.space is Space.SHARED:
            yield "shared memory", stmt.loc
        case Alloc():
            yield from _missing_type(stmt.element, stmt.loc)
        case Store():
            if stmt.place.view:
                yield "views of parts of an element", stmt.loc
        case Assign() | Call() | If() | For() | Loop() | Break() | Continue() | Return():
            return
        case _:
            assert_never(stmt)


def _missing_expression(expr: Expr) -> Iterator[tuple[str, Location]]:
    match expr:
        case VecMake() | VecGet():
            yield "vectors", expr.loc
        case StructMake() | Field():
            yield "structs", expr.loc
        case Load() if expr.place.view:
            yield "views of parts of an element", expr.loc
        case ThreadIndex() if expr.kind in _OF_SUBGROUPS:
            yield f"subgroups, so no {expr.kind.value}", expr.loc
        case _:
            return
