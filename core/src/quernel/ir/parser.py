"""The IR's text form, read back into nodes."""

from __future__ import annotations

from typing import Final, TypeVar

import attrs

from quernel.dtypes import ArrayType, ScalarType, ValueType
from quernel.geometry import LaunchForm
from quernel.ir.expression_parser import ExpressionParser
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    AtomicOp,
    Barrier,
    Break,
    Breakpoint,
    Call,
    Continue,
    Expr,
    For,
    Function,
    If,
    Kernel,
    LocalVariable,
    Loop,
    Module,
    Parameter,
    Print,
    Return,
    Space,
    Stmt,
    Store,
    Subgroup,
    SubgroupOp,
)
from quernel.ir.scope import Scope, Structs, parse_name, parse_struct, parse_type
from quernel.ir.tokens import Cursor, IRSyntaxError, Line, TokenKind, lines_of, syntax_error
from quernel.ir.walk import Body
from quernel.options import KernelOptions

__all__ = ["IRSyntaxError", "parse_module"]

_INDENT: Final = 4
_ATOMIC_OPS: Final = {op.value: op for op in AtomicOp}
_SUBGROUP_OPS: Final = {op.value: op for op in SubgroupOp}
_SIMPLE: Final[dict[str, type[Barrier] | type[Break] | type[Breakpoint] | type[Continue]]] = {
    "barrier": Barrier,
    "break": Break,
    "breakpoint": Breakpoint,
    "continue": Continue,
}


def parse_module(text: str) -> Module:
    """The module whose text this is. It is not verified.

    Raises:
        IRSyntaxError: the text is none; the error has the line and the column.
    """
    return _Parser(tuple(lines_of(text))).module()


