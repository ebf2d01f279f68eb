"""Bodies of functions: lowered again and again until the types of their locals stand.

Each pass reads the types that the pass before found. Types only grow, so a few passes do.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from typing import Final, TypeVar

import attrs

from quernel.dtypes import ValueType
from quernel.errors import KernelTypeError
from quernel.ir import nodes
from quernel.lang.assignments import assign_compound, assign_name
from quernel.lang.lowering import FunctionLowering, Unit
from quernel.lang.parameters import parameters_of
from quernel.lang.refusals import Refusals
from quernel.lang.scope import Entry, Joins, Scope, stored_names
from quernel.lang.statements import lower_body
from quernel.lang.trees import leaves
from quernel.lang.values import Compound, Scalar, Value

__all__ = ["LoweredBody", "lower_function"]

_MAX_PASSES: Final = 100
_Known = dict[str | int, Entry]


@attrs.frozen(eq=False)
class LoweredBody:
    """A body.

    Attributes:
        locals: its variables.
        statements: its statements.
        results: the types of the scalars that it returns.
        returned: a value that it returns, whose scalars are those results.
        bounds: the least and greatest value of each weak integer parameter.
    """

    locals: tuple[nodes.LocalVariable, ...]
    statements: tuple[nodes.Stmt, ...]
    results: tuple[Entry, ...]
    returned: Value | None
    bounds: Mapping[str, tuple[int, int]]


class _Passes:
    """Passes over one body, all but their types the same."""

    def __init__(
        self,
        unit: Unit,
        function: types.FunctionType,
        refuse: Refusals,
        values: dict[str, Value],
        type_variables: Mapping[TypeVar, ValueType],
        *,
        is_kernel: bool,
    ) -> None:
        self.unit = unit
        self.function = function
        self.refuse = refuse
        self.values = values
        self.type_variables = type_variables
        self.is_kernel = is_kernel

    def run(self, known: _Known, *, is_tolerant: bool = False) -> FunctionLowering:
        """One pass with the types that are known."""
        body = self.refuse.source.definition.body
        scope = Scope(self.values, stored_names(body), Joins(known))
        lowering = FunctionLowering(
            self.unit,
            self.function,
            self.refuse,
            scope,
            is_kernel=self.is_kernel,
            is_tolerant=is_tolerant,
            type_variables=self.type_variables,
        )
        _copy_assigned_parameters(lowering)
        lower_body(lowering, body)
        return lowering

    def settled(self, known: _Known) -> _Known:
        """The types that the statements which are not refused lead to."""
        for _ in range(_MAX_PASSES):
            found = self.run(known, is_tolerant=True).scope.joins.found
            if found == known:
                break
            known = found
        return known


def lower_function(
    unit: Unit,
    function: types.FunctionType,
    refuse: Refusals,
    values: dict[str, Value],
    type_variables: Mapping[TypeVar, ValueType],
    *,
    is_kernel: bool,
) -> LoweredBody:
    """The body of `function` for the values of its parameters and what its type variables stand for.

    Raises:
        KernelSyntaxError, KernelTypeError: it has no meaning.
    """
    passes = _Passes(unit, function, refuse, values, type_variables, is_kernel=is_kernel)
    known: _Known = {}
    for _ in range(_MAX_PASSES):
        try:
            lowering = passes.run(known)
        except KernelTypeError:
            # What is refused may be types that are not settled yet.
            settled = passes.settled(known)
            if settled == known:
                raise
            known = settled
            continue
        if lowering.scope.joins.is_settled:
            return _finished(lowering)
        known = lowering.scope.joins.found
    definition = refuse.source.definition
    raise refuse.type(definition, "the types of the locals do not settle", "cast where they are assigned")


def _finished(lowering: FunctionLowering) -> LoweredBody:
    _check_ends(lowering)
    returned = lowering.returns[1] if lowering.returns is not None else None
    num_results = sum(1 for _ in leaves(returned)) if returned is not None else 0
    results = tuple(lowering.scope.joins[index] for index in range(num_results))
    statements = (*lowering.allocations, *lowering.block)
    return LoweredBody(lowering.scope.variables(), statements, results, returned, lowering.bounds)


def _copy_assigned_parameters(lowering: FunctionLowering) -> None:
    """Parameters are never assigned in the IR: those that are in the source start as locals of their value."""
    for argument in parameters_of(lowering.refuse):
        value = lowering.scope.parameters[argument.arg]
        if argument.arg not in lowering.scope.stores:
            continue
        if isinstance(value, Scalar):
            assign_name(lowering, argument, argument.arg, value, argument)
        elif isinstance(value, Compound):
            assign_compound(lowering, argument, argument.arg, value, argument)


def _check_ends(lowering: FunctionLowering) -> None:
    """Every way through a function that returns values must return them."""
    if lowering.returns is None:
        return
    definition = lowering.refuse.source.definition
    node: ast.stmt | None = lowering.returns_nothing_at
    if node is None and lowering.scope.assigned is not None:
        node = definition.body[-1]
    if node is not None:
        raise lowering.refuse.type(
            node,
            f"`{definition.name}` returns a value in line {lowering.returns[0].lineno}, and nothing on this way",
            "return a value on every way through the function",
        )
