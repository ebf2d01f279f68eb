"""Uniformity: which values are equal for all threads of the grid, of a block or of a subgroup.

A value's level is the widest group of threads that is sure to agree on it. A local takes the worst of its values and of
the conditions under which it is assigned, so one pass to a fixed point over the names is enough. Loads assume that
threads do not race.

A `Barrier` needs control that is uniform in the block, a `Subgroup` operation control that is uniform in the subgroup;
`check_uniformity` refuses others and shows the way from the value to the thread index that it comes from.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, assert_never

import attrs

from quernel.errors import KernelSyntaxError
from quernel.geometry import LaunchForm
from quernel.ir.flow import has_one_trip
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
    Continue,
    Expr,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Load,
    Local,
    Loop,
    Module,
    Param,
    Print,
    Return,
    Root,
    RootKind,
    Stmt,
    Store,
    Subgroup,
    SubgroupOp,
    ThreadIndex,
    Unary,
    UnaryOp,
)
from quernel.ir.walk import children, walk_statements
from quernel.locations import NOWHERE, Location

__all__ = ["Level", "Uniformity", "analyse_uniformity", "check_uniformity"]


class Level(enum.IntEnum):
    """The widest group of threads that agree on a value; a greater level is a narrower group."""

    GRID = 0
    BLOCK = 1
    SUBGROUP = 2
    VARYING = 3


_GROUP: Final = {Level.BLOCK: "block", Level.SUBGROUP: "subgroup"}


@attrs.frozen
class _Cause:
    """Why something has its level: a line for the refusal, and what that rests on."""

    level: Level
    text: str
    loc: Location
    because: str | _Cause | None = None
    """The name of a local that carries the level here, or the cause itself."""


_UNIFORM: Final = _Cause(Level.GRID, "a constant", NOWHERE)


@attrs.define
class _Flow:
    """What makes the statements that follow run in fewer threads: returns so far, and the innermost loop's exits."""

    returned: _Cause = _UNIFORM
    continued: _Cause = _UNIFORM
    broken: _Cause = _UNIFORM


@attrs.frozen
class Uniformity:
    """The result of the analysis of one kernel.

    Attributes:
        locals: the level of each local.
        module: the module it belongs to.
    """

    module: Module
    locals: Mapping[str, Level]
    _analysis: _Analysis = attrs.field(repr=False, eq=False)

    def level(self, expr: Expr) -> Level:
        """The level of an expression of the kernel's body."""
        return self._analysis.cause(expr).level

    def control(self, stmt: Break | Continue | Return | Barrier | Subgroup) -> Level:
        """The level of the control under which a statement of the kernel's body runs."""
        return self._analysis.controls[id(stmt)][1].level


def _worse(*causes: _Cause) -> _Cause:
    return max(causes, key=lambda cause: cause.level)


