"""The state of lowering one function: its scope, the block being written, and what every step needs of both."""

from __future__ import annotations

import ast
import math
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from quernel.dtypes import DType, ScalarType, ValueType, i64
from quernel.geometry import LaunchForm
from quernel.intrinsics import DeviceFunction
from quernel.ir import nodes
from quernel.lang.constants import converted, literal
from quernel.lang.origins import bounds_before
from quernel.lang.refusals import Node, Refusals
from quernel.lang.scope import LoopFrame, Scope
from quernel.lang.trees import map_leaves
from quernel.lang.values import Number, Scalar, Value
from quernel.locations import Location
from quernel.options import KernelOptions

__all__ = ["MAX_NESTING", "FunctionLowering", "Unit"]

MAX_NESTING: Final = 100
_MAX_DEPTH: Final = 40
"""Expressions that nest deeper are split by a temporary, so that no later stage needs a deep stack."""
_LEAVES: Final = (nodes.Const, nodes.Local, nodes.Param, nodes.ThreadIndex, nodes.Shape)


class Unit(Protocol):
    """The module being made, as the lowering of a function sees it."""

    form: LaunchForm
    block: tuple[int, ...]
    options: KernelOptions

    def call(
        self, lowering: FunctionLowering, node: ast.Call, function: DeviceFunction, arguments: dict[str, Value]
    ) -> Value | None:
        """Emits a call of the function specialized to its arguments; its value, or `None` if it returns nothing."""


