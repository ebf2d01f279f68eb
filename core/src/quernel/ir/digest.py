"""The digest of a module's content."""

from __future__ import annotations

import hashlib

from quernel.ir.nodes import Module
from quernel.ir.printer import print_module

__all__ = ["ir_digest"]


def ir_digest(module: Module) -> str:
    """SHA-256, as hexadecimal digits, of the module's text without the kernel's own name and without locations."""
    return hashlib.sha256(print_module(module, with_name=False).encode()).hexdigest()
