"""What a code object means, without what only places it: positions, caches, docstring, order of constants."""

from __future__ import annotations

import opcode
from itertools import compress
from types import CodeType
from typing import NamedTuple

__all__ = ["Lookups", "lookups", "meaningful_flags", "normalized_code", "without_generated"]

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


class Lookups(NamedTuple):
    """The names that a code object may look up, each once, in order of first appearance.

    `as_globals` and `as_attributes` say which of them may be looked up so; both err on the side of too many.
    """

    names: tuple[str, ...]
    as_globals: frozenset[str]
    as_attributes: frozenset[str]


def lookups(code: CodeType) -> Lookups:
    """The names that `code`, or code nested in it, may look up."""
    names = code.co_names
    instructions = code.co_code
    opcodes, arguments = instructions[::2], instructions[1::2]
    nested = [constant for constant in code.co_consts if type(constant) is CodeType]
    # Beyond 63 names an argument may not fit its byte.
    if nested or len(names) > 63 or 1 in opcodes.translate(_NAMES_OTHERWISE):
        inner_names = [name for inner in nested for name in lookups(inner).names]
        names = without_generated(tuple(dict.fromkeys([*names, *inner_names])))
        return Lookups(names, frozenset(names), frozenset(names))
    as_globals = [names[at >> _GLOBAL_SHIFT] for at in compress(arguments, opcodes.translate(_NAMES_GLOBAL))]
    as_attributes = [
        names[at >> shift]
        for shift, names_attribute in _NAMES_ATTRIBUTE
        for at in compress(arguments, opcodes.translate(names_attribute))
    ]
    return Lookups(without_generated(names), frozenset(as_globals), frozenset(as_attributes))


def _name_operand(code: CodeType) -> tuple[int, int]:
    """The opcode of the last instruction of `code` that names `co_names[1]`, and how many flag bits it puts below."""
    instructions = code.co_code
    pairs = zip(instructions[::2], instructions[1::2], strict=True)
    op, argument = [(op, argument) for op, argument in pairs if op in opcode.hasname][-1]
    return op, argument.bit_length() - 1


# Which flags stand below the index of a name differs between Python versions: it is read off code compiled by this one.
_LOAD_GLOBAL, _GLOBAL_SHIFT = _name_operand((lambda: (a, b)).__code__)  # type: ignore[name-defined]  # noqa: F821
_ATTRIBUTE_SHIFTS = dict(
    [_name_operand((lambda x: (x.a, x.b)).__code__), _name_operand((lambda x: (x.a(), x.b())).__code__)]
)
_NAMES_GLOBAL = bytes(op == _LOAD_GLOBAL for op in range(256))
_NAMES_ATTRIBUTE = tuple(
    [
        (shift, bytes(_ATTRIBUTE_SHIFTS.get(op) == shift for op in range(256)))
        for shift in sorted({*_ATTRIBUTE_SHIFTS.values()})
    ]
)
_NAMES_OTHERWISE = bytes(
    op in opcode.hasname and op != _LOAD_GLOBAL and op not in _ATTRIBUTE_SHIFTS for op in range(256)
)
