"""Element and parameter types: the scalars, vectors and structs of the language, and arrays of them.

Scalar types are singletons, so they compare by identity. Called on the host, a scalar type converts a value to a
NumPy scalar by the language's cast rules; called inside a kernel, it is a cast.
"""

from __future__ import annotations

import enum
import math
from typing import Any, Final, TypeVar

import numpy as np

from quernel.errors import KernelTypeError
from quernel.values import frozen

__all__ = [
    "BY_NAME",
    "NUMERIC",
    "SCALARS",
    "Array",
    "Array1",
    "Array2",
    "Array3",
    "Array4",
    "ArrayType",
    "Const",
    "ConstAnnotation",
    "DType",
    "DTypeKind",
    "ParameterType",
    "ScalarType",
    "StructField",
    "StructType",
    "ValueType",
    "VectorType",
    "bf16",
    "bool_",
    "dtype_of",
    "f16",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
]


class DTypeKind(enum.Enum):
    """The three kinds of value between which a local never changes, integers split by sign."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"


class DType:
    """A scalar type. One object per type; never made by users.

    Attributes:
        name: `f32`, `i64`, `bool`, …
        kind: bool, signed, unsigned or float.
        bits: width in bits (8 for bool, which is one byte in memory).
    """

    __slots__ = ("_numpy", "bits", "kind", "name")

    def __init__(self, name: str, kind: DTypeKind, bits: int, numpy_name: str | None) -> None:
        self.name = name
        self.kind = kind
        self.bits = bits
        self._numpy = np.dtype(numpy_name) if numpy_name is not None else None

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_named, (self.name,)

    def __quernel_identity__(self) -> object:
        return ("dtype", self.name)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    @property
    def alignment(self) -> int:
        """Bytes to which one element is aligned."""
        return self.bits // 8

    @property
    def is_bool(self) -> bool:
        """Whether this is `bool`."""
        return self.kind is DTypeKind.BOOL

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer (bool is not)."""
        return self.kind is DTypeKind.INT or self.kind is DTypeKind.UINT

    @property
    def is_signed(self) -> bool:
        """Whether this is a signed integer."""
        return self.kind is DTypeKind.INT

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type."""
        return self.kind is DTypeKind.FLOAT

    @property
    def min(self) -> int:
        """The least value of an integer type (0 for bool)."""
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def max(self) -> int:
        """The greatest value of an integer type (1 for bool)."""
        if self.is_bool:
            return 1
        return (1 << (self.bits - 1)) - 1 if self.is_signed else (1 << self.bits) - 1

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype with the same bytes.

        Raises:
            KernelTypeError: `bf16` without the package `ml_dtypes`.
        """
        if self._numpy is None:
            try:
                import ml_dtypes
            except ImportError:
                raise KernelTypeError(f"NumPy has no {self.name} of its own", fix="pip install ml_dtypes") from None
            self._numpy = np.dtype(ml_dtypes.bfloat16)
        return self._numpy

    def __call__(self, value: Any) -> Any:
        """`value` as a NumPy scalar of this type, by the language's cast rules (never raises on range)."""
        if isinstance(value, np.generic):
            value = value.item()
        if self.is_bool:
            return np.bool_(value != 0)
        if self.is_float:
            if isinstance(value, int):
                value = _float_of(value, rounds_again=self.bits < 64)
            with np.errstate(over="ignore"):
                # The package that brings bf16 goes from f64 by way of f32, which may round twice.
                return self.numpy.type(_f32_to_odd(value) if self.name == "bf16" else value)
        if isinstance(value, float):
            if math.isnan(value):
                value = 0
            elif math.isinf(value):
                value = self.max if value > 0 else self.min
            else:
                value = min(max(math.trunc(value), self.min), self.max)
        value = int(value) & ((1 << self.bits) - 1)
        if self.is_signed and value > self.max:
            value -= 1 << self.bits
        return self.numpy.type(value)


def _float_of(value: int, *, rounds_again: bool) -> float:
    """`value` as the nearest f64, or as one that rounds to a shorter type as `value` itself does.

    For that, its last bit says whether any of the bits that were cut off was set (rounding to odd).
    """
    cut = abs(value).bit_length() - 53
    if rounds_again and cut > 0:
        kept = abs(value) >> cut
        sticky = kept | (kept << cut != abs(value))
        value = (sticky << cut) * (1 if value > 0 else -1)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _f32_to_odd(value: float) -> np.float32:
    """`value` cut to an f32 whose last bit says whether anything was cut off, so that it rounds once more at most."""
    nearest = np.float32(value)
    if not np.isfinite(value) or float(nearest) == value:
        return nearest
    bits = int(nearest.view(np.uint32))
    if abs(float(nearest)) > abs(value):
        bits -= 1
    return np.uint32(bits | 1).view(np.float32)


bool_: Final = DType("bool", DTypeKind.BOOL, 8, "bool")
i8: Final = DType("i8", DTypeKind.INT, 8, "int8")
i16: Final = DType("i16", DTypeKind.INT, 16, "int16")
i32: Final = DType("i32", DTypeKind.INT, 32, "int32")
i64: Final = DType("i64", DTypeKind.INT, 64, "int64")
u8: Final = DType("u8", DTypeKind.UINT, 8, "uint8")
u16: Final = DType("u16", DTypeKind.UINT, 16, "uint16")
u32: Final = DType("u32", DTypeKind.UINT, 32, "uint32")
u64: Final = DType("u64", DTypeKind.UINT, 64, "uint64")
f16: Final = DType("f16", DTypeKind.FLOAT, 16, "float16")
bf16: Final = DType("bf16", DTypeKind.FLOAT, 16, None)
f32: Final = DType("f32", DTypeKind.FLOAT, 32, "float32")
f64: Final = DType("f64", DTypeKind.FLOAT, 64, "float64")

