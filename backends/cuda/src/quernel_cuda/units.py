"""Several lowered kernels as one text for NVRTC."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from quernel.codegen.names import ENTRY_MACRO

if TYPE_CHECKING:
    from quernel.compiler.lowered_text import LoweredText

__all__ = ["Unit", "unit_of"]

_DIGITS = 16


@attrs.frozen
class Unit:
    """A text and the names of its entry points, one for each kernel, in order."""

    text: str
    entries: tuple[str, ...]


def unit_of(kernels: Sequence[LoweredText]) -> Unit:
    """The kernels' texts, each in a namespace of its own, under entry points named after what they are made of.

    What a kernel is called in the cubin depends on its own text and options alone. Kernels of equal ones share it.
    """
    parts: dict[str, str] = {}
    entries = []
    for kernel in kernels:
        content = "\0".join([*kernel.options, kernel.text])
        entry = f"{kernel.header.entry}_{hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]}"
        entries.append(entry)
        parts[entry] = (
            f"#define {ENTRY_MACRO} {entry}\nnamespace of_{entry} {{\n{kernel.text}}}\n#undef {ENTRY_MACRO}\n"
        )
    return Unit("".join(parts.values()), tuple(entries))
