"""Locals that are worked out anew in each segment, instead of being kept for each thread from one to the next.

A local that one statement assigns, from thread indices, parameters and other such locals, has one value wherever it is
read. Worked out where it is used, it costs an addition or two and LLVM sees what it is: `part[i]` of neighbouring
threads lies side by side, which no vectoriser can tell of an `i` that comes out of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

import attrs

from quernel.ir.analysis import assigned_names
from quernel.ir.nodes import (
    Assign,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    Expr,
    Local,
    Param,
    Select,
    Shape,
    Stmt,
    ThreadIndex,
    Unary,
)
from quernel.ir.segments import (
    BlockBreak,
    BlockContinue,
    BlockFor,
    BlockIf,
    BlockLoop,
    BlockReturn,
    Region,
    Segment,
    SegmentedKernel,
)
from quernel.ir.walk import bodies, walk_expressions, walk_statements, with_bodies

__all__ = ["recomputed"]

_MOST_NODES = 16
"""Longer expressions are kept, not worked out again."""


def recomputed(segmented: SegmentedKernel) -> SegmentedKernel:
    """The kernel with fewer locals that its threads carry from segment to segment."""
    definitions = _definitions(segmented.regions)
    dropped = {variable.name for variable in segmented.carried} & definitions.keys()
    dropped -= set(_control_locals(segmented.regions))
    if not dropped:
        return segmented
    return attrs.evolve(
        segmented,
        regions=tuple(_with_definitions(region, definitions, dropped) for region in segmented.regions),
        carried=tuple(variable for variable in segmented.carried if variable.name not in dropped),
    )


def _definitions(regions: tuple[Region, ...]) -> dict[str, Assign]:
    """The one assignment of each local that can be worked out anew, after those that it depends on."""
    counts: dict[str, int] = {}
    found: dict[str, Assign] = {}
    for run in _segments(regions):
        for stmt in walk_statements(run.body):
            for name in _assigned_by(stmt):
                counts[name] = counts.get(name, 0) + 1
            if isinstance(stmt, Assign):
                found[stmt.name] = stmt
    counts |= dict.fromkeys(_variables(regions), 2)
    candidates = [stmt for name, stmt in found.items() if counts[name] == 1]
    known: dict[str, Assign] = {}
    num_known = -1
    while len(known) > num_known:
        num_known = len(known)
        for stmt in candidates:
            if stmt.name not in known and _is_cheap(stmt.value, known):
                known[stmt.name] = stmt
    return known


def _assigned_by(stmt: Stmt) -> tuple[str, ...]:
    """What the statement itself assigns, without its bodies."""
    return assigned_names((with_bodies(stmt, tuple(() for _ in bodies(stmt))),))


def _is_cheap(expr: Expr, known: dict[str, Assign]) -> bool:
    """Whether the value depends on what never changes only, and takes a few instructions."""
    for count, node in enumerate(walk_expressions(expr)):
        if count == _MOST_NODES:
            return False
        match node:
            case Const() | Param() | ThreadIndex() | Shape() | Unary() | Compare() | Select() | Cast():
                continue
            case Binary() if node.op is not BinaryOp.POW:
                continue
            case Local() if node.name in known:
                continue
            case _:
                return False
    return True


def _with_definitions(region: Region, definitions: dict[str, Assign], dropped: set[str]) -> Region:
    match region:
        case Segment():
            names = {node.name for node in walk_expressions(region.body) if isinstance(node, Local)}
            needed = _with_dependencies(names & dropped, definitions)
            return attrs.evolve(
                region,
                body=(*(stmt for name, stmt in definitions.items() if name in needed), *region.body),
                loads=tuple(name for name in region.loads if name not in dropped),
                stores=tuple(name for name in region.stores if name not in dropped),
            )
        case BlockIf():
            return attrs.evolve(
                region,
                then=tuple(_with_definitions(inner, definitions, dropped) for inner in region.then),
                otherwise=tuple(_with_definitions(inner, definitions, dropped) for inner in region.otherwise),
            )
        case BlockFor() | BlockLoop():
            return attrs.evolve(
                region, body=tuple(_with_definitions(inner, definitions, dropped) for inner in region.body)
            )
        case BlockBreak() | BlockContinue() | BlockReturn():
            return region
        case _:
            assert_never(region)


def _with_dependencies(names: set[str], definitions: dict[str, Assign]) -> set[str]:
    needed: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            value = definitions[name].value
            pending.extend(node.name for node in walk_expressions(value) if isinstance(node, Local))
    return needed


def _segments(regions: Iterable[Region]) -> Iterator[Segment]:
    for region in regions:
        match region:
            case Segment():
                yield region
            case BlockIf():
                yield from _segments((*region.then, *region.otherwise))
            case BlockFor() | BlockLoop():
                yield from _segments(region.body)
            case BlockBreak() | BlockContinue() | BlockReturn():
                continue
            case _:
                assert_never(region)


def _control_locals(regions: Iterable[Region]) -> Iterator[str]:
    """Locals that decide the way of the whole block."""
    for region in regions:
        exprs: tuple[Expr, ...] = ()
        match region:
            case BlockIf():
                exprs = (region.condition,)
                yield from _control_locals((*region.then, *region.otherwise))
            case BlockFor():
                exprs = (region.start, region.stop, region.step)
                yield from _control_locals(region.body)
            case BlockLoop():
                yield from _control_locals(region.body)
            case Segment() | BlockBreak() | BlockContinue() | BlockReturn():
                continue
            case _:
                assert_never(region)
        yield from (node.name for expr in exprs for node in walk_expressions(expr) if isinstance(node, Local))


def _variables(regions: Iterable[Region]) -> Iterator[str]:
    """Variables of the block's own loops."""
    for region in regions:
        match region:
            case BlockFor():
                yield region.variable
                yield from _variables(region.body)
            case BlockLoop():
                yield from _variables(region.body)
            case BlockIf():
                yield from _variables((*region.then, *region.otherwise))
            case Segment() | BlockBreak() | BlockContinue() | BlockReturn():
                continue
            case _:
                assert_never(region)
