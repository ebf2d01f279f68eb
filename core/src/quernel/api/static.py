"""What type checkers see of the language's types: never imported when a program runs.

A checker reads a kernel as ordinary Python, in which `qn.f32` is a float, `qn.i32` an int, and `qn.Array[qn.f32]` an
array whose elements are floats. So a kernel type-checks like the function that it is.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeAlias, TypeVar

__all__ = [
    "Array",
    "Array1",
    "Array2",
    "Array3",
    "Array4",
    "Const",
    "bf16",
    "boolean",
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

T = TypeVar("T")

boolean: TypeAlias = bool
i8: TypeAlias = int
i16: TypeAlias = int
i32: TypeAlias = int
i64: TypeAlias = int
u8: TypeAlias = int
u16: TypeAlias = int
u32: TypeAlias = int
u64: TypeAlias = int
f16: TypeAlias = float
bf16: TypeAlias = float
f32: TypeAlias = float
f64: TypeAlias = float

Const = Annotated[T, "fixed when the kernel is compiled"]


class Array(Generic[T]):
    """An array as the code of a kernel sees it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The length along each axis."""
        return ()

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return 0

    @property
    def dtype(self) -> Any:
        """The element type, which also converts to it."""
        return None

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: int | tuple[int, ...]) -> T:
        raise IndexError(index)

    def __setitem__(self, index: int | tuple[int, ...], value: T) -> None:
        raise IndexError(index)


class Array1(Array[T]):
    """An array of one axis."""


class Array2(Array[T]):
    """An array of two axes."""


class Array3(Array[T]):
    """An array of three axes."""


class Array4(Array[T]):
    """An array of four axes."""
