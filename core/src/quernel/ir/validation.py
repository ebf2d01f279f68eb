"""Whether a target has what a kernel needs, by its capabilities and limits, whatever the kernel is lowered to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

from quernel.capabilities import Capabilities, TargetInfo
from quernel.dtypes import ArrayType, DType, StructType, ValueType, VectorType, bf16, f16, f64
from quernel.errors import ValidationError
from quernel.ir.nodes import (
    Alloc,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Break,
    Breakpoint,
    Call,
    Continue,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Loop,
    Module,
    Print,
    Return,
    Space,
    Stmt,
    Store,
    Subgroup,
    ThreadIndex,
)
from quernel.ir.walk import walk_expressions, walk_statements
from quernel.locations import NOWHERE, Location, known_location

__all__ = ["check_target", "refusal", "shared_bytes", "validate_block"]

_OF_SUBGROUPS = frozenset({IndexKind.SUBGROUP_ID, IndexKind.SUBGROUP_LANE, IndexKind.SUBGROUP_SIZE})
_WITHOUT = "write the kernel without it"
Missing = tuple[str, Location, str]


def check_target(module: Module, target: TargetInfo) -> None:
    """Refuses a kernel that needs a capability which the target does not have, or more than its limits allow.

    Shared memory counts once calls that allocate are inlined. What a lowering cannot write, it refuses beside this.

    Raises:
        ValidationError: naming the first construct that stands in the way.
    """
    kernel = module.kernel
    validate_block(kernel.block, target, kernel.loc)
    if kernel.options.checked and not target.capabilities.checked:
        raise refusal("checked launches", kernel.loc, target, "launch without checked=True, or with interpret=True")
    owners: tuple[Kernel | Function, ...] = (kernel, *module.functions)
    for owner in owners:
        for construct, where, fix in _missing(owner, target.capabilities):
            raise refusal(construct, where, target, fix)
    taken = shared_bytes(module)
    if taken > target.limits.max_shared_bytes:
        where = next(stmt.loc for stmt in kernel.body if isinstance(stmt, Alloc) and stmt.space is Space.SHARED)
        raise ValidationError(
            f"the kernel takes {taken} bytes of shared memory; {target.backend}:{target.name} allows "
            f"{target.limits.max_shared_bytes}",
            where=known_location(where),
            fix="use smaller shared arrays or a smaller block",
        )


def validate_block(block: tuple[int, ...], target: TargetInfo, where: Location = NOWHERE) -> None:
    """Refuses a block that the target cannot run.

    Raises:
        ValidationError: it has too many threads, in all or along an axis.
    """
    limits = target.limits
    allowed = limits.max_block[-len(block) :]
    num_threads = math.prod(block)
    if num_threads > limits.max_block_threads or any(size > most for size, most in zip(block, allowed, strict=True)):
        example = (*(1,) * (len(block) - 1), min(limits.max_block_threads, allowed[-1]))
        raise ValidationError(
            f"block {block} has {num_threads} threads; {target.backend}:{target.name} allows "
            f"{limits.max_block_threads} in all and {allowed} along the axes",
            where=known_location(where),
            fix=f"use a block of at most {limits.max_block_threads} threads, e.g. {example}",
        )


def shared_bytes(module: Module) -> int:
    """Shared memory of a block, once calls that allocate are inlined."""
    total = 0
    for stmt in walk_statements(module.kernel.body):
        if isinstance(stmt, Alloc) and stmt.space is Space.SHARED:
            alignment = max(stmt.element.alignment, 1)
            total = -(-total // alignment) * alignment + math.prod(stmt.shape) * stmt.element.itemsize
    return total


def refusal(construct: str, where: Location, target: TargetInfo, fix: str = _WITHOUT) -> ValidationError:
    """The error for a construct that the target does not have, to be raised."""
    return ValidationError(
        f"the target {target.backend}:{target.name} has no {construct}", where=known_location(where), fix=fix
    )


def _missing(owner: Kernel | Function, can: Capabilities) -> Iterator[Missing]:
    """What `owner` uses and the target has not, with its place and the mend."""
    for param in owner.params:
        declared = param.type.element if isinstance(param.type, ArrayType) else param.type.dtype
        if declared is not None:
            yield from _missing_type(declared, can, param.loc, is_memory=isinstance(param.type, ArrayType))
    for variable in owner.locals:
        yield from _missing_type(variable.type, can, owner.loc)
    for stmt in walk_statements(owner.body):
        yield from _missing_statement(stmt, can)
    for expr in walk_expressions(owner.body):
        yield from _missing_type(expr.type, can, expr.loc)
        if isinstance(expr, ThreadIndex) and expr.kind in _OF_SUBGROUPS and not can.subgroups:
            yield f"subgroups, so no {expr.kind.value}", expr.loc, _WITHOUT


def _missing_type(
    type_: ValueType, can: Capabilities, where: Location, *, is_memory: bool = False
) -> Iterator[Missing]:
    if isinstance(type_, StructType):
        for field in type_.fields:
            yield from _missing_type(field.type, can, where, is_memory=is_memory)
    elif isinstance(type_, VectorType):
        yield from _missing_type(type_.element, can, where, is_memory=is_memory)
    elif type_ is f64 and not can.f64:
        yield "f64", where, "use f32: annotate parameters as qn.f32, and write qn.f32(0.5) for literals that stay f64"
    elif is_memory and type_ is f16 and not can.f16:
        yield "f16 arrays", where, "use f32 arrays"
    elif is_memory and type_ is bf16 and not can.bf16:
        yield "bf16 arrays", where, "use f32 arrays"


def _missing_statement(stmt: Stmt, can: Capabilities) -> Iterator[Missing]:
    match stmt:
        case Barrier():
            if not can.barriers:
                yield "barriers", stmt.loc, _WITHOUT
        case Atomic():
            dtype = stmt.place.type
            assert isinstance(dtype, DType)
            if dtype.bits < 32:
                yield f"atomic.{stmt.op.value} of {dtype}", stmt.loc, "use an element type of 32 or 64 bits"
            elif dtype.bits == 64 and not (can.f64_atomics if dtype.is_float else can.int64_atomics):
                yield f"atomic.{stmt.op.value} of {dtype}", stmt.loc, "use an element type of 32 bits"
        case Subgroup():
            if not can.subgroups:
                yield f"subgroup.{stmt.op.value}", stmt.loc, _WITHOUT
        case Assert():
            if not can.checked:
                yield "assertions", stmt.loc, _WITHOUT
        case Print():
            if not can.checked:
                yield "print", stmt.loc, _WITHOUT
        case Alloc():
            yield from _missing_type(stmt.element, can, stmt.loc, is_memory=True)
        case Assign() | Store() | Call() | If() | For() | Loop() | Break() | Continue() | Return() | Breakpoint():
            return
        case _:
            assert_never(stmt)
