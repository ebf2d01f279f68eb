"""What type checkers see of the language's types: never imported when a program runs.

A checker reads a kernel as ordinary Python, in which `qn.f32` is a float, `qn.i32` an int, and `qn.Array[qn.f32]` an
array whose elements are floats. So a kernel type-checks like the function that it is.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar, final

__all__ = [
    "Array",
    "Array1",
    "Array2",
    "Array3",
    "Array4",
    "Const",
    "atomic",
    "bf16",
    "block",
    "boolean",
    "f16",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "random",
    "subgroup",
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


_Index: TypeAlias = int | tuple[int, ...]


@final
class _Atomic:
    """Operations on an element that no other thread can interrupt; each gives the old value."""

    def add(self, array: Array[T], index: _Index, value: T) -> T:
        """Adds."""
        return value

    def sub(self, array: Array[T], index: _Index, value: T) -> T:
        """Subtracts."""
        return value

    def min(self, array: Array[T], index: _Index, value: T) -> T:
        """Keeps the lesser."""
        return value

    def max(self, array: Array[T], index: _Index, value: T) -> T:
        """Keeps the greater."""
        return value

    def and_(self, array: Array[int], index: _Index, value: int) -> int:
        """Bitwise and."""
        return value

    def or_(self, array: Array[int], index: _Index, value: int) -> int:
        """Bitwise or."""
        return value

    def xor(self, array: Array[int], index: _Index, value: int) -> int:
        """Bitwise exclusive or."""
        return value

    def exchange(self, array: Array[T], index: _Index, value: T) -> T:
        """Replaces."""
        return value

    def cas(self, array: Array[T], index: _Index, expected: T, value: T) -> T:
        """Replaces where the element equals `expected`."""
        return value


class _Together:
    """What the threads of a block, and those of a subgroup, find out together."""

    def sum(self, value: T) -> T:
        """The sum over all threads."""
        return value

    def min(self, value: T) -> T:
        """The least value."""
        return value

    def max(self, value: T) -> T:
        """The greatest value."""
        return value

    def scan(self, value: T) -> T:
        """The sum of the threads up to and including this one."""
        return value

    def any(self, condition: float) -> bool:
        """Whether it holds in some thread."""
        return bool(condition)

    def all(self, condition: float) -> bool:
        """Whether it holds in every thread."""
        return bool(condition)


@final
class _Block(_Together):
    """Reductions and scans among the threads of a block."""


@final
class _Subgroup(_Together):
    """Operations among the threads of a subgroup."""

    def lane(self) -> int:
        """This thread's place in its subgroup."""
        return 0

    def id(self) -> int:
        """Its subgroup in the block."""
        return 0

    def size(self) -> int:
        """The threads of a subgroup."""
        return 0

    def shuffle(self, value: T, lane: int) -> T:
        """The value of another lane."""
        return value

    def shuffle_xor(self, value: T, mask: int) -> T:
        """The value of the lane whose number differs in these bits."""
        return value

    def shuffle_up(self, value: T, delta: int) -> T:
        """The value of a lane before this one."""
        return value

    def shuffle_down(self, value: T, delta: int) -> T:
        """The value of a lane after this one."""
        return value

    def broadcast(self, value: T, lane: int) -> T:
        """The value of one lane, to all."""
        return value

    def ballot(self, condition: float) -> int:
        """One bit per lane."""
        return int(condition)


@final
class _Random:
    """Random numbers that are functions of a seed and a counter."""

    def philox(self, seed: int, counter: int) -> tuple[int, int, int, int]:
        """Four u64 of Philox4x64-10."""
        return (seed, counter, 0, 0)


atomic: Final = _Atomic()
block: Final = _Block()
subgroup: Final = _Subgroup()
random: Final = _Random()
