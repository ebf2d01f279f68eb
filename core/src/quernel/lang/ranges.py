"""What a `for` loops over: `range(…)`, and what is written out item by item."""

from __future__ import annotations

import ast
from typing import Final

import attrs

from quernel import intrinsics
from quernel.dtypes import ScalarType, i64
from quernel.lang.constants import constant
from quernel.lang.conversions import as_scalar, to_index
from quernel.lang.expressions import evaluate, evaluate_operands
from quernel.lang.lowering import FunctionLowering
from quernel.lang.values import ObjectValue, Scalar, TupleValue, Value, VectorValue

__all__ = ["MAX_UNROLLED", "CountedRange", "check_unrolled", "counted_range", "unrolled_items"]

MAX_UNROLLED: Final = 1024
"""The most copies of its body that an unrolled loop may make."""


@attrs.frozen
class CountedRange:
    """A range: its start, stop and step, as i64."""

    ends: tuple[Scalar, Scalar, Scalar]

    @property
    def trips(self) -> range | None:
        """The values of the loop's variable, where the ends are known when the kernel is compiled."""
        start, stop, step = (end.constant for end in self.ends)
        if start is None or stop is None or step is None:
            return None
        return range(int(start), int(stop), int(step))


def counted_range(lowering: FunctionLowering, node: ast.expr) -> CountedRange:
    """The range that `node` says.

    Raises:
        KernelSyntaxError: it says something else.
        KernelTypeError: an end that is no integer, or a step of 0.
    """
    if not isinstance(node, ast.Call) or not _calls(lowering, node, range):
        raise lowering.refuse.syntax(
            node,
            f"a kernel cannot loop over `{ast.unparse(node)}`",
            "loop over `range(…)`, for example `for k in range(len(a)):`",
        )
    if node.keywords or not 1 <= len(node.args) <= 3:
        raise lowering.refuse.type(node, "`range` takes one to three arguments", "write `range(start, stop, step)`")
    values = evaluate_operands(lowering, node.args)
    ends = [
        to_index(lowering, as_scalar(lowering, value, at), at, "an end of a range")
        for value, at in zip(values, node.args, strict=True)
    ]
    if len(ends) == 1:
        ends = [_typed(0), *ends]
    start, stop, step = ends if len(ends) == 3 else (*ends, _typed(1))
    if step.constant == 0:
        raise lowering.refuse.type(node.args[2], "the step of a range is 0", "use a step other than 0")
    return CountedRange((start, stop, step))


def unrolled_items(lowering: FunctionLowering, node: ast.expr) -> list[Value] | None:
    """The items over which a loop is written out: of `qn.unroll(…)`, a tuple, or `enumerate` and `zip` of these.

    `None` where `node` is a plain range, or nothing to loop over.

    Raises:
        KernelTypeError: the ends of an unrolled range are not known when the kernel is compiled.
    """
    if isinstance(node, ast.Call):
        if _calls(lowering, node, intrinsics.unroll):
            if len(node.args) != 1 or node.keywords:
                raise lowering.refuse.type(node, "`qn.unroll` takes one range", "write `qn.unroll(range(…))`")
            return _items(lowering, node.args[0], node)
        if any(_calls(lowering, node, python) for python in (enumerate, zip)):
            return _items(lowering, node, node)
        return None if _calls(lowering, node, range) else _items_of(evaluate(lowering, node))
    if isinstance(node, ast.Name | ast.Tuple | ast.Attribute | ast.Subscript | ast.IfExp):
        return _items_of(evaluate(lowering, node))
    return None


def check_unrolled(lowering: FunctionLowering, node: ast.expr, num_items: int) -> None:
    """Makes sure that a loop is not written out too often.

    Raises:
        KernelTypeError: it would be.
    """
    if num_items > MAX_UNROLLED:
        raise lowering.refuse.type(
            node,
            f"this loop would be unrolled into {num_items} copies of its body",
            f"unroll at most {MAX_UNROLLED}, or use a plain `range`",
        )


def _items_of(value: Value) -> list[Value] | None:
    return list(value.items) if isinstance(value, TupleValue | VectorValue) else None


def _items(lowering: FunctionLowering, node: ast.expr, whole: ast.Call) -> list[Value]:
    """The items of something that has to be written out; `whole` is the outermost call that says so."""
    if isinstance(node, ast.Call) and _calls(lowering, node, range):
        trips = counted_range(lowering, node).trips
        if trips is None:
            raise lowering.refuse.type(
                whole,
                "an unrolled loop must have ends that are known when the kernel is compiled",
                "use literals, captured constants or `qn.Const` parameters, or a plain `range`",
            )
        check_unrolled(lowering, whole, len(trips))
        return [_typed(value) for value in trips]
    if isinstance(node, ast.Call) and _calls(lowering, node, enumerate):
        return _enumerated(lowering, node, whole)
    if isinstance(node, ast.Call) and _calls(lowering, node, zip) and not node.keywords:
        columns = [_items(lowering, argument, whole) for argument in node.args]
        return [TupleValue(row) for row in zip(*columns, strict=False)]
    items = unrolled_items(lowering, node)
    if items is None:
        raise lowering.refuse.syntax(
            node,
            f"a kernel cannot loop over `{ast.unparse(node)}`",
            "loop over `range(…)`, a tuple, or `enumerate` or `zip` of them",
        )
    return items


def _enumerated(lowering: FunctionLowering, node: ast.Call, whole: ast.Call) -> list[Value]:
    given = [*node.args[1:], *(keyword.value for keyword in node.keywords if keyword.arg == "start")]
    first = evaluate(lowering, given[0]) if given else constant(0)
    if len(node.args) + len(node.keywords) > 2 or not node.args or len(given) > 1:
        raise lowering.refuse.type(node, "`enumerate` takes items and a start", "write `enumerate(t, 1)`")
    if not isinstance(first, Scalar) or not isinstance(first.constant, int):
        raise lowering.refuse.type(given[0], "the start of `enumerate` must be a constant integer", "write a number")
    items = _items(lowering, node.args[0], whole)
    return [TupleValue((_typed(number), item)) for number, item in enumerate(items, first.constant)]


def _typed(value: int) -> Scalar:
    return Scalar(ScalarType(i64), constant=value)


def _calls(lowering: FunctionLowering, node: ast.Call, wanted: object) -> bool:
    """Whether the call is of `wanted`, which has a name."""
    name = node.func
    while isinstance(name, ast.Attribute):
        name = name.value
    if not isinstance(name, ast.Name):
        return False
    function = evaluate(lowering, node.func)
    return isinstance(function, ObjectValue) and function.value is wanted
