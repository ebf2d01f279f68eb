"""Checks that a module keeps the rules of the IR, so that passes and backends may rely on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NoReturn, assert_never

from quernel.diagnostics import MAX_VALUES
from quernel.dtypes import ArrayType, DType, ScalarType, StructType, ValueType, VectorType, bool_, i64, u64
from quernel.errors import QuernelError
from quernel.geometry import MAX_NDIM
from quernel.ir import math_functions, semantics
from quernel.ir.flow import completes
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    AtomicOp,
    Barrier,
    Binary,
    BinaryOp,
    Bitcast,
    Break,
    Breakpoint,
    Call,
    Cast,
    Compare,
    Const,
    Continue,
    Expr,
    Field,
    Fma,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Load,
    Local,
    Loop,
    Math,
    Module,
    Param,
    Place,
    Print,
    Return,
    Root,
    RootKind,
    Select,
    Shape,
    Space,
    Stmt,
    Store,
    StructMake,
    Subgroup,
    SubgroupOp,
    ThreadIndex,
    Unary,
    UnaryOp,
    VecGet,
    VecMake,
)
from quernel.ir.walk import children, expressions_of, walk_expressions, walk_statements
from quernel.locations import Location, known_location

__all__ = ["VerificationError", "subgroup_result_type", "verify"]


class VerificationError(QuernelError, ValueError):
    """A module that breaks a rule of the IR: a fault of what made it, never of a user's kernel."""


def verify(module: Module) -> Module:
    """`module` itself, if it keeps every rule of the IR.

    Raises:
        VerificationError: it breaks one; the error names the node and where it comes from.
    """
    functions: dict[str, Function] = {}
    for function in module.functions:
        if function.name in functions:
            _refuse(f"two functions are called {function.name}", function.loc)
        functions[function.name] = function
    _Checker(module.kernel, functions, module.kernel.block).check()
    for function in module.functions:
        _Checker(function, functions, module.kernel.block).check()
    _check_calls_end(functions)
    return module


def subgroup_result_type(op: SubgroupOp, operands: tuple[Expr, ...]) -> ValueType:
    """The type of a subgroup operation's value."""
    match op:
        case SubgroupOp.ANY | SubgroupOp.ALL:
            return bool_
        case SubgroupOp.BALLOT:
            return u64
        case _:
            return operands[0].type


def _refuse(what: str, where: Location) -> NoReturn:
    raise VerificationError(f"invalid IR: {what}", where=known_location(where))


def _check_calls_end(functions: dict[str, Function]) -> None:
    callees = {
        name: tuple(stmt.function for stmt in walk_statements(function.body) if isinstance(stmt, Call))
        for name, function in functions.items()
    }
    ended: set[str] = set()
    while len(ended) < len(callees):
        ready = {name for name, called in callees.items() if name not in ended and ended.issuperset(called)}
        if not ready:
            names = sorted(callees.keys() - ended)
            _refuse(f"functions call each other in a circle: {', '.join(names)}", functions[names[0]].loc)
        ended |= ready


_FLOAT_BINARY: Final = frozenset(
    {
        BinaryOp.ADD,
        BinaryOp.SUB,
        BinaryOp.MUL,
        BinaryOp.DIV,
        BinaryOp.FLOORDIV,
        BinaryOp.MOD,
        BinaryOp.MIN,
        BinaryOp.MAX,
    }
)
_INTEGER_BINARY: Final = frozenset(BinaryOp) - {BinaryOp.DIV}
_BOOL_BINARY: Final = frozenset({BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR, BinaryOp.MIN, BinaryOp.MAX})
_SUBGROUP_KINDS: Final = frozenset({IndexKind.SUBGROUP_LANE, IndexKind.SUBGROUP_ID, IndexKind.SUBGROUP_SIZE})
_WITH_LANE: Final = frozenset(
    {
        SubgroupOp.SHUFFLE,
        SubgroupOp.SHUFFLE_XOR,
        SubgroupOp.SHUFFLE_UP,
        SubgroupOp.SHUFFLE_DOWN,
        SubgroupOp.BROADCAST,
    }
)
_ON_BOOL: Final = frozenset({SubgroupOp.BALLOT, SubgroupOp.ANY, SubgroupOp.ALL})


