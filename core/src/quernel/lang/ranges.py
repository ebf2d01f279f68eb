"""What a `for` loops over: `range(…)`, plain or unrolled."""

from __future__ import annotations

import ast

import attrs

from quernel import intrinsics
from quernel.dtypes import ScalarType, i64
from quernel.lang.conversions import as_scalar, to_index
from quernel.lang.expressions import evaluate, evaluate_operands
from quernel.lang.lowering import FunctionLowering
from quernel.lang.values import ObjectValue, Scalar, Value

__all__ = ["CountedRange", "counted_range"]


@attrs.frozen
class CountedRange:
    """A range.

    Attributes:
        ends: its start, stop and step, as i64.
        is_unrolled: whether the loop over it is to be unrolled.
    """

    ends: tuple[Scalar, Scalar, Scalar]
    is_unrolled: bool

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
    call, is_unrolled = _call_of_range(lowering, node)
    values = evaluate_operands(lowering, call.args)
    ends = [
        to_index(lowering, as_scalar(lowering, value, at), at, "an end of a range")
        for value, at in zip(values, call.args, strict=True)
    ]
    if len(ends) == 1:
        ends = [_constant(0), *ends]
    start, stop, step = ends if len(ends) == 3 else (*ends, _constant(1))
    if step.constant == 0:
        raise lowering.refuse.type(call.args[2], "the step of a range is 0", "use a step other than 0")
    return CountedRange((start, stop, step), is_unrolled)


def _constant(value: int) -> Scalar:
    return Scalar(ScalarType(i64), constant=value)


def _call_of_range(lowering: FunctionLowering, node: ast.expr) -> tuple[ast.Call, bool]:
    """The call of `range`, and whether it stands in `qn.unroll`."""
    is_unrolled = False
    call = node
    if isinstance(call, ast.Call) and _is_object(evaluate(lowering, call.func), intrinsics.unroll):
        is_unrolled = True
        if len(call.args) != 1 or call.keywords:
            raise lowering.refuse.type(node, "`qn.unroll` takes one range", "write `qn.unroll(range(…))`")
        call = call.args[0]
    if not isinstance(call, ast.Call) or not _is_object(evaluate(lowering, call.func), range):
        raise lowering.refuse.syntax(
            node,
            f"a kernel cannot loop over `{ast.unparse(node)}`",
            "loop over `range(…)`, for example `for k in range(len(a)):`",
        )
    if call.keywords or not 1 <= len(call.args) <= 3:
        raise lowering.refuse.type(call, "`range` takes one to three arguments", "write `range(start, stop, step)`")
    return call, is_unrolled


def _is_object(value: Value, wanted: object) -> bool:
    return isinstance(value, ObjectValue) and value.value is wanted
