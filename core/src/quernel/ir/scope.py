"""The names that are in force while a text is parsed, and the types that they stand for."""

from __future__ import annotations

from typing import Final

import attrs

from quernel.dtypes import BY_NAME, ArrayType, ScalarType, StructField, StructType, ValueType, VectorType
from quernel.ir.nodes import Alloc, Expr, Local, Param, Root, RootKind, Space
from quernel.ir.printer import RESERVED
from quernel.ir.tokens import Cursor, Token

__all__ = ["Scope", "parse_name", "parse_struct", "parse_type"]


@attrs.define
class Scope:
    """The parameters, locals and allocations of the function that is being read."""

    params: dict[str, ScalarType | ArrayType] = attrs.field(factory=dict)
    variables: dict[str, ValueType] = attrs.field(factory=dict)
    allocs: dict[str, Alloc] = attrs.field(factory=dict)

    def variable(self, name: str, cursor: Cursor, token: Token) -> Expr:
        """The value of a local or of a scalar parameter."""
        if name in self.variables:
            return Local(name=name, type=self.variables[name])
        param = self.params.get(name)
        if isinstance(param, ScalarType):
            return Param(name=name, type=param.dtype)
        raise cursor.error(f"{name!r} is no local and no scalar parameter", token)

    def array(self, name: str, cursor: Cursor, token: Token) -> tuple[Root, ArrayType]:
        """The array of that name: a parameter or an allocation further up."""
        param = self.params.get(name)
        if isinstance(param, ArrayType):
            return Root(RootKind.PARAM, name), param
        alloc = self.allocs.get(name)
        if alloc is not None:
            kind = RootKind.SHARED if alloc.space is Space.SHARED else RootKind.PRIVATE
            return Root(kind, name), ArrayType(alloc.element, len(alloc.shape))
        raise cursor.error(f"{name!r} is no array parameter and no allocation made before", token)

    def is_array_param(self, name: str) -> bool:
        """Whether `name` is an array parameter."""
        return isinstance(self.params.get(name), ArrayType)


Structs = dict[str, StructType]
"""Struct types by the name under which the text declares them."""

_VECTOR_LENGTHS: Final = range(1, 1 << 16)


def parse_name(cursor: Cursor) -> str:
    """Takes a name."""
    return cursor.name(RESERVED)


def parse_type(cursor: Cursor, structs: Structs) -> ValueType:
    """Takes a value's type: a scalar's name, `vec<f32, 4>` or `struct<Name>`."""
    if cursor.accept("vec"):
        cursor.expect("<")
        element = parse_type(cursor, structs)
        cursor.expect(",")
        length = cursor.integer()
        cursor.expect(">")
        if isinstance(element, VectorType | StructType) or length not in _VECTOR_LENGTHS:
            raise cursor.error("a vector has a scalar element and a positive length")
        return VectorType(element, length)
    if cursor.accept("struct"):
        cursor.expect("<")
        token = cursor.token
        name = parse_name(cursor)
        cursor.expect(">")
        if name not in structs:
            raise cursor.error(f"no struct is called {name!r}", token)
        return structs[name]
    if cursor.token.text in BY_NAME:
        return BY_NAME[cursor.take().text]
    raise cursor.unexpected("a type")


def parse_struct(cursor: Cursor, structs: Structs) -> None:
    """Takes `struct Name(x: f32 at 0, …) size 4 align 4` into `structs`."""
    cursor.expect("struct")
    shown = parse_name(cursor)
    name = parse_name(cursor) if cursor.accept("named") else shown
    cursor.expect("(")
    fields: list[StructField] = []
    while not cursor.accept(")"):
        if fields:
            cursor.expect(",")
        field = parse_name(cursor)
        cursor.expect(":")
        type_ = parse_type(cursor, structs)
        cursor.expect("at")
        fields.append(StructField(field, type_, cursor.integer()))
    cursor.expect("size")
    itemsize = cursor.integer()
    cursor.expect("align")
    structs[shown] = StructType(name, tuple(fields), itemsize, cursor.integer())
    cursor.end()
