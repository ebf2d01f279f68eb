"""Atomics: native where the dialect has them, else a loop round compare-and-exchange of the bits.

The language's comparisons and minima are by value, so floats always go through such a loop but for what the dialect
names. All give the old value.
"""

from __future__ import annotations

from quernel.codegen.dialect import Dialect
from quernel.codegen.helpers import Helpers
from quernel.codegen.operators import Operators
from quernel.codegen.text import Code, call, primary
from quernel.codegen.types import Types
from quernel.dtypes import DType, u32, u64
from quernel.ir.nodes import AtomicOp, BinaryOp, CompareOp, RootKind

__all__ = ["Atomics", "has_atomic"]

_BINARY = {
    AtomicOp.ADD: BinaryOp.ADD,
    AtomicOp.SUB: BinaryOp.SUB,
    AtomicOp.MIN: BinaryOp.MIN,
    AtomicOp.MAX: BinaryOp.MAX,
    AtomicOp.AND: BinaryOp.AND,
    AtomicOp.OR: BinaryOp.OR,
    AtomicOp.XOR: BinaryOp.XOR,
}


def has_atomic(dialect: Dialect, op: AtomicOp, dtype: DType) -> bool:
    """Whether the dialect can do it, natively or by a loop."""
    return (op, dtype) in dialect.atomics or dtype.bits in dialect.compare_exchange


class Atomics:
    """The atomics of one text."""

    def __init__(self, dialect: Dialect, helpers: Helpers, types: Types, operators: Operators) -> None:
        self._dialect = dialect
        self._helpers = helpers
        self._types = types
        self._operators = operators

    def value(self, op: AtomicOp, dtype: DType, kind: RootKind, address: str, operands: tuple[Code, ...]) -> str:
        """The call that does it and gives the old value."""
        if dtype.bits == 64:
            self._helpers.features["int64_atomics"] = None
        native = self._dialect.atomics.get((op, dtype))
        space = self._dialect.space(kind)
        if native is not None and kind is not RootKind.PRIVATE:
            return call(native, *operands, place=address, space=space).text
        where = "" if self._dialect.has_one_address_space else f"_{kind.value}"
        name = self._helpers.define(
            f"atomic_{op.value}_{dtype.name}{where}", lambda name: self._loop(name, op, dtype, kind)
        )
        return call(f"{name}({address}, {', '.join(f'{{{n}}}' for n in range(len(operands)))})", *operands).text

    def _loop(self, name: str, op: AtomicOp, dtype: DType, kind: RootKind) -> str:
        """A function that tries until no other thread came in between; on a thread's own memory none ever does."""
        space, c_type = self._dialect.space(kind), self._types.value(dtype)
        bits = {32: u32, 64: u64}[dtype.bits]
        bits_type = self._types.value(bits)
        params = ["desired"] if op is not AtomicOp.COMPARE_EXCHANGE else ["expected", "desired"]
        listed = ", ".join(f"{c_type} {param}" for param in params)
        old, desired = primary("old"), primary("desired")
        match op:
            case AtomicOp.EXCHANGE:
                new = desired
            case AtomicOp.COMPARE_EXCHANGE:
                equal = self._operators.compare(CompareOp.EQ, old, primary("expected"))
                new = self._operators.select(equal, desired, old)
            case _:
                new = self._operators.binary(_BINARY[op], dtype, old, desired)
        new_bits = self._operators.bitcast(dtype, bits, new)
        if kind is RootKind.PRIVATE:
            return f"""{self._dialect.function} {c_type} {name}({space}{c_type} *place, {listed})
{{
    const {c_type} old = *place;
    *place = {new};
    return old;
}}
"""
        exchange = self._dialect.compare_exchange[dtype.bits].format("seen", new_bits, place="bits", space=space)
        value = self._operators.bitcast(bits, dtype, primary("seen"))
        return f"""{self._dialect.function} {c_type} {name}(volatile {space}{c_type} *place, {listed})
{{
    volatile {space}{bits_type} *bits = (volatile {space}{bits_type} *)place;
    {bits_type} seen = *bits;
    while (true) {{
        const {c_type} old = {value};
        const {bits_type} found = {exchange};
        if (found == seen) {{
            return old;
        }}
        seen = found;
    }}
}}
"""
