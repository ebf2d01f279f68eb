"""Checks of a checked kernel: every index against its array, every assertion and promise, explicit in the IR.

An access whose index is out of bounds does not happen: the thread records the violation and does nothing more. Loads
are taken into locals before their statement, in the order of their evaluation and under the same control, so that each
is checked right before it happens.

In a kernel whose threads never meet, doing nothing more is to return. In one with barriers no thread may skip one, so:

* what decides where barriers are reached (control round them and the locals that it reads) is equal in all threads of
  the block and runs in every thread; a violation there happens in all threads of the block, and all return;
* everything else runs where the local `active` holds, whole runs without barriers under one condition; a violation
  lowers `active` and leaves its run.

A subgroup operation belongs to the first kind, whatever it combines: inactive threads take part. Locals that it reads
and that only active threads assign start at zero, since a value that nobody gave may be anything, each time another.

A `while` round a barrier may wait for what an inactive thread would have written; in that case no trip could be its
last one. So the threads of a block tell each other, at the start of each trip, whether one is inactive, and then all
return.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from quernel.diagnostics import MAX_VALUES
from quernel.dtypes import DType, StructType, ValueType, VectorType, bool_, i32, i64
from quernel.ir.analysis import assigned_names
from quernel.ir.flow import has_one_trip
from quernel.ir.names import FreshNames
from quernel.ir.nodes import (
    Alloc,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Binary,
    BinaryOp,
    Break,
    Compare,
    CompareOp,
    Const,
    Continue,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Local,
    LocalVariable,
    Loop,
    Module,
    Place,
    Return,
    Root,
    RootKind,
    Shape,
    Space,
    Stmt,
    Store,
    StructMake,
    Subgroup,
    Unary,
    UnaryOp,
    VecMake,
)
from quernel.ir.passes.inline import inline
from quernel.ir.passes.promises import verify_promises
from quernel.ir.uniformity import Level, Uniformity, analyse_uniformity
from quernel.ir.walk import (
    Body,
    bodies,
    expressions_of,
    fold_expression,
    map_bodies,
    map_statements,
    place_of,
    walk_expressions,
    walk_statements,
    with_bodies,
    with_children,
    with_expressions,
)
from quernel.locations import Location

__all__ = ["insert_checks"]


def insert_checks(module: Module) -> Module:
    """`module` with the checks that its options ask for; without its assertions where they ask for none.

    Device functions become part of a checked kernel. A kernel that has its checks already is left as it is.
    """
    if not module.kernel.options.checked:
        return map_bodies(module, lambda body: map_statements(body, _without_assertion))
    if module.kernel.guarded:
        return module
    module = verify_promises(inline(module, frozenset(function.name for function in module.functions)))
    checker = _Checker(module)
    body = checker.kernel_body()
    kernel = attrs.evolve(module.kernel, locals=(*module.kernel.locals, *checker.names.locals), body=body, guarded=True)
    return attrs.evolve(module, kernel=kernel)


def _without_assertion(stmt: Stmt) -> Stmt | Body:
    return () if isinstance(stmt, Assert) else stmt


# --- names and small pieces -------------------------------------------------------------------------------------------


class _Names(FreshNames):
    """Names for what the checks add to the kernel, and the locals among them."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.locals: list[LocalVariable] = []

    def local(self, wanted: str, type_: ValueType, loc: Location) -> Local:
        name = self.fresh(wanted)
        self.locals.append(LocalVariable(name=name, type=type_))
        return Local(name=name, type=type_, loc=loc)


def _constant(value: bool | int, type_: DType, loc: Location) -> Const:
    return Const(value=value, type=type_, loc=loc)


def _not(condition: Expr) -> Expr:
    return Unary(op=UnaryOp.NOT, operand=condition, loc=condition.loc)


def _all(conditions: Iterable[Expr]) -> Expr:
    return functools.reduce(
        lambda left, right: Binary(op=BinaryOp.AND, left=left, right=right, loc=left.loc), conditions
    )


def _zero(type_: ValueType, loc: Location) -> Expr:
    match type_:
        case VectorType():
            return VecMake(components=(_zero(type_.element, loc),) * type_.length, type=type_, loc=loc)
        case StructType():
            return StructMake(values=tuple(_zero(field.type, loc) for field in type_.fields), type=type_, loc=loc)
        case _:
            return Const(value=False if type_.is_bool else 0.0 if type_.is_float else 0, type=type_, loc=loc)


# --- what a thread does after a violation -----------------------------------------------------------------------------