class _Analysis:
    """One function or kernel, to a fixed point."""

    def __init__(
        self,
        module: Module,
        owner: Kernel | Function,
        params: Mapping[str, _Cause],
        control: _Cause,
        atomics: frozenset[Root],
        path: tuple[str, ...] = (),
    ) -> None:
        self._module = module
        self._owner = owner
        self._params = params
        self._control = control
        self._atomics = atomics
        self._path = path
        self._functions = {function.name: function for function in module.functions}
        self.names: dict[str, _Cause] = {}
        self.results: _Cause = _UNIFORM
        self.controls: dict[int, tuple[Stmt, _Cause]] = {}
        """By the statement's `id`: what decides whether a thread reaches it; the statement is kept alive beside it."""
        self._changed = True

    def run(self) -> _Analysis:
        while self._changed:
            self._changed = False
            self._body(self._owner.body, self._control, _Flow())
        return self

    # --- expressions --------------------------------------------------------------------------------------------------

    def cause(self, expr: Expr) -> _Cause:
        """Why the expression has its level."""
        worst = _UNIFORM
        pending = [expr]
        while pending:
            node = pending.pop()
            if isinstance(node, Unary) and node.op is UnaryOp.UNIFORM:
                worst = _worse(worst, _Cause(Level.BLOCK, "qn.uniform(…) promises it to be uniform", node.loc))
                continue
            worst = _worse(worst, self._own_cause(node))
            pending.extend(children(node))
        return worst

    def _own_cause(self, node: Expr) -> _Cause:
        match node:
            case Local():
                known = self.names.get(node.name, _UNIFORM)
                return _Cause(known.level, f"{node.name} {_agreement(known.level)}", node.loc, node.name)
            case Param():
                return self._params.get(node.name, _UNIFORM)
            case ThreadIndex():
                level = self._index_level(node)
                return _Cause(level, f"{node.kind.value} {_agreement(level)}", node.loc)
            case Load():
                return self._load_cause(node)
            case _:
                return _UNIFORM

    def _index_level(self, node: ThreadIndex) -> Level:
        kernel = self._module.kernel
        axis_is_single = node.axis < kernel.ndim and kernel.block[node.axis] == 1
        match node.kind:
            case IndexKind.GLOBAL_DIM | IndexKind.BLOCK_DIM | IndexKind.GRID_DIM | IndexKind.SUBGROUP_SIZE:
                return Level.GRID
            case IndexKind.BLOCK_ID:
                return Level.BLOCK
            case IndexKind.LOCAL_ID:
                return Level.GRID if axis_is_single else Level.VARYING
            case IndexKind.GLOBAL_ID:
                return Level.BLOCK if axis_is_single and kernel.form is LaunchForm.GRID else Level.VARYING
            case IndexKind.SUBGROUP_ID:
                return Level.SUBGROUP
            case IndexKind.SUBGROUP_LANE:
                return Level.VARYING
            case _:
                assert_never(node.kind)

    def _load_cause(self, node: Load) -> _Cause:
        root = node.place.root
        if root.kind is RootKind.PRIVATE:
            return _Cause(Level.VARYING, f"{root.name} is private to each thread", node.loc)
        if root in self._atomics:
            return _Cause(Level.VARYING, f"{root.name} is changed by atomics", node.loc)
        if root.kind is RootKind.SHARED:
            return _Cause(Level.BLOCK, f"{root.name} is shared by a block only", node.loc)
        return self._params.get(root.name, _UNIFORM)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _raise(self, name: str, cause: _Cause, text: str, loc: Location) -> None:
        known = self.names.get(name)
        if known is None or cause.level > known.level:
            self.names[name] = _Cause(cause.level, text, loc, cause)
            self._changed = self._changed or cause.level > Level.GRID

    def _note(self, stmt: Stmt, control: _Cause) -> None:
        """Keeps the worst control of a statement, which is reached by several calls or stands in several places."""
        known = self.controls.get(id(stmt))
        if known is None or control.level > known[1].level:
            self.controls[id(stmt)] = (stmt, control)

    def _assign(self, name: str, value: _Cause, control: _Cause, loc: Location) -> None:
        if value.level >= control.level:
            self._raise(name, value, f"{name} is assigned here", loc)
        else:
            self._raise(name, control, f"{name} is assigned here, under a condition", loc)

    def _body(self, body: Iterable[Stmt], control: _Cause, flow: _Flow) -> None:
        for stmt in body:
            self._statement(stmt, _worse(control, flow.returned, flow.continued, flow.broken), flow)

    def _statement(self, stmt: Stmt, control: _Cause, flow: _Flow) -> None:
        match stmt:
            case Assign():
                self._assign(stmt.name, self.cause(stmt.value), control, stmt.loc)
            case Atomic():
                if stmt.result is not None:
                    old = _Cause(Level.VARYING, "an atomic gives each thread another old value", stmt.loc)
                    self._assign(stmt.result, old, control, stmt.loc)
            case Subgroup():
                self._note(stmt, control)
                self._assign(stmt.result, _subgroup_cause(stmt), control, stmt.loc)
            case Barrier():
                self._note(stmt, control)
            case Call():
                self._call(stmt, control)
            case If():
                condition = self.cause(stmt.condition)
                inner = _worse(control, _Cause(condition.level, "this condition decides", stmt.loc, condition))
                self._body(stmt.then, inner, flow)
                self._body(stmt.otherwise, inner, flow)
            case For():
                bounds = _worse(*(self.cause(expr) for expr in (stmt.start, stmt.stop, stmt.step)))
                trips = _Cause(bounds.level, "this loop's range decides", stmt.loc, bounds)
                self._loop(stmt, _worse(control, trips), flow)
            case Loop():
                self._loop(stmt, control, flow)
            case Break():
                self._note(stmt, control)
                flow.broken = _worse(flow.broken, _Cause(control.level, "a break leaves the loop", stmt.loc, control))
            case Continue():
                self._note(stmt, control)
                cause = _Cause(control.level, "a continue skips the rest of the body", stmt.loc, control)
                flow.continued = _worse(flow.continued, cause)
            case Return():
                self._note(stmt, control)
                left = _Cause(control.level, "a return ends some threads before", stmt.loc, control)
                flow.returned = _worse(flow.returned, left)
                for value in stmt.values:
                    self.results = _worse(self.results, self.cause(value), control)
            case Store() | Assert() | Print() | Breakpoint() | Alloc():
                pass
            case _:
                assert_never(stmt)

    def _loop(self, stmt: For | Loop, control: _Cause, flow: _Flow) -> None:
        inner = _Flow(returned=flow.returned)
        level = None
        while level != (inner.broken.level, inner.returned.level):
            level = (inner.broken.level, inner.returned.level)
            inner.continued = _UNIFORM
            inside = _worse(control, inner.broken, inner.returned)
            if isinstance(stmt, For):
                start = _worse(self.cause(stmt.start), self.cause(stmt.step))
                self._assign(stmt.variable, start, inside, stmt.loc)
            self._body(stmt.body, inside, inner)
            if isinstance(stmt, Loop) and has_one_trip(stmt):
                break  # Who left it missed the rest of the trip, and there is no other.
        flow.returned = inner.returned

    def _call(self, stmt: Call, control: _Cause) -> None:
        function = self._functions[stmt.function]
        arguments: dict[str, _Cause] = {}
        atomics = set()
        for parameter, argument in zip(function.params, stmt.arguments, strict=True):
            if isinstance(argument, ArrayRef):
                arguments[parameter.name] = self._array_cause(argument)
                if argument.root in self._atomics:
                    atomics.add(Root(RootKind.PARAM, parameter.name))
            else:
                arguments[parameter.name] = self.cause(argument)
        inner = _Analysis(
            self._module, function, arguments, control, frozenset(atomics), (*self._path, function.name)
        ).run()
        for inner_stmt, inner_control in inner.controls.values():
            self._note(inner_stmt, inner_control)
        for name in stmt.results:
            self._assign(name, inner.results, control, stmt.loc)

    def _array_cause(self, argument: ArrayRef) -> _Cause:
        match argument.root.kind:
            case RootKind.PRIVATE:
                return _Cause(Level.VARYING, f"{argument.root.name} is private to each thread", argument.loc)
            case RootKind.SHARED:
                return _Cause(Level.BLOCK, f"{argument.root.name} is shared by a block only", argument.loc)
            case RootKind.PARAM:
                return self._params.get(argument.root.name, _UNIFORM)
            case _:
                assert_never(argument.root.kind)

    # --- the refusal --------------------------------------------------------------------------------------------------

    def explain(self, cause: _Cause | str | None) -> tuple[str, ...]:
        """The chain from a cause to the source of its level, a line a step."""
        lines: list[str] = []
        seen: set[str] = set()
        while cause is not None:
            if isinstance(cause, str):
                if cause in seen:
                    break
                seen.add(cause)
                cause = self.names.get(cause)
                continue
            if cause.text and cause.loc != NOWHERE:
                lines.append(f"{cause.loc}: {cause.text}")
            cause = cause.because
        return tuple(dict.fromkeys(lines))


