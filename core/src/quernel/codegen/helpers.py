"""The functions that a text brings along: what C leaves undefined, spelled out."""

from __future__ import annotations

from quernel.codegen.arithmetic import Arithmetic
from quernel.codegen.conversions import Conversions

__all__ = ["Helpers"]


class Helpers(Arithmetic, Conversions):
    """Those of one text."""
