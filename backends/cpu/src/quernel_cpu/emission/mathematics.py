"""The mathematical functions: exact ones as instructions, the others as calls of the C library.

LLVM's own intrinsics would become scalar calls. Called by its C name, with its vector forms attached, a function is
vectorised along with the loop where the vector library has it. On vectors of lanes our own functions come first; then
the vector forms, called here as often as they take; a function without one is called lane by lane.
"""

from __future__ import annotations

from typing import assert_never

from quernel.dtypes import DType
from quernel.ir.nodes import MathFunction
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.inline_functions import inline_function
from quernel_cpu.emission.narrow import rounded
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import register_type, type_suffix, wide
from quernel_cpu.emission.widening import lanewise

__all__ = ["emit_math"]

_INFINITY = float("inf")
_C_NAMES = {MathFunction.GAMMA: "tgamma"}


def emit_math(
    unit: Unit, code: Code, arithmetic: Arithmetic, function: MathFunction, operand: DType, values: tuple[str, ...]
) -> str:
    """The function of values of the type `operand`; a bool for the predicates, else a value of that type."""
    llvm = arithmetic.type(operand)
    x = values[0]
    match function:
        case MathFunction.SQRT | MathFunction.FLOOR | MathFunction.CEIL | MathFunction.TRUNC:
            result = arithmetic.intrinsic(function.value, llvm, x)
        case MathFunction.RINT:
            result = arithmetic.intrinsic("rint", llvm, x)
        case MathFunction.COPYSIGN:
            result = arithmetic.intrinsic("copysign", llvm, *values)
        case MathFunction.RSQRT:
            root = arithmetic.intrinsic("sqrt", llvm, x)
            result = code.value(f"fdiv {arithmetic.flags}{llvm} {arithmetic.number(operand, 1.0)}, {root}")
        case MathFunction.ISNAN:
            return code.value(f"fcmp uno {llvm} {x}, {x}")
        case MathFunction.ISINF:
            return code.value(
                f"fcmp oeq {llvm} {arithmetic.intrinsic('fabs', llvm, x)}, {arithmetic.number(operand, _INFINITY)}"
            )
        case MathFunction.ISFINITE:
            return code.value(
                f"fcmp olt {llvm} {arithmetic.intrinsic('fabs', llvm, x)}, {arithmetic.number(operand, _INFINITY)}"
            )
        case MathFunction.POPCOUNT:
            return arithmetic.intrinsic("ctpop", llvm, x)
        case MathFunction.CLZ | MathFunction.CTZ:
            name = "ctlz" if function is MathFunction.CLZ else "cttz"
            symbol = unit.declare(llvm, f"llvm.{name}.{type_suffix(llvm)}", llvm, "i1")
            return code.value(f"call {llvm} {symbol}({llvm} {x}, i1 false)")
        case (
            MathFunction.EXP
            | MathFunction.EXP2
            | MathFunction.EXPM1
            | MathFunction.LOG
            | MathFunction.LOG2
            | MathFunction.LOG10
            | MathFunction.LOG1P
            | MathFunction.SIN
            | MathFunction.COS
            | MathFunction.TAN
            | MathFunction.ASIN
            | MathFunction.ACOS
            | MathFunction.ATAN
            | MathFunction.ATAN2
            | MathFunction.SINH
            | MathFunction.COSH
            | MathFunction.TANH
            | MathFunction.ASINH
            | MathFunction.ACOSH
            | MathFunction.ATANH
            | MathFunction.ERF
            | MathFunction.ERFC
            | MathFunction.GAMMA
            | MathFunction.LGAMMA
            | MathFunction.CBRT
            | MathFunction.POW
            | MathFunction.FMOD
            | MathFunction.HYPOT
        ):
            single = register_type(operand)
            own = inline_function(unit, function, single, arithmetic.lanes) if arithmetic.lanes else None
            if own is not None:
                operands = ", ".join(f"{llvm} {value}" for value in values)
                return rounded(arithmetic, operand, code.value(f"call {llvm} {own}({operands})"))
            name = _C_NAMES.get(function, function.value) + ("" if single == "double" else "f")
            symbol = unit.pure_function(single, name, len(values))
            if arithmetic.lanes:
                result = _on_vectors(unit, code, single, name, arithmetic.lanes, values)
            else:
                operands = ", ".join(f"{llvm} {value}" for value in values)
                # LLVM takes the remainder of a finite value by one that is not zero to be no NaN, and forgets NaNs.
                suffix = " nobuiltin" if function is MathFunction.FMOD else ""
                result = code.value(f"call {llvm} {symbol}({operands}){suffix}")
        case _:
            assert_never(function)
    return rounded(arithmetic, operand, result)


def _on_vectors(unit: Unit, code: Code, single: str, name: str, lanes: int, values: tuple[str, ...]) -> str:
    """A C function of vectors, in pieces as long as its longest vector form that fits."""
    forms = [form for form in unit.vector_forms(name) if lanes % form[1] == 0]
    vector = wide(single, lanes)
    if not forms:
        function = lanewise(unit, name, single, len(values), lanes)
        return code.value(f"call {vector} {function}({', '.join(f'{vector} {value}' for value in values)})")
    symbol, size = max(forms, key=lambda form: form[1])
    piece = wide(single, size)
    operands = ", ".join([piece] * len(values))
    unit.define(symbol, lambda: f"declare {piece} @{symbol}({operands}) nounwind willreturn memory(none)")
    pieces = []
    for first in range(0, lanes, size):
        parts = [code.part(vector, value, range(first, first + size)) for value in values]
        pieces.append(code.value(f"call {piece} @{symbol}({', '.join(f'{piece} {part}' for part in parts)})"))
    return code.joined(single, size, pieces)
