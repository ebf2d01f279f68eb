"""Basic indexing of a strided array, worked out on its shape and strides alone."""

from __future__ import annotations

import operator
from typing import Any

from quernel.errors import KernelTypeError, OutOfBoundsError

__all__ = ["view_of"]

Strided = tuple[int, tuple[int, ...], tuple[int, ...]]


def view_of(key: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Strided:
    """Offset in bytes, shape and strides of `array[key]`: integers, slices of any step, `...` and `None`.

    Raises:
        OutOfBoundsError: an integer outside its axis, or more indices than axes.
        KernelTypeError: a key of another kind, such as an array or a mask.
    """
    keys = key if isinstance(key, tuple) else (key,)
    for part in keys:
        if isinstance(part, str):
            raise KernelTypeError(
                f"a device array has no views of its fields, and {part!r} is none of its indices",
                fix=f"read array.numpy()[{part!r}]; fields are written in kernels",
            )
    num_axes = sum(1 for part in keys if part is not None and part is not Ellipsis)
    num_ellipses = sum(1 for part in keys if part is Ellipsis)
    if num_axes > len(shape):
        raise OutOfBoundsError(f"{num_axes} indices for an array of shape {shape}", fix=f"give at most {len(shape)}")
    if num_ellipses > 1:
        raise OutOfBoundsError("an index may hold one '...' only", fix="leave the others out")
    if not num_ellipses:
        keys = (*keys, Ellipsis)
    offset = 0
    lengths: list[int] = []
    steps: list[int] = []
    axis = 0
    for part in keys:
        if part is None:
            lengths.append(1)
            steps.append(0)
        elif part is Ellipsis:
            skipped = len(shape) - num_axes
            lengths.extend(shape[axis : axis + skipped])
            steps.extend(strides[axis : axis + skipped])
            axis += skipped
        elif isinstance(part, slice):
            start, stop, step = part.indices(shape[axis])
            length = len(range(start, stop, step))
            offset += start * strides[axis] if length else 0
            lengths.append(length)
            steps.append(step * strides[axis])
            axis += 1
        else:
            offset += _position(part, shape[axis], axis) * strides[axis]
            axis += 1
    return offset, tuple(lengths), tuple(steps)


def _position(part: Any, length: int, axis: int) -> int:
    try:
        if isinstance(part, bool):
            raise TypeError
        index = operator.index(part)
    except TypeError:
        raise KernelTypeError(
            f"a device array takes integers and slices as indices, not {type(part).__name__}",
            fix="index the NumPy array that .numpy() gives",
        ) from None
    if not -length <= index < length:
        raise OutOfBoundsError(f"index {index} is outside axis {axis} of length {length}", fix="use a smaller index")
    return index + length if index < 0 else index
