"""The text form of the IR: Python-like, stable, without locations, and exact, so that it parses back.

    kernel saxpy(a: f64 weak, x: array<f32, 1>, y: array<f32, 1>) over (256) with contract:
        local i: i64
        i = global_id(0)
        y[i] = fma(f32(a), x[i], y[i])

A literal without a suffix is an `i64` or, with a point or exponent, an `f64`; others say their type (`1i32`, `0.1f32`,
`inff32`). A type's name before parentheses is a cast. `(p[i]).x` takes a field of a loaded struct, `p[i].x` loads a
field. A name that is a word of the text form, or no plain word at all, stands between backquotes.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, assert_never

import attrs

from quernel.dtypes import ArrayType, DType, ScalarType, StructType, ValueType, VectorType, f64, i64
from quernel.geometry import LaunchForm
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    Barrier,
    Binary,
    BinaryOp,
    Bitcast,
    Break,
    Breakpoint,
    Call,
    Cast,
    Compare,
    CompareOp,
    Const,
    Continue,
    Expr,
    Field,
    Fma,
    For,
    Function,
    If,
    Kernel,
    Load,
    Local,
    LocalVariable,
    Loop,
    Math,
    Module,
    Param,
    Parameter,
    Place,
    Print,
    Return,
    Select,
    Shape,
    Stmt,
    Store,
    StructMake,
    Subgroup,
    ThreadIndex,
    Unary,
    UnaryOp,
    VecGet,
    VecMake,
)
from quernel.ir.rounding import round_float
from quernel.ir.structs import struct_types
from quernel.ir.walk import fold_expression

__all__ = ["INFIX", "RESERVED", "print_module"]

RESERVED: Final = frozenset(
    {
        "assert",
        "atomic",
        "barrier",
        "bitcast",
        "break",
        "call",
        "continue",
        "elif",
        "else",
        "false",
        "for",
        "func",
        "if",
        "in",
        "inf",
        "infbf16",
        "inff16",
        "inff32",
        "kernel",
        "local",
        "loop",
        "nan",
        "nanbf16",
        "nanf16",
        "nanf32",
        "not",
        "pass",
        "print",
        "private",
        "return",
        "shared",
        "struct",
        "subgroup",
        "true",
        "vec",
    }
)
"""Words that a name may not be without backquotes."""

INFIX: Final[dict[BinaryOp | CompareOp, tuple[str, int]]] = {
    CompareOp.EQ: ("==", 1),
    CompareOp.NE: ("!=", 1),
    CompareOp.LT: ("<", 1),
    CompareOp.LE: ("<=", 1),
    CompareOp.GT: (">", 1),
    CompareOp.GE: (">=", 1),
    BinaryOp.OR: ("|", 2),
    BinaryOp.XOR: ("^", 3),
    BinaryOp.AND: ("&", 4),
    BinaryOp.SHL: ("<<", 5),
    BinaryOp.SHR: (">>", 5),
    BinaryOp.ADD: ("+", 6),
    BinaryOp.SUB: ("-", 6),
    BinaryOp.MUL: ("*", 7),
    BinaryOp.DIV: ("/", 7),
    BinaryOp.FLOORDIV: ("//", 7),
    BinaryOp.MOD: ("%", 7),
}
"""Symbol and binding strength of the operators between their operands; others are written as functions."""

PREFIX: Final = {UnaryOp.NEG: "-", UnaryOp.INVERT: "~", UnaryOp.NOT: "not "}
"""Symbols of the operators before their operand; `ABS` is written as a function."""

COMPARISON: Final = 1
UNARY: Final = 8
ATOM: Final = 9
_INDENT: Final = "    "
_PLAIN_NAME: Final = re.compile(r"[^\W\d]\w*")


def print_module(module: Module, *, with_name: bool = True) -> str:
    """The text of a module, ending in a newline; `with_name=False` leaves out what the kernel is called."""
    return "\n".join(_Printer(module).lines(with_name)) + "\n"


class _Printer:
    """Writes one module; knows the names by which its struct types go."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._structs = struct_types(module)

    def lines(self, with_name: bool) -> Iterator[str]:
        for struct, name in self._structs.items():
            fields = ", ".join(f"{_name(f.name)}: {self._type(f.type)} at {f.offset_bytes}" for f in struct.fields)
            named = "" if name == struct.name else f" named {_name(struct.name)}"
            yield f"struct {_name(name)}{named}({fields}) size {struct.itemsize} align {struct.alignment}"
            yield ""
        yield from self._kernel(self._module.kernel, with_name)
        for function in self._module.functions:
            yield ""
            yield from self._function(function)

    # --- functions and types ---

    def _kernel(self, kernel: Kernel, with_name: bool) -> Iterator[str]:
        name = _name(kernel.name) if with_name else "_"
        form = "over" if kernel.form is LaunchForm.OVER else "grid"
        block = ", ".join(str(axis) for axis in kernel.block)
        options = [f.name for f in attrs.fields(type(kernel.options)) if getattr(kernel.options, f.name)]
        suffix = f" with {', '.join(options)}" if options else ""
        if kernel.guarded:
            suffix += " guarded"
        yield f"kernel {name}({self._parameters(kernel.params)}) {form} ({block}){suffix}:"
        yield from self._locals(kernel.locals)
        yield from self._body(kernel.body, _INDENT)

    def _function(self, function: Function) -> Iterator[str]:
        results = ", ".join(self._type(result) for result in function.results)
        yield f"func {_name(function.name)}({self._parameters(function.params)}) -> ({results}):"
        yield from self._locals(function.locals)
        yield from self._body(function.body, _INDENT)

    def _parameters(self, params: Iterable[Parameter]) -> str:
        return ", ".join(self._parameter(param) for param in params)

    def _parameter(self, param: Parameter) -> str:
        bounds = f" in [{param.bounds[0]}, {param.bounds[1]}]" if param.bounds is not None else ""
        return f"{_name(param.name)}: {self._type(param.type)}{bounds}"

    def _locals(self, variables: Iterable[LocalVariable]) -> Iterator[str]:
        for type_text, group in itertools.groupby(variables, lambda variable: self._type(variable.type)):
            yield f"{_INDENT}local {', '.join(_name(variable.name) for variable in group)}: {type_text}"

    def _type(self, type_: ValueType | ScalarType | ArrayType | None) -> str:
        match type_:
            case DType():
                return type_.name
            case VectorType():
                return f"vec<{type_.element.name}, {type_.length}>"
            case StructType():
                return f"struct<{_name(self._structs[type_])}>"
            case ScalarType():
                return f"{self._type(type_.dtype)}{' weak' if type_.weak else ''}"
            case ArrayType():
                return f"array<{self._type(type_.element)}, {'?' if type_.ndim is None else type_.ndim}>"
            case None:
                return "?"
            case _:
                assert_never(type_)

    # --- statements ---

    def _body(self, body: Iterable[Stmt], indent: str) -> Iterator[str]:
        empty = True
        for stmt in body:
            empty = False
            yield from self._statement(stmt, indent)
        if empty:
            yield f"{indent}pass"

    def _statement(self, stmt: Stmt, indent: str) -> Iterator[str]:
        match stmt:
            case If():
                yield from self._if(stmt, indent)
            case For():
                bounds = self._list((stmt.start, stmt.stop, stmt.step))
                yield f"{indent}for {_name(stmt.variable)} in range({bounds}):"
                yield from self._body(stmt.body, indent + _INDENT)
            case Loop():
                yield f"{indent}loop:"
                yield from self._body(stmt.body, indent + _INDENT)
            case _:
                yield indent + self._simple(stmt)

    def _if(self, stmt: If, indent: str) -> Iterator[str]:
        word = "if"
        while True:
            yield f"{indent}{word} {self._expr(stmt.condition)}:"
            yield from self._body(stmt.then, indent + _INDENT)
            if len(stmt.otherwise) != 1 or not isinstance(stmt.otherwise[0], If):
                break
            stmt, word = stmt.otherwise[0], "elif"
        if stmt.otherwise:
            yield f"{indent}else:"
            yield from self._body(stmt.otherwise, indent + _INDENT)

    def _simple(
        self,
        stmt: Assign
        | Store
        | Atomic
        | Subgroup
        | Barrier
        | Call
        | Break
        | Continue
        | Return
        | Assert
        | Print
        | Breakpoint
        | Alloc,
    ) -> str:
        match stmt:
            case Assign():
                return f"{_name(stmt.name)} = {self._expr(stmt.value)}"
            case Store():
                return f"{self._place(stmt.place)} = {self._expr(stmt.value)}"
            case Atomic():
                result = f"{_name(stmt.result)} = " if stmt.result is not None else ""
                operands = "".join(f", {self._expr(operand)}" for operand in stmt.operands)
                return f"{result}atomic.{stmt.op.value}({self._place(stmt.place)}{operands})"
            case Subgroup():
                return f"{_name(stmt.result)} = subgroup.{stmt.op.value}({self._list(stmt.operands)})"
            case Barrier():
                return "barrier"
            case Call():
                results = f"{', '.join(_name(result) for result in stmt.results)} = " if stmt.results else ""
                arguments = ", ".join(
                    f"&{_name(argument.root.name)}" if isinstance(argument, ArrayRef) else self._expr(argument)
                    for argument in stmt.arguments
                )
                return f"{results}call {_name(stmt.function)}({arguments})"
            case Break():
                return "break"
            case Breakpoint():
                return "breakpoint"
            case Continue():
                return "continue"
            case Return():
                return f"return {self._list(stmt.values)}".rstrip()
            case Assert():
                return f"assert[{stmt.site}] {self._list((stmt.condition, *stmt.values))}"
            case Print():
                return f"print[{stmt.site}] {self._list(stmt.values)}".rstrip()
            case Alloc():
                shape = ", ".join(str(length) for length in stmt.shape)
                return f"{stmt.space.value} {_name(stmt.name)}: {self._type(stmt.element)}[{shape}]"
            case _:
                assert_never(stmt)

    # --- expressions ---

    def _list(self, exprs: Iterable[Expr]) -> str:
        return ", ".join(self._expr(expr) for expr in exprs)

    def _place(self, place: Place) -> str:
        return _place_text(place, [self._expr(index) for index in place.indices])

    def _expr(self, root: Expr) -> str:
        return fold_expression(root, self._node)[0]

    def _node(self, expr: Expr, below: tuple[tuple[str, int], ...]) -> tuple[str, int]:
        """The text of one node and how strongly it binds, from those of its children."""
        match expr:
            case Binary() | Compare() if expr.op in INFIX:
                return _infix(expr.op, *below)
            case Unary() if expr.op in PREFIX:
                operand = _bracketed(*below[0], ATOM)
                if isinstance(expr.operand, Const) and operand[0] != "(":
                    operand = f"({operand})"
                return f"{PREFIX[expr.op]}{operand}", UNARY
            case Const():
                text = _literal(expr)
                return text, UNARY if text.startswith("-") else ATOM
            case Local() | Param():
                return _name(expr.name), ATOM
            case Load():
                return _place_text(expr.place, [text for text, _ in below]), ATOM
            case VecGet():
                return f"{_owner(expr.operand, below[0])}.{expr.index}", ATOM
            case Field():
                return f"{_owner(expr.operand, below[0])}.{_name(expr.name)}", ATOM
            case Shape():
                return f"{_name(expr.param)}.shape[{expr.axis}]", ATOM
            case ThreadIndex():
                return f"{expr.kind.value}({expr.axis})", ATOM
            case _:
                return f"{self._function_name(expr)}({', '.join(text for text, _ in below)})", ATOM

    def _function_name(
        self, expr: Unary | Binary | Compare | Select | Cast | Bitcast | Fma | Math | VecMake | StructMake
    ) -> str:
        match expr:
            case Unary() | Binary() | Compare():
                return str(expr.op.value)
            case Select():
                return "select"
            case Cast():
                return expr.type.name
            case Bitcast():
                return f"bitcast<{expr.type.name}>"
            case Fma():
                return "fma"
            case Math():
                return expr.function.value
            case VecMake() | StructMake():
                return self._type(expr.type)
            case _:
                assert_never(expr)


