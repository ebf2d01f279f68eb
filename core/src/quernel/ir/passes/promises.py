"""Promises of uniformity: `qn.uniform(x)` of a checked kernel, compared between the threads that it is about.

Where all threads of the block evaluate it, one of them puts its value in shared memory, between two barriers, and each
compares. From there on all go on with that one value, so that a broken promise never parts the block at a barrier.

Where the threads of a subgroup evaluate it, but not those of the block, they compare with the value of their first
lane, if the kernel has subgroup operations at all. Under any other control, and in a kernel over an extent, nothing
follows from a promise: whatever it decides is reached by some threads only, so no thread may wait there. Such promises
are left as they are.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterator
from typing import Final

import attrs

from quernel.dtypes import DType, bool_, i32, i64
from quernel.geometry import LaunchForm
from quernel.ir.names import FreshNames
from quernel.ir.nodes import (
    Alloc,
    Assert,
    Assign,
    Barrier,
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    Expr,
    If,
    IndexKind,
    Load,
    Local,
    LocalVariable,
    Module,
    Place,
    Root,
    RootKind,
    Select,
    Space,
    Stmt,
    Store,
    Subgroup,
    SubgroupOp,
    ThreadIndex,
    Unary,
    UnaryOp,
)
from quernel.ir.uniformity import Level, Uniformity, analyse_uniformity
from quernel.ir.walk import (
    Body,
    expressions_of,
    fold_expression,
    map_statements,
    walk_expressions,
    walk_statements,
    with_children,
    with_expressions,
)
from quernel.locations import Location

__all__ = ["verify_promises"]

_MESSAGE: Final = "qn.uniform(…) differs between threads"
_NAMES: Final = ("here", "in the first thread")


class _Means(enum.Enum):
    """What a promise is compared by."""

    SHARED_MEMORY = enum.auto()
    SUBGROUP = enum.auto()
    NOTHING = enum.auto()


def verify_promises(module: Module) -> Module:
    """`module`, whose kernel calls no device function that promises, with an assertion for each promise."""
    kernel = module.kernel
    promises = [node for node in walk_expressions(kernel) if _is_promise(node)]
    if not promises or kernel.form is LaunchForm.OVER or math.prod(kernel.block) == 1:
        return module
    before = analyse_uniformity(module)
    first = _Writer(module, before, {})
    asked = first.module()
    if asked is module:
        return module
    uniformity = analyse_uniformity(asked)
    has_subgroups = any(isinstance(stmt, Subgroup) for stmt in walk_statements(kernel.body))
    means: dict[int, _Means] = {}
    for number, barrier in first.barriers.items():
        level = uniformity.control(barrier)
        if level > Level.BLOCK:
            means[number] = _Means.SUBGROUP if has_subgroups and level is Level.SUBGROUP else _Means.NOTHING
    return _Writer(module, before, means).module() if means else asked


def _is_promise(node: Expr) -> bool:
    return isinstance(node, Unary) and node.op is UnaryOp.UNIFORM


@attrs.frozen
class _Rewritten:
    """An expression, and the statements that have to run before it is evaluated."""

    expr: Expr
    before: Body = ()


class _Writer:
    """Writes the comparisons of one kernel.

    Args:
        module: the kernel's module.
        uniformity: of that module.
        means: by the number of a promise, in the order of their evaluation; a promise without one uses shared memory.
    """

    def __init__(self, module: Module, uniformity: Uniformity, means: dict[int, _Means]) -> None:
        self._module = module
        self._uniformity = uniformity
        self._means = means
        self._num_promises = 0
        kernel = module.kernel
        self._names = FreshNames(kernel)
        self._locals: list[LocalVariable] = []
        self._cells: dict[DType, Alloc] = {}
        self._unset: list[Stmt] = []
        """What a side of a conditional that is not chosen leaves unassigned, of the current statement."""
        self.barriers: dict[int, Barrier] = {}
        """By the number of a promise: a barrier that stands where it is evaluated."""

    def module(self) -> Module:
        """The module with its promises compared; itself if none is."""
        kernel = self._module.kernel
        body = map_statements(kernel.body, self._statement)
        if body is kernel.body:
            return self._module
        kernel = attrs.evolve(kernel, locals=(*kernel.locals, *self._locals), body=(*self._cells.values(), *body))
        return attrs.evolve(self._module, kernel=kernel)

    def _statement(self, stmt: Stmt) -> Stmt | Body:
        exprs = expressions_of(stmt)
        if not any(_is_promise(node) for expr in exprs for node in walk_expressions(expr)):
            return stmt
        self._unset = []
        rewritten = [fold_expression(expr, self._rewritten) for expr in exprs]
        before = [inner for part in rewritten for inner in part.before]
        return (*self._unset, *before, with_expressions(stmt, tuple(part.expr for part in rewritten)))

    def _rewritten(self, node: Expr, below: tuple[_Rewritten, ...]) -> _Rewritten:
        rewritten = with_children(node, tuple(part.expr for part in below))
        if isinstance(node, Select) and isinstance(rewritten, Select):
            # In the user's program only the chosen side is evaluated.
            condition, then, otherwise = below
            if then.before or otherwise.before:
                chosen = If(condition=condition.expr, then=then.before, otherwise=otherwise.before, loc=node.loc)
                return _Rewritten(rewritten, (*condition.before, chosen))
        before = tuple(stmt for part in below for stmt in part.before)
        if isinstance(node, Unary) and isinstance(rewritten, Unary) and _is_promise(node):
            return self._compared(node, rewritten, before)
        return _Rewritten(rewritten, before)

    def _compared(self, node: Unary, rewritten: Unary, before: Body) -> _Rewritten:
        if self._uniformity.level(node.operand) <= Level.BLOCK:
            return _Rewritten(rewritten.operand, before)  # It is uniform without a promise.
        number = self._num_promises
        self._num_promises += 1
        means = self._means.get(number, _Means.SHARED_MEMORY)
        if means is _Means.NOTHING:
            return _Rewritten(rewritten, before)
        assert isinstance(node.type, DType)
        loc, dtype = node.loc, node.type
        own, first = self._local("promised", dtype, loc), self._local("first", dtype, loc)
        self._unset.append(_zeroed(first))
        started = (Assign(name=own.name, value=rewritten.operand, loc=loc),)
        if means is _Means.SUBGROUP:
            operands = (own, Const(value=0, type=i32, loc=loc))
            agreed: Body = (Subgroup(op=SubgroupOp.BROADCAST, operands=operands, result=first.name, loc=loc),)
        else:
            agreed = tuple(self._by_memory(number, own, first, dtype, loc))
        held = Assert(
            condition=_is_same(own, first, dtype, loc),
            site=0,
            values=(own, first),
            message=_MESSAGE,
            texts=_NAMES,
            loc=loc,
        )
        return _Rewritten(first, (*before, *started, *agreed, held))

    def _by_memory(self, number: int, own: Local, first: Local, dtype: DType, loc: Location) -> Iterator[Stmt]:
        zero = Const(value=0, type=i64, loc=loc)
        place = Place(root=Root(RootKind.SHARED, self._cell(dtype).name), indices=(zero,), type=dtype, loc=loc)
        is_first: Expr = functools.reduce(
            lambda left, right: Binary(op=BinaryOp.AND, left=left, right=right, loc=loc),
            [self._is_zero(axis, loc) for axis in range(self._module.kernel.ndim)],
        )
        yield If(condition=is_first, then=(Store(place=place, value=own, loc=loc),), loc=loc)
        self.barriers[number] = Barrier(loc=loc)
        yield self.barriers[number]
        yield Assign(name=first.name, value=Load(place=place, loc=loc), loc=loc)
        yield Barrier(loc=loc)  # The cell serves the next promise too.

    def _is_zero(self, axis: int, loc: Location) -> Expr:
        index = ThreadIndex(kind=IndexKind.LOCAL_ID, axis=axis, loc=loc)
        return Compare(op=CompareOp.EQ, left=index, right=Const(value=0, type=i64, loc=loc), loc=loc)

    def _cell(self, dtype: DType) -> Alloc:
        if dtype not in self._cells:
            name = self._names.fresh(f"promised_{dtype}")
            loc = self._module.kernel.loc
            self._cells[dtype] = Alloc(name=name, space=Space.SHARED, element=dtype, shape=(1,), loc=loc)
        return self._cells[dtype]

    def _local(self, wanted: str, dtype: DType, loc: Location) -> Local:
        name = self._names.fresh(wanted)
        self._locals.append(LocalVariable(name=name, type=dtype))
        return Local(name=name, type=dtype, loc=loc)


def _zeroed(local: Local) -> Assign:
    assert isinstance(local.type, DType)
    zero = False if local.type is bool_ else 0.0 if local.type.is_float else 0
    return Assign(name=local.name, value=Const(value=zero, type=local.type, loc=local.loc), loc=local.loc)


def _is_same(own: Local, first: Local, dtype: DType, loc: Location) -> Expr:
    """Whether the values are equal, or neither is a number."""
    same: Expr = Compare(op=CompareOp.EQ, left=own, right=first, loc=loc)
    if not dtype.is_float:
        return same
    nans = [Compare(op=CompareOp.NE, left=value, right=value, loc=loc) for value in (own, first)]
    neither = Binary(op=BinaryOp.AND, left=nans[0], right=nans[1], loc=loc)
    return Binary(op=BinaryOp.OR, left=same, right=neither, loc=loc)
