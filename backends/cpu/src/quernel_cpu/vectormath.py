"""The C library's vector mathematics (`libmvec` of glibc on x86-64): what is there, and under which names."""

from __future__ import annotations

import ctypes
from functools import cache

from quernel.capabilities import TargetInfo

__all__ = ["VECTOR_LIBRARY_FEATURE", "VECTOR_LIBRARY_FILE", "vector_functions", "vector_library"]

VECTOR_LIBRARY_FEATURE = "libmvec"
"""The header's flag of an artifact that calls the vector library."""

VECTOR_LIBRARY_FILE = "libmvec.so.1"

_OLDEST = frozenset({"sin", "cos", "exp", "log", "pow"})
_FUNCTIONS = _OLDEST | {
    *("tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("exp2", "expm1", "log2", "log10", "log1p", "cbrt", "erf", "erfc", "hypot"),
}
_OF_TWO = frozenset({"pow", "atan2", "hypot"})


@cache
def vector_library() -> str:
    """The vector mathematics of this machine: `libmvec-2.35`, the older `libmvec-2.22`, or `none`."""
    try:
        library = ctypes.CDLL(VECTOR_LIBRARY_FILE)
    except OSError:
        return "none"
    if hasattr(library, "_ZGVbN4v_erff"):
        return "libmvec-2.35"
    return "libmvec-2.22" if hasattr(library, "_ZGVbN4v_sinf") else "none"


def vector_functions(target: TargetInfo, features: frozenset[str], name: str) -> tuple[tuple[str, int], ...]:
    """Symbol and lanes of each vector form that the target's library has of a C function."""
    library = target.detail("vector_library", "none")
    function = name if name in _FUNCTIONS else name.removesuffix("f")
    if function not in (_FUNCTIONS if library == "libmvec-2.35" else _OLDEST if library == "libmvec-2.22" else ()):
        return ()
    classes = [("b", 16)]
    if "avx2" in features:
        classes.append(("d", 32))
    # The 512-bit forms of these two are slower than two of 256 bits.
    if "avx512f" in features and function not in ("sin", "cos"):
        classes.append(("e", 64))
    item_bytes = 8 if name == function else 4
    kinds = "vv" if function in _OF_TWO else "v"
    return tuple(
        (f"_ZGV{letter}N{width // item_bytes}{kinds}_{name}", width // item_bytes) for letter, width in classes
    )
