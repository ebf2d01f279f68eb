"""The names of the language that a kernel uses: indices, mathematical functions, markers, and device functions.

The frontend recognises these objects by identity. Functions of values also run on the host, with the same meaning, so
that a device function is an ordinary Python function too; what needs a thread raises there.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import types
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from quernel import geometry
from quernel.dtypes import Array, Array1, Array2, Array3, Array4, ArrayType, DType, StructType, VectorType, dtype_of
from quernel.errors import KernelTypeError, LaunchError
from quernel.kept import kept

__all__ = [
    "DeviceFunction",
    "Intrinsic",
    "Namespace",
    "atomic",
    "barrier",
    "bitcast",
    "block",
    "block_dim",
    "block_id",
    "cdiv",
    "ceil",
    "clamp",
    "clz",
    "ctz",
    "declared_by",
    "floor",
    "fma",
    "func",
    "global_dim",
    "global_id",
    "grid_dim",
    "local_id",
    "popcount",
    "private",
    "random",
    "rint",
    "rsqrt",
    "shared",
    "subgroup",
    "trunc",
    "uniform",
    "unroll",
    "vec",
]


class Intrinsic:
    """A function that the language knows by name.

    Attributes:
        name: its name below the package, for example `global_id` or `atomic.add`.
    """

    def __init__(self, name: str, doc: str, host: Callable[..., Any] | None = None) -> None:
        self.name = name
        self.__doc__ = doc
        self._host = host

    def __repr__(self) -> str:
        return f"quernel.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)

    def __quernel_identity__(self) -> object:
        return ("intrinsic", self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function on the host."""
        if self._host is None:
            raise LaunchError(
                f"{self.name} has a meaning only inside a kernel",
                fix="call it in a function under @qn.kernel or @qn.func, and launch that",
            )
        return self._host(*args, **kwargs)


class Namespace:
    """A group of intrinsics under one name, such as `atomic`."""

    def __init__(
        self, name: str, doc: str, members: dict[str, str], hosts: dict[str, Callable[..., Any]] | None = None
    ) -> None:
        self.name = name
        self.__doc__ = doc
        for member, member_doc in members.items():
            setattr(self, member, Intrinsic(f"{name}.{member}", member_doc, (hosts or {}).get(member)))

    def __getattr__(self, name: str) -> Intrinsic:
        raise AttributeError(f"quernel.{self.__dict__.get('name', '?')} has no {name!r}")

    def __repr__(self) -> str:
        return f"quernel.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)

    def __quernel_identity__(self) -> object:
        return ("intrinsic", self.name)


def _named(name: str) -> Any:
    value: Any = globals()
    first, *rest = name.split(".")
    value = value[first]
    for part in rest:
        value = getattr(value, part)
    return value


# --- what the functions of values do on the host ----------------------------------------------------------------------


def _integer_of(value: Any, name: str) -> tuple[int, DType]:
    if isinstance(value, np.integer):
        return int(value), dtype_of(value.dtype)
    if isinstance(value, int) and not isinstance(value, bool):
        return value, dtype_of(int)
    raise KernelTypeError(f"{name} takes an integer, not a {type(value).__name__}", fix="cast it, or use qn.bitcast")


def _popcount(x: Any) -> Any:
    value, dtype = _integer_of(x, "popcount")
    return _like(x, (value & ((1 << dtype.bits) - 1)).bit_count())


def _clz(x: Any) -> Any:
    value, dtype = _integer_of(x, "clz")
    return _like(x, dtype.bits - (value & ((1 << dtype.bits) - 1)).bit_length())


def _ctz(x: Any) -> Any:
    value, dtype = _integer_of(x, "ctz")
    bits = value & ((1 << dtype.bits) - 1)
    return _like(x, (bits & -bits).bit_length() - 1 if bits else dtype.bits)


def _like(x: Any, result: Any) -> Any:
    return type(x)(result) if isinstance(x, np.generic) else result


def _bitcast(x: Any, dtype: Any) -> Any:
    target = dtype_of(dtype)
    value = x if isinstance(x, np.generic) else dtype_of(type(x))(x)
    if value.dtype.itemsize != target.itemsize:
        raise KernelTypeError(
            f"a bitcast of {8 * value.dtype.itemsize} bits to {target}, which has {target.bits}",
            fix="cast to a type of the same width first",
        )
    return value.view(target.numpy)


def _fma(a: Any, b: Any, c: Any) -> Any:
    """Exact by rational arithmetic, then rounded once to the widest type among the operands."""
    typed = [x.dtype for x in (a, b, c) if isinstance(x, np.floating)]
    dtype = np.result_type(*typed) if typed else np.dtype(np.float64)
    value = _fused(float(a), float(b), float(c), is_odd=dtype != np.float64)
    if not typed:
        return value
    with np.errstate(over="ignore"):
        return dtype.type(value)