class _Checker:
    """Checks the kernel or one device function."""

    def __init__(self, owner: Kernel | Function, functions: dict[str, Function], block: tuple[int, ...]) -> None:
        self._owner = owner
        self._functions = functions
        self._block = block
        self._params: dict[str, ScalarType | ArrayType] = {}
        self._locals: dict[str, ValueType] = {}
        self._allocs: dict[str, Alloc] = {}

    def check(self) -> None:
        if isinstance(self._owner, Kernel):
            if not 1 <= len(self._block) <= MAX_NDIM or min(self._block) < 1:
                _refuse(f"block {self._block} is no shape of 1 to {MAX_NDIM} positive axes", self._owner.loc)
        elif self._owner.results and completes(self._owner.body):
            _refuse(f"function {self._owner.name} may end without returning its results", self._owner.loc)
        self._declare()
        self._body(self._owner.body, in_loop=False, is_top=True)

    # --- names ---

    def _declare(self) -> None:
        for param in self._owner.params:
            self._claim(param.name, param.loc)
            if isinstance(param.type, ArrayType) and (param.type.element is None or not param.type.ndim):
                _refuse(f"array parameter {param.name} has no element type or rank", param.loc)
            self._params[param.name] = param.type
        for variable in self._owner.locals:
            self._claim(variable.name, self._owner.loc)
            self._locals[variable.name] = variable.type

    def _claim(self, name: str, where: Location) -> None:
        if name in self._params or name in self._locals or name in self._allocs:
            _refuse(f"the name {name} is declared twice", where)

    def _assigned(self, name: str, type_: ValueType, where: Location) -> None:
        if name not in self._locals:
            _refuse(f"{name} is assigned but is no local", where)
        if self._locals[name] != type_:
            _refuse(f"local {name} is {self._locals[name]}, the value is {type_}", where)

    def _array(self, root: Root, where: Location) -> ArrayType:
        if root.kind is RootKind.PARAM:
            type_ = self._params.get(root.name)
            if not isinstance(type_, ArrayType):
                _refuse(f"{root.name} is no array parameter", where)
            return type_
        alloc = self._allocs.get(root.name)
        if alloc is None or (alloc.space is Space.SHARED) != (root.kind is RootKind.SHARED):
            _refuse(f"{root.name} is no {root.kind.value} allocation made before", where)
        return ArrayType(alloc.element, len(alloc.shape))

    # --- statements ---

    def _body(self, body: Iterable[Stmt], *, in_loop: bool, is_top: bool = False) -> None:
        pending = list(reversed(list(body)))
        while pending:
            stmt = pending.pop()
            for outermost in expressions_of(stmt):
                self._expressions(outermost)
            match stmt:
                case If():
                    _want(stmt.condition, bool_, "the condition of an If")
                    self._body(stmt.then, in_loop=in_loop)
                    if len(stmt.otherwise) == 1 and isinstance(stmt.otherwise[0], If):
                        pending.append(stmt.otherwise[0])  # A chain of `elif` is no nest.
                    else:
                        self._body(stmt.otherwise, in_loop=in_loop)
                case For():
                    for bound in (stmt.start, stmt.stop, stmt.step):
                        _want(bound, i64, "a bound of a For")
                    self._assigned(stmt.variable, i64, stmt.loc)
                    self._body(stmt.body, in_loop=True)
                case Loop():
                    self._body(stmt.body, in_loop=True)
                case Break() | Continue():
                    if not in_loop:
                        _refuse(f"{type(stmt).__name__} outside a loop", stmt.loc)
                case Alloc():
                    if not is_top:
                        _refuse(f"allocation {stmt.name} below the top level", stmt.loc)
                    self._alloc(stmt)
                case _:
                    self._simple(stmt)

    def _simple(
        self, stmt: Assign | Store | Atomic | Subgroup | Barrier | Call | Return | Assert | Print | Breakpoint
    ) -> None:
        match stmt:
            case Assign():
                self._assigned(stmt.name, stmt.value.type, stmt.loc)
            case Store():
                self._place(stmt.place)
                _want(stmt.value, stmt.place.type, "a stored value")
            case Atomic():
                self._atomic(stmt)
            case Subgroup():
                self._subgroup(stmt)
            case Call():
                self._call(stmt)
            case Return():
                results = self._owner.results if isinstance(self._owner, Function) else ()
                if tuple(value.type for value in stmt.values) != results:
                    _refuse("the returned values do not match the function's results", stmt.loc)
            case Assert():
                _want(stmt.condition, bool_, "the condition of an Assert")
                self._recorded(stmt)
            case Print():
                self._recorded(stmt)
            case Barrier() | Breakpoint():
                pass
            case _:
                assert_never(stmt)

    def _recorded(self, stmt: Assert | Print) -> None:
        if isinstance(stmt, Assert) and len(stmt.values) > MAX_VALUES:
            _refuse(f"an Assert records at most {MAX_VALUES} values, not {len(stmt.values)}", stmt.loc)
        if isinstance(stmt, Print) and stmt.format and len(stmt.format) != len(stmt.values) + 1:
            _refuse(f"a Print of {len(stmt.values)} values has {len(stmt.format)} pieces of text", stmt.loc)
        for value in stmt.values:
            if not isinstance(value.type, DType):
                _refuse(f"a recorded value is {value.type}, not a scalar", stmt.loc)

    def _alloc(self, alloc: Alloc) -> None:
        self._claim(alloc.name, alloc.loc)
        if not alloc.shape or min(alloc.shape) < 1:
            _refuse(f"allocation {alloc.name} has the shape {alloc.shape}", alloc.loc)
        self._allocs[alloc.name] = alloc

    def _atomic(self, stmt: Atomic) -> None:
        self._place(stmt.place)
        type_ = stmt.place.type
        if not isinstance(type_, DType) or type_.is_bool:
            _refuse(f"an atomic on {type_}", stmt.loc)
        if type_.is_float and stmt.op in (AtomicOp.AND, AtomicOp.OR, AtomicOp.XOR):
            _refuse(f"atomic {stmt.op.value} on {type_}", stmt.loc)
        expected = 2 if stmt.op is AtomicOp.COMPARE_EXCHANGE else 1
        _want_count(stmt.operands, expected, f"atomic {stmt.op.value}", stmt.loc)
        for operand in stmt.operands:
            _want(operand, type_, "an operand of an Atomic")
        if stmt.result is not None:
            self._assigned(stmt.result, type_, stmt.loc)

    def _subgroup(self, stmt: Subgroup) -> None:
        _want_count(stmt.operands, 2 if stmt.op in _WITH_LANE else 1, f"subgroup {stmt.op.value}", stmt.loc)
        if not isinstance(stmt.operands[0].type, DType):
            _refuse(f"subgroup {stmt.op.value} of {stmt.operands[0].type}", stmt.loc)
        if stmt.op in _ON_BOOL:
            _want(stmt.operands[0], bool_, f"the operand of subgroup {stmt.op.value}")
        for lane in stmt.operands[1:]:
            if not (isinstance(lane.type, DType) and lane.type.is_integer):
                _refuse(f"the lane of subgroup {stmt.op.value} is {lane.type}", stmt.loc)
        self._assigned(stmt.result, subgroup_result_type(stmt.op, stmt.operands), stmt.loc)

    def _call(self, call: Call) -> None:
        callee = self._functions.get(call.function)
        if callee is None:
            _refuse(f"a call of {call.function}, which is no function of the module", call.loc)
        _want_count(call.arguments, len(callee.params), f"the call of {call.function}", call.loc)
        for param, argument in zip(callee.params, call.arguments, strict=True):
            if isinstance(argument, ArrayRef):
                if self._array(argument.root, argument.loc) != argument.type or param.type != argument.type:
                    _refuse(f"argument {param.name} of {call.function} is {argument.type}, not {param.type}", call.loc)
            elif not isinstance(param.type, ScalarType) or param.type.dtype != argument.type:
                _refuse(f"argument {param.name} of {call.function} is {argument.type}, not {param.type}", call.loc)
        if len(call.results) != len(callee.results):
            _refuse(f"{call.function} gives {len(callee.results)} results, not {len(call.results)}", call.loc)
        for name, type_ in zip(call.results, callee.results, strict=True):
            self._assigned(name, type_, call.loc)

    # --- expressions ---

    def _expressions(self, outermost: Expr) -> None:
        for expr in walk_expressions(outermost):
            self._expression(expr)

    def _expression(self, expr: Expr) -> None:
        match expr:
            case Const():
                if not semantics.is_value_of(expr.value, expr.type):
                    _refuse(f"the literal {expr.value!r} is no value of {expr.type}", expr.loc)
            case Local():
                if self._locals.get(expr.name) != expr.type:
                    _refuse(f"local {expr.name} is {self._locals.get(expr.name)}, not {expr.type}", expr.loc)
            case Param():
                declared = self._params.get(expr.name)
                if not isinstance(declared, ScalarType) or declared.dtype != expr.type:
                    _refuse(f"parameter {expr.name} is {declared}, not {expr.type}", expr.loc)
            case Load():
                self._place(expr.place)
            case Shape():
                array = self._params.get(expr.param)
                if not isinstance(array, ArrayType) or not 0 <= expr.axis < (array.ndim or 0):
                    _refuse(f"{expr.param} has no axis {expr.axis}", expr.loc)
            case ThreadIndex():
                num_axes = 1 if expr.kind in _SUBGROUP_KINDS else len(self._block)
                if not 0 <= expr.axis < num_axes:
                    _refuse(f"{expr.kind.value} has no axis {expr.axis}", expr.loc)
            case _:
                _check_operation(expr)

    def _place(self, place: Place) -> None:
        array = self._array(place.root, place.loc)
        name = place.root.name
        if len(place.indices) != array.ndim:
            _refuse(f"{name} has {array.ndim} axes, {len(place.indices)} indices are given", place.loc)
        for index in place.indices:
            _want(index, i64, f"an index of {name}")
        part: ValueType | None = array.element
        for step in place.view:
            part = _part(part, step)
        if part is None or part != place.type:
            _refuse(f"{name}[…]{''.join(f'.{step}' for step in place.view)} is {part}, not {place.type}", place.loc)


