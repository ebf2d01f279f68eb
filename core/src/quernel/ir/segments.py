"""Barrier segmentation: a kernel with barriers as runs of barrier-free code under block-wide control.

A backend without hardware barriers runs each segment for every thread of the block before it goes on to the next, as
pocl and other CPU compilers do. Control that contains a barrier is uniform in the block, so it runs once per block; the
rest stays inside the segments. What a thread must remember from one segment to the next is listed: locals that agree in
the block (one cell a block), locals that do not (one cell a thread), and private arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

import attrs

from quernel.dtypes import ValueType, bool_, i64
from quernel.ir.flow import has_one_trip
from quernel.ir.names import FreshNames
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Break,
    Breakpoint,
    Call,
    Const,
    Continue,
    Expr,
    For,
    If,
    Load,
    Local,
    LocalVariable,
    Loop,
    Module,
    Print,
    Return,
    RootKind,
    Space,
    Stmt,
    Store,
    Subgroup,
    Unary,
    UnaryOp,
)
from quernel.ir.passes.inline import inline
from quernel.ir.uniformity import Level, Uniformity, check_uniformity
from quernel.ir.walk import Body, bodies, expressions_of, map_statements, walk_expressions, walk_statements, with_bodies

__all__ = [
    "BlockBreak",
    "BlockContinue",
    "BlockFor",
    "BlockIf",
    "BlockLoop",
    "BlockReturn",
    "Region",
    "Segment",
    "SegmentedKernel",
    "has_barriers",
    "segment",
    "segments_of",
]


@attrs.frozen
class Segment:
    """Barrier-free code that every thread of the block runs before any goes on.

    A `Return`, and a `Continue` outside the body's own loops, ends this thread's run.

    Attributes:
        body: the statements.
        loads: locals that a thread takes over from earlier segments, when it starts.
        stores: locals that a thread hands on, when it ends, however it ends.
    """

    body: Body
    loads: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


@attrs.frozen
class BlockIf:
    """One of two ways for the whole block."""

    condition: Expr
    then: tuple[Region, ...]
    otherwise: tuple[Region, ...]


@attrs.frozen
class BlockFor:
    """A `For` that the block runs as one; its variable is one of the block's cells."""

    variable: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Region, ...]


@attrs.frozen
class BlockLoop:
    """A `Loop` that the block runs as one."""

    body: tuple[Region, ...]


@attrs.frozen
class BlockBreak:
    """The block leaves its innermost loop."""


@attrs.frozen
class BlockContinue:
    """The block goes on with its innermost loop's next trip."""


@attrs.frozen
class BlockReturn:
    """The block is done."""


Region = Segment | BlockIf | BlockFor | BlockLoop | BlockBreak | BlockContinue | BlockReturn


@attrs.frozen
class SegmentedKernel:
    """A kernel without barriers, in segments.

    Attributes:
        module: the module after inlining; its kernel's body is replaced by `regions`.
        regions: what the block does, in order.
        uniform: locals that the whole block agrees on and that outlive a segment, or that block-wide control reads.
            Every thread starts a segment from the block's value; the value of any thread is the next one.
        carried: other locals that outlive a segment: one cell a thread.
        shared: the block's arrays.
        carried_arrays: private arrays that outlive a segment: one a thread.
        private: private arrays that do not.
    """

    module: Module
    regions: tuple[Region, ...]
    uniform: tuple[LocalVariable, ...]
    carried: tuple[LocalVariable, ...]
    shared: tuple[Alloc, ...]
    carried_arrays: tuple[Alloc, ...]
    private: tuple[Alloc, ...]


def has_barriers(module: Module) -> bool:
    """Whether the kernel, or a device function that it reaches, has a barrier."""
    everything = (module.kernel.body, *(function.body for function in module.functions))
    return any(isinstance(stmt, Barrier) for body in everything for stmt in walk_statements(body))


def segment(module: Module) -> SegmentedKernel:
    """The kernel in segments; one without barriers is one segment.

    Raises:
        KernelSyntaxError: a barrier stands where not all threads of the block pass.
    """
    module = inline(module)
    uniformity = check_uniformity(module)
    if not has_barriers(module):
        return _with_liveness(module, uniformity, (Segment(_without_allocs(module)),))
    splitter = _Splitter(uniformity)
    regions = splitter.regions(_without_allocs(module))
    if splitter.exits and sum(1 for _ in segments_of(regions)) > 1:
        flag = splitter.fresh("exited", bool_)
        regions = (Segment((_flagged(flag, value=False),)), *(_with_exit_flag(region, flag) for region in regions))
    module = attrs.evolve(module, kernel=attrs.evolve(module.kernel, locals=(*module.kernel.locals, *splitter.locals)))
    return _with_liveness(module, uniformity, regions, splitter.agreed)


