"""A module of the IR as Python functions that stand at the user's lines."""

from __future__ import annotations

import ast
from typing import Final, assert_never

from quernel.dtypes import DType
from quernel.ir.analysis import function_uses, parameter_uses
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
    For,
    Function,
    If,
    Kernel,
    Loop,
    Module,
    Parameter,
    Print,
    Return,
    Space,
    Stmt,
    Store,
    Subgroup,
)
from quernel.ir.sites import site_of
from quernel.ir.walk import walk_statements
from quernel.locations import Location
from quernel.reference.expressions import THREAD, ExpressionLowering
from quernel.reference.positions import Builder, Positions
from quernel.reference.primitives import function_name, object_name, operation_name, site_name
from quernel.reference.types import LoweredFunction

__all__ = ["KERNEL", "Constants", "lower_module"]

KERNEL: Final = ".kernel"
"""The key of the kernel among the lowered functions."""

MAX_CHAIN: Final = 20
"""Longer chains of `elif` are laid out one after the other, as Python's compiler recurses over nested ones."""


class Constants:
    """What the lowered functions name by number: locations, and objects that no literal spells."""

    def __init__(self) -> None:
        self.sites: list[Location] = []
        self.objects: list[object] = []

    def site(self, loc: Location) -> int:
        """The number of a location."""
        self.sites.append(loc)
        return len(self.sites) - 1

    def object(self, value: object) -> str:
        """The name of an object."""
        self.objects.append(value)
        return object_name(len(self.objects) - 1)


def lower_module(module: Module) -> tuple[tuple[LoweredFunction, ...], Constants]:
    """The functions of a module, the kernel first, and the constants that they name."""
    waiting = _waiting_functions(module)
    sharing = _sharing_functions(module)
    constants = Constants()
    lowered = [
        _FunctionLowering(module.kernel, KERNEL, module.kernel, waiting, sharing, constants).lower(),
        *[
            _FunctionLowering(
                function, function_name(function.name), module.kernel, waiting, sharing, constants
            ).lower()
            for function in module.functions
        ],
    ]
    return tuple(lowered), constants