def _name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name not in RESERVED:
        return name
    return "`" + json.dumps(name, ensure_ascii=False)[1:-1].replace("`", "\\u0060") + "`"


def _bracketed(text: str, strength: int, least: int) -> str:
    return text if strength >= least else f"({text})"


def _infix(op: BinaryOp | CompareOp, left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
    symbol, strength = INFIX[op]
    left_least = strength + 1 if strength == COMPARISON else strength
    return f"{_bracketed(*left, left_least)} {symbol} {_bracketed(*right, strength + 1)}", strength


def _owner(expr: Expr, printed: tuple[str, int]) -> str:
    """What stands before a dot; a loaded value is bracketed, because a dot behind its place names a part of that."""
    return f"({printed[0]})" if isinstance(expr, Load) else _bracketed(*printed, ATOM)


def _place_text(place: Place, indices: list[str]) -> str:
    view = "".join(f".{_name(part) if isinstance(part, str) else part}" for part in place.view)
    return f"{_name(place.root.name)}[{', '.join(indices)}]{view}"


def _literal(const: Const) -> str:
    value, dtype = const.value, const.type
    if dtype.is_bool:
        return "true" if value else "false"
    if not dtype.is_float:
        return f"{value}" if dtype is i64 else f"{value}{dtype.name}"
    return repr(float(value)) if dtype is f64 else f"{_shortest(float(value), dtype)}{dtype.name}"


def _shortest(value: float, dtype: DType) -> str:
    """The fewest decimal digits that name a value of the type."""
    if not math.isfinite(value):
        return repr(value)
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if round_float(float(text), dtype) == value:
            break
    return text if "." in text or "e" in text else f"{text}.0"
