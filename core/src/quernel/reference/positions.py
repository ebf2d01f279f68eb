"""Places IR locations on Python syntax trees, so that compiled code carries the user's file, lines and columns."""

from __future__ import annotations

import ast
import linecache
from typing import TypeVar

from quernel.locations import Location

__all__ = ["Builder", "Positions"]

NodeT = TypeVar("NodeT", bound="ast.expr | ast.stmt | ast.arg")


class Positions:
    """The positions of one function's nodes. What another file made (an inlined function) takes its caller's place."""

    def __init__(self, function: Location) -> None:
        self.file = function.file
        self._last = function

    def at(self, loc: Location) -> Builder:
        """A builder of nodes that stand at `loc`."""
        if loc.file == self.file and loc.line > 0:
            self._last = loc
        return Builder(self._last)


class Builder:
    """Makes nodes that all stand at one place."""

    def __init__(self, loc: Location) -> None:
        line = max(loc.line, 1)
        end_line = max(loc.end_line, line)
        column = _byte_column(loc.file, line, loc.column)
        end_column = _byte_column(loc.file, end_line, loc.end_column)
        if end_line == line:
            end_column = max(end_column, column)
        self._position = (line, column, end_line, end_column)

    def put(self, node: NodeT) -> NodeT:
        """`node`, standing here."""
        node.lineno, node.col_offset, node.end_lineno, node.end_col_offset = self._position
        return node

    def name(self, name: str) -> ast.expr:
        """The value of a variable."""
        return self.put(ast.Name(name, ast.Load()))

    def target(self, name: str) -> ast.expr:
        """A variable to assign to."""
        return self.put(ast.Name(name, ast.Store()))

    def constant(self, value: bool | int | float | str | None) -> ast.expr:
        """A literal."""
        return self.put(ast.Constant(value))

    def call(self, function: str, *arguments: ast.expr) -> ast.expr:
        """A call of the function that a variable holds."""
        return self.put(ast.Call(self.name(function), list(arguments), []))

    def method(self, owner: str, method: str, *arguments: ast.expr) -> ast.expr:
        """A call of a method of the object that a variable holds."""
        function = self.put(ast.Attribute(self.name(owner), method, ast.Load()))
        return self.put(ast.Call(function, list(arguments), []))

    def item(self, value: ast.expr, index: int) -> ast.expr:
        """`value[index]`."""
        return self.put(ast.Subscript(value, self.constant(index), ast.Load()))

    def attribute(self, owner: str, attribute: str) -> ast.expr:
        """An attribute of the object that a variable holds."""
        return self.put(ast.Attribute(self.name(owner), attribute, ast.Load()))

    def operation(self, left: ast.expr, operator: ast.operator, right: ast.expr) -> ast.expr:
        """A binary operation of Python."""
        return self.put(ast.BinOp(left, operator, right))

    def tuple(self, *items: ast.expr) -> ast.expr:
        """A tuple."""
        return self.put(ast.Tuple(list(items), ast.Load()))

    def assign(self, name: str, value: ast.expr) -> ast.stmt:
        """`name = value`."""
        return self.put(ast.Assign([self.target(name)], value))

    def branch(self, condition: ast.expr, then: list[ast.stmt], otherwise: list[ast.stmt]) -> ast.stmt:
        """An `if` statement."""
        return self.put(ast.If(condition, then or [self.put(ast.Pass())], otherwise))


def _byte_column(file: str, line: int, column: int) -> int:
    """Python counts columns of syntax trees in UTF-8 bytes, locations count characters."""
    text = linecache.getline(file, line)
    return column if text.isascii() else len(text[:column].encode())