def _part(type_: ValueType | None, step: str | int) -> ValueType | None:
    if isinstance(type_, StructType) and isinstance(step, str):
        field = type_.field(step)
        return field.type if field is not None else None
    if isinstance(type_, VectorType) and isinstance(step, int) and 0 <= step < type_.length:
        return type_.element
    return None


def _want(expr: Expr, type_: ValueType, what: str) -> None:
    if expr.type != type_:
        _refuse(f"{what} is {expr.type}, not {type_}", expr.loc)


def _want_count(operands: tuple[object, ...], expected: int, what: str, where: Location) -> None:
    if len(operands) != expected:
        _refuse(f"{what} takes {expected} operands, {len(operands)} are given", where)


def _scalar(expr: Expr, what: str) -> DType:
    if not isinstance(expr.type, DType):
        _refuse(f"{what} is {expr.type}, not a scalar", expr.loc)
    return expr.type


def _same_types(expr: Expr) -> None:
    first, *others = children(expr)
    for other in others:
        if other.type != first.type:
            _refuse(f"the operands of a {type(expr).__name__} are {first.type} and {other.type}", expr.loc)


def _check_operation(
    expr: Unary | Binary | Compare | Select | Cast | Bitcast | Fma | Math | VecMake | VecGet | StructMake | Field,
) -> None:
    """Checks what an operation demands of its operands' types."""
    name = type(expr).__name__
    match expr:
        case Unary():
            dtype = _scalar(expr.operand, f"the operand of {expr.op.value}")
            allowed = {
                UnaryOp.NEG: not dtype.is_bool,
                UnaryOp.ABS: not dtype.is_bool,
                UnaryOp.INVERT: dtype.is_integer,
                UnaryOp.NOT: dtype.is_bool,
                UnaryOp.UNIFORM: True,
            }
            if not allowed[expr.op]:
                _refuse(f"{expr.op.value} of {dtype}", expr.loc)
        case Binary():
            _same_types(expr)
            dtype = _scalar(expr.left, f"an operand of {expr.op.value}")
            operators = _FLOAT_BINARY if dtype.is_float else _BOOL_BINARY if dtype.is_bool else _INTEGER_BINARY
            if expr.op not in operators:
                _refuse(f"{expr.op.value} of {dtype}", expr.loc)
        case Compare():
            _same_types(expr)
            _scalar(expr.left, f"an operand of {expr.op.value}")
        case Select():
            _want(expr.condition, bool_, "the condition of a Select")
            if expr.then.type != expr.otherwise.type:
                _refuse(f"the sides of a Select are {expr.then.type} and {expr.otherwise.type}", expr.loc)
        case Cast():
            _scalar(expr.operand, "the operand of a Cast")
        case Bitcast():
            dtype = _scalar(expr.operand, "the operand of a Bitcast")
            if dtype.bits != expr.type.bits or dtype.is_bool or expr.type.is_bool:
                _refuse(f"a Bitcast from {dtype} to {expr.type}", expr.loc)
        case Fma():
            _same_types(expr)
            if not _scalar(expr.a, "an operand of an Fma").is_float:
                _refuse(f"an Fma of {expr.type}", expr.loc)
        case Math():
            _want_count(expr.operands, math_functions.num_operands(expr.function), expr.function.value, expr.loc)
            _same_types(expr)
            dtype = _scalar(expr.operands[0], f"an operand of {expr.function.value}")
            if dtype.is_float == (expr.function in math_functions.INTEGER_FUNCTIONS) or dtype.is_bool:
                _refuse(f"{expr.function.value} of {dtype}", expr.loc)
            result = bool_ if expr.function in math_functions.PREDICATES else dtype
            if expr.type is not result:
                _refuse(f"{expr.function.value} of {dtype} is {result}, not {expr.type}", expr.loc)
        case VecMake():
            _want_count(expr.components, expr.type.length, str(expr.type), expr.loc)
            for component in expr.components:
                _want(component, expr.type.element, f"a component of {expr.type}")
        case VecGet():
            if _part(expr.operand.type, expr.index) != expr.type:
                _refuse(f"component {expr.index} of {expr.operand.type} is not {expr.type}", expr.loc)
        case StructMake():
            if not isinstance(expr.type, StructType):
                _refuse(f"a {name} of {expr.type}", expr.loc)
            _want_count(expr.values, len(expr.type.fields), str(expr.type), expr.loc)
            for field, value in zip(expr.type.fields, expr.values, strict=True):
                _want(value, field.type, f"field {field.name} of {expr.type}")
        case Field():
            if _part(expr.operand.type, expr.name) != expr.type:
                _refuse(f"field {expr.name} of {expr.operand.type} is not {expr.type}", expr.loc)
        case _:
            assert_never(expr)
