"""Vectors of 64-bit integers divided by instructions on vectors, where processors neither divide nor convert them.

LLVM takes such vectors apart: with AVX2 a remainder by a constant of 16 lanes is hundreds of instructions.
"""

from __future__ import annotations

from quernel_cpu.emission.text import Code
from quernel_cpu.emission.values import float_literal, splat, wide

__all__ = ["WideIntegers"]

_COUNTS_ONES = float_literal(1.5 * 2**52)
_COUNTS_ONES_BITS = int(_COUNTS_ONES, 16)


class WideIntegers:
    """Writes instructions on vectors of `i64` into the code of one function."""

    def __init__(self, code: Code, lanes: int) -> None:
        self._code = code
        self._lanes = lanes
        self._integers, self._doubles = wide("i64", lanes), wide("double", lanes)

    # --- as doubles ---------------------------------------------------------------------------------------------------

    def small_as_doubles(self, x: str) -> str:
        """Integers within 2**51 of zero: added to a double so large that it counts ones, which is taken off again."""
        moved = self._do("add", x, self._number(_COUNTS_ONES_BITS))
        high = self._code.value(f"bitcast {self._integers} {moved} to {self._doubles}")
        return self._code.value(f"fsub {self._doubles} {high}, {splat('double', _COUNTS_ONES, self._lanes)}")

    def whole_as_integers(self, x: str) -> str:
        """Whole doubles within 2**51 of zero as integers."""
        high = self._code.value(f"fadd {self._doubles} {x}, {splat('double', _COUNTS_ONES, self._lanes)}")
        moved = self._code.value(f"bitcast {self._doubles} {high} to {self._integers}")
        return self._do("sub", moved, self._number(_COUNTS_ONES_BITS))

    # --- by products --------------------------------------------------------------------------------------------------

    def floor_by_constant(self, x: str, divisor: int, *, signed: bool) -> str:
        """The quotient by a constant above 1 that is no power of two, rounded down; of integers of any size.

        It is the upper half of a product with a fraction, after Granlund and Montgomery, "Division by invariant
        integers using multiplication" (1994). Of a negative integer the complement is divided, and complemented again.
        """
        bits = (divisor - 1).bit_length()
        if signed:
            signs = self._do("ashr", x, self._number(63))
            upper = self._upper_product(self._do("xor", x, signs), (1 << (63 + bits)) // divisor + 1)
            return self._do("xor", self._do("lshr", upper, self._number(bits - 1)), signs)
        upper = self._upper_product(x, (((1 << bits) - divisor) << 64) // divisor + 1)
        rest = self._do("lshr", self._do("sub", x, upper), self._number(1))
        return self._do("lshr", self._do("add", rest, upper), self._number(bits - 1))

    def _upper_product(self, x: str, factor: int) -> str:
        """The upper 64 bits of a product of 64 bits by 64, from four products of 32 bits by 32."""
        low, high = self._lower(x), self._upper(x)
        by_low, by_high = self._number(factor & 0xFFFFFFFF), self._number(factor >> 32)
        middle = self._do("add", self._do("mul", high, by_low), self._upper(self._do("mul", low, by_low)))
        rest = self._do("add", self._do("mul", low, by_high), self._lower(middle))
        most = self._do("add", self._do("mul", high, by_high), self._upper(middle))
        return self._do("add", most, self._upper(rest))

    def _upper(self, x: str) -> str:
        return self._do("lshr", x, self._number(32))

    def _lower(self, x: str) -> str:
        return self._do("and", x, self._number(0xFFFFFFFF))

    def _do(self, instruction: str, left: str, right: str) -> str:
        return self._code.value(f"{instruction} {self._integers} {left}, {right}")

    def _number(self, value: int) -> str:
        return splat("i64", str(value), self._lanes)
