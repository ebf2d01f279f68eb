"""Expressions of the IR's text form.

Written as recursive descent in generators that a small loop runs, so that an expression may nest more deeply than
Python's own stack allows.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from quernel.dtypes import BY_NAME, DType, StructType, ValueType, VectorType, bool_, f64, i64
from quernel.ir.math_functions import PREDICATES, num_operands
from quernel.ir.nodes import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Field,
    Fma,
    IndexKind,
    Load,
    Math,
    MathFunction,
    Place,
    Select,
    Shape,
    StructMake,
    ThreadIndex,
    Unary,
    UnaryOp,
    VecGet,
    VecMake,
)
from quernel.ir.printer import COMPARISON, INFIX, PREFIX
from quernel.ir.rounding import round_float
from quernel.ir.scope import Scope, Structs, parse_name, parse_type
from quernel.ir.tokens import Cursor, Token, TokenKind

__all__ = ["ExpressionParser"]

_Parsing = Generator[Any, Any, Any]
"""Yields a parser of a part and is sent what that part gives."""

_INFIX_BY_SYMBOL: Final = {symbol: (op, strength) for op, (symbol, strength) in INFIX.items()}
_PREFIX_BY_SYMBOL: Final = {symbol.strip(): op for op, symbol in PREFIX.items()}
_UNARY_FUNCTIONS: Final = {op.value: op for op in UnaryOp if op not in PREFIX}
_BINARY_FUNCTIONS: Final = {op.value: op for op in BinaryOp if op not in INFIX}
_MATH: Final = {function.value: function for function in MathFunction}
_INDICES: Final = {kind.value: kind for kind in IndexKind}
_SPECIAL_FLOATS: Final = {
    f"{word}{'' if dtype is f64 else dtype.name}": (float(word), dtype)
    for word in ("inf", "nan")
    for dtype in BY_NAME.values()
    if dtype.is_float
}


class ExpressionParser:
    """Parses the expressions of one line."""

    def __init__(self, cursor: Cursor, scope: Scope, structs: Structs) -> None:
        self._cursor = cursor
        self._scope = scope
        self._structs = structs

    def expression(self) -> Expr:
        """Takes an expression."""
        result: Expr = _run(self._infix(COMPARISON))
        return result

    def expressions(self, closing: str) -> tuple[Expr, ...]:
        """Takes expressions between commas up to `closing`, and that too; an empty `closing` is the line's end."""
        result: tuple[Expr, ...] = _run(self._list(closing))
        return result

    def place(self) -> Place:
        """Takes a place: an array's name, indices, and perhaps a part of the element."""
        token = self._cursor.token
        result: Place = _run(self._place(parse_name(self._cursor), token))
        return result

    # --- grammar ---

    def _infix(self, least: int) -> _Parsing:
        left = yield self._prefix()
        while self._cursor.token.kind is TokenKind.SYMBOL:
            op, strength = _INFIX_BY_SYMBOL.get(self._cursor.token.text, (None, 0))
            if op is None or strength < least:
                break
            self._cursor.take()
            right = yield self._infix(strength + 1)
            if isinstance(op, CompareOp):
                return Compare(op=op, left=left, right=right)
            left = Binary(op=op, left=left, right=right)
        return left

    def _prefix(self) -> _Parsing:
        cursor = self._cursor
        op = _PREFIX_BY_SYMBOL.get(cursor.token.text) if cursor.token.kind is not TokenKind.NAME else None
        if op is None:
            return (yield self._suffixed())
        cursor.take()
        token = cursor.token
        if op is UnaryOp.NEG and (token.kind is TokenKind.NUMBER or _is_word(token, _SPECIAL_FLOATS)):
            return self._literal(cursor.take(), negative=True)
        return Unary(op=op, operand=(yield self._prefix()))

    def _suffixed(self) -> _Parsing:
        expr = yield self._atom()
        while self._cursor.accept("."):
            token = self._cursor.token
            if token.kind is TokenKind.NUMBER:
                part: str | int = self._cursor.integer()
            else:
                part = parse_name(self._cursor)
            type_ = self._part(expr.type, part, token)
            if isinstance(part, int):
                expr = VecGet(operand=expr, index=part, type=self._scalar(type_, token))
            else:
                expr = Field(operand=expr, name=part, type=type_)
        return expr

    def _atom(self) -> _Parsing:
        cursor = self._cursor
        token = cursor.token
        if cursor.accept("("):
            expr = yield self._infix(COMPARISON)
            cursor.expect(")")
            return expr
        if token.kind is TokenKind.NUMBER or _is_word(token, _SPECIAL_FLOATS):
            return self._literal(cursor.take(), negative=False)
        if token.kind is TokenKind.WORD:
            if token.text in ("true", "false"):
                return Const(value=cursor.take().text == "true", type=bool_)
            if token.text in ("vec", "struct"):
                return (yield self._make(parse_type(cursor, self._structs), token))
            if cursor.accept("bitcast"):
                cursor.expect("<")
                type_ = parse_type(cursor, self._structs)
                cursor.expect(">", "(")
                (operand,) = yield self._arguments(token, 1)
                return Bitcast(operand=operand, type=self._scalar(type_, token))
            if cursor.following.kind is TokenKind.SYMBOL and cursor.following.text == "(":
                cursor.take()
                cursor.take()
                return (yield self._function(token))
        name = parse_name(cursor)
        if cursor.is_at("["):
            place = yield self._place(name, token)
            return Load(place=place)
        if self._scope.is_array_param(name):
            cursor.expect(".", "shape", "[")
            axis = cursor.integer()
            cursor.expect("]")
            return Shape(param=name, axis=axis)
        return self._scope.variable(name, cursor, token)

    def _place(self, name: str, token: Token) -> _Parsing:
        root, array = self._scope.array(name, self._cursor, token)
        self._cursor.expect("[")
        indices = yield self._list("]")
        view: list[str | int] = []
        type_ = array.element
        if type_ is None:
            raise self._cursor.error(f"the elements of {name!r} have no type", token)
        while self._cursor.accept("."):
            part_token = self._cursor.token
            is_number = part_token.kind is TokenKind.NUMBER
            view.append(self._cursor.integer() if is_number else parse_name(self._cursor))
            type_ = self._part(type_, view[-1], part_token)
        return Place(root=root, indices=indices, type=type_, view=tuple(view))

    def _list(self, closing: str) -> _Parsing:
        exprs: list[Expr] = []
        while not self._closes(closing):
            if exprs:
                self._cursor.expect(",")
            exprs.append((yield self._infix(COMPARISON)))
        return tuple(exprs)

    def _closes(self, closing: str) -> bool:
        return self._cursor.accept(closing) if closing else self._cursor.token.kind is TokenKind.END

    def _arguments(self, token: Token, count: int) -> _Parsing:
        arguments = yield self._list(")")
        if len(arguments) != count:
            raise self._cursor.error(f"{token.text} takes {count} operands, {len(arguments)} are given", token)
        return arguments

    def _make(self, type_: ValueType, token: Token) -> _Parsing:
        self._cursor.expect("(")
        values = yield self._list(")")
        if isinstance(type_, VectorType):
            return VecMake(components=values, type=type_)
        return StructMake(values=values, type=type_)

    def _function(self, token: Token) -> _Parsing:
        """The operation written as a function, its opening bracket taken."""
        word = token.text
        if word in BY_NAME:
            (operand,) = yield self._arguments(token, 1)
            return Cast(operand=operand, type=BY_NAME[word])
        if word in _INDICES:
            axis = self._cursor.integer()
            self._cursor.expect(")")
            return ThreadIndex(kind=_INDICES[word], axis=axis)
        if word == "select":
            condition, then, otherwise = yield self._arguments(token, 3)
            return Select(condition=condition, then=then, otherwise=otherwise)
        if word == "fma":
            a, b, c = yield self._arguments(token, 3)
            return Fma(a=a, b=b, c=c)
        if word in _UNARY_FUNCTIONS:
            (operand,) = yield self._arguments(token, 1)
            return Unary(op=_UNARY_FUNCTIONS[word], operand=operand)
        if word in _BINARY_FUNCTIONS:
            left, right = yield self._arguments(token, 2)
            if word not in _MATH or not self._scalar(left.type, token).is_float:
                return Binary(op=_BINARY_FUNCTIONS[word], left=left, right=right)
            return Math(function=_MATH[word], operands=(left, right), type=left.type)
        if word in _MATH:
            function = _MATH[word]
            operands = yield self._arguments(token, num_operands(function))
            result = bool_ if function in PREDICATES else self._scalar(operands[0].type, token)
            return Math(function=function, operands=operands, type=result)
        raise self._cursor.error(f"{word!r} is no operation", token)

    # --- leaves ---

    def _literal(self, token: Token, *, negative: bool) -> Const:
        sign = -1.0 if negative else 1.0
        if token.text in _SPECIAL_FLOATS:
            special, dtype = _SPECIAL_FLOATS[token.text]
            return Const(value=sign * special, type=dtype)
        digits, suffix = _split_suffix(token.text)
        if suffix and suffix not in BY_NAME:
            raise self._cursor.error(f"{suffix} is no type", token)
        is_integer = digits.isdigit()
        dtype = BY_NAME[suffix] if suffix else i64 if is_integer else f64
        if dtype.is_float:
            return Const(value=round_float(sign * float(digits), dtype), type=dtype)
        if not is_integer:
            raise self._cursor.error(f"{token.text} is no integer", token)
        value = -int(digits) if negative else int(digits)
        if not dtype.min <= value <= dtype.max:
            raise self._cursor.error(f"{value} does not fit {dtype}", token)
        return Const(value=value, type=dtype)

    def _part(self, type_: ValueType | None, part: str | int, token: Token) -> ValueType:
        if isinstance(type_, VectorType) and isinstance(part, int) and part < type_.length:
            return type_.element
        field = type_.field(part) if isinstance(type_, StructType) and isinstance(part, str) else None
        if field is None:
            raise self._cursor.error(f"{type_} has no part {part!r}", token)
        return field.type

    def _scalar(self, type_: ValueType, token: Token) -> DType:
        if not isinstance(type_, DType):
            raise self._cursor.error(f"{token.text} is not for {type_}", token)
        return type_


def _split_suffix(number: str) -> tuple[str, str]:
    start = next((position for position, letter in enumerate(number) if letter in "biuf"), len(number))
    return number[:start], number[start:]


def _is_word(token: Token, words: dict[str, Any]) -> bool:
    return token.kind is TokenKind.WORD and token.text in words


def _run(parsing: _Parsing) -> Any:
    """What `parsing` gives, each part that it yields run to its end in turn."""
    running = [parsing]
    result: Any = None
    while running:
        try:
            part = running[-1].send(result)
        except StopIteration as finished:
            running.pop()
            result = finished.value
        else:
            running.append(part)
            result = None
    return result
