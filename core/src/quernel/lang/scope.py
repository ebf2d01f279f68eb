"""The locals of one function: their types, found by joining assignments, and where they are surely assigned."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable

import attrs

from quernel.dtypes import ScalarType, ValueType
from quernel.ir import nodes
from quernel.lang.origins import NOWHERE, Origins, merged
from quernel.lang.promotion import join
from quernel.lang.values import Compound, Scalar, Value
from quernel.locations import Location

__all__ = ["Entry", "Joins", "LoopFrame", "Scope", "looped_names", "meet", "stored_names"]


@attrs.frozen
class Entry:
    """What is known of a local, or of a result, from assignments to it.

    Attributes:
        type: the join of their types.
        loc: the assignment that last changed it.
        origins: weak parameters from which its value may follow.
    """

    type: ScalarType
    loc: Location
    origins: Origins = NOWHERE

    def joined(self, value: Scalar, loc: Location) -> Entry | None:
        """This entry after one more assignment; `None` if the types do not join."""
        joined = join(self.type, value.type)
        if joined is None:
            return None
        return Entry(joined, self.loc if joined == self.type else loc, merged(self.origins, value.origins))


class Joins:
    """The types of the locals (by name) and results (by number) of one function.

    Types follow from assignments, and assignments from types, so a body is lowered until both agree: each pass reads
    the types that the pass before found. Where that pass found none, it reads what it has found so far itself.

    Attributes:
        known: what the pass before found.
        found: what this pass has found so far.
    """

    def __init__(self, known: dict[str | int, Entry]) -> None:
        self.known = known
        self.found: dict[str | int, Entry] = {}

    @property
    def is_settled(self) -> bool:
        """Whether this pass found what it had read."""
        return self.known == self.found

    def __getitem__(self, of: str | int) -> Entry:
        return self.known.get(of) or self.found[of]

    def __contains__(self, of: str | int) -> bool:
        return of in self.known or of in self.found

    def add(self, of: str | int, value: Scalar, loc: Location) -> Entry | None:
        """Joins one more assignment in, and gives the type to assign in.

        `None` if the types do not join; then the caller looks at `found` for what it does not join with.
        """
        before = self.found.get(of)
        entry = Entry(value.type, loc, value.origins) if before is None else before.joined(value, loc)
        if entry is None:
            return None
        known = self.known.get(of)
        if known is not None and known.origins - entry.origins:
            entry = attrs.evolve(entry, origins=merged(entry.origins, known.origins))
        self.found[of] = entry
        return self[of]


@attrs.define
class LoopFrame:
    """The loop around the statements being lowered, and the names surely assigned where they leave it early.

    Attributes:
        left: the flag that a `break` raises, where someone asks for it after the loop.
        is_unrolled: whether its body is written out once per item.
    """

    left: str | None = None
    is_unrolled: bool = False
    breaks: list[frozenset[str]] = attrs.field(factory=list)
    continues: list[frozenset[str]] = attrs.field(factory=list)


def meet(states: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """The names assigned on all ways that arrive; `None` if no way does."""
    arriving = [state for state in states if state is not None]
    return frozenset.intersection(*arriving) if arriving else None


def stored_names(body: list[ast.stmt]) -> Counter[str]:
    """How often each name is assigned in statements."""
    return _stores(node for statement in body for node in ast.walk(statement))


def looped_names(body: list[ast.stmt]) -> Counter[str]:
    """How often each name is the variable of a `for`, or one of several, in statements."""
    loops = (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.For))
    return _stores(node for loop in loops for node in ast.walk(loop.target))


def _stores(nodes_: Iterable[ast.AST]) -> Counter[str]:
    return Counter(
        node.id for node in nodes_ if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)
    )


class Scope:
    """The names of one function while its body is lowered once.

    Attributes:
        parameters: the parameters' values.
        stores: how often each name is assigned.
        joins: the types of the locals and results.
        bound: locals that are known when the kernel is compiled: arrays, objects, variables of unrolled loops.
        layouts: what the locals that hold compound values are made of, and where they are first assigned; a variable
            holds each leaf, under the local's name and the leaf's path.
        looped: how often each name is the variable of a loop, once somebody asked.
        assigned: the names surely assigned here; `None` where no way arrives.
    """

    def __init__(self, parameters: dict[str, Value], stores: Counter[str], joins: Joins) -> None:
        self.parameters = parameters
        self.stores = stores
        self.joins = joins
        self.bound: dict[str, Value] = {}
        self.looped: Counter[str] | None = None
        self.layouts: dict[str, tuple[Compound, Location]] = {}
        self.assigned: frozenset[str] | None = frozenset(parameters)
        self._taken = {*parameters, *stores}
        self._ir_names: dict[str, str] = {}
        self._temporaries: dict[str, nodes.LocalVariable] = {}
        self._num_temporaries = 0

    def is_local(self, name: str) -> bool:
        """Whether `name` is a local or parameter, as Python scopes it."""
        return name in self._taken

    def is_variable(self, name: str) -> bool:
        """Whether `name` is held in a variable, rather than a parameter that is never assigned."""
        return name in self.stores

    def ir_name(self, name: str) -> str:
        """The name of the variable that holds the local `name`: another one where a parameter is assigned to."""
        found = self._ir_names.get(name)
        if found is None:
            found = self.fresh(name) if name.split(".", 1)[0] in self.parameters else name
            self._ir_names[name] = found
        return found

    def temporary(self, type_: ValueType) -> str:
        """A new variable of `type`."""
        name = self.fresh("t")
        self._temporaries[name] = nodes.LocalVariable(name=name, type=type_)
        return name

    def is_temporary(self, name: str) -> bool:
        """Whether `name` is a variable that only one expression reads."""
        return name in self._temporaries

    def variables(self) -> tuple[nodes.LocalVariable, ...]:
        """Every variable, once."""
        named = [
            nodes.LocalVariable(name=self.ir_name(name), type=self.joins[name].type.dtype)
            for name in self.joins.found
            if isinstance(name, str) and name in self._ir_names
        ]
        return (*named, *self._temporaries.values())

    def fresh(self, stem: str) -> str:
        """A name like `stem` that nothing else has."""
        while True:
            self._num_temporaries += 1
            name = f"{stem}_{self._num_temporaries}"
            if name not in self._taken:
                return name