def _without_allocs(module: Module) -> Body:
    return tuple(stmt for stmt in module.kernel.body if not isinstance(stmt, Alloc))


# --- splitting --------------------------------------------------------------------------------------------------------


@attrs.define
class _BlockLoop:
    """A loop that the block runs as one, while its body is cut.

    A thread that goes on with the next trip while others do not (after the last barrier) raises `skipped`, so that it
    misses the segments that are left of its trip.
    """

    stmt: For | Loop
    has_one_trip: bool
    skipped: str | None = None
    is_read: bool = False


class _Splitter:
    """Cuts bodies at barriers, and lifts the control round them to the block."""

    def __init__(self, uniformity: Uniformity) -> None:
        self._uniformity = uniformity
        self._names = FreshNames(uniformity.module.kernel)
        self.exits = False
        """Whether some thread may return from a segment while others go on."""
        self.locals: list[LocalVariable] = []
        """Locals that the regions need besides."""
        self.agreed: set[str] = set()
        """Those of them on which the block agrees."""

    def fresh(self, wanted: str, type_: ValueType) -> str:
        """The name of another local."""
        name = self._names.fresh(wanted)
        self.locals.append(LocalVariable(name=name, type=type_))
        return name

    def regions(self, body: Body, loop: _BlockLoop | None = None) -> tuple[Region, ...]:
        """The regions of a body that stands in `loop`, if any."""
        done: list[Region] = []
        run: list[Stmt] = []

        def close() -> None:
            if run:
                done.append(self._segment(tuple(run), loop))
                run.clear()

        for stmt in body:
            if isinstance(stmt, Barrier):
                close()
            elif self._is_block_level(stmt, loop):
                close()
                done.extend(self._lifted(stmt, loop))
            else:
                run.append(stmt)
        close()
        return tuple(done)

    def _segment(self, run: Body, loop: _BlockLoop | None) -> Segment:
        self.exits = self.exits or any(isinstance(stmt, Return) for stmt in walk_statements(run))
        if loop is None:
            return Segment(run)
        skipped = loop.skipped
        if _ends_trip(run):
            loop.skipped = loop.skipped or self.fresh("skipped", bool_)
            run = _with_skip_flag(run, loop.skipped)
        if skipped is not None:
            loop.is_read = True
            run = (If(condition=_is_lowered(skipped), then=run),)
        return Segment(run)

    def _is_block_level(self, stmt: Stmt, loop: _BlockLoop | None) -> bool:
        """Whether the block runs the statement as one: it holds a barrier, or leaves something that does."""
        match stmt:
            case Break():
                return loop is not None and (self._is_agreed(stmt) or stmt is loop.stmt.body[-1])
            case Continue():
                return loop is not None and self._is_agreed(stmt)
            case Return():
                return self._is_agreed(stmt)
            case If():
                return any(self._is_block_level(inner, loop) for side in bodies(stmt) for inner in side)
            case For() | Loop():
                return any(
                    isinstance(inner, Barrier) or (isinstance(inner, Return) and self._is_agreed(inner))
                    for inner in walk_statements(stmt.body)
                )
            case Barrier():
                return True
            case Assign() | Store() | Atomic() | Subgroup() | Call() | Assert() | Print() | Breakpoint() | Alloc():
                return False
            case _:
                assert_never(stmt)

    def _is_agreed(self, stmt: Break | Continue | Return) -> bool:
        return self._uniformity.control(stmt) <= Level.BLOCK

    def _lifted(self, stmt: Stmt, loop: _BlockLoop | None) -> tuple[Region, ...]:
        match stmt:
            case If():
                then, otherwise = self.regions(stmt.then, loop), self.regions(stmt.otherwise, loop)
                return (BlockIf(stmt.condition, then, otherwise),)
            case For():
                return (self._lifted_for(stmt),)
            case Loop():
                one_trip = has_one_trip(stmt)
                body = self._trip(_BlockLoop(stmt, one_trip))
                if one_trip and not isinstance(stmt.body[-1], Break):
                    body = (*body, BlockBreak())
                return (BlockLoop(body),)
            case Break():
                return (BlockBreak(),)
            case Continue():
                return (BlockContinue(),)
            case Return():
                return (BlockReturn(),)
            case _:
                raise TypeError(f"{type(stmt).__name__} is not control")

    def _lifted_for(self, stmt: For) -> BlockFor:
        body = self._trip(_BlockLoop(stmt, has_one_trip=False))
        variable = stmt.variable
        if self._uniformity.locals[variable] > Level.BLOCK:
            # The threads change it to values of their own; the block counts in a local that they do not see.
            variable = self.fresh(f"{stmt.variable}_trip", i64)
            self.agreed.add(variable)
            start = Assign(name=stmt.variable, value=Local(name=variable, type=i64, loc=stmt.loc), loc=stmt.loc)
            body = (Segment((start,)), *body)
        return BlockFor(variable, stmt.start, stmt.stop, stmt.step, body)

    def _trip(self, loop: _BlockLoop) -> tuple[Region, ...]:
        body = self.regions(loop.stmt.body, loop)
        if loop.skipped is None:
            return body
        if not loop.is_read:
            flag = loop.skipped
            self.locals = [local for local in self.locals if local.name != flag]
            return tuple(_without_flag(region, flag) for region in body)
        return (Segment((_flagged(loop.skipped, value=False),)), *body)


