"""Statements of the IR as statements of C, for the body of a kernel or of a device function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import assert_never

import attrs

from quernel.codegen.atomics import Atomics
from quernel.codegen.declarations import declarations
from quernel.codegen.dialect import Dialect
from quernel.codegen.expressions import Expressions, scalar
from quernel.codegen.helpers import Helpers
from quernel.codegen.indices import Indices
from quernel.codegen.literals import integer_literal
from quernel.codegen.operators import Operators
from quernel.codegen.own_values import OwnValues
from quernel.codegen.reports import Reports
from quernel.codegen.scope import ArrayCode, Scope
from quernel.codegen.text import Binding, Code, Lines, call, infix, primary, unary
from quernel.codegen.types import WIDEST_ALIGNMENT, Types
from quernel.dtypes import DType, StructType, ValueType, i64, u32, u64
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
    Const,
    Continue,
    Expr,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Loop,
    Param,
    Print,
    Return,
    Root,
    RootKind,
    Shape,
    Space,
    Stmt,
    Store,
    Subgroup,
    SubgroupOp,
    Unary,
    UnaryOp,
)
from quernel.ir.semantics import trip_count
from quernel.ir.walk import Body, walk_expressions, walk_statements
from quernel.locations import Location

__all__ = ["Argument", "BodyWriter", "CalleeTable"]

Argument = Code | ArrayCode
"""What a call hands over."""


@attrs.define
class CalleeTable:
    """The device functions of a text, as a call needs them."""

    function: Callable[[str], Function]
    results_type: Callable[[Function], str]
    invocation: Callable[[str, tuple[Argument, ...], Scope], str]


class BodyWriter:
    """Writes the body of one function."""

    def __init__(
        self,
        owner: Kernel | Function,
        scope: Scope,
        lines: Lines,
        *,
        dialect: Dialect,
        types: Types,
        helpers: Helpers,
        operators: Operators,
        expressions: Expressions,
        indices: Indices,
        own: OwnValues | None,
        callees: CalleeTable,
    ) -> None:
        self._owner = owner
        self._scope = scope
        self._lines = lines
        self._dialect = dialect
        self._types = types
        self._helpers = helpers
        self._operators = operators
        self._expressions = expressions
        self._indices = indices
        self._own = own
        self._callees = callees
        self._reports = Reports(dialect, helpers)
        self._atomics = Atomics(dialect, helpers, types, operators)
        self._shared_bytes = 0
        self._variables = {variable.name: variable.type for variable in owner.locals}
        self._declared = declarations(owner.body, owner.locals)
        for variable in owner.locals:
            scope.locals[variable.name] = scope.names.fresh(variable.name)

    def allocate(self) -> None:
        """Declares shared and private memory, which stands at the top of the function."""
        for stmt in self._owner.body:
            if isinstance(stmt, Alloc):
                self._allocate(stmt)

    def write(self) -> None:
        """Declares the locals that need it at the top, then writes the statements."""
        for variable in self._declared.at_top:
            self._lines.add(f"{self._types.value(variable.type)} {self._scope.locals[variable.name]};")
        self._body(self._owner.body)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _body(self, body: Body) -> None:
        for stmt in body:
            self._statement(stmt)
            if isinstance(stmt, Break | Continue | Return):
                return  # What follows is never reached, and compilers warn about it.

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Assign():
                value = self._owned(stmt, self._value(stmt.value, stmt.loc), stmt.value.type)
                self._lines.add(f"{self._target(stmt, stmt.name)} = {value};", stmt.loc)
            case Store():
                indices = tuple(self._value(index, stmt.loc) for index in stmt.place.indices)
                value = self._value(stmt.value, stmt.loc)
                self._lines.add(self._expressions.store(stmt.place, indices, value), stmt.loc)
            case Atomic():
                self._atomic(stmt)
            case Subgroup():
                self._subgroup(stmt)
            case Barrier():
                self._lines.add(self._dialect.barrier, stmt.loc)
            case Call():
                self._call(stmt)
            case If():
                self._if(stmt)
            case For():
                self._for(stmt)
            case Loop():
                self._loop(stmt)
            case Break():
                self._lines.add("break;", stmt.loc)
            case Continue():
                self._lines.add("continue;", stmt.loc)
            case Return():
                self._return(stmt)
            case Alloc() | Breakpoint():
                pass  # Arrays are declared at the top; only the interpreter stops at breakpoints.
            case Assert():
                self._lines.open(f"if ({unary('!', self._value(stmt.condition, stmt.loc))})", stmt.loc)
                cells = self._cells(stmt)
                invocation = self._reports.violation(self._scope.diagnostics[-1], stmt.site, self._global_id(), cells)
                self._lines.add(invocation, stmt.loc)
                self._lines.close()
            case Print():
                cells = self._cells(stmt)
                invocation = self._reports.print(self._scope.diagnostics[-1], stmt.site, self._global_id(), cells)
                self._lines.add(invocation, stmt.loc)
            case _:
                assert_never(stmt)

    def _value(self, expr: Expr, loc: Location) -> Code:
        return self._expressions.value(expr, loc)

    def _owned(self, stmt: Assign | For | Return | Subgroup, value: Code, type_: ValueType) -> Code:
        """What the statement assigns or gives back, as the thread's own value where that has to be said."""
        is_own = self._own is not None and self._own.has(stmt)
        return self._types.own(value, type_) if is_own else value

    def _target(self, stmt: Stmt, name: str) -> str:
        """The local that a statement assigns, with its type where the statement declares it."""
        local = self._scope.locals[name]
        return f"{self._types.value(self._variables[name])} {local}" if id(stmt) in self._declared.at else local

    def _if(self, stmt: If) -> None:
        condition = self._value(stmt.condition, stmt.loc)
        self._lines.open(f"if ({condition})", stmt.loc)
        self._body(stmt.then)
        nests = 1
        while stmt.otherwise:
            *before, last = stmt.otherwise
            if before or not isinstance(last, If):
                self._lines.reopen("else")
                self._body(stmt.otherwise)
                break
            condition, held = self._condition_of(last)
            if held is None:
                self._lines.reopen(f"else if ({condition})", last.loc)
            else:  # The condition needs temporaries, which stand before its `if`.
                self._lines.reopen("else")
                self._lines.lines += held
                self._lines.open(f"if ({condition})", last.loc)
                nests += 1
            self._body(last.then)
            stmt = last
        for _ in range(nests):
            self._lines.close()

    def _condition_of(self, stmt: If) -> tuple[Code, list[tuple[str, Location]] | None]:
        """The condition of an `elif`, and the lines that it needs before it, which stand one nest deeper."""
        written = len(self._lines.lines)
        condition = self._value(stmt.condition, stmt.loc)
        held = self._lines.lines[written:]
        del self._lines.lines[written:]
        return condition, held or None

    def _for(self, stmt: For) -> None:
        """Counts in the variable itself where nobody can tell, else in a counter of its own."""
        start, stop, step = (self._value(bound, stmt.loc) for bound in (stmt.start, stmt.stop, stmt.step))
        variable = self._scope.locals[stmt.variable]
        c_type = self._types.value(i64)
        is_own = id(stmt) in self._declared.at
        by = stmt.step.value if isinstance(stmt.step, Const) else None
        if isinstance(by, int) and _never_overflows(by, stmt.stop):
            stop = self._fixed(stop, stmt.stop, stmt)
            counter = variable if is_own else self._scope.names.fresh(f"{variable}_next")
            limit = infix(Binding.RELATION, "<" if by > 0 else ">", primary(counter), stop)
            change = {1: "++", -1: "--"}.get(by) or f" {'+' if by > 0 else '-'}= {abs(by)}"
            self._lines.open(f"for ({c_type} {counter} = {start}; {limit}; {counter}{change})", stmt.loc)
            if not is_own:
                self._lines.add(f"{variable} = {self._owned(stmt, primary(counter), i64)};", stmt.loc)
        else:
            start, step = self._fixed(start, stmt.start, stmt), self._fixed(step, stmt.step, stmt)
            trips = self._trips(stmt, start, stop, step)
            counter = self._scope.names.fresh("trip")
            wide = self._types.value(u64)
            self._lines.open(f"for ({wide} {counter} = 0; {counter} < {trips}; {counter}++)", stmt.loc)
            steps = infix(Binding.PRODUCT, "*", primary(counter), self._operators.as_unsigned(i64, step))
            current = infix(Binding.SUM, "+", self._operators.as_unsigned(i64, start), steps)
            target = f"const {c_type} {variable}" if is_own else variable
            value = self._owned(stmt, primary(f"({c_type})({current})"), i64)
            self._lines.add(f"{target} = {value};", stmt.loc)
        self._loop_body(stmt.body, stmt.loc)

    def _trips(self, stmt: For, start: Code, stop: Code, step: Code) -> Code:
        bounds = [bound.value for bound in (stmt.start, stmt.stop, stmt.step) if isinstance(bound, Const)]
        if len(bounds) == 3:
            return integer_literal(self._dialect, trip_count(*map(int, bounds)), u64)
        count = call(f"{self._helpers.trip_count()}({{0}}, {{1}}, {{2}})", start, stop, step)
        return self._expressions.kept(count, u64, stmt.loc)

    def _fixed(self, code: Code, expr: Expr, stmt: For) -> Code:
        """A bound that stays what it was before the loop, whatever the body does."""
        inner = expr.operand if isinstance(expr, Unary) and expr.op is UnaryOp.UNIFORM else expr
        if isinstance(inner, Const | Param | Shape):
            return code
        return self._expressions.kept(code, i64, stmt.loc)

    def _loop(self, stmt: Loop) -> None:
        """`while (true)`; a loop that starts by leaving it under a condition is `while (condition)`."""
        body = stmt.body
        first = body[0] if body else None
        if isinstance(first, If) and not first.otherwise and len(first.then) == 1 and isinstance(first.then[0], Break):
            written = len(self._lines.lines)
            negated = isinstance(first.condition, Unary) and first.condition.op is UnaryOp.NOT
            inner = first.condition.operand if isinstance(first.condition, Unary) and negated else first.condition
            condition = self._value(inner, first.loc)
            if len(self._lines.lines) == written:
                self._lines.open(f"while ({condition if negated else unary('!', condition)})", first.loc)
                self._loop_body(body[1:], stmt.loc)
                return
            del self._lines.lines[written:]
        self._lines.open("while (true)", stmt.loc)
        self._loop_body(body, stmt.loc, has_one_trip=has_one_trip(stmt))

    def _loop_body(self, body: Body, loc: Location, *, has_one_trip: bool = False) -> None:
        """The statements of a loop that is open, and its end."""
        if self._dialect.loop_start and not has_one_trip and _may_branch(body):
            self._lines.add(self._dialect.loop_start, loc)
        self._body(body)
        self._lines.close()

    def _return(self, stmt: Return) -> None:
        values = [self._owned(stmt, self._value(value, stmt.loc), value.type) for value in stmt.values]
        if not values:
            self._lines.add("return;", stmt.loc)
        elif len(values) == 1:
            self._lines.add(f"return {values[0]};", stmt.loc)
        else:
            assert isinstance(self._owner, Function)
            name = self._scope.names.fresh("results")
            self._lines.add(f"{self._callees.results_type(self._owner)} {name};", stmt.loc)
            for number, value in enumerate(values):
                self._lines.add(f"{name}.r{number} = {value};", stmt.loc)
            self._lines.add(f"return {name};", stmt.loc)

    def _call(self, stmt: Call) -> None:
        arrays = tuple(
            self._scope.arrays[argument.root] if isinstance(argument, ArrayRef) else self._value(argument, stmt.loc)
            for argument in stmt.arguments
        )
        invocation = self._callees.invocation(stmt.function, arrays, self._scope)
        if not stmt.results:
            self._lines.add(f"{invocation};", stmt.loc)
        elif len(stmt.results) == 1:
            self._lines.add(f"{self._target(stmt, stmt.results[0])} = {invocation};", stmt.loc)
        else:
            name = self._scope.names.fresh("results")
            results_type = self._callees.results_type(self._callees.function(stmt.function))
            self._lines.add(f"const {results_type} {name} = {invocation};", stmt.loc)
            for number, result in enumerate(stmt.results):
                self._lines.add(f"{self._scope.locals[result]} = {name}.r{number};", stmt.loc)
        if self._own is not None and self._own.has(stmt):
            for result in stmt.results:
                local = primary(self._scope.locals[result])
                self._lines.add(f"{local} = {self._types.own(local, self._variables[result])};", stmt.loc)

    # --- threads together ---------------------------------------------------------------------------------------------

    def _atomic(self, stmt: Atomic) -> None:
        indices = tuple(self._value(index, stmt.loc) for index in stmt.place.indices)
        operands = tuple(self._value(operand, stmt.loc) for operand in stmt.operands)
        dtype = scalar(stmt.place.type)
        kind = self._scope.arrays[stmt.place.root].kind
        invocation = self._atomics.value(stmt.op, dtype, kind, self._expressions.address(stmt.place, indices), operands)
        target = "" if stmt.result is None else f"{self._target(stmt, stmt.result)} = "
        self._lines.add(f"{target}{invocation};", stmt.loc)

    def _subgroup(self, stmt: Subgroup) -> None:
        self._helpers.features["subgroups"] = None
        value, *lanes = (self._value(operand, stmt.loc) for operand in stmt.operands)
        dtype = scalar(stmt.operands[0].type)
        template = self._dialect.subgroup[stmt.op]
        if dtype.is_bool and stmt.op not in (SubgroupOp.ANY, SubgroupOp.ALL, SubgroupOp.BALLOT):
            value = unary(f"({self._types.value(u32)})", value)
        lanes = [unary(f"({self._types.value(self._dialect.lane)})", lane) for lane in lanes]
        result = call(template, value, *lanes)
        if dtype.is_bool and stmt.op is not SubgroupOp.BALLOT:
            result = infix(Binding.EQUALITY, "!=", result, primary("0"))
        result = self._owned(stmt, result, self._variables[stmt.result])
        self._lines.add(f"{self._target(stmt, stmt.result)} = {result};", stmt.loc)

    def _cells(self, stmt: Assert | Print) -> tuple[Code, ...]:
        """The values of a record."""
        return tuple(self._reports.cell(scalar(value.type), self._value(value, stmt.loc)) for value in stmt.values)

    def _global_id(self) -> tuple[Code, ...]:
        """Which thread of the launch it is, for a record."""
        return tuple(
            self._indices.value(IndexKind.GLOBAL_ID, axis, self._scope.indices) for axis in range(self._indices.ndim)
        )

    # --- memory -------------------------------------------------------------------------------------------------------

    def _allocate(self, stmt: Alloc) -> None:
        name = self._scope.names.fresh(stmt.name)
        count, strides = 1, dict[int, "Code | None"]()
        for axis in reversed(range(len(stmt.shape))):
            strides[axis] = None if count == 1 else primary(str(count))
            count *= stmt.shape[axis]
        if isinstance(stmt.element, StructType):
            count *= stmt.element.itemsize
        element = self._types.memory(stmt.element)
        if stmt.space is Space.SHARED:
            start = -(-self._shared_bytes // stmt.element.alignment) * stmt.element.alignment
            self._shared_bytes = start + math.prod(stmt.shape) * stmt.element.itemsize
            declaration = self._dialect.shared.format(type=element, name=name, count=count, offset=start)
            kind = RootKind.SHARED
        else:
            declaration, kind = f"{element} {name}[{count}]", RootKind.PRIVATE
            alignment = min(stmt.element.alignment, WIDEST_ALIGNMENT)
            if isinstance(stmt.element, StructType) and alignment > 1 and self._dialect.aligned:
                declaration = self._dialect.aligned.format(declaration=declaration, alignment=alignment)
        self._lines.add(f"{declaration};", stmt.loc)
        shape = {axis: integer_literal(self._dialect, length, i64) for axis, length in enumerate(stmt.shape)}
        self._scope.arrays[Root(kind, stmt.name)] = ArrayCode(stmt.element, kind, name, strides, shape)


def _may_branch(body: Body) -> bool:
    """Whether what a thread does in the statements may depend on a truth, inner loops included."""
    if any(isinstance(stmt, If | Call) for stmt in walk_statements(body)):
        return True
    return any(isinstance(expr.type, DType) and expr.type.is_bool for expr in walk_expressions(body))


def _never_overflows(step: int, stop: Expr) -> bool:
    """Whether a counter that goes by `step` as long as it is before `stop` stays within i64."""
    if abs(step) == 1:
        return True
    return step != 0 and isinstance(stop, Const) and i64.min <= stop.value + step <= i64.max