class _Returns:
    """The thread returns."""

    def statements(self, loc: Location) -> Body:
        return (Return(loc=loc),)

    def after_loop(self, body: Body, loc: Location) -> Body:
        return ()


@attrs.frozen
class _GoesInactive:
    """The thread lowers `active`, tells the block where it wants to know, and breaks out of the loop round its run."""

    active: Local
    told: Body = ()

    def statements(self, loc: Location) -> Body:
        lowered = Assign(name=self.active.name, value=_constant(False, bool_, loc), loc=loc)
        return (lowered, *self.told, Break(loc=loc))

    def after_loop(self, body: Body, loc: Location) -> Body:
        if not _assigns(body, self.active.name):
            return ()
        return (If(condition=_not(self.active), then=(Break(loc=loc),), loc=loc),)


_Leave = _Returns | _GoesInactive


def _assigns(body: Body, name: str) -> bool:
    return any(isinstance(stmt, Assign) and stmt.name == name for stmt in walk_statements(body))


# --- one thread -------------------------------------------------------------------------------------------------------


_MAX_NESTED: Final = 20
"""A longer chain of `elif` whose conditions need checks is laid out flat, since it would nest otherwise."""


class _Checker:
    """Inserts the checks into one kernel without calls."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.names = _Names(module.kernel)
        self._shapes = {stmt.name: stmt.shape for stmt in module.kernel.body if isinstance(stmt, Alloc)}

    def kernel_body(self) -> Body:
        body = self._module.kernel.body
        allocs = tuple(stmt for stmt in body if isinstance(stmt, Alloc))
        rest = tuple(stmt for stmt in body if not isinstance(stmt, Alloc))
        if not _meets(rest):
            return (*allocs, *self.inside(rest, _Returns()))
        return _Together(self, analyse_uniformity(self._module)).kernel_body(allocs, rest)

    def inside(self, body: Body, leave: _Leave) -> Body:
        """The statements with each access and assertion checked; a violation leaves as `leave` says."""
        checked: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, If):
                checked.extend(self._branches(stmt, leave))
                continue
            before, rewritten = self.statement(stmt, leave)
            checked.extend(before)
            if rewritten is None:
                continue
            if isinstance(rewritten, For | Loop):
                inner = self.inside(rewritten.body, leave)
                checked.append(with_bodies(rewritten, (inner,)))
                checked.extend(leave.after_loop(inner, stmt.loc))
            else:
                checked.append(rewritten)
        return tuple(checked)

    def _branches(self, branch: If, leave: _Leave) -> Body:
        """A chain of `elif`, link by link."""
        links: list[tuple[Body, If]] = []
        otherwise: Body = (branch,)
        while len(otherwise) == 1 and isinstance(otherwise[0], If):
            link = otherwise[0]
            before, stmt = self.statement(link, leave)
            assert isinstance(stmt, If)
            links.append((before, attrs.evolve(stmt, then=self.inside(stmt.then, leave), otherwise=())))
            otherwise = link.otherwise
        last = self.inside(otherwise, leave)
        if sum(1 for before, _ in links[1:] if before) > _MAX_NESTED:
            return self._flat(links, last)
        for before, link in reversed(links):
            last = (*before, attrs.evolve(link, otherwise=last))
        return last

    def _flat(self, links: list[tuple[Body, If]], last: Body) -> Body:
        loc = links[0][1].loc
        pending = self.names.local("pending", bool_, loc)
        flat: list[Stmt] = [Assign(name=pending.name, value=_constant(True, bool_, loc), loc=loc)]
        for before, link in links:
            taken = Assign(name=pending.name, value=_constant(False, bool_, link.loc), loc=link.loc)
            chosen = If(condition=link.condition, then=(taken, *link.then), loc=link.loc)
            flat.append(If(condition=pending, then=(*before, chosen), loc=link.loc))
        if last:
            flat.append(If(condition=pending, then=last, loc=loc))
        return tuple(flat)

    def statement(self, stmt: Stmt, leave: _Leave) -> tuple[Body, Stmt | None]:
        """What has to come before a statement, and the statement with its loads replaced (`None`: nothing is left)."""
        before: list[Stmt] = []
        exprs = list(expressions_of(stmt))
        place = place_of(stmt)
        num_indices = len(place.indices) if place is not None else 0
        # What is written is worked out before where, as in Python.
        for position in (*range(num_indices, len(exprs)), *range(num_indices)):
            exprs[position] = self._without_loads(exprs[position], before, leave)
        stmt = with_expressions(stmt, tuple(exprs))
        if isinstance(stmt, Store | Atomic):
            checked = self._checked_place(stmt.place, before, leave)
            stmt = attrs.evolve(stmt, place=checked)
        if isinstance(stmt, Assert):
            failed = attrs.evolve(stmt, condition=_constant(False, bool_, stmt.loc))
            before.append(If(condition=_not(stmt.condition), then=(failed, *leave.statements(stmt.loc)), loc=stmt.loc))
            return tuple(before), None
        return tuple(before), stmt

    def _without_loads(self, expr: Expr, before: list[Stmt], leave: _Leave) -> Expr:
        def replaced(node: Expr, below: tuple[Expr, ...]) -> Expr:
            node = with_children(node, below)
            if not isinstance(node, Load):
                return node
            value = self.names.local("loaded", node.type, node.loc)
            place = self._checked_place(node.place, before, leave)
            before.append(Assign(name=value.name, value=attrs.evolve(node, place=place), loc=node.loc))
            return value

        return fold_expression(expr, replaced)

    def _checked_place(self, place: Place, before: list[Stmt], leave: _Leave) -> Place:
        """The place with its indices in locals, after a check of each."""
        loc = place.loc
        indices: list[Expr] = []
        for index in place.indices:
            if isinstance(index, Const | Local):
                indices.append(index)
                continue
            kept = self.names.local("index", i64, index.loc)
            before.append(Assign(name=kept.name, value=index, loc=index.loc))
            indices.append(kept)
        lengths = [self._length(place.root, axis, loc) for axis in range(len(indices))]
        zero = _constant(0, i64, loc)
        conditions: list[Expr] = []
        for index, length in zip(indices, lengths, strict=True):
            conditions.append(Compare(op=CompareOp.LE, left=zero, right=index, loc=loc))
            conditions.append(Compare(op=CompareOp.LT, left=index, right=length, loc=loc))
        num_axes = MAX_VALUES // 2
        values = (*indices[:num_axes], *lengths[:num_axes])
        failed = Assert(condition=_constant(False, bool_, loc), site=0, values=values, array=place.root.name, loc=loc)
        before.append(If(condition=_not(_all(conditions)), then=(failed, *leave.statements(loc)), loc=loc))
        return attrs.evolve(place, indices=tuple(indices))

    def _length(self, root: Root, axis: int, loc: Location) -> Expr:
        if root.kind is RootKind.PARAM:
            return Shape(param=root.name, axis=axis, loc=loc)
        return _constant(self._shapes[root.name][axis], i64, loc)


# --- threads that meet ------------------------------------------------------------------------------------------------


def _meets(body: Body) -> bool:
    """Whether threads meet in the statements: at a barrier, or in an operation among them."""
    return any(isinstance(stmt, Barrier | Subgroup) for stmt in walk_statements(body))


def _may_violate(body: Body) -> bool:
    """Whether anything in the statements is checked."""
    return any(isinstance(node, Load) for node in walk_expressions(body)) or any(
        isinstance(stmt, Store | Atomic | Assert) for stmt in walk_statements(body)
    )


class _Together:
    """Inserts the checks into a kernel whose threads meet."""

    def __init__(self, checker: _Checker, uniformity: Uniformity) -> None:
        self._checker = checker
        self._names = checker.names
        self._uniformity = uniformity
        self._needed: set[str] = set()
        """Locals on which it depends how a thread comes from one barrier to the next."""
        self._remembered: set[str] = set()
        """Those of them that may hold what a thread has written to memory."""
        self._written: set[Root] = set()
        self._combined: set[str] = set()
        """Locals that operations of a subgroup read, which inactive threads run too."""
        self._loc = uniformity.module.kernel.loc
        self._active = self._names.local("active", bool_, self._loc)
        self._told: Alloc | None = None

    def kernel_body(self, allocs: Body, rest: Body) -> Body:
        """The kernel's body."""
        self._find_needed(rest)
        if any(self._waits_for_memory(stmt) for stmt in walk_statements(rest)):
            name = self._names.fresh("any_inactive")
            self._told = Alloc(name=name, space=Space.SHARED, element=i32, shape=(1,), loc=self._loc)
        checked = self._body(rest, None)
        if not _assigns(checked, self._active.name):
            self._told = None
            checked = self._body(rest, None)
            self._names.locals = [local for local in self._names.locals if local.name != self._active.name]
            return (*allocs, *map_statements(checked, self._unguarded))
        start: Body = (Assign(name=self._active.name, value=_constant(True, bool_, self._loc), loc=self._loc),)
        start = (*self._zeros(checked), *start)
        if self._told is not None:
            allocs = (*allocs, self._told)
            start = (*start, self._tell(0), Barrier(loc=self._loc))
        return (*allocs, *start, *checked)

    def _zeros(self, checked: Body) -> Iterator[Stmt]:
        """Values for the locals that subgroups combine and that a thread which is inactive from the start lacks."""
        guarded = (stmt for stmt in walk_statements(checked) if isinstance(stmt, If) and stmt.condition == self._active)
        lacking = self._combined.intersection(name for stmt in guarded for name in assigned_names(stmt.then))
        for local in (*self._uniformity.module.kernel.locals, *self._names.locals):
            if local.name in lacking:
                yield Assign(name=local.name, value=_zero(local.type, self._loc), loc=self._loc)

    def _unguarded(self, stmt: Stmt) -> Stmt | Body:
        """The statements of a run without its guard, where nothing lowers `active`; nor does anyone wait for it."""
        return stmt.then if isinstance(stmt, If) and stmt.condition == self._active else stmt

    # --- what every thread runs ---

    def _find_needed(self, body: Body) -> None:
        for stmt in walk_statements(body):
            place = place_of(stmt)
            if place is not None:
                self._written.add(place.root)
        before = -1
        while before != len(self._needed) + len(self._remembered):
            before = len(self._needed) + len(self._remembered)
            self._visit(body, None)

    def _visit(self, body: Body, loop: For | Loop | None) -> None:
        for stmt in body:
            if not self._is_outside(stmt, loop):
                continue
            exprs = () if isinstance(stmt, Subgroup) else expressions_of(stmt)
            for expr in exprs:
                self._needed.update(node.name for node in walk_expressions(expr) if isinstance(node, Local))
            if any(self._is_remembered(expr) for expr in exprs):
                self._remembered.update(
                    inner.name if isinstance(inner, Assign) else inner.variable
                    for inner in walk_statements((stmt,))
                    if isinstance(inner, Assign | For)
                )
            for inner_body in bodies(stmt):
                self._visit(inner_body, stmt if isinstance(stmt, For | Loop) else loop)

    def _is_remembered(self, expr: Expr) -> bool:
        return any(
            (isinstance(node, Load) and node.place.root in self._written)
            or (isinstance(node, Local) and node.name in self._remembered)
            for node in walk_expressions(expr)
        )

    def _is_outside(self, stmt: Stmt, loop: For | Loop | None) -> bool:
        """Whether every thread runs the statement, active or not; `loop` is the loop round it, if every thread does."""
        match stmt:
            case Break() | Continue():
                return loop is not None and (self._is_uniform(stmt) or stmt is loop.body[-1])
            case If():
                return self._holds_outside((stmt,)) or any(
                    self._is_outside(inner, loop) for side in bodies(stmt) for inner in side
                )
            case _:
                return self._holds_outside((stmt,))

    def _holds_outside(self, body: Body) -> bool:
        for stmt in walk_statements(body):
            match stmt:
                case Barrier() | Subgroup():
                    return True
                case Assign() if stmt.name in self._needed:
                    return True
                case For() if stmt.variable in self._needed:
                    return True
                case Return() if self._is_uniform(stmt):
                    return True
                case _:
                    pass
        return False

    def _is_uniform(self, stmt: Break | Continue | Return) -> bool:
        return self._uniformity.control(stmt) <= Level.BLOCK

    def _waits_for_memory(self, stmt: Stmt) -> bool:
        """Whether a loop round a barrier may run on and on because an inactive thread did not write."""
        match stmt:
            case For():
                return _meets(stmt.body) and any(self._is_remembered(expr) for expr in expressions_of(stmt))
            case Loop() if not has_one_trip(stmt):
                return _meets(stmt.body) and any(
                    isinstance(inner, If)
                    and self._is_remembered(inner.condition)
                    and any(isinstance(end, Break | Return) for end in walk_statements((inner,)))
                    for inner in walk_statements(stmt.body)
                )
            case _:
                return False

    # --- bodies ---

    def _body(self, body: Body, loop: For | Loop | None) -> Body:
        done: list[Stmt] = []
        run: list[Stmt] = []
        for stmt in body:
            if self._is_outside(stmt, loop):
                done.extend(self._run(tuple(run)))
                run.clear()
                done.extend(self._outside(stmt, loop))
            else:
                run.append(stmt)
        done.extend(self._run(tuple(run)))
        return tuple(done)

    def _outside(self, stmt: Stmt, loop: For | Loop | None) -> Iterator[Stmt]:
        levels = [
            self._uniformity.level(index)
            for expr in expressions_of(stmt)
            for node in walk_expressions(expr)
            if isinstance(node, Load)
            for index in node.place.indices
        ]
        if max(levels, default=Level.GRID) <= Level.BLOCK:
            before, rewritten = self._checker.statement(stmt, _Returns())
            yield from before
        else:
            known = len(self._names.locals)
            before, rewritten = self._checker.statement(stmt, self._leave)
            for local in self._names.locals[known:]:
                yield Assign(name=local.name, value=_zero(local.type, stmt.loc), loc=stmt.loc)
            yield self._guarded((Loop(body=(*before, Break(loc=stmt.loc)), loc=stmt.loc),))
        assert rewritten is not None
        if isinstance(rewritten, Subgroup):
            self._combined.update(node.name for node in walk_expressions((rewritten,)) if isinstance(node, Local))
        waits = self._waits_for_memory(stmt)
        if waits and isinstance(stmt, For):
            yield from self._ask(stmt.loc)
        inner_loop = stmt if isinstance(stmt, For | Loop) else loop
        inner = [self._body(part, inner_loop) for part in bodies(stmt)]
        if waits and isinstance(stmt, Loop):
            inner = [(*self._ask(stmt.loc), *part) for part in inner]
        yield with_bodies(rewritten, tuple(inner))

    @property
    def _leave(self) -> _GoesInactive:
        return _GoesInactive(self._active, (self._tell(1),) if self._told is not None else ())

    def _guarded(self, body: Body) -> Stmt:
        return If(condition=self._active, then=body, loc=body[0].loc)

    def _run(self, run: Body) -> Body:
        """Statements without a barrier, where the thread is active."""
        if not run:
            return ()
        loc = run[0].loc
        ends: dict[type[Break] | type[Continue], Local] = {}
        if not _may_violate(run):
            return (self._guarded(run),)
        checked = self._checker.inside(self._inner_ends(run, ends), self._leave)
        once = Loop(body=(*checked, Break(loc=loc)), loc=loc)
        first = tuple(Assign(name=flag.name, value=_constant(False, bool_, loc), loc=loc) for flag in ends.values())
        last = tuple(If(condition=flag, then=(kind(loc=loc),), loc=loc) for kind, flag in ends.items())
        return (self._guarded((*first, once, *last)),)

    def _inner_ends(self, body: Body, ends: dict[type[Break] | type[Continue], Local]) -> Body:
        """`body`, which a loop of one trip will surround, where ends of the outer loop's trip raise flags."""
        rewritten: list[Stmt] = []
        for stmt in body:
            match stmt:
                case Break() | Continue():
                    if type(stmt) not in ends:
                        ends[type(stmt)] = self._names.local("ended", bool_, stmt.loc)
                    flag = ends[type(stmt)]
                    rewritten.append(Assign(name=flag.name, value=_constant(True, bool_, stmt.loc), loc=stmt.loc))
                    rewritten.append(Break(loc=stmt.loc))
                case If():
                    sides = tuple(self._inner_ends(side, ends) for side in bodies(stmt))
                    rewritten.append(with_bodies(stmt, sides))
                case _:
                    rewritten.append(stmt)
        return tuple(rewritten)

    # --- what inactive threads tell the block ---

    def _told_place(self) -> Place:
        assert self._told is not None
        first = _constant(0, i64, self._loc)
        return Place(root=Root(RootKind.SHARED, self._told.name), indices=(first,), type=i32, loc=self._loc)

    def _tell(self, value: int) -> Stmt:
        return Store(place=self._told_place(), value=_constant(value, i32, self._loc), loc=self._loc)

    def _ask(self, loc: Location) -> Iterator[Stmt]:
        """All threads return if one is inactive."""
        if self._told is None:
            return
        answer = self._names.local("answer", i32, loc)
        yield Barrier(loc=loc)
        yield Assign(name=answer.name, value=Load(place=self._told_place(), loc=loc), loc=loc)
        yield Barrier(loc=loc)
        condition = Compare(op=CompareOp.NE, left=answer, right=_constant(0, i32, loc), loc=loc)
        yield If(condition=condition, then=(Return(loc=loc),), loc=loc)
