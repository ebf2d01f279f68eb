"""What a code object means, without what only places it: positions, caches, docstring, order of constants."""

from __future__ import annotations

import opcode
from itertools import compress
from types import CodeType

__all__ = ["looked_up_names", "normalized_code", "without_generated"]

_CONSTANT_OPCODES = frozenset(op for op in opcode.hasconst if op < 256)
_TAKES_CONSTANT = bytes(op in _CONSTANT_OPCODES for op in range(256))
_KEEPS_ARGUMENT = bytes(0 if op in _CONSTANT_OPCODES else 255 for op in range(256))
_EXTENDED_ARG = opcode.opmap["EXTENDED_ARG"]

_HAS_DOCSTRING = 0x4000000
"""The flag by which Python 3.14 marks a docstring; below, the docstring is just the first constant."""


def normalized_code(code: CodeType) -> tuple[bytes, bytes, tuple[object, ...]]:
    """Opcodes, their arguments with those that index a constant set to zero, and the constants in order of use.

    A docstring takes an index of its own and so moves the others; by order of use, its presence leaves no trace.
    Constants that no instruction loads (the docstring, leftovers of folding) are left out.
    """
    instructions = code.co_code
    opcodes, arguments = instructions[::2], instructions[1::2]
    constants = code.co_consts
    if len(constants) > 256:
        return _normalized_with_wide_indices(opcodes, arguments, constants)
    used = compress(arguments, opcodes.translate(_TAKES_CONSTANT))
    kept = int.from_bytes(arguments, "little") & int.from_bytes(opcodes.translate(_KEEPS_ARGUMENT), "little")
    return opcodes, kept.to_bytes(len(arguments), "little"), tuple([constants[index] for index in used])


def _normalized_with_wide_indices(
    opcodes: bytes, arguments: bytes, constants: tuple[object, ...]
) -> tuple[bytes, bytes, tuple[object, ...]]:
    """The same where an index may be spread over `EXTENDED_ARG` prefixes, which are dropped: they come and go."""
    kept_opcodes, kept_arguments = bytearray(), bytearray()
    used: list[object] = []
    prefixes = bytearray()
    for op, argument in zip(opcodes, arguments, strict=True):
        if op == _EXTENDED_ARG:
            prefixes.append(argument)
            continue
        if op in _CONSTANT_OPCODES:
            used.append(constants[int.from_bytes((*prefixes, argument), "big")])
            argument = 0
        else:
            kept_opcodes.extend([_EXTENDED_ARG] * len(prefixes))
            kept_arguments.extend(prefixes)
        kept_opcodes.append(op)
        kept_arguments.append(argument)
        prefixes.clear()
    return bytes(kept_opcodes), bytes(kept_arguments), tuple(used)


def meaningful_flags(code: CodeType) -> int:
    """`co_flags` without the mark of a docstring."""
    return code.co_flags & ~_HAS_DOCSTRING


def without_generated(names: tuple[str, ...]) -> tuple[str, ...]:
    """`names` without those that start with `@`, which pytest's rewriting of assertions makes up."""
    if "@" in "".join(names):
        return tuple([name for name in names if not name.startswith("@")])
    return names


def looked_up_names(code: CodeType) -> tuple[str, ...]:
    """Every name that `code` and the code nested in it may look up, each once, in order of first appearance."""
    names = code.co_names
    nested = [constant for constant in code.co_consts if type(constant) is CodeType]
    if nested:
        names = tuple(dict.fromkeys([*names, *(name for inner in nested for name in looked_up_names(inner))]))
    return without_generated(names)
