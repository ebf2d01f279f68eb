"""IR to C-family text: what OpenCL C, CUDA C++ and their like have in common, driven by a `Dialect`.

A backend brings a dialect (tables of types, qualifiers and builtins) and calls `generate`; the text that comes back is
readable, under the user's names, the same for the same content in every process, and ASCII. It goes with a map from its
lines to the user's, so that a toolchain's complaint can be shown where it belongs.
"""

from __future__ import annotations

from quernel.codegen.dialect import Dialect, Pointers
from quernel.codegen.generate import ENTRY_MACRO, GeneratedText, generate
from quernel.codegen.validation import shared_bytes, validate_block, validate_kernel

__all__ = [
    "ENTRY_MACRO",
    "Dialect",
    "GeneratedText",
    "Pointers",
    "generate",
    "shared_bytes",
    "validate_block",
    "validate_kernel",
]