NUMERIC: Final = (i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
SCALARS: Final = (bool_, *NUMERIC)
BY_NAME: Final = {dtype.name: dtype for dtype in SCALARS}
_BY_NUMPY: Final = {dtype._numpy: dtype for dtype in SCALARS if dtype._numpy is not None}


def dtype_named(name: str) -> DType:
    """The scalar type called `name`."""
    return BY_NAME[name]


def dtype_of(value: Any) -> DType:
    """The scalar type that `value` names: a `DType`, a NumPy dtype or what makes one, `bool`, `int` or `float`.

    Raises:
        KernelTypeError: there is no such element type; byte-swapped ones are refused too.
    """
    if isinstance(value, DType):
        return value
    if value is int:
        return i64
    if value is float:
        return f64
    try:
        wanted = np.dtype(value)
    except TypeError:
        raise KernelTypeError(f"{value!r} is no element type", fix="use one of " + ", ".join(BY_NAME)) from None
    found = _BY_NUMPY.get(wanted)
    if found is not None:
        return found
    if wanted.name == "bfloat16":
        return bf16
    if not wanted.isnative and _BY_NUMPY.get(wanted.newbyteorder("=")) is not None:
        native = wanted.newbyteorder("=").name
        raise KernelTypeError(f"elements of {wanted.str} are byte-swapped", fix=f"convert them: .astype(np.{native})")
    raise KernelTypeError(f"NumPy dtype {wanted} is no element type", fix="use one of " + ", ".join(BY_NAME))


@frozen
class VectorType:
    """A vector of 2 or 4 scalars, one value of a thread, aligned to its size in memory."""

    element: DType
    length: int

    @property
    def itemsize(self) -> int:
        """Bytes of one vector."""
        return self.element.itemsize * self.length

    @property
    def alignment(self) -> int:
        """Bytes to which one vector is aligned."""
        return self.itemsize

    def __str__(self) -> str:
        return f"vec<{self.element.name}, {self.length}>"

    def __quernel_identity__(self) -> object:
        return ("vec", self.element, self.length)


@frozen
class StructField:
    """A field of a struct: its name, type and offset in bytes."""

    name: str
    type: DType | VectorType | StructType
    offset_bytes: int


@frozen
class StructType:
    """A struct of named fields at explicit offsets; in memory it is bytes."""

    name: str
    fields: tuple[StructField, ...]
    itemsize: int
    alignment: int

    def field(self, name: str) -> StructField | None:
        """The field called `name`, or `None`."""
        return next((field for field in self.fields if field.name == name), None)

    def __str__(self) -> str:
        return f"struct<{self.name}>"

    def __quernel_identity__(self) -> object:
        fields = tuple((field.name, field.type, field.offset_bytes) for field in self.fields)
        return ("struct", self.name, fields, self.itemsize, self.alignment)


ValueType = DType | VectorType | StructType
"""What one value of a thread, or one element of an array, may be."""


@frozen
class ScalarType:
    """The type of a parameter that takes one value. `weak`: a Python number, which adapts to what it meets."""

    dtype: ValueType
    weak: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}{' weak' if self.weak else ''}"


@frozen
class ArrayType:
    """The type of an array: element type and rank. As an annotation (`qn.Array[qn.f32]`) the rank may be open.

    `element` is `None` for a bare `qn.Array`, whose element type comes from the argument.
    """

    element: ValueType | None
    ndim: int | None = None

    def __str__(self) -> str:
        return f"array<{self.element}, {self.ndim if self.ndim is not None else '?'}>"


ParameterType = ScalarType | ArrayType
"""What a parameter of a specialized kernel may be; `Const` parameters are gone by then."""


@frozen
class ConstAnnotation:
    """`qn.Const` or `qn.Const[T]`: the argument's value is fixed when the kernel is compiled."""

    type: Any = None

    def __getitem__(self, item: Any) -> ConstAnnotation:
        return ConstAnnotation(item)

    def __quernel_identity__(self) -> object:
        return ("const", self.type)


@frozen
class _ArrayAnnotation:
    """The subscriptable names `Array` and `Array1` … `Array4`; alone they leave the element type open."""

    ndim: int | None = None

    def __getitem__(self, item: Any) -> ArrayType:
        if isinstance(item, VectorType | StructType):
            return ArrayType(item, self.ndim)
        if isinstance(item, TypeVar):
            return ArrayType(item, self.ndim)  # type: ignore[arg-type]  # Until the argument decides it.
        if isinstance(item, np.dtype) or "__attrs_attrs__" in getattr(item, "__dict__", ()):
            from quernel.structs import value_type_of

            return ArrayType(value_type_of(item), self.ndim)
        return ArrayType(dtype_of(item), self.ndim)

    def __quernel_identity__(self) -> object:
        return ("array", self.ndim)


Const: Any = ConstAnnotation()
Array: Any = _ArrayAnnotation()
Array1: Any = _ArrayAnnotation(1)
Array2: Any = _ArrayAnnotation(2)
Array3: Any = _ArrayAnnotation(3)
Array4: Any = _ArrayAnnotation(4)