def _agreement(level: Level) -> str:
    match level:
        case Level.GRID:
            return "is equal in all threads"
        case Level.BLOCK:
            return "is equal within a block"
        case Level.SUBGROUP:
            return "is equal within a subgroup only"
        case Level.VARYING:
            return "differs between threads"
        case _:
            assert_never(level)


def _subgroup_cause(stmt: Subgroup) -> _Cause:
    match stmt.op:
        case (
            SubgroupOp.BALLOT
            | SubgroupOp.ANY
            | SubgroupOp.ALL
            | SubgroupOp.BROADCAST
            | SubgroupOp.SUM
            | SubgroupOp.MIN
            | SubgroupOp.MAX
        ):
            return _Cause(Level.SUBGROUP, f"subgroup {stmt.op.value} gives one value a subgroup", stmt.loc)
        case SubgroupOp.SCAN | SubgroupOp.SHUFFLE | SubgroupOp.SHUFFLE_XOR:
            return _Cause(Level.VARYING, f"subgroup {stmt.op.value} gives each thread its own value", stmt.loc)
        case SubgroupOp.SHUFFLE_UP | SubgroupOp.SHUFFLE_DOWN:
            return _Cause(Level.VARYING, f"subgroup {stmt.op.value} gives each thread its own value", stmt.loc)
        case _:
            assert_never(stmt.op)


