"""Definitions of functions that a text brings along, each only where it is used."""

from __future__ import annotations

from collections.abc import Callable

from quernel.codegen.dialect import Dialect
from quernel.codegen.literals import float_literal, integer_literal
from quernel.codegen.names import HELPER_PREFIX
from quernel.codegen.text import Binding
from quernel.dtypes import DType, f32, f64, u32, u64
from quernel.ir.nodes import MathFunction

__all__ = ["Definitions"]


class Definitions:
    """The functions used so far, those that others call first."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._texts: dict[str, str] = {}
        self.features: dict[str, None] = {}
        """What the text uses that may need a line of its own at the start."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The definitions, in an order in which each stands before its users."""
        return tuple(self._texts.values())

    def define(self, name: str, make: Callable[[str], str]) -> str:
        """The full name of a function, whose text `make(full name)` gives when it is first asked for."""
        full = HELPER_PREFIX + name
        if full not in self._texts:
            given = self._dialect.helpers.get(name)
            text = make(full) if given is None else given.format(name=full, function=self._dialect.function)
            self._texts[full] = text
        return full

    def note(self, *dtypes: DType) -> None:
        """Remembers the features that values of such types are."""
        if f64 in dtypes:
            self.features["f64"] = None

    def function(self, function: MathFunction, dtype: DType) -> str:
        """A function that the dialect spells out itself."""
        text = self._dialect.functions[function]
        return self.define(
            f"{function.value}_{dtype.name}",
            lambda name: text.format(name=name, type=self._type(dtype), function=self._dialect.function),
        )

    # --- shorthands ---------------------------------------------------------------------------------------------------

    def _type(self, dtype: DType) -> str:
        self.note(dtype)
        return self._dialect.types[dtype]

    def _head(self, result: DType, name: str, *params: tuple[DType, str]) -> str:
        listed = ", ".join(f"{self._type(dtype)} {param}" for dtype, param in params)
        return f"{self._dialect.function} {self._type(result)} {name}({listed})\n"

    def _int(self, value: int, dtype: DType) -> str:
        code = integer_literal(self._dialect, value, dtype)
        return code.text if code.binding >= Binding.UNARY else f"({code.text})"

    def _float(self, value: float, dtype: DType) -> str:
        return float_literal(self._dialect, value, dtype).text

    def _bits(self, to: DType, text: str) -> str:
        source = {f32: u32, u32: f32, f64: u64, u64: f64}[to]
        return self._dialect.bitcasts[source, to].format(text)

    def _math(self, template: str, dtype: DType, *operands: str) -> str:
        return template.format(*operands, f=self._dialect.math_suffix if dtype is f32 else "")