class _FunctionLowering:
    """Lowers one function, statement by statement."""

    def __init__(
        self,
        function: Kernel | Function,
        key: str,
        kernel: Kernel,
        waiting: frozenset[str],
        sharing: frozenset[str],
        constants: Constants,
    ) -> None:
        self._function = function
        self._key = key
        self._is_checked = kernel.options.checked
        self._waiting = waiting
        self._sharing = sharing
        self._constants = constants
        self._positions = Positions(function.loc)
        self._body: list[ast.stmt] = []
        self._num_chains = 0
        locals_ = {local.name for local in function.locals}
        hidden = frozenset(parameter.name for parameter in function.params if parameter.name in locals_)
        self._expressions = ExpressionLowering(
            self._positions, kernel.ndim, hidden, constants.site, lambda statement: self._body.append(statement)
        )

    def lower(self) -> LoweredFunction:
        """The function as a Python function definition."""
        at = self._positions.at(self._function.loc)
        arguments = [at.put(ast.arg(THREAD)), *[self._parameter(parameter) for parameter in self._function.params]]
        body = self._block(self._function.body)
        definition = ast.FunctionDef(
            name=self._function.name,
            args=ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[]),
            body=body or [at.put(ast.Pass())],
            decorator_list=[],
        )
        definition.type_params = []  # type: ignore[attr-defined,unused-ignore]  # A field from Python 3.12 on.
        tree = ast.Module([at.put(definition)], [])
        return LoweredFunction(
            self._key, self._function.name, self._positions.file, tree, waits=self._key in self._waiting
        )

    def _parameter(self, parameter: Parameter) -> ast.arg:
        return self._positions.at(parameter.loc).put(ast.arg(self._expressions.parameter(parameter.name)))

    def _block(self, statements: tuple[Stmt, ...], first: ast.stmt | None = None) -> list[ast.stmt]:
        outer = self._body
        self._body = [] if first is None else [first]
        for statement in statements:
            self._lower(statement)
        block, self._body = self._body, outer
        return block

    def _lower(self, statement: Stmt) -> None:
        """Appends a statement's Python to the current block."""
        at = self._positions.at(statement.loc)
        lower = self._expressions.lower
        match statement:
            case Assign(name=name, value=value):
                self._body.append(at.assign(name, lower(value)))
            case Store(place=place, value=value):
                access = self._expressions.access(at, place)
                method = f"store{access.suffix}"
                self._effect(at, at.method(access.array, method, *access.element, lower(value), access.where))
            case Atomic():
                self._atomic(at, statement)
            case Barrier():
                self._effect(at, at.put(ast.Yield(at.constant(self._constants.site(statement.loc)))))
            case Call():
                self._call(at, statement)
            case If():
                self._branch(at, statement)
            case For(variable=variable, body=body):
                values = self._trips(at, statement)
                block = self._block(body) or [at.put(ast.Pass())]
                self._body.append(at.put(ast.For(at.target(variable), values, block, [])))
            case Loop(body=body):
                block = self._block(body) or [at.put(ast.Pass())]
                self._body.append(at.put(ast.While(at.constant(True), block, [])))
            case Break():
                self._body.append(at.put(ast.Break()))
            case Continue():
                self._body.append(at.put(ast.Continue()))
            case Return(values=values):
                results = [lower(value) for value in values]
                result = at.tuple(*results) if len(results) > 1 else next(iter(results), None)
                self._body.append(at.put(ast.Return(result)))
            case Assert():
                if self._is_checked:
                    self._assert(at, statement)
            case Alloc():
                self._allocate(at, statement)
            case Breakpoint():
                self._effect(at, at.call(".breakpoint"))
            case Subgroup():
                self._meet(at, statement)
            case Print(values=values):
                shown = at.tuple(*[lower(value) for value in values])
                self._effect(at, at.call(".print", at.name(THREAD), at.name(self._printed(statement)), shown))
            case _:
                assert_never(statement)

    def _effect(self, at: Builder, value: ast.expr) -> None:
        self._body.append(at.put(ast.Expr(value)))

    def _trips(self, at: Builder, loop: For) -> ast.expr:
        bounds = [self._expressions.lower(bound) for bound in (loop.start, loop.stop, loop.step)]
        is_certain = isinstance(loop.step, Const) and loop.step.value != 0
        return at.call(".range" if is_certain else ".trips", *bounds)

    def _branch(self, at: Builder, branch: If) -> None:
        chain: list[tuple[tuple[Stmt, ...], If]] = [((), branch)]
        otherwise = branch.otherwise
        while otherwise and isinstance(otherwise[-1], If):
            chain.append((otherwise[:-1], otherwise[-1]))
            otherwise = otherwise[-1].otherwise
        if len(chain) > MAX_CHAIN:
            self._flat_chain(chain, otherwise)
            return
        condition = self._expressions.lower(branch.condition)
        self._body.append(at.branch(condition, self._block(branch.then), self._block(branch.otherwise)))

    def _flat_chain(self, chain: list[tuple[tuple[Stmt, ...], If]], otherwise: tuple[Stmt, ...]) -> None:
        """A chain of `elif` without nesting: a flag says whether the right branch is still to come."""
        flag = f".chain {self._num_chains}"
        self._num_chains += 1
        at = self._positions.at(chain[0][1].loc)
        self._body.append(at.assign(flag, at.constant(True)))
        for before, branch in chain:
            at = self._positions.at(branch.loc)
            outer, self._body = self._body, self._block(before)
            condition = self._expressions.lower(branch.condition)
            taken = self._block(branch.then, first=at.assign(flag, at.constant(False)))
            self._body.append(at.branch(condition, taken, []))
            step, self._body = self._body, outer
            self._body.append(at.branch(at.name(flag), step, []))
        self._body.append(at.branch(at.name(flag), self._block(otherwise), []))

    def _call(self, at: Builder, call: Call) -> None:
        arguments = [
            at.name(self._expressions.parameter(argument.root.name))
            if isinstance(argument, ArrayRef)
            else self._expressions.lower(argument)
            for argument in call.arguments
        ]
        key = function_name(call.function)
        thread = at.name(THREAD)
        if key in self._sharing:
            thread = at.call(operation_name("inside", str(self._constants.site(call.loc))), thread)
        value = at.call(key, thread, *arguments)
        if key in self._waiting:
            value = at.put(ast.YieldFrom(value))
        targets = [at.target(result) for result in call.results]
        if not targets:
            self._effect(at, value)
            return
        target = targets[0] if len(targets) == 1 else at.put(ast.Tuple(targets, ast.Store()))
        self._body.append(at.put(ast.Assign([target], value)))

    def _assert(self, at: Builder, checked: Assert) -> None:
        values = at.tuple(*[self._expressions.lower(value) for value in checked.values])
        if checked.array is None:
            failure = at.call(".failed", at.name(self._constants.object(site_of(checked))), values)
        else:
            where = at.name(site_name(self._constants.site(checked.loc)))
            failure = at.call(".outside", where, at.constant(checked.array), values)
        fails = at.put(ast.UnaryOp(ast.Not(), self._expressions.lower(checked.condition)))
        self._body.append(at.branch(fails, [at.put(ast.Raise(failure))], []))

    def _printed(self, printed: Print) -> str:
        """The name of what says how to show the values."""
        return self._constants.object(site_of(printed))

    def _meet(self, at: Builder, operation: Subgroup) -> None:
        """Yields what the thread brings; what it gets is sent back."""
        dtype = operation.operands[0].type
        assert isinstance(dtype, DType)
        site = at.constant(self._constants.site(operation.loc))
        operands = at.tuple(*[self._expressions.lower(operand) for operand in operation.operands])
        meeting = at.call(operation_name("meeting", operation.op.value, dtype.name), site, operands)
        self._body.append(at.assign(operation.result, at.put(ast.Yield(meeting))))

    def _atomic(self, at: Builder, atomic: Atomic) -> None:
        access = self._expressions.access(at, atomic.place)
        operation = at.name(operation_name("atomic", atomic.op.value))
        operands = at.tuple(*[self._expressions.lower(operand) for operand in atomic.operands])
        method = f"atomic{access.suffix}"
        value = at.method(access.array, method, operation, *access.element, operands, access.where)
        if atomic.result is None:
            self._effect(at, value)
        else:
            self._body.append(at.assign(atomic.result, value))

    def _allocate(self, at: Builder, alloc: Alloc) -> None:
        words = [alloc.name, "x".join(map(str, alloc.shape))]
        match alloc.space:
            case Space.PRIVATE:
                make = operation_name("private", *words)
            case Space.SHARED:
                make = operation_name("shared", *words, str(self._constants.site(alloc.loc)))
            case _:
                assert_never(alloc.space)
        element = at.name(self._constants.object(alloc.element))
        self._body.append(at.assign(alloc.name, at.call(make, at.name(THREAD), element)))


def _waiting_functions(module: Module) -> frozenset[str]:
    """The keys of the functions in which a thread may wait for others, by themselves or in what they call."""
    keys = {
        function_name(name) for name, uses in function_uses(module).items() if uses.has_barrier or uses.has_subgroup
    }
    uses = parameter_uses(module)
    return frozenset(keys | {KERNEL} if uses.has_barrier or uses.has_subgroup else keys)


def _sharing_functions(module: Module) -> frozenset[str]:
    """The keys of the functions that allocate shared memory, by themselves or in what they call."""
    callees: dict[str, set[str]] = {}
    found: set[str] = set()
    for function in module.functions:
        statements = list(walk_statements(function.body))
        callees[function.name] = {stmt.function for stmt in statements if isinstance(stmt, Call)}
        if any(isinstance(stmt, Alloc) and stmt.space is Space.SHARED for stmt in statements):
            found.add(function.name)
    size = -1
    while size != len(found):
        size = len(found)
        found.update(name for name, called in callees.items() if called & found)
    return frozenset(map(function_name, found))
