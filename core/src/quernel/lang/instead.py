"""What to write for a name that means nothing in a kernel: of NumPy or CUDA, or one that stands somewhere else here."""

from __future__ import annotations

import builtins
import math
import os
import types
from difflib import get_close_matches
from typing import Final

import numpy as np

from quernel import intrinsics
from quernel.dtypes import BY_NAME, DType
from quernel.intrinsics import Intrinsic, Namespace
from quernel.lang.functions_of_values import FUNCTIONS

__all__ = [
    "OF_NUMPY",
    "instead_of_attribute",
    "instead_of_call",
    "instead_of_name",
    "instead_of_numpy",
    "is_of_a_library",
    "is_of_numpy",
]

_IN_CUDA: Final = {
    "grid": "qn.global_id()",
    "gridsize": "qn.global_dim()",
    "thread_id": "qn.local_id()",
    "thread_idx": "qn.local_id()",
    "threadIdx": "qn.local_id()",
    "block_idx": "qn.block_id()",
    "blockIdx": "qn.block_id()",
    "blockDim": "qn.block_dim()",
    "gridDim": "qn.grid_dim()",
    "laneid": "qn.subgroup.lane()",
    "warpsize": "qn.subgroup.size()",
    "syncthreads": "qn.barrier()",
    "local": "qn.private(shape, T)",
    "prange": "for k in range(…)",
}
"""Names that users of CUDA in Python know, and those of this language."""

_SAME_IN_MATH: Final = {
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctanh": "atanh",
    "deg2rad": "radians", "rad2deg": "degrees",
}  # fmt: skip
_OPERATORS: Final = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide true_divide", "//": "floor_divide",
    "%": "mod remainder", "**": "power float_power pow", "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor",
    "<<": "left_shift bitwise_left_shift", ">>": "right_shift bitwise_right_shift", "<": "less",
    "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal", "!=": "not_equal",
}  # fmt: skip

OF_NUMPY: Final = {
    **{name: f"math.{here}(x)" for name, here in _SAME_IN_MATH.items()},
    **{name: f"a {operator} b" for operator, names in _OPERATORS.items() for name in names.split()},
    **dict.fromkeys(("abs", "absolute"), "abs(x)"),
    **dict.fromkeys(("maximum", "fmax"), "max(a, b)"),
    **dict.fromkeys(("minimum", "fmin"), "min(a, b)"),
    **dict.fromkeys(("rint", "round", "around"), "qn.rint(x)"),
    **dict.fromkeys(("trunc", "fix"), "qn.trunc(x)"),
    **dict.fromkeys(("bitwise_not", "bitwise_invert", "invert"), "~x"),
    "arctan2": "math.atan2(a, b)",
    "bitwise_count": "qn.popcount(x)",
    "ceil": "qn.ceil(x)",
    "clip": "qn.clamp(x, a, b)",
    "divmod": "divmod(a, b)",
    "floor": "qn.floor(x)",
    "logical_and": "bool(a and b)",
    "logical_not": "not x",
    "logical_or": "bool(a or b)",
    "logical_xor": "bool(a) != bool(b)",
    "negative": "-x",
    "positive": "+x",
    "reciprocal": "1 / x",
    "sign": "(x > 0) - (x < 0)",
    "signbit": "math.copysign(1, x) < 0",
    "square": "x * x",
    "where": "a if c else b",
}
"""Functions of NumPy's elements that `math` has not under their name, as an expression of `x`, or of `a` and `b`."""

_OTHERWISE_WITH_NAN: Final = frozenset({"clip", "fmax", "fmin", "maximum", "minimum", "sign"})
"""Those of them that make something else of NaN."""

_ARRAYS: Final = frozenset(
    f"{made}{like}" for made in ("array", "empty", "full", "ones", "zeros") for like in ("", "_like")
)
_REDUCTIONS: Final = {
    **dict.fromkeys(("sum", "nansum"), "sum"),
    **dict.fromkeys(("max", "amax", "nanmax"), "max"),
    **dict.fromkeys(("min", "amin", "nanmin"), "min"),
    **dict.fromkeys(("cumsum", "cumulative_sum", "nancumsum"), "scan"),
    "any": "any",
    "all": "all",
}
_OWN_ARRAY: Final = "pass an array as an argument, or give each thread one of its own: `own = qn.private(shape, T)`"
_RANDOM: Final = "write `qn.random.philox(seed, counter)`, whose numbers are those of `np.random.Philox`"
_IN_MATH: Final = tuple(
    sorted(
        str(getattr(function, "__name__", ""))
        for function in FUNCTIONS
        if getattr(function, "__module__", None) == "math"
    )
)
_BUILTINS: Final = frozenset(
    {breakpoint, enumerate, len, print, range, zip}
    | {function for function in FUNCTIONS if getattr(function, "__module__", None) == "builtins"}
)
_FLOATS: Final = {"half": "f16", "single": "f32", "double": "f64"}