def _ends_trip(body: Body) -> bool:
    """Whether a thread may end its trip of the loop round `body` in it."""
    return any(
        isinstance(stmt, Break | Continue) or (isinstance(stmt, If) and any(_ends_trip(side) for side in bodies(stmt)))
        for stmt in body
    )


def _with_skip_flag(body: Body, flag: str) -> Body:
    """`body` where whoever ends its trip raises the flag; a break is one out of a loop of one trip."""
    rewritten: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Break() | Continue():
                rewritten.append(_flagged(flag, value=True))
                rewritten.append(Continue(loc=stmt.loc))
            case If():
                rewritten.append(with_bodies(stmt, tuple(_with_skip_flag(side, flag) for side in bodies(stmt))))
            case _:
                rewritten.append(stmt)
    return tuple(rewritten)


def _without_flag(region: Region, flag: str) -> Region:
    """The region without assignments of a flag that nothing reads."""

    def kept(stmt: Stmt) -> Stmt | Body:
        return () if isinstance(stmt, Assign) and stmt.name == flag else stmt

    match region:
        case Segment():
            return Segment(map_statements(region.body, kept))
        case BlockIf():
            return attrs.evolve(
                region,
                then=tuple(_without_flag(inner, flag) for inner in region.then),
                otherwise=tuple(_without_flag(inner, flag) for inner in region.otherwise),
            )
        case BlockFor() | BlockLoop() | BlockBreak() | BlockContinue() | BlockReturn():
            return region
        case _:
            assert_never(region)


def _is_lowered(flag: str) -> Expr:
    return Unary(op=UnaryOp.NOT, operand=Local(name=flag, type=bool_))


def _flagged(name: str, *, value: bool) -> Stmt:
    return Assign(name=name, value=Const(value=value, type=bool_))


def _with_exit_flag(region: Region, flag: str) -> Region:
    """The region where threads that returned in an earlier segment do nothing, and returns raise the flag."""

    def raising(body: Body) -> Body:
        rewritten: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Return):
                rewritten.append(_flagged(flag, value=True))
                rewritten.append(stmt)
            else:
                rewritten.append(with_bodies(stmt, tuple(raising(inner) for inner in bodies(stmt))))
        return tuple(rewritten)

    match region:
        case Segment():
            return Segment((If(condition=_is_lowered(flag), then=raising(region.body)),))
        case BlockIf():
            return attrs.evolve(
                region,
                then=tuple(_with_exit_flag(inner, flag) for inner in region.then),
                otherwise=tuple(_with_exit_flag(inner, flag) for inner in region.otherwise),
            )
        case BlockFor() | BlockLoop():
            return attrs.evolve(region, body=tuple(_with_exit_flag(inner, flag) for inner in region.body))
        case BlockBreak() | BlockContinue() | BlockReturn():
            return region
        case _:
            assert_never(region)


# --- what outlives a segment ------------------------------------------------------------------------------------------


def segments_of(regions: Iterable[Region]) -> Iterator[Segment]:
    """The segments of `regions`, those inside block-wide control too, in order."""
    for region in regions:
        match region:
            case Segment():
                yield region
            case BlockIf():
                yield from segments_of(region.then)
                yield from segments_of(region.otherwise)
            case BlockFor() | BlockLoop():
                yield from segments_of(region.body)
            case BlockBreak() | BlockContinue() | BlockReturn():
                pass
            case _:
                assert_never(region)


def _control(regions: Iterable[Region]) -> Iterator[Expr]:
    """The expressions that block-wide control reads, and the locals that it sets."""
    for region in regions:
        match region:
            case BlockIf():
                yield region.condition
                yield from _control((*region.then, *region.otherwise))
            case BlockFor():
                yield Local(name=region.variable, type=i64)
                yield from (region.start, region.stop, region.step)
                yield from _control(region.body)
            case BlockLoop():
                yield from _control(region.body)
            case Segment() | BlockBreak() | BlockContinue() | BlockReturn():
                pass
            case _:
                assert_never(region)


def _locals_of(expr: Expr) -> Iterator[str]:
    return (node.name for node in walk_expressions(expr) if isinstance(node, Local))