class _Parser:
    """Reads the lines of one module, and keeps the names of the function that it is in."""

    def __init__(self, lines: tuple[Line, ...]) -> None:
        self._lines = lines
        self._position = 0
        self._structs: Structs = {}
        self._scope = Scope()

    def module(self) -> Module:
        while self._is_at("struct", indent=0):
            parse_struct(self._line(0), self._structs)
        kernel = self._kernel()
        functions: list[Function] = []
        while self._position < len(self._lines):
            functions.append(self._function())
        return Module(kernel=kernel, functions=tuple(functions))

    # --- lines ---

    def _is_at(self, *words: str, indent: int) -> bool:
        if self._position == len(self._lines):
            return False
        line = self._lines[self._position]
        return line.indent == indent and line.tokens[0].kind is TokenKind.WORD and line.tokens[0].text in words

    def _line(self, indent: int) -> Cursor:
        """The next line, taken, which must exist and be indented like this."""
        if self._position == len(self._lines):
            if not self._lines:
                raise syntax_error("the text is empty", 1, 0, "")
            last = self._lines[-1]
            raise Cursor(last).error("something is missing behind this line", last.tokens[-1])
        line = self._lines[self._position]
        if line.indent != indent:
            raise Cursor(line).error(f"the line is indented by {line.indent} spaces, not {indent}")
        self._position += 1
        return Cursor(line)

    # --- functions ---

    def _kernel(self) -> Kernel:
        cursor = self._line(0)
        cursor.expect("kernel")
        name = parse_name(cursor)
        params = self._parameters(cursor)
        if not (cursor.is_at("over") or cursor.is_at("grid")):
            raise cursor.unexpected("'over' or 'grid'")
        form = LaunchForm(cursor.take().text)
        cursor.expect("(")
        block = _integers(cursor, ")")
        options = self._options(cursor)
        guarded = cursor.accept("guarded")
        cursor.expect(":")
        cursor.end()
        variables = self._variables()
        return Kernel(
            name=name,
            form=form,
            block=block,
            params=params,
            locals=variables,
            body=self._body(_INDENT),
            options=options,
            guarded=guarded,
        )

    def _options(self, cursor: Cursor) -> KernelOptions:
        known = [field.name for field in attrs.fields(KernelOptions)]
        chosen = dict.fromkeys(known, False)
        if cursor.accept("with"):
            while True:
                if cursor.token.text not in chosen:
                    raise cursor.unexpected("one of " + ", ".join(known))
                chosen[cursor.take().text] = True
                if not cursor.accept(","):
                    break
        return KernelOptions(**chosen)

    def _function(self) -> Function:
        cursor = self._line(0)
        cursor.expect("func")
        name = parse_name(cursor)
        params = self._parameters(cursor)
        cursor.expect("->", "(")
        results: list[ValueType] = []
        while not cursor.accept(")"):
            if results:
                cursor.expect(",")
            results.append(parse_type(cursor, self._structs))
        cursor.expect(":")
        cursor.end()
        variables = self._variables()
        return Function(name=name, params=params, results=tuple(results), locals=variables, body=self._body(_INDENT))

    def _parameters(self, cursor: Cursor) -> tuple[Parameter, ...]:
        self._scope = Scope()
        params: list[Parameter] = []
        cursor.expect("(")
        while not cursor.accept(")"):
            if params:
                cursor.expect(",")
            name = parse_name(cursor)
            cursor.expect(":")
            type_ = self._parameter_type(cursor)
            bounds: tuple[int, ...] | None = None
            if cursor.accept("in"):
                cursor.expect("[")
                bounds = _integers(cursor, "]")
            if bounds is not None and len(bounds) != 2:
                raise cursor.error("bounds are a least and a greatest value")
            params.append(Parameter(name=name, type=type_, bounds=(bounds[0], bounds[1]) if bounds else None))
            self._scope.params[name] = type_
        return tuple(params)

    def _parameter_type(self, cursor: Cursor) -> ScalarType | ArrayType:
        if not cursor.accept("array"):
            return ScalarType(parse_type(cursor, self._structs), cursor.accept("weak"))
        cursor.expect("<")
        element = None if cursor.accept("?") else parse_type(cursor, self._structs)
        cursor.expect(",")
        ndim = None if cursor.accept("?") else cursor.integer()
        cursor.expect(">")
        return ArrayType(element, ndim)

    def _variables(self) -> tuple[LocalVariable, ...]:
        variables: list[LocalVariable] = []
        while self._is_at("local", indent=_INDENT):
            cursor = self._line(_INDENT)
            cursor.expect("local")
            names = _names(cursor)
            cursor.expect(":")
            type_ = parse_type(cursor, self._structs)
            cursor.end()
            variables.extend(LocalVariable(name=name, type=type_) for name in names)
            self._scope.variables.update(dict.fromkeys(names, type_))
        return tuple(variables)

    # --- statements ---

    def _body(self, indent: int) -> Body:
        if self._is_at("pass", indent=indent):
            cursor = self._line(indent)
            cursor.expect("pass")
            cursor.end()
            return ()
        statements = [self._statement(indent)]
        while self._position < len(self._lines) and self._lines[self._position].indent >= indent:
            if self._is_at("elif", "else", indent=indent):
                raise self._line(indent).error("this belongs to no if")
            statements.append(self._statement(indent))
        return tuple(statements)

    def _block(self, cursor: Cursor, indent: int) -> Body:
        cursor.expect(":")
        cursor.end()
        return self._body(indent + _INDENT)

    def _statement(self, indent: int) -> Stmt:
        cursor = self._line(indent)
        if cursor.accept("if"):
            return self._if(cursor, indent)
        if cursor.accept("for"):
            variable = parse_name(cursor)
            cursor.expect("in", "range", "(")
            start, stop, step = self._three(cursor)
            body = self._block(cursor, indent)
            return For(variable=variable, start=start, stop=stop, step=step, body=body)
        if cursor.accept("loop"):
            return Loop(body=self._block(cursor, indent))
        stmt = self._simple(cursor)
        cursor.end()
        return stmt

    def _if(self, cursor: Cursor, indent: int) -> Stmt:
        branches: list[tuple[Expr, Body]] = []
        otherwise: Body = ()
        while True:
            condition = self._exprs(cursor).expression()
            branches.append((condition, self._block(cursor, indent)))
            if not self._is_at("elif", indent=indent):
                break
            cursor = self._line(indent)
            cursor.take()
        if self._is_at("else", indent=indent):
            cursor = self._line(indent)
            cursor.take()
            otherwise = self._block(cursor, indent)
        condition, then = branches.pop()
        result = If(condition=condition, then=then, otherwise=otherwise)
        for condition, then in reversed(branches):
            result = If(condition=condition, then=then, otherwise=(result,))
        return result

    def _three(self, cursor: Cursor) -> tuple[Expr, Expr, Expr]:
        values = self._exprs(cursor).expressions(")")
        if len(values) != 3:
            raise cursor.error("a range has a start, a stop and a step")
        return values[0], values[1], values[2]

    def _simple(self, cursor: Cursor) -> Stmt:
        token = cursor.token
        word = token.text if token.kind is TokenKind.WORD else ""
        match word:
            case "barrier" | "break" | "breakpoint" | "continue":
                cursor.take()
                return _SIMPLE[word]()
            case "return":
                cursor.take()
                return Return(values=self._exprs(cursor).expressions(""))
            case "assert":
                site = _site(cursor)
                condition = self._exprs(cursor).expression()
                values = self._exprs(cursor).expressions("") if cursor.accept(",") else ()
                return Assert(condition=condition, values=values, site=site)
            case "print":
                site = _site(cursor)
                return Print(values=self._exprs(cursor).expressions(""), site=site)
            case "shared" | "private":
                return self._alloc(cursor)
            case "call":
                return self._call(cursor, ())
            case "atomic":
                return self._atomic(cursor, None)
            case _:
                return self._assignment(cursor)

    def _assignment(self, cursor: Cursor) -> Stmt:
        if cursor.following.text == "[" and cursor.following.kind is TokenKind.SYMBOL:
            place = self._exprs(cursor).place()
            cursor.expect("=")
            return Store(place=place, value=self._exprs(cursor).expression())
        token = cursor.token
        names = _names(cursor)
        cursor.expect("=")
        if cursor.is_at("call"):
            return self._call(cursor, names)
        if len(names) != 1:
            raise cursor.error("only a call gives several values", token)
        if cursor.is_at("atomic"):
            return self._atomic(cursor, names[0])
        if cursor.accept("subgroup"):
            op = _operation(cursor, _SUBGROUP_OPS)
            return Subgroup(op=op, operands=self._exprs(cursor).expressions(")"), result=names[0])
        return Assign(name=names[0], value=self._exprs(cursor).expression())

    def _alloc(self, cursor: Cursor) -> Alloc:
        space = Space(cursor.take().text)
        name = parse_name(cursor)
        cursor.expect(":")
        element = parse_type(cursor, self._structs)
        cursor.expect("[")
        alloc = Alloc(name=name, space=space, element=element, shape=_integers(cursor, "]"))
        self._scope.allocs[name] = alloc
        return alloc

    def _atomic(self, cursor: Cursor, result: str | None) -> Atomic:
        cursor.expect("atomic")
        op = _operation(cursor, _ATOMIC_OPS)
        place = self._exprs(cursor).place()
        operands = self._exprs(cursor).expressions(")") if cursor.accept(",") else ()
        if not operands:
            cursor.expect(")")
        return Atomic(op=op, place=place, operands=operands, result=result)

    def _call(self, cursor: Cursor, results: tuple[str, ...]) -> Call:
        cursor.expect("call")
        function = parse_name(cursor)
        arguments: list[Expr | ArrayRef] = []
        cursor.expect("(")
        while not cursor.accept(")"):
            if arguments:
                cursor.expect(",")
            if cursor.accept("&"):
                token = cursor.token
                root, type_ = self._scope.array(parse_name(cursor), cursor, token)
                arguments.append(ArrayRef(root=root, type=type_))
            else:
                arguments.append(self._exprs(cursor).expression())
        return Call(results=results, function=function, arguments=tuple(arguments))

    def _exprs(self, cursor: Cursor) -> ExpressionParser:
        return ExpressionParser(cursor, self._scope, self._structs)


def _names(cursor: Cursor) -> tuple[str, ...]:
    names = [parse_name(cursor)]
    while cursor.accept(","):
        names.append(parse_name(cursor))
    return tuple(names)


def _integers(cursor: Cursor, closing: str) -> tuple[int, ...]:
    values: list[int] = []
    while not cursor.accept(closing):
        if values:
            cursor.expect(",")
        values.append(cursor.integer())
    return tuple(values)


def _site(cursor: Cursor) -> int:
    cursor.take()
    cursor.expect("[")
    site = cursor.integer()
    cursor.expect("]")
    return site


_OpT = TypeVar("_OpT")


def _operation(cursor: Cursor, known: dict[str, _OpT]) -> _OpT:
    """Takes `.add(`."""
    cursor.expect(".")
    if cursor.token.text not in known:
        raise cursor.unexpected("one of " + ", ".join(known))
    op = known[cursor.take().text]
    cursor.expect("(")
    return op