def _fused(a: float, b: float, c: float, *, is_odd: bool) -> float:
    """`a * b + c` rounded to nearest; or, inexact, to odd, so that rounding it again to a narrower type is right."""
    from fractions import Fraction

    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c if a * b == 0 else 0.0
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    if not is_odd or Fraction(nearest) == exact:
        return nearest
    toward_zero = nearest if abs(Fraction(nearest)) < abs(exact) else math.nextafter(nearest, 0.0)
    is_already_odd = int(math.frexp(toward_zero)[0] * 2**53) % 2 == 1
    return toward_zero if is_already_odd else math.nextafter(toward_zero, math.copysign(math.inf, nearest))


def _rsqrt(x: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(x)
        return type(root)(1) / root if isinstance(x, np.generic) else float(1.0 / root)


def _keeps_float(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def host(x: Any) -> Any:
        result = function(x)
        return result if isinstance(x, np.generic) else float(result)

    return host


def _clamp(x: Any, low: Any, high: Any) -> Any:
    return min(max(x, low), high)


def _unroll(iterable: range) -> range:
    return iterable


def _uniform(x: Any) -> Any:
    return x


def _vec(element: Any, length: int) -> VectorType:
    from quernel.structs import vec as vector_type

    return vector_type(element, length)


def _philox(seed: Any, counter: Any) -> tuple[np.uint64, ...]:
    """NumPy's own, which counts up before it draws."""
    mask = (1 << 64) - 1
    before = ((int(counter) & mask) - 1) % (1 << 256)
    drawn = np.random.Philox(key=int(seed) & mask, counter=before).random_raw(4)
    return tuple(drawn)


# --- the names --------------------------------------------------------------------------------------------------------

global_id: Final = Intrinsic(
    "global_id", "The index of this thread in the launch: an int in 1-D or with an axis, else a tuple."
)
local_id: Final = Intrinsic("local_id", "The index of this thread in its block.")
block_id: Final = Intrinsic("block_id", "The index of this thread's block in the grid.")
global_dim: Final = Intrinsic("global_dim", "The number of threads of the launch; under `over`, the extent.")
block_dim: Final = Intrinsic("block_dim", "The number of threads of a block.")
grid_dim: Final = Intrinsic("grid_dim", "The number of blocks of the grid.")

cdiv: Final = Intrinsic("cdiv", "`a / b` of integers, rounded up, for positive `b`.", geometry.cdiv)
unroll: Final = Intrinsic("unroll", "In `for k in qn.unroll(range(…))`, the body is written out once per `k`.", _unroll)
uniform: Final = Intrinsic("uniform", "A promise that `x` is the same in every thread of a block.", _uniform)

vec: Final = Intrinsic("vec", "The type of vectors of 2 or 4 scalars: `qn.vec(qn.f32, 4)`.", _vec)

shared: Final = Intrinsic("shared", "An uninitialised array that the threads of a block share.")
private: Final = Intrinsic("private", "An uninitialised array of one thread.")
barrier: Final = Intrinsic("barrier", "Every thread of the block arrives before any goes on.")

fma: Final = Intrinsic("fma", "`a * b + c` of floats, rounded once.", _fma)
rsqrt: Final = Intrinsic("rsqrt", "`1 / sqrt(x)`.", _rsqrt)
clamp: Final = Intrinsic("clamp", "`min(max(x, low), high)`.", _clamp)
bitcast: Final = Intrinsic("bitcast", "The bits of `x` as another type of the same width.", _bitcast)
popcount: Final = Intrinsic("popcount", "The number of ones among the bits of an integer.", _popcount)
clz: Final = Intrinsic("clz", "The number of leading zeros of an integer; its width for 0.", _clz)
ctz: Final = Intrinsic("ctz", "The number of trailing zeros of an integer; its width for 0.", _ctz)
rint: Final = Intrinsic("rint", "`x` to the nearest integer, ties to even, in its float type.", _keeps_float(np.rint))
floor: Final = Intrinsic("floor", "`x` rounded down, in its float type.", _keeps_float(np.floor))
ceil: Final = Intrinsic("ceil", "`x` rounded up, in its float type.", _keeps_float(np.ceil))
trunc: Final = Intrinsic("trunc", "`x` rounded towards zero, in its float type.", _keeps_float(np.trunc))

_OLD: Final = "; gives the old value. Relaxed, across the device."
atomic: Final[Any] = Namespace(
    "atomic",
    "Operations on an element of an array that no other thread can interrupt: `atomic.add(a, index, value)`.",
    {
        "add": "Adds" + _OLD,
        "sub": "Subtracts" + _OLD,
        "min": "Keeps the lesser" + _OLD,
        "max": "Keeps the greater" + _OLD,
        "and_": "Bitwise and" + _OLD,
        "or_": "Bitwise or" + _OLD,
        "xor": "Bitwise exclusive or" + _OLD,
        "exchange": "Replaces" + _OLD,
        "cas": "Replaces where the element equals what is expected" + _OLD,
    },
)
subgroup: Final[Any] = Namespace(
    "subgroup",
    "Operations among the threads of a subgroup.",
    {
        name: f"`{name}` among the threads of a subgroup."
        for name in (
            [
                "lane",
                "id",
                "size",
                "shuffle",
                "shuffle_xor",
                "shuffle_up",
                "shuffle_down",
                "broadcast",
                "ballot",
                "any",
                "all",
                "sum",
                "min",
                "max",
                "scan",
            ]
        )
    },
)
block: Final[Any] = Namespace(
    "block",
    "Reductions and scans among the threads of a block.",
    {name: f"`{name}` among the threads of a block." for name in ["sum", "min", "max", "any", "all", "scan"]},
)
random: Final[Any] = Namespace(
    "random",
    "Random numbers that are functions of a seed and a counter.",
    {
        "philox": "Four u64 of Philox4x64-10, those of `np.random.Philox(key=seed, counter=counter - 1).random_raw(4)`:"
        " `counter` is the block that is drawn, and NumPy counts up before it draws."
    },
    {"philox": _philox},
)


_ONLY_OF_KERNELS: Final = frozenset({"over", "options", "specialize", "writes"})
_LAUNCH_A_KERNEL: Final = "call it in a kernel; or decorate it with @qn.kernel, and have it write to an array"


class DeviceFunction:
    """A function that kernels, and other device functions, may call; on the host it is the Python function.

    It is generic: each combination of argument types that a kernel uses is compiled for itself.
    """

    def __init__(self, function: types.FunctionType) -> None:
        self.__quernel_function__ = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The Python function's own result."""
        return self.__quernel_function__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Refuses; what only kernels have, with what to do."""
        shown = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name not in _ONLY_OF_KERNELS:
            raise AttributeError(shown, name=name, obj=self)
        raise AttributeError(f"{shown}: {self._is_called}\n  fix: {_LAUNCH_A_KERNEL}", name=name, obj=self)

    def __getitem__(self, key: object) -> Any:
        """Refuses: only kernels are launched on a grid.

        Raises:
            KernelTypeError: always.
        """
        raise KernelTypeError(self._is_called, fix=_LAUNCH_A_KERNEL)

    @property
    def _is_called(self) -> str:
        return f"{self.__quernel_function__.__name__} is a device function, which kernels call; it is not launched"

    def __repr__(self) -> str:
        return f"<device function {self.__quernel_function__.__qualname__}>"

    def __reduce__(self) -> str:
        return self.__quernel_function__.__qualname__

    def __quernel_identity__(self) -> object:
        return ("func", tuple((name, _described(declared)) for name, declared in self.declared.items()))

    @kept
    def declared(self) -> dict[str, Any]:
        """What the annotations of its parameters declare."""
        return declared_by(self.__quernel_function__)


def declared_by(function: types.FunctionType) -> dict[str, Any]:
    """The types, classes and type variables that the annotations of a function's parameters declare, by name.

    Python's own `bool`, `int` and `float` declare nothing, and neither does what is no type of the language. An
    annotation that `from __future__ import annotations` left as text is read in the scope of the function.
    """
    found = {}
    for name, annotation in function.__annotations__.items():
        declared = _declared(function, annotation)
        if declared is not None and name != "return":
            found[name] = declared
    return found


def _described(declared: Any) -> str:
    """A declaration in words that tell it from any other."""
    if isinstance(declared, TypeVar):
        return f"{declared}: {declared.__bound__} {declared.__constraints__}"
    if isinstance(declared, type):
        from quernel.structs import fields_of

        return f"{declared.__name__}({', '.join(f'{name}: {of}' for name, of in fields_of(declared))})"
    return str(declared)


def _declared(function: types.FunctionType, annotation: Any) -> Any:
    for _ in range(2):  # One that was quoted already is quoted twice under `from __future__ import annotations`.
        if isinstance(annotation, str):
            annotation = _read_annotation(function, annotation)
    if isinstance(annotation, DType | VectorType | StructType | ArrayType | TypeVar):
        return annotation
    if annotation in (Array, Array1, Array2, Array3, Array4):
        return ArrayType(None, annotation.ndim)
    if annotation is None or annotation in (bool, int, float) or isinstance(annotation, str):
        return None
    if isinstance(annotation, type) and "__attrs_attrs__" in vars(annotation):
        return annotation
    try:
        return dtype_of(annotation)
    except KernelTypeError:
        return None


def _read_annotation(function: types.FunctionType, text: str) -> Any:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    enclosing = {}
    for name, cell in cells:
        with contextlib.suppress(ValueError):
            enclosing[name] = cell.cell_contents
    try:
        return eval(text, {**vars(builtins), **function.__globals__}, enclosing)
    except Exception:  # An annotation may be any text; one that cannot be read declares nothing.
        return None


P = ParamSpec("P")
R = TypeVar("R")


def func(function: Callable[P, R]) -> Callable[P, R]:
    """Makes `function` callable from kernels. Use it as the decorator `@qn.func`.

    Gives a `DeviceFunction`, which type checkers see as the function that it was.

    Raises:
        KernelTypeError: it is not a function written with `def`.
    """
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        raise KernelTypeError(
            f"@qn.func got {function!r}, which is not a function written with def",
            fix="write a function with def, and put @qn.func above it as the only decorator",
        )
    return DeviceFunction(function)