def _assigned_by(stmt: Stmt) -> tuple[str, ...]:
    match stmt:
        case Assign():
            return (stmt.name,)
        case For():
            return (stmt.variable,)
        case Call():
            return stmt.results
        case Subgroup():
            return (stmt.result,)
        case Atomic():
            return (stmt.result,) if stmt.result is not None else ()
        case _:
            return ()


def _exposed_reads(body: Body, assigned: set[str], exposed: set[str]) -> set[str]:
    """Adds to `exposed` what may be read before this body assigns it; gives what is assigned for sure afterwards."""
    for stmt in body:
        for expr in expressions_of(stmt):
            exposed.update(name for name in _locals_of(expr) if name not in assigned)
        if isinstance(stmt, If):
            sides = [_exposed_reads(side, set(assigned), exposed) for side in bodies(stmt)]
            assigned |= set.intersection(*sides)
        elif isinstance(stmt, For | Loop):
            inner = set(assigned)
            if isinstance(stmt, For):
                inner.add(stmt.variable)
            _exposed_reads(stmt.body, inner, exposed)
        else:
            assigned.update(_assigned_by(stmt))
    return assigned


def _private_arrays(body: Body) -> set[str]:
    """Names of the private arrays that the statements touch."""
    roots = {stmt.place.root for stmt in walk_statements(body) if isinstance(stmt, Store | Atomic)}
    roots |= {node.place.root for node in walk_expressions(body) if isinstance(node, Load)}
    for stmt in walk_statements(body):
        if isinstance(stmt, Call):
            roots |= {argument.root for argument in stmt.arguments if isinstance(argument, ArrayRef)}
    return {root.name for root in roots if root.kind is RootKind.PRIVATE}


def _with_liveness(
    module: Module, uniformity: Uniformity, regions: tuple[Region, ...], agreed: Iterable[str] = ()
) -> SegmentedKernel:
    exposed: set[str] = set()
    uses: dict[str, int] = {}
    for part in segments_of(regions):
        _exposed_reads(part.body, set(), exposed)
        for name in _private_arrays(part.body):
            uses[name] = uses.get(name, 0) + 1
    in_loops = {name for part in _looped(regions) for name in _private_arrays(part.body)}
    control_nodes = [node for expr in _control(regions) for node in walk_expressions(expr)]
    control = {node.name for node in control_nodes if isinstance(node, Local)}
    in_control = {node.place.root.name for node in control_nodes if isinstance(node, Load)}
    agreed = {*agreed, *(name for name, level in uniformity.locals.items() if level <= Level.BLOCK)}
    single = len(list(segments_of(regions))) == 1 and not in_loops and not control
    live = set() if single else exposed | control
    kernel = module.kernel
    allocs = [stmt for stmt in kernel.body if isinstance(stmt, Alloc)]
    private = [alloc for alloc in allocs if alloc.space is Space.PRIVATE]
    outlives = {alloc.name for alloc in private if uses.get(alloc.name, 0) > 1 or alloc.name in in_loops | in_control}
    return SegmentedKernel(
        module=module,
        regions=tuple(_with_cells(region, live) for region in regions),
        uniform=tuple(local for local in kernel.locals if local.name in live & agreed),
        carried=tuple(local for local in kernel.locals if local.name in live - agreed),
        shared=tuple(alloc for alloc in allocs if alloc.space is Space.SHARED),
        carried_arrays=tuple(alloc for alloc in private if alloc.name in outlives),
        private=tuple(alloc for alloc in private if alloc.name not in outlives),
    )


def _looped(regions: Iterable[Region]) -> Iterator[Segment]:
    """The segments inside loops of the block."""
    for region in regions:
        match region:
            case BlockFor() | BlockLoop():
                yield from segments_of(region.body)
            case BlockIf():
                yield from _looped((*region.then, *region.otherwise))
            case Segment() | BlockBreak() | BlockContinue() | BlockReturn():
                pass
            case _:
                assert_never(region)


def _with_cells(region: Region, live: set[str]) -> Region:
    match region:
        case Segment():
            assigned = {name for stmt in walk_statements(region.body) for name in _assigned_by(stmt)}
            read = {node.name for node in walk_expressions(region.body) if isinstance(node, Local)}
            return attrs.evolve(
                region, loads=tuple(sorted(live & (assigned | read))), stores=tuple(sorted(live & assigned))
            )
        case BlockIf():
            return attrs.evolve(
                region,
                then=tuple(_with_cells(inner, live) for inner in region.then),
                otherwise=tuple(_with_cells(inner, live) for inner in region.otherwise),
            )
        case BlockFor() | BlockLoop():
            return attrs.evolve(region, body=tuple(_with_cells(inner, live) for inner in region.body))
        case BlockBreak() | BlockContinue() | BlockReturn():
            return region
        case _:
            assert_never(region)