class FunctionLowering:
    """One pass over the body of one function.

    Attributes:
        unit: the module being made.
        function: the live function, for the meaning of its names.
        refuse: makes its errors.
        scope: its names.
        is_kernel: whether this is the kernel itself.
        loops: the loops around the statement being lowered, the innermost last.
        is_tolerant: whether statements that are refused are skipped; so only the types of the others are found out.
        type_variables: what the type variables of the annotations stand for.
        returns: the first `return` of a value seen, and the value.
        bounds: the least and greatest value that each weak integer parameter may have.
        num_calls: how many calls and other effects were emitted; tells whether an operand's evaluation made one.
        allocations: the arrays that the function allocates, in order.
        collective_buffers: those of them in which the block's collectives work, by element type.
    """

    def __init__(
        self,
        unit: Unit,
        function: types.FunctionType,
        refuse: Refusals,
        scope: Scope,
        *,
        is_kernel: bool,
        is_tolerant: bool = False,
        type_variables: Mapping[TypeVar, ValueType] | None = None,
    ) -> None:
        self.unit = unit
        self.function = function
        self.refuse = refuse
        self.scope = scope
        self.is_kernel = is_kernel
        self.loops: list[LoopFrame] = []
        self.is_tolerant = is_tolerant
        self.type_variables = type_variables or {}
        self.returns: tuple[ast.Return, Value] | None = None
        self.returns_nothing_at: ast.Return | None = None
        self.bounds: dict[str, tuple[int, int]] = {}
        self.num_calls = 0
        self.allocations: list[nodes.Alloc] = []
        self.collective_buffers: dict[DType, nodes.Root] = {}
        self._nesting = 0
        self._blocks: list[list[nodes.Stmt]] = [[]]

    # --- writing ---

    @property
    def is_at_top(self) -> bool:
        """Whether what is written now runs exactly once per call of the function."""
        return len(self._blocks) == 1 and not self.loops

    def allocate(self, allocation: nodes.Alloc) -> None:
        """Adds an array to those that the function allocates."""
        self.allocations.append(allocation)

    @property
    def block(self) -> list[nodes.Stmt]:
        """The statements of the block being written."""
        return self._blocks[-1]

    def emit(self, statement: nodes.Stmt) -> None:
        """Appends a statement to the block being written."""
        self._blocks[-1].append(statement)

    def open_block(self) -> None:
        """Begins a block that `close_block` ends."""
        self._blocks.append([])

    def close_block(self) -> list[nodes.Stmt]:
        """The block that `open_block` began."""
        return self._blocks.pop()

    @contextmanager
    def new_block(self) -> Iterator[list[nodes.Stmt]]:
        """A block of its own, for the body of a statement."""
        body: list[nodes.Stmt] = []
        self._blocks.append(body)
        try:
            yield body
        finally:
            self._blocks.pop()

    @contextmanager
    def nested(self, node: Node) -> Iterator[None]:
        """Counts one level of nesting of the source.

        Raises:
            KernelSyntaxError: the source nests too deep.
        """
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self.refuse.syntax(
                node, f"this nests more than {MAX_NESTING} levels deep", "take parts of it into locals or a @qn.func"
            )
        try:
            yield
        finally:
            self._nesting -= 1

    def where(self, node: Node) -> Location:
        """Where `node` stands."""
        return self.refuse.where(node)

    def depths(self) -> tuple[int, int]:
        """How many blocks and loops are open, for `restore`."""
        return len(self._blocks), len(self.loops)

    def restore(self, depths: tuple[int, int]) -> None:
        """Leaves the blocks and loops that were opened since."""
        del self._blocks[depths[0] :]
        del self.loops[depths[1] :]

    # --- values ---

    def expr(self, value: Scalar, node: Node) -> nodes.Expr:
        """The IR of a value in its own type.

        Raises:
            KernelTypeError: a constant integer beyond i64.
        """
        if value.expr is not None:
            return value.expr
        assert value.constant is not None
        self.check_fits(value, value.dtype, node)
        return literal(value.constant, value.dtype, self.where(node))

    def check_fits(self, value: Scalar, dtype: DType, node: Node) -> None:
        """Makes sure that a weak number fits the type it takes; a weak integer parameter is left to the launcher.

        Raises:
            KernelTypeError: a constant that does not fit.
        """
        if value.weak and dtype.is_float:
            self._check_finite(value, dtype, node)
        if not (value.weak and value.dtype.is_integer and dtype.is_integer):
            return
        if isinstance(value.constant, int) and not dtype.min <= value.constant <= dtype.max:
            raise self.refuse.type(
                node,
                f"{_shortened(value.constant)} does not fit {dtype}, which it takes here",
                f"cast the other value to a wider type, or write qn.{dtype}({_shortened(value.constant)}) to wrap",
            )
        if dtype is not i64:
            self.restrict(value, dtype.min, dtype.max, node, str(dtype))

    def _check_finite(self, value: Scalar, dtype: DType, node: Node) -> None:
        """Makes sure that a finite constant stays finite in a float type."""
        number = value.constant
        if number is None or (isinstance(number, float) and not math.isfinite(number)):
            return
        if not math.isfinite(converted(number, dtype)):
            shown = repr(number) if isinstance(number, float) else _shortened(number)
            raise self.refuse.type(
                node,
                f"{shown} does not fit {dtype}, which it takes here: it would be an infinity",
                f"cast the other value to a wider type, or write qn.{dtype}({shown}), or math.inf, for an infinity",
            )

    def restrict(self, value: Scalar, low: int, high: int, node: Node, takes: str = "") -> None:
        """Has the launcher refuse what would bring a weak integer beyond `low` or `high`.

        Raises:
            KernelTypeError: it follows from a parameter in a way that does not tell which values do.
        """
        for origin in value.origins:
            within = bounds_before(origin, low, high)
            if within is None:
                takes = takes or f"an integer from {low} to {high}"
                raise self.refuse.type(
                    node,
                    f"this follows from the parameter `{origin.name}`, which is an int, and takes {takes}, "
                    "which it may not fit",
                    f"cast it, which wraps: `qn.i32(…)`, or declare `{origin.name}` with a type of the language",
                )
            known = self.bounds.get(origin.name, (i64.min, i64.max))
            self.bounds[origin.name] = max(known[0], within[0]), min(known[1], within[1])

    def made(
        self,
        type_: ScalarType,
        expr: nodes.Expr,
        node: Node,
        *parts: Scalar,
        constant: Number | None = None,
        has_load: bool = False,
    ) -> Scalar:
        """A value made of `parts`; through a temporary where its IR would nest too deep."""
        depth = 1 + max((part.depth for part in parts), default=0)
        value = Scalar(type_, expr, constant, has_load=has_load or any(part.has_load for part in parts), depth=depth)
        return self.held(value, node) if depth > _MAX_DEPTH else value

    def held(self, value: Scalar, node: Node) -> Scalar:
        """The value in a temporary."""
        expr = self.expr(value, node)
        name = self.scope.temporary(value.type.dtype)
        loc = self.where(node)
        self.emit(nodes.Assign(name=name, value=expr, loc=loc))
        local = nodes.Local(name=name, type=value.type.dtype, loc=loc)
        return Scalar(value.type, local, value.constant, value.origins)

    def leaf(self, value: Scalar, node: Node) -> Scalar:
        """The value in a form that may be written several times: a constant, name or index, else a temporary."""
        if value.expr is None or isinstance(value.expr, _LEAVES):
            return value
        return self.held(value, node)

    def loads_before(self, values: list[Value], marks: list[tuple[int, int]], nodes_: list[ast.expr]) -> None:
        """Takes what was read before a later operand's call to temporaries, so that operands act from left to right.

        `marks` holds, for each value, the length of the block and the number of calls when it had been evaluated.
        """
        for index in reversed(range(len(values))):
            position, num_calls = marks[index]
            if num_calls == self.num_calls:
                continue
            with self.new_block() as taken:
                values[index] = self._without_loads(values[index], nodes_[index])
            self.block[position:position] = taken

    def _without_loads(self, value: Value, node: Node) -> Value:
        return map_leaves(
            value, lambda _, leaf: self.held(leaf, node) if isinstance(leaf, Scalar) and leaf.has_load else leaf
        )

    def mark(self) -> tuple[int, int]:
        """Where the block stands now, for `loads_before`."""
        return len(self.block), self.num_calls


def _shortened(value: int) -> str:
    return str(value) if abs(value) < 1 << 128 else f"an integer of {value.bit_length()} bits"
