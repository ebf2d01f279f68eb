"""Helper functions of single values made to work on vectors: instruction by instruction, or a lane after the other."""

from __future__ import annotations

import re

from quernel_cpu.emission.text import Unit
from quernel_cpu.emission.values import splat, wide

__all__ = ["lanewise", "widened"]

_TYPE = r"(?<![\w.%@])(?:float|double|half|i\d+)\b"
_TOKEN = re.compile(rf"({_TYPE})|(@[\w.]+)|(?<=[ ,(])(-?\d+|0x[0-9A-F]+|true|false)(?=[,)\n]|$)")
_INTRINSIC_TYPE = re.compile(r"\.([fi]\d+)$")


def widened(unit: Unit, text: str, lanes: int) -> str:
    """The vector form of a helper function: straight-line code, every operand of which is a lane's own.

    Functions that it calls are intrinsics or helpers, whose vector forms it declares or makes.
    """
    return "\n".join(_widened_line(unit, line, lanes) for line in text.split("\n"))


def _widened_line(unit: Unit, line: str, lanes: int) -> str:
    last_type = ""
    is_head = line.startswith("define")

    def replaced(token: re.Match[str]) -> str:
        nonlocal last_type
        llvm, symbol, number = token.groups()
        if llvm:
            last_type = llvm
            return wide(llvm, lanes)
        if number:
            return splat(last_type, number, lanes)
        if is_head:
            return f"{symbol}.v{lanes}"
        operands = line.count(",", token.end()) + 1
        return _vector_function(unit, symbol.removeprefix("@"), last_type, operands, lanes)

    return _TOKEN.sub(replaced, line)


def _vector_function(unit: Unit, name: str, scalar: str, num_operands: int, lanes: int) -> str:
    if not name.startswith("llvm."):
        return lanewise(unit, name, scalar, num_operands, lanes)
    vector = wide(scalar, lanes)
    return unit.declare(vector, _INTRINSIC_TYPE.sub(rf".v{lanes}\1", name), *[vector] * num_operands)


def lanewise(unit: Unit, name: str, scalar: str, num_operands: int, lanes: int) -> str:
    """The symbol of a function that calls `@name` for each lane; its operands and its result are of one type.

    LLVM takes a remainder of finite values to be no NaN, so it is not told which function it calls.
    """
    vector = wide(scalar, lanes)

    def make() -> str:
        operands = [f"%x{number}" for number in range(num_operands)]
        lines = [
            f"define internal {vector} @{name}.v{lanes}({', '.join(f'{vector} {x}' for x in operands)}) "
            "noinline nounwind willreturn memory(none) alignstack(64) {"
        ]
        result = "poison"
        for lane in range(lanes):
            parts = []
            for number, operand in enumerate(operands):
                lines.append(f"  %p{number}.{lane} = extractelement {vector} {operand}, i64 {lane}")
                parts.append(f"{scalar} %p{number}.{lane}")
            lines.append(f"  %y{lane} = call {scalar} @{name}({', '.join(parts)}) nobuiltin")
            lines.append(f"  %r{lane} = insertelement {vector} {result}, {scalar} %y{lane}, i64 {lane}")
            result = f"%r{lane}"
        return "\n".join([*lines, f"  ret {vector} {result}", "}", ""])

    return unit.define(f"{name}.v{lanes}", make)
