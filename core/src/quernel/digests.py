"""sha256 by the module in which CPython has it itself.

`hashlib` loads OpenSSL for its own, which takes 2 to 4 ms at the start of a process: a hundredth of a warm start. It is
ten times as fast on long content, so `sha256_of_much` is for megabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["sha256", "sha256_of_much"]

if TYPE_CHECKING:
    import hashlib
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256
    except ImportError:  # before Python 3.12
        try:
            from _sha256 import sha256
        except ImportError:  # a Python that was built without it
            from hashlib import sha256


def sha256_of_much(data: bytes) -> hashlib._Hash:
    """`hashlib`'s sha256."""
    import hashlib

    return hashlib.sha256(data)