def _atomic_roots(module: Module) -> frozenset[Root]:
    """The kernel's arrays that some atomic changes, through device functions too."""
    functions = {function.name: function for function in module.functions}
    touched: dict[str, set[str]] = {}

    def roots(owner: Kernel | Function) -> set[Root]:
        found = {stmt.place.root for stmt in walk_statements(owner.body) if isinstance(stmt, Atomic)}
        for stmt in walk_statements(owner.body):
            if isinstance(stmt, Call):
                names = params(stmt.function)
                for parameter, argument in zip(functions[stmt.function].params, stmt.arguments, strict=True):
                    if parameter.name in names and isinstance(argument, ArrayRef):
                        found.add(argument.root)
        return found

    def params(name: str) -> set[str]:
        if name not in touched:
            touched[name] = set()
            touched[name] = {root.name for root in roots(functions[name]) if root.kind is RootKind.PARAM}
        return touched[name]

    return frozenset(roots(module.kernel))


def analyse_uniformity(module: Module) -> Uniformity:
    """The level of every local and expression of the kernel."""
    kernel = module.kernel
    params = {
        parameter.name: _Cause(Level.GRID, f"{parameter.name} is an argument of the kernel", parameter.loc)
        for parameter in kernel.params
    }
    analysis = _Analysis(module, kernel, params, _UNIFORM, _atomic_roots(module)).run()
    levels = {local.name: analysis.names.get(local.name, _UNIFORM).level for local in kernel.locals}
    return Uniformity(module, levels, analysis)


def check_uniformity(module: Module) -> Uniformity:
    """The analysis, once every barrier and subgroup operation stands under control that is uniform enough.

    Raises:
        KernelSyntaxError: one does not; the chain shows why.
    """
    uniformity = analyse_uniformity(module)
    analysis = uniformity._analysis
    for stmt, control in analysis.controls.values():
        if not isinstance(stmt, Barrier | Subgroup):
            continue
        needed = Level.SUBGROUP if isinstance(stmt, Subgroup) else Level.BLOCK
        if control.level > needed:
            what = "a subgroup operation" if isinstance(stmt, Subgroup) else "a barrier"
            raise KernelSyntaxError(
                f"{what} is reached by some threads of a {_GROUP[needed]} and not by others",
                where=stmt.loc,
                chain=analysis.explain(control),
                fix=f"move it to where all threads of the {_GROUP[needed]} pass, or guard only the work between; "
                "qn.uniform(x) promises that x is equal for all of them",
            )
    return uniformity
