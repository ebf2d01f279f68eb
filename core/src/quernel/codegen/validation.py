"""Whether a target can run a kernel; refusals name the construct, its place and the mend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

from quernel.capabilities import TargetInfo
from quernel.codegen.atomics import has_atomic
from quernel.codegen.dialect import Dialect
from quernel.codegen.types import is_packed
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
from quernel.locations import NOWHERE, Location

__all__ = ["shared_bytes", "validate_block", "validate_kernel"]

_OF_SUBGROUPS = frozenset({IndexKind.SUBGROUP_ID, IndexKind.SUBGROUP_LANE, IndexKind.SUBGROUP_SIZE})


def validate_kernel(module: Module, dialect: Dialect, target: TargetInfo) -> None:
    """Refuses a kernel that the target cannot run, or that has no form in the dialect yet.

    Raises:
        ValidationError: naming the first construct that stands in the way.
    """
    kernel = module.kernel
    validate_block(kernel.block, target, kernel.loc)
    if kernel.options.checked and not target.capabilities.checked:
        raise _refusal("checked launches", kernel.loc, target, "launch without checked=True, or with interpret=True")
    owners: tuple[Kernel | Function, ...] = (kernel, *module.functions)
    for owner in owners:
        for construct, where, fix in _missing(owner, dialect, target):
            raise _refusal(construct, where, target, fix)
    taken = shared_bytes(module)
    if taken > target.limits.max_shared_bytes:
        where = next(stmt.loc for stmt in kernel.body if isinstance(stmt, Alloc) and stmt.space is Space.SHARED)
        raise ValidationError(
            f"the kernel takes {taken} bytes of shared memory; {target.backend}:{target.name} allows "
            f"{target.limits.max_shared_bytes}",
            where=_known(where),
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
            where=_known(where),
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


def _refusal(construct: str, where: Location, target: TargetInfo, fix: str) -> ValidationError:
    return ValidationError(
        f"the target {target.backend}:{target.name} has no {construct}", where=_known(where), fix=fix
    )


def _known(where: Location) -> Location | None:
    return None if where == NOWHERE else where


_WITHOUT = "write the kernel without it"
Missing = tuple[str, Location, str]


def _missing(owner: Kernel | Function, dialect: Dialect, target: TargetInfo) -> Iterator[Missing]:
    """What `owner` uses and the target has not, with its place and the mend."""
    for param in owner.params:
        declared = param.type.element if isinstance(param.type, ArrayType) else param.type.dtype
        if declared is not None:
            yield from _missing_type(declared, target, param.loc, is_memory=isinstance(param.type, ArrayType))
    for variable in owner.locals:
        yield from _missing_type(variable.type, target, owner.loc)
    packed = set(_packed_arrays(owner))
    for stmt in walk_statements(owner.body):
        yield from _missing_statement(stmt, dialect, target)
        if isinstance(stmt, Atomic) and stmt.place.root.name in packed:
            fix = "lay the struct out with align=True, so that each field stands at a multiple of its size"
            yield "atomics on fields that may be unaligned", stmt.loc, fix
    for expr in walk_expressions(owner.body):
        yield from _missing_type(expr.type, target, expr.loc)
        if isinstance(expr, ThreadIndex) and expr.kind in _OF_SUBGROUPS and not target.capabilities.subgroups:
            yield f"subgroups, so no {expr.kind.value}", expr.loc, _WITHOUT


def _packed_arrays(owner: Kernel | Function) -> Iterator[str]:
    """The arrays whose elements may have unaligned fields."""
    elements = [(param.name, param.type.element) for param in owner.params if isinstance(param.type, ArrayType)]
    elements += [(stmt.name, stmt.element) for stmt in owner.body if isinstance(stmt, Alloc)]
    return (name for name, element in elements if isinstance(element, StructType) and is_packed(element))


def _missing_type(
    type_: ValueType, target: TargetInfo, where: Location, *, is_memory: bool = False
) -> Iterator[Missing]:
    if isinstance(type_, StructType):
        for field in type_.fields:
            yield from _missing_type(field.type, target, where, is_memory=is_memory)
    elif isinstance(type_, VectorType):
        yield from _missing_type(type_.element, target, where, is_memory=is_memory)
    elif type_ is f64 and not target.capabilities.f64:
        yield "f64", where, "use f32: annotate parameters as qn.f32, and write qn.f32(0.5) for literals that stay f64"
    elif is_memory and type_ is f16 and not target.capabilities.f16:
        yield "f16 arrays", where, "use f32 arrays"
    elif is_memory and type_ is bf16 and not target.capabilities.bf16:
        yield "bf16 arrays", where, "use f32 arrays"


def _missing_statement(stmt: Stmt, dialect: Dialect, target: TargetInfo) -> Iterator[Missing]:
    can = target.capabilities
    match stmt:
        case Barrier():
            if not can.barriers:
                yield "barriers", stmt.loc, _WITHOUT
        case Atomic():
            dtype = stmt.place.type
            assert isinstance(dtype, DType)
            name = f"atomic.{stmt.op.value} of {dtype}"
            if dtype.bits < 32:
                yield name, stmt.loc, "use an element type of 32 or 64 bits"
            elif not has_atomic(dialect, stmt.op, dtype) or not (
                dtype.bits == 32 or (can.f64_atomics if dtype.is_float else can.int64_atomics)
            ):
                yield name, stmt.loc, "use an element type of 32 bits"
        case Subgroup():
            if not can.subgroups or stmt.op not in dialect.subgroup:
                yield f"subgroup.{stmt.op.value}", stmt.loc, _WITHOUT
            elif stmt.operands[0].type not in dialect.subgroup_types:
                yield f"subgroup.{stmt.op.value} of {stmt.operands[0].type}", stmt.loc, "convert the value first"
        case Assert():
            if not can.checked:
                yield "assertions", stmt.loc, _WITHOUT
        case Print():
            if not can.checked:
                yield "print", stmt.loc, _WITHOUT
        case Alloc():
            yield from _missing_type(stmt.element, target, stmt.loc, is_memory=True)
        case Assign() | Store() | Call() | If() | For() | Loop() | Break() | Continue() | Return() | Breakpoint():
            return
        case _:
            assert_never(stmt)
