"""Pieces of text: expressions that know how tightly they bind, and lines that know where they come from."""

from __future__ import annotations

import enum

import attrs

from quernel.locations import NOWHERE, Location

__all__ = ["Binding", "Code", "Lines", "call", "infix", "inside", "primary", "unary"]


class Binding(enum.IntEnum):
    """How tightly an expression holds together, from loosest to tightest, as the grammar of C has it."""

    CONDITIONAL = 0
    OR = 1
    AND = 2
    BIT_OR = 3
    BIT_XOR = 4
    BIT_AND = 5
    EQUALITY = 6
    RELATION = 7
    SHIFT = 8
    SUM = 9
    PRODUCT = 10
    UNARY = 11
    PRIMARY = 12


_CHAINED = frozenset({Binding.SUM, Binding.PRODUCT, Binding.AND, Binding.OR})
"""Operators that readers know the order of; all others get parentheses among each other."""


@attrs.frozen
class Code:
    """An expression.

    Attributes:
        text: as C.
        binding: of its outermost operator.
        depth: how deeply it is nested; compilers bound that.
        unsigned: for signed integers, an expression of the same bits in the unsigned type, where that reads better than
            a cast of `text`.
        narrow: for values of 64 bits that were made of fewer, the same as an `int`.
    """

    text: str
    binding: Binding
    depth: int = 0
    unsigned: Code | None = None
    narrow: Code | None = None

    def __str__(self) -> str:
        return self.text


def primary(text: str) -> Code:
    """A name or a literal."""
    return Code(text, Binding.PRIMARY)


def inside(code: Code, binding: Binding) -> str:
    """`code` as an operand of something that binds like `binding`, in parentheses where it needs them."""
    is_clear = code.binding >= Binding.UNARY or {code.binding, binding} <= _CHAINED
    is_clear |= binding in (Binding.AND, Binding.OR) and code.binding >= Binding.EQUALITY
    return code.text if code.binding > binding and is_clear else f"({code.text})"


def infix(binding: Binding, operator: str, left: Code, right: Code) -> Code:
    """`left operator right`."""
    is_chain = left.binding is binding and binding in _CHAINED
    before = left.text if is_chain else inside(left, binding)
    return Code(f"{before} {operator} {inside(right, binding)}", binding, _deeper(left, right))


def unary(operator: str, operand: Code) -> Code:
    """`operator operand`, also for casts."""
    text = operand.text if operand.binding is Binding.PRIMARY else f"({operand.text})"
    return Code(f"{operator}{text}", Binding.UNARY, _deeper(operand))


def call(template: str, *operands: Code, **parts: str) -> Code:
    """A call; its operands stand between commas, so they need no parentheses."""
    return Code(template.format(*operands, **parts), Binding.PRIMARY, _deeper(*operands))


def _deeper(*operands: Code) -> int:
    return 1 + max((operand.depth for operand in operands), default=-1)


class Lines:
    """Lines of text, indented as they are nested, each with the place in the user's source that it stands for."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[tuple[str, Location]] = []
        self._depth = depth

    def add(self, text: str, loc: Location = NOWHERE) -> None:
        """Adds a line at the present depth."""
        self.lines.append((f"{'    ' * self._depth}{text}" if text else "", loc))

    def open(self, text: str, loc: Location = NOWHERE) -> None:
        """Adds a line that ends with a brace; what follows is nested in it."""
        self.add(f"{text} {{" if text else "{", loc)
        self._depth += 1

    def close(self, text: str = "}") -> None:
        """Ends what `open` began."""
        self._depth -= 1
        self.add(text)

    def reopen(self, text: str, loc: Location = NOWHERE) -> None:
        """Ends one nest and opens the next on the same line, as for `else`."""
        self._depth -= 1
        self.add(f"}} {text} {{", loc)
        self._depth += 1

    def extend(self, other: Lines) -> None:
        """Adds the lines of another, which has its own depth."""
        self.lines += other.lines