def _home_of(function: object) -> str:
    """The module where `function` is made; that of its object for a bound one, which may say none itself."""
    for owner in (function, getattr(function, "__self__", None), type(function)):
        module = getattr(owner, "__module__", None)
        if isinstance(module, str):
            return module
    return ""


def is_of_numpy(function: object) -> bool:
    """Whether `function` is one of NumPy's."""
    return isinstance(function, np.ufunc) or _home_of(function).partition(".")[0] == "numpy"


def is_of_a_library(function: types.FunctionType) -> bool:
    """Whether its source is not the user's to decorate: Python's own, or installed."""
    path = function.__code__.co_filename.replace("\\", "/")
    python = os.path.dirname(os.__file__).replace("\\", "/")
    return path.startswith(("<frozen ", f"{python}/")) or "/site-packages/" in path or "/dist-packages/" in path


def instead_of_numpy(name: str, function: object) -> str:
    """What to write for a call of NumPy's `function`, which the kernel calls `name`."""
    last = name.rpartition(".")[2]
    if _home_of(function).startswith("numpy.random"):
        return _RANDOM
    if last in OF_NUMPY:
        note = ", which makes something else of NaN" if last in _OTHERWISE_WITH_NAN else ""
        return f"write `{OF_NUMPY[last]}`{note}"
    if last in _IN_MATH:
        return f"use the scalar function: `math.{last}`"
    if last in _ARRAYS:
        return _OWN_ARRAY
    if last in _REDUCTIONS:
        return f"go through the array in a loop; `qn.block.{_REDUCTIONS[last]}(x)` joins what a block's threads have"
    if last in ("arange", "linspace"):
        return "loop over `range(…)`"
    if last in ("bincount", "histogram"):
        return "add to the array's elements: `qn.atomic.add(counts, k, 1)`"
    return "write what it does to one element, in a loop where it takes several; or call it before the launch"


def instead_of_call(function: object) -> str:
    """What to write for a call of `function`, which is neither of the language, nor of NumPy, nor the user's."""
    package = _home_of(function).partition(".")[0]
    if package == "random":
        return _RANDOM
    if package == "math":
        return "write a @qn.func of those of `math` that kernels have: " + ", ".join(_IN_MATH)
    return "use `math.…`, the functions of quernel, or a @qn.func"


def instead_of_attribute(owner: object, name: str) -> str:
    """What to write for an attribute `name` that a module, class or group of functions has not."""
    is_ours = getattr(owner, "global_id", None) is intrinsics.global_id
    if is_ours and name in _IN_CUDA:
        return f"write `{_IN_CUDA[name]}`"
    if is_ours and name in _ARRAYS:
        return _OWN_ARRAY
    is_of_language = is_ours or owner is math or isinstance(owner, Namespace)
    elsewhere = (_where_it_stands(name) or _in_a_group(name)) if is_of_language else None
    if elsewhere is not None:
        return f"write `{elsewhere}`"
    names = [each for each in dir(owner) if not each.startswith("_")]
    if is_ours:
        names = [each for each in names if isinstance(getattr(owner, each, None), Intrinsic | Namespace | DType)]
    near = get_close_matches(name, names, 1)
    return f"did you mean `{near[0]}`?" if near else "check the spelling"


def instead_of_name(name: str) -> str:
    """What to write for a name that is bound nowhere."""
    elsewhere = _where_it_stands(name) if len(name) > 1 else None  # `e` is rarely meant as a number
    return "define it, or check the spelling" if elsewhere is None else f"write `{elsewhere}`, or define `{name}`"


def _where_it_stands(name: str) -> str | None:
    """The function, type or constant that the language has by this name, as a kernel writes it."""
    if name in _IN_MATH or name in ("pi", "e", "tau", "inf", "nan"):
        return f"math.{name}"
    if any(getattr(builtins, name, None) is function for function in _BUILTINS):
        return name
    if isinstance(getattr(intrinsics, name, None), Intrinsic):
        return f"qn.{name}"
    short = _FLOATS.get(name) or name.replace("float", "f").replace("uint", "u").replace("int", "i")
    return f"qn.{short}" if short in BY_NAME else None


def _in_a_group(name: str) -> str | None:
    """The same, of what stands in a group: `add` or `atomic_add` is `qn.atomic.add`."""
    for group in (intrinsics.atomic, intrinsics.block, intrinsics.subgroup, intrinsics.random):
        member = name.removeprefix(f"{group.name}_")
        for each in (member, f"{member}_"):
            if isinstance(vars(group).get(each), Intrinsic):
                return f"qn.{group.name}.{each}"
    return None
