"""Refusals: errors at a node of the source, with the chain of calls that leads there."""

from __future__ import annotations

import ast

import attrs

from quernel.errors import KernelSyntaxError, KernelTypeError
from quernel.lang.source import Source
from quernel.locations import Location

__all__ = ["Node", "Refusals"]

Node = ast.stmt | ast.expr | ast.arg | ast.keyword | ast.excepthandler
"""A node of `ast` that has a place in the file."""


@attrs.frozen
class Refusals:
    """Makes the errors of one function.

    Attributes:
        source: the function's source.
        chain: for a device function, one line per call that leads to it, the innermost first.
    """

    source: Source
    chain: tuple[str, ...] = ()

    def where(self, node: Node) -> Location:
        """Where `node` stands."""
        return self.source.location(node)

    def syntax(self, node: Node, what: str, fix: str) -> KernelSyntaxError:
        """The refusal of a construct that the language does not have."""
        where = self.where(node)
        return KernelSyntaxError(what, where=where, fix=fix, source_line=self.source.line(where.line), chain=self.chain)

    def type(self, node: Node, what: str, fix: str) -> KernelTypeError:
        """The refusal of types, values or names that do not fit."""
        where = self.where(node)
        return KernelTypeError(what, where=where, fix=fix, source_line=self.source.line(where.line), chain=self.chain)

    def later(self, node: Node, what: str, fix: str) -> KernelSyntaxError:
        """The refusal of a construct that the language will have."""
        return self.syntax(node, f"{what} not supported yet", fix)
