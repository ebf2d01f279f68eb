"""LLVM IR as text: one module in the making, and the code of one function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

__all__ = ["Code", "Unit"]

_MOST_INLINED = 16
"""A function that is to be shared is inlined at up to so many places."""
_VALUE = re.compile(r"%v[0-9]+")


class Unit:
    """One LLVM module in the making: declarations and helper functions appear once, in the order of their first use."""

    def __init__(
        self, features: frozenset[str], vector_functions: VectorFunctions, gathers: Callable[[], bool]
    ) -> None:
        """`features`: those of the target that are on. `vector_functions`: the vector forms of a C function.

        `gathers`: whether LLVM gathers with one instruction there.
        """
        self.features = features
        self.gathers = gathers
        self._vector_functions = vector_functions
        self._globals: dict[str, str] = {}
        self._functions: list[str] = []
        self._shared: dict[str, Callable[[str], str]] = {}
        self._metadata: list[str] = []
        self._kept: list[str] = []
        self._num_fresh = 0

    def declare(self, result: str, name: str, *operands: str) -> str:
        """The symbol of an external function of these types, declared."""
        return self.define(name, lambda: f"declare {result} @{name}({', '.join(operands)})")

    def define(self, name: str, make: Callable[[], str]) -> str:
        """The symbol of a function or constant that `make` gives the text of, at its first use."""
        if name not in self._globals:
            self._globals[name] = ""  # `make` may define others before it.
            self._globals[name] = make()
        return f"@{name}"

    def define_shared(self, name: str, make: Callable[[str], str]) -> str:
        """The symbol of a function that is called where it stands if few places do, else one for all of them.

        `make(mark)` gives its text, with that attribute.
        """
        if name not in self._shared:
            self._shared[name] = make
        return f"@{name}"

    def pure_function(self, scalar: str, name: str, num_operands: int) -> str:
        """The symbol of a C function of floats without side effects, with its vector forms where there are any."""

        def make() -> str:
            variants = []
            for symbol, lanes in self._vector_functions(name):
                vector = f"<{lanes} x {scalar}>"
                self.declare(vector, symbol, *[vector] * num_operands)
                self._kept.append(symbol)
                variants.append(f"{symbol}({symbol})")
            attribute = f' "vector-function-abi-variant"="{",".join(variants)}"' if variants else ""
            operands = ", ".join([scalar] * num_operands)
            return f"declare {scalar} @{name}({operands}) nounwind willreturn memory(none){attribute}"

        return self.define(name, make)

    def vector_forms(self, name: str) -> tuple[tuple[str, int], ...]:
        """The (symbol, lanes) pairs of the vector forms of a C function."""
        return self._vector_functions(name)

    def fresh(self, hint: str) -> str:
        """The symbol of another function, to be added."""
        self._num_fresh += 1
        return f"@{hint}{self._num_fresh}"

    def add_function(self, text: str) -> None:
        """Adds the definition of a function."""
        self._functions.append(text)

    def metadata(self, content: str) -> str:
        """A new distinct metadata node; `self` in `content` names the node itself."""
        number = len(self._metadata)
        self._metadata.append(f"!{number} = distinct !{{{content.replace('self', f'!{number}')}}}")
        return f"!{number}"

    def __str__(self) -> str:
        parts = [*self._globals.values(), *self._functions]
        for name, make in self._shared.items():
            num_calls = sum(part.count(f"@{name}(") for part in parts)
            parts.append(make("alwaysinline" if num_calls <= _MOST_INLINED else "noinline"))
        if self._kept:
            kept = ", ".join(f"ptr @{symbol}" for symbol in self._kept)
            parts.append(
                f'@llvm.compiler.used = appending global [{len(self._kept)} x ptr] [{kept}], section "llvm.metadata"'
            )
        return "\n".join([*parts, *self._metadata, ""])


VectorFunctions = Callable[[str], tuple[tuple[str, int], ...]]
"""The (symbol, lanes) pairs of the vector forms of a C function."""


class Code:
    """The code of one function: lines in basic blocks, with allocations gathered at the entry."""

    def __init__(self, first_value: int = 0) -> None:
        """`first_value`: values are numbered from there on."""
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._num_values = first_value
        self._num_labels = 0
        self.is_closed = False
        """Whether the current block has ended, so that what follows is not reached."""

    def value(self, instruction: str) -> str:
        """The result of an instruction."""
        name = f"%v{self._num_values}"
        self._num_values += 1
        self._lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {instruction}")

    def part(self, vector: str, value: str, lanes: Iterable[int]) -> str:
        """The given lanes of a vector, in this order."""
        listed = list(lanes)
        if vector.startswith(f"<{len(listed)} x") and listed == list(range(len(listed))):
            return value
        order = ", ".join(f"i32 {lane}" for lane in listed)
        return self.value(f"shufflevector {vector} {value}, {vector} poison, <{len(listed)} x i32> <{order}>")

    def joined(self, element: str, size: int, parts: list[str]) -> str:
        """Vectors of equal size, a power of two in number, one behind the other."""
        while len(parts) > 1:
            vector, order = f"<{size} x {element}>", ", ".join(f"i32 {lane}" for lane in range(2 * size))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [
                self.value(f"shufflevector {vector} {left}, {vector} {right}, <{2 * size} x i32> <{order}>")
                for left, right in pairs
            ]
            size *= 2
        return parts[0]

    def allocate(self, llvm_type: str, alignment: int = 0) -> str:
        """The address of a slot of the function's frame."""
        name = f"%v{self._num_values}"
        self._num_values += 1
        self._entry.append(f"  {name} = alloca {llvm_type}" + (f", align {alignment}" if alignment else ""))
        return name

    def apart(self) -> Code:
        """Code of another function, in which the values that this one has so far may be parameters by their names."""
        return Code(self._num_values)

    def mentions(self) -> frozenset[str]:
        """The values that the code names."""
        return frozenset(name for line in (*self._entry, *self._lines) for name in _VALUE.findall(line))

    def label(self, hint: str) -> str:
        """A new label, to be placed."""
        self._num_labels += 1
        return f"{hint}{self._num_labels}"

    def place(self, label: str) -> None:
        """Starts the block of that name; what came before falls into it."""
        if not self.is_closed:
            self.branch(label)
        self._lines.append(f"{label}:")
        self.is_closed = False

    def branch(self, label: str, metadata: str = "") -> None:
        """Goes to the block of that name."""
        self.end(f"br label %{label}{metadata}")

    def branch_if(self, condition: str, then: str, otherwise: str) -> None:
        """Goes to one of two blocks."""
        self.end(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def end(self, terminator: str) -> None:
        """Ends the current block."""
        self._lines.append(f"  {terminator}")
        self.is_closed = True

    def function(self, signature: str) -> str:
        """The text of the whole function."""
        return "\n".join([f"define {signature} {{", "entry:", *self._entry, *self._lines, "}", ""])
