"""Whether a kernel can be written in a dialect for a target; refusals name the construct, its place and the mend."""

from __future__ import annotations

from collections.abc import Iterator

from quernel.capabilities import TargetInfo
from quernel.codegen.atomics import has_atomic
from quernel.codegen.dialect import Dialect
from quernel.codegen.types import alignment_of
from quernel.dtypes import ArrayType, DType, ValueType
from quernel.ir.nodes import Alloc, Atomic, Function, Kernel, Module, Stmt, Subgroup
from quernel.ir.validation import check_target, refusal, shared_bytes, validate_block
from quernel.ir.walk import walk_statements
from quernel.locations import Location

__all__ = ["shared_bytes", "validate_block", "validate_kernel"]


def validate_kernel(module: Module, dialect: Dialect, target: TargetInfo) -> None:
    """Refuses a kernel that the target cannot run, or that has no form in the dialect yet.

    Raises:
        ValidationError: naming the first construct that stands in the way.
    """
    check_target(module, target)
    owners: tuple[Kernel | Function, ...] = (module.kernel, *module.functions)
    for owner in owners:
        elements = _elements(owner)
        for stmt in walk_statements(owner.body):
            for construct, where, fix in _unwritten(stmt, dialect, elements):
                raise refusal(construct, where, target, fix)


def _unwritten(stmt: Stmt, dialect: Dialect, elements: dict[str, ValueType]) -> Iterator[tuple[str, Location, str]]:
    """What the dialect has no form for, with its place and the mend."""
    if isinstance(stmt, Atomic):
        dtype = stmt.place.type
        assert isinstance(dtype, DType)
        if not has_atomic(dialect, stmt.op, dtype):
            yield f"atomic.{stmt.op.value} of {dtype}", stmt.loc, "use an element type of 32 bits"
        root = stmt.place.root
        if alignment_of(elements[root.name], root.kind, dialect, stmt.place.view) % dtype.alignment:
            fix = "lay the struct out with align=True, so that each field stands at a multiple of its size"
            yield "atomics on fields that may be unaligned", stmt.loc, fix
    elif isinstance(stmt, Subgroup):
        if stmt.op not in dialect.subgroup:
            yield f"subgroup.{stmt.op.value}", stmt.loc, "write the kernel without it"
        elif stmt.operands[0].type not in dialect.subgroup_types:
            yield f"subgroup.{stmt.op.value} of {stmt.operands[0].type}", stmt.loc, "convert the value first"


def _elements(owner: Kernel | Function) -> dict[str, ValueType]:
    """The element type of each array that the kernel or function names."""
    elements: dict[str, ValueType] = {}
    for param in owner.params:
        if isinstance(param.type, ArrayType) and param.type.element is not None:
            elements[param.name] = param.type.element
    elements.update((stmt.name, stmt.element) for stmt in walk_statements(owner.body) if isinstance(stmt, Alloc))
    return elements
